use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use taut_link::clock;
use taut_time::Duration;

/// So long a line waits for who reads it. After that it is lost: what measures must not wait.
const PATIENCE: Duration = Duration::from_secs(1);
/// A pipe that can be written to has room for as much (PIPE_BUF, pipe(7)).
const PIPE_ROOM: usize = 4096;
const STDOUT: &str = "stdout";

/// Lines appended to a file, a pipe or stdout. One that can't be written is lost, told and counted; the next is tried
/// again, and never stands on what is left of a broken one.
#[derive(Debug)]
pub(super) struct Lines {
    file: File,
    name: String,
    lost: u64,
    is_failing: bool,
    /// Stdout, whose reader never comes back.
    is_gone: bool,
    /// The last line broke off, and what there was of it could not be taken back.
    is_torn: bool,
}

impl Lines {
    /// `-` is stdout.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let mut is_torn = false;
        let (file, name) = if path.as_os_str() == "-" {
            let stdout = io::stdout().as_fd().try_clone_to_owned().context("stdout")?;
            (File::from(stdout), STDOUT.to_owned())
        } else {
            let name = path.display().to_string();
            // A pipe without a reader is an error, and no reason to wait.
            let flags = OFlags::NONBLOCK.bits().cast_signed();
            let open = OpenOptions::new().create(true).append(true).custom_flags(flags).open(path);
            let file = open.with_context(|| format!("open {name}"))?;
            // One that was killed may have left half a line.
            is_torn = file.metadata().is_ok_and(|about| about.is_file()) && !ends_with_a_line(path).unwrap_or(true);
            (file, name)
        };
        Ok(Self { file, name, lost: 0, is_failing: false, is_gone: false, is_torn })
    }

    /// Whether nobody will read any more.
    pub(super) const fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Lines that could not be written.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Writes a line, with its end.
    pub(super) fn write(&mut self, line: &str) {
        let whole = if self.is_torn { format!("\n{line}") } else { line.to_owned() };
        let mut written = 0;
        match self.write_all(whole.as_bytes(), &mut written) {
            Ok(()) => {
                self.is_torn = false;
                if std::mem::take(&mut self.is_failing) {
                    anstream::eprintln!("taut: {} takes lines again; {} lost", self.name, self.lost);
                }
            }
            Err(error) => {
                self.is_torn |= written > 0 && !self.take_back(written);
                self.lost += 1;
                self.is_gone |= self.name == STDOUT && error.kind() == ErrorKind::BrokenPipe;
                // Once for each time that it begins.
                if !std::mem::replace(&mut self.is_failing, true) {
                    anstream::eprintln!(
                        "taut: write to {}: {error}; its lines are lost until it takes them",
                        self.name
                    );
                }
            }
        }
    }

    fn write_all(&mut self, bytes: &[u8], written: &mut usize) -> io::Result<()> {
        let deadline = clock::now() + PATIENCE;
        // A file takes a line at once, so that several programs may write to one.
        let room = if self.file.metadata().is_ok_and(|about| about.is_file()) { usize::MAX } else { PIPE_ROOM };
        while *written < bytes.len() {
            let left = deadline.saturating_since(clock::now());
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match rustix::event::poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], Some(&left)) {
                Ok(0) => return Err(io::Error::new(ErrorKind::TimedOut, "nobody reads it")),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let end = bytes.len().min(written.saturating_add(room));
            match self.file.write(&bytes[*written..end]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(more) => *written += more,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Cuts off what was written last, if it is a file and nobody has written since. Whether it did.
    fn take_back(&mut self, written: usize) -> bool {
        let Ok(about) = self.file.metadata() else { return false };
        let is_last = about.is_file() && self.file.stream_position().is_ok_and(|at| at == about.len());
        let before = about.len().saturating_sub(written as u64);
        is_last && self.file.set_len(before).is_ok() && self.file.seek(SeekFrom::Start(before)).is_ok()
    }
}

fn ends_with_a_line(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_full_disk_loses_lines_and_counts_them() {
        let mut lines = Lines::open(Path::new("/dev/full")).unwrap();
        lines.write("one\n");
        lines.write("two\n");
        assert_eq!((lines.lost(), lines.is_torn), (2, false));
    }

    #[test]
    fn lines_are_appended_and_half_a_line_is_taken_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        std::fs::write(&path, "before\n").unwrap();
        let mut lines = Lines::open(&path).unwrap();
        lines.write("one\n");
        lines.file.write_all(b"hal").unwrap();
        assert!(lines.take_back(3));
        lines.write("two\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before\none\ntwo\n");
        // Not what another one wrote.
        lines.file.write_all(b"hal").unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"theirs\n").unwrap();
        assert!(!lines.take_back(3));
    }

    #[test]
    fn half_a_line_of_one_that_was_killed_does_not_break_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        for (before, after) in [("one\nhal", "one\nhal\ntwo\n"), ("one\n", "one\ntwo\n"), ("", "two\n")] {
            std::fs::write(&path, before).unwrap();
            Lines::open(&path).unwrap().write("two\n");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
        }
    }

    /// A reader that stands still loses lines, and nobody waits for it; the first line after that is whole.
    #[test]
    fn a_pipe_that_is_full_loses_lines_and_the_next_begins_anew() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut reader = File::from(reader);
        let (file, name) = (File::from(writer), "pipe".to_owned());
        let mut lines = Lines { file, name, lost: 0, is_failing: false, is_gone: false, is_torn: false };
        let long = format!("{}\n", "x".repeat(50_000));
        (0..3).for_each(|_| lines.write(&long));
        assert_eq!((lines.lost(), lines.is_torn), (2, true));
        let mut taken = vec![0; 1 << 20];
        let mut read = reader.read(&mut taken).unwrap();
        lines.write("after\n");
        drop(lines);
        while let Ok(more @ 1..) = reader.read(&mut taken[read..]) {
            read += more;
        }
        let text = String::from_utf8(taken[..read].to_vec()).unwrap();
        assert!(text.starts_with(&long) && text.ends_with("x\nafter\n"), "{}", text.len());
    }

    #[test]
    fn a_reader_that_has_gone_is_told_and_counted() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        let (file, name) = (File::from(writer), "pipe".to_owned());
        let mut lines = Lines { file, name, lost: 0, is_failing: false, is_gone: false, is_torn: false };
        lines.write("one\n");
        assert_eq!((lines.lost(), lines.is_failing, lines.is_torn), (1, true, false));
    }

    #[test]
    fn a_pipe_without_a_reader_is_an_error_and_does_not_wait() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        let error = Lines::open(&path).unwrap_err();
        assert!(format!("{error:#}").contains("fifo"), "{error:#}");
    }
}
