//! Where results go: a table or JSON on stdout, HTML and traces into files.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::{env, fs};

use anstream::AutoStream;
use anyhow::Context;
use clap::builder::{OsStringValueParser, TypedValueParser};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::Access;
pub(crate) use taut_event::printable;
use taut_event::steers;
use taut_link::Fault;
use taut_record::Ended;
use taut_report::table::Style;
use taut_report::{Document, html, perfetto, table};
use taut_time::Timeline;

use crate::exit::{self, Code};
use crate::run::Run;

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a self-contained HTML report
    #[arg(long, value_name = "FILE", value_parser = out_file())]
    pub(crate) html: Option<PathBuf>,
}

impl OutputArgs {
    /// Prints the document and writes the files asked for; the exit code that its end stands for.
    pub(crate) fn emit(&self, document: &Document) -> anyhow::Result<Code> {
        self.emit_as(document, || table::render(document, style()))
    }

    /// The same with a text of its own instead of the tables.
    pub(crate) fn emit_as(&self, document: &Document, text: impl FnOnce() -> String) -> anyhow::Result<Code> {
        let page = self.html.as_deref().map_or(Ok(()), |path| write_file(path, &html::render(document)));
        let text = if self.json { printable_json(&document.to_json()) } else { text() };
        let printed = print(&text);
        page?;
        printed?;
        Ok(match &document.recording.ended {
            Ended::Complete => Code::Ok,
            Ended::Interrupted => Code::Interrupted,
            Ended::PeerGone(_) | Ended::Failed(_) => Code::Failed,
        })
    }

    /// A run that failed before it had a figure. Whoever reads JSON gets a document even so, which
    /// says how it ended and has no results; all others get the message.
    ///
    /// # Errors
    /// Always the error given, unless the document can't be printed.
    pub(crate) fn emit_nothing_measured(&self, run: Run, error: taut_link::Error) -> anyhow::Result<Code> {
        if self.json && error.fault() != Fault::Input {
            let ended = Ended::Failed(error.to_string());
            print(&Document::new(run.finish(ended, Vec::new()), Vec::new()).to_json())?;
        }
        Err(error.into())
    }
}

/// So many stretches of who held the data are drawn; the viewer takes a few seconds to open them.
pub(crate) const SPANS: usize = 200_000;
/// Where only a page draws them: it has them as text, some 35 bytes each.
pub(crate) const PAGE_SPANS: usize = 50_000;

/// Parses the name of a file to be written. `-` is refused, since stdout has the text or the JSON already, and so is
/// what can't be written: that is not to be found out when all is measured.
pub(crate) fn out_file() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|name| match name.to_str() {
        Some("-") => Err(NO_STDOUT.to_owned()),
        _ => may_write(PathBuf::from(name)),
    })
}

/// The same without a look at the place, which may be made only then.
pub(crate) fn out_file_anywhere() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|name| match name.to_str() {
        Some("-") => Err(NO_STDOUT),
        _ => Ok(PathBuf::from(name)),
    })
}

/// Parses the name of a directory for files, which has to be there: also that is not to be found out at the end.
pub(crate) fn out_directory() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|name| {
        let path = PathBuf::from(name);
        if !path.is_dir() {
            return Err(format!("there is no directory {}", shown(&path)));
        }
        match rustix::fs::access(&path, Access::WRITE_OK | Access::EXEC_OK) {
            Ok(()) => Ok(path),
            Err(error) => Err(format!("{} can't be written to: {error}", shown(&path))),
        }
    })
}

const NO_STDOUT: &str = "stdout has the results as text or JSON: name a file";

fn may_write(path: PathBuf) -> Result<PathBuf, String> {
    let is_no_file = path.as_os_str().is_empty() || path.as_os_str().as_bytes().ends_with(b"/");
    if is_no_file || path.is_dir() {
        return Err("it is a directory, or no name: name a file".to_owned());
    }
    let place = followed(&path);
    let directory = place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let (place, access) = match path.exists() {
        true => (path.as_path(), Access::WRITE_OK),
        false if !directory.is_dir() => return Err(format!("there is no directory {}", shown(directory))),
        false => (directory, Access::WRITE_OK | Access::EXEC_OK),
    };
    match rustix::fs::access(place, access) {
        Ok(()) => Ok(path),
        Err(error) => Err(format!("{} can't be written to: {error}", shown(place))),
    }
}

/// Lines as they may be printed: what steers a terminal is written out, but for their ends.
pub(crate) fn printable_lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(printable).collect();
    lines.join("\n")
}

/// JSON as it may be printed: the same values, with what steers a terminal written out.
pub(crate) fn printable_json(json: &str) -> String {
    json.chars().fold(String::with_capacity(json.len()), |mut printable, c| {
        // Only strings can hold it, and none of it is beyond four digits; lines end between values alone.
        if c != '\n' && steers(c) {
            printable.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            printable.push(c);
        }
        printable
    })
}

/// A path as it may be printed.
pub(crate) fn shown(path: &Path) -> String {
    printable(&path.display().to_string())
}

/// The message of an error, which may name files and hosts and have several lines.
pub(crate) fn message(error: &anyhow::Error) -> String {
    printable_lines(&format!("{error:#}"))
}

/// Writes timelines for ui.perfetto.dev.
pub(crate) fn write_perfetto(path: &Path, timelines: &[(String, &Timeline)]) -> anyhow::Result<()> {
    write_file(path, &perfetto::render(timelines))
}

/// How tables look on this stdout: NO_COLOR, CLICOLOR and terminals are honoured, and COLUMNS where there is none.
pub(crate) fn style() -> Style {
    let stdout = io::stdout();
    let colour = AutoStream::choice(&stdout) != anstream::ColorChoice::Never;
    let terminal = rustix::termios::tcgetwinsize(&stdout).ok().map(|size| size.ws_col);
    let width = terminal.or_else(|| env::var("COLUMNS").ok()?.parse().ok()).filter(|&columns| columns > 0);
    Style { colour, width }
}

/// A text whose lines fit this stdout.
pub(crate) fn fitted(make: impl FnOnce() -> String) -> String {
    taut_report::within(style().width, make)
}

pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("write to stdout")
}

/// Prints, but gives up on a reader that stands still for two seconds once `is_over`.
pub(crate) fn print_until(text: &str, is_over: impl Fn() -> bool) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    let tenth = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    // A pipe that can be written to has room for as much (PIPE_BUF, pipe(7)).
    for part in text.as_bytes().chunks(4096) {
        let mut waited = 0;
        while rustix::event::poll(&mut [PollFd::new(&stdout, PollFlags::OUT)], Some(&tenth)) == Ok(0) {
            waited += u32::from(is_over());
            anyhow::ensure!(waited < 20, "nobody reads our stdout, and the last counters are not printed");
        }
        stdout.write_all(part).and_then(|()| stdout.flush()).context("write to stdout")?;
    }
    Ok(())
}

/// Whether something was written; an error is said, and is no reason to stop. That a reader of stdout went away is
/// none.
pub(crate) fn is_done(written: anyhow::Result<()>) -> bool {
    let error = written.err().filter(|error| !exit::is_broken_pipe(error));
    if let Some(error) = &error {
        anstream::eprintln!("taut: {}", message(error));
    }
    error.is_none()
}

/// Refuses outputs, each with its option, that would overwrite what is read (`-` is standard input) or each other.
pub(crate) fn spare(inputs: &[&Path], outputs: &[(&str, Option<&Path>)]) -> anyhow::Result<()> {
    // A file that is not there yet is known by its directory and its name.
    let place = |path: &Path| {
        let directory = path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
        let known = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        known(path).map(|at| (at, None)).or_else(|| Some((known(directory?)?, path.file_name().map(ToOwned::to_owned))))
    };
    // Nothing is written over in /dev/null or a terminal.
    let is_device = |path: &Path| fs::metadata(path).is_ok_and(|about| about.file_type().is_char_device());
    let is_same = |one: &Path, other: &Path| {
        let (one, other) = (followed(one), followed(other));
        !is_device(&one) && (one == other || place(&one).is_some_and(|at| place(&other) == Some(at)))
    };
    let wrong = |text: String| Err(taut_link::Error::Input(text).into());
    let outputs: Vec<(&str, &Path)> = outputs.iter().filter_map(|(option, path)| Some((*option, (*path)?))).collect();
    for (index, &(option, out)) in outputs.iter().enumerate() {
        let piped = Path::new("/dev/stdin");
        let mut inputs = inputs.iter().map(|file| if file.as_os_str() == "-" { piped } else { file });
        if inputs.any(|input| is_same(out, input)) {
            return wrong(format!("{} is read, and {option} would write over it", out.display()));
        }
        if let Some((other, _)) = outputs[..index].iter().find(|(_, other)| is_same(out, other)) {
            return wrong(format!("{other} and {option} name the same file"));
        }
    }
    Ok(())
}

/// Where links lead, which may be nowhere yet: as many of them as the kernel follows (path_resolution(7)).
fn followed(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..40 {
        let Ok(to) = fs::read_link(&path) else { break };
        path = path.parent().map_or_else(|| to.clone(), |parent| parent.join(&to));
    }
    path
}

/// Creates what is written to at the end of something that can't be repeated; what is in it stays until then.
pub(crate) fn make_sure(path: &Path) -> anyhow::Result<()> {
    let opened = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path);
    opened.map(drop).with_context(|| format!("write {}", path.display()))
}

pub(crate) fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_written_out() {
        let error = anyhow::anyhow!("line 1\nline\r2").context("a\u{7}b");
        assert_eq!(printable_json("{\n\"a\": \"\u{9b}\u{202e}é\\n\"\n}"), "{\n\"a\": \"\\u009b\\u202eé\\n\"\n}");
        assert_eq!(message(&error), "a\\u{7}b: line 1\nline\\u{d}2");
    }

    #[test]
    fn what_cannot_be_written_is_refused_before_anything_is_measured() {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| may_write(directory.path().join(name));
        assert!(
            place("page.html").is_ok()
                && may_write("page.html".into()).is_ok()
                && may_write("/dev/null".into()).is_ok()
        );
        assert!(!directory.path().join("page.html").exists());
        assert!(place("").unwrap_err().contains("is a directory") && may_write(PathBuf::new()).is_err());
        assert!(place("new/").is_err());
        // A link to where a file may be made, and one to where none may.
        for (link, to, is_fine) in [("fine", "made.html", true), ("lost", "none/made.html", false)] {
            std::os::unix::fs::symlink(to, directory.path().join(link)).unwrap();
            assert_eq!(place(link).is_ok(), is_fine, "{link}");
        }
        assert!(place("none/page.html").unwrap_err().contains("there is no directory"));
        fs::write(directory.path().join("file"), "").unwrap();
        assert!(place("file").is_ok() && place("file/page.html").is_err());
    }

    #[test]
    fn one_file_is_known_by_whatever_name_it_has() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let link = |from: &str, to: &str| std::os::unix::fs::symlink(to, at(from)).unwrap();
        link("a", "b");
        link("b", "./new");
        link("absolute", at("new").to_str().unwrap());
        link("round", "round");
        let told = |one: &Path, other: &Path| {
            let outputs = spare(&[], &[("--one", Some(one)), ("--other", Some(other))]).err();
            assert_eq!(outputs.is_some(), spare(&[one], &[("--other", Some(other))]).is_err());
            outputs.map(|error| error.to_string())
        };
        let same = Some("--one and --other name the same file".to_owned());
        for exists in [false, true] {
            for (one, other) in [("new", "new"), ("./new", "new"), ("a", "new"), ("b", "a"), ("absolute", "a")] {
                assert_eq!(told(&at(one), &at(other)), same, "{one} {other} {exists}");
            }
            assert_eq!(told(&at("a"), &at("another")), None);
            fs::write(at("new"), "").unwrap();
        }
        assert_eq!(told(&at("round"), &at("new")), None);
        assert_eq!(told(Path::new("/dev/null"), Path::new("/dev/null")), None);
    }
}
