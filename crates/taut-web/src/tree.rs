use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use taut_link::Error;

/// A directory of which nothing but what lies beneath it can be opened (openat2(2), `RESOLVE_BENEATH`; Linux 5.6).
#[derive(Debug)]
pub struct Tree {
    directory: OwnedFd,
}

/// What a path names.
#[derive(Debug)]
pub enum Resource {
    /// A regular file.
    File(OpenFile),
    /// A directory.
    Directory,
}

/// A regular file, open for reading, and what it was when it was opened.
#[derive(Debug)]
pub struct OpenFile {
    file: OwnedFd,
    /// Length in bytes.
    pub length: u64,
    /// When its contents were changed, as its owner has it (`st_mtime`).
    pub modified: SystemTime,
    /// When the kernel saw a change of contents or attributes (`st_ctime`); no program sets it.
    pub changed: SystemTime,
}

/// Why nothing was opened.
#[derive(Debug)]
pub enum Miss {
    /// There is none.
    Absent,
    /// A symbolic link leads out of the directory, or in circles.
    Outside,
    /// Neither file nor directory: a FIFO, socket or device.
    Special,
    /// Its permissions are not for this process.
    Denied,
    /// The host has too little of something, or its disk failed.
    Host(io::Error),
}

/// Links may lead to other places beneath the directory, and nowhere else; `/proc`'s magic ones nowhere at all.
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);
/// Attempts while somebody renames directories on the way (`EAGAIN`, openat2(2)).
const ATTEMPTS: usize = 16;

impl Tree {
    /// Opens the directory.
    ///
    /// # Errors
    /// [`Error::Input`] when it is no directory or can't be read, [`Error::Unavailable`] on a
    /// kernel without openat2(2).
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let shown = directory.display();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(directory, flags, Mode::empty())
            .map_err(|errno| Error::Input(format!("{shown}: {}; give a directory", io::Error::from(errno))))?;
        let tree = Self { directory: opened };
        match tree.open_at(b".", OFlags::DIRECTORY) {
            Ok(_) => Ok(tree),
            Err(Errno::NOSYS | Errno::PERM) => Err(Error::Unavailable(
                "this kernel has no openat2, or refuses it: serving files safely needs Linux 5.6".to_owned(),
            )),
            Err(errno) => Err(Error::Input(format!("{shown}: {}", io::Error::from(errno)))),
        }
    }

    /// Opens what a relative path names.
    ///
    /// What it is, is seen before it is opened: to open a device or a FIFO can have effects of its own.
    ///
    /// # Errors
    /// Why nothing was opened.
    pub fn find(&self, path: &[u8]) -> Result<Resource, Miss> {
        let seen = self.open_at(path, OFlags::PATH)?;
        let before = rustix::fs::fstat(&seen)?;
        match FileType::from_raw_mode(before.st_mode) {
            FileType::Directory => Ok(Resource::Directory),
            FileType::RegularFile => {
                let file = self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
                let stat = rustix::fs::fstat(&file)?;
                // Another one by now: as if it had been asked for a little earlier.
                if (stat.st_dev, stat.st_ino) != (before.st_dev, before.st_ino) {
                    return Err(Miss::Absent);
                }
                Ok(Resource::File(OpenFile::of(file, &stat)))
            }
            _ => Err(Miss::Special),
        }
    }

    /// The names in a directory, in no order, at most `most` of them.
    ///
    /// # Errors
    /// Why it can't be read.
    pub fn entries(&self, path: &[u8], most: usize) -> Result<Vec<Vec<u8>>, Miss> {
        let directory = self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::new(directory)? {
            if names.len() >= most {
                break;
            }
            names.push(entry?.file_name().to_bytes().to_vec());
        }
        Ok(names)
    }

    fn open_at(&self, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let mut attempts = 1;
        loop {
            let opened = rustix::fs::openat2(&self.directory, path, flags | OFlags::CLOEXEC, Mode::empty(), RESOLVE);
            match opened {
                Err(Errno::AGAIN | Errno::INTR) if attempts < ATTEMPTS => attempts += 1,
                opened => return opened,
            }
        }
    }
}

impl OpenFile {
    fn of(file: OwnedFd, stat: &Stat) -> Self {
        Self {
            file,
            length: stat.st_size.try_into().unwrap_or(0),
            modified: time(stat.st_mtime, stat.st_mtime_nsec),
            changed: time(stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

impl OpenFile {
    /// All of it, as long as it was when it was opened.
    pub(crate) fn contents(&self) -> Result<Vec<u8>, Miss> {
        let mut contents = vec![0; usize::try_from(self.length).unwrap_or(usize::MAX)];
        let mut filled = 0;
        while filled < contents.len() {
            match rustix::io::pread(self, &mut contents[filled..], filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Miss::Host(errno.into())),
            }
        }
        contents.truncate(filled);
        Ok(contents)
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Seconds and nanoseconds since 1970; what lies before it is 1970.
fn time(seconds: i64, nanos: u64) -> SystemTime {
    let nanos = u32::try_from(nanos).unwrap_or(0);
    u64::try_from(seconds).map_or(UNIX_EPOCH, |seconds| UNIX_EPOCH + Duration::new(seconds, nanos))
}

impl From<Errno> for Miss {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL => Self::Absent,
            Errno::XDEV | Errno::LOOP => Self::Outside,
            // O_RDONLY of a socket or of a device without driver.
            Errno::NXIO | Errno::NODEV => Self::Special,
            Errno::ACCESS | Errno::PERM => Self::Denied,
            errno => Self::Host(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn tree() -> (tempfile::TempDir, Tree) {
        let outer = tempfile::tempdir().unwrap();
        let site = outer.path().join("site");
        fs::create_dir_all(site.join("sub")).unwrap();
        fs::write(outer.path().join("secret"), "secret").unwrap();
        fs::write(site.join("page"), "page").unwrap();
        let tree = Tree::open(&site).unwrap();
        (outer, tree)
    }

    #[test]
    fn files_and_directories_beneath_are_found() {
        let (outer, tree) = tree();
        symlink("../page", outer.path().join("site/sub/link")).unwrap();
        assert!(matches!(tree.find(b"page"), Ok(Resource::File(OpenFile { length: 4, .. }))));
        assert!(matches!(tree.find(b"sub/link"), Ok(Resource::File(OpenFile { length: 4, .. }))));
        assert!(matches!(tree.find(b"sub"), Ok(Resource::Directory)));
        assert!(matches!(tree.find(b"."), Ok(Resource::Directory)));
        assert!(matches!(tree.find(b"page/x"), Err(Miss::Absent)));
        assert!(matches!(tree.find(b"none"), Err(Miss::Absent)));
        assert!(matches!(tree.find(b"a\0b"), Err(Miss::Absent)));
    }

    #[test]
    fn what_lies_outside_is_not() {
        let (outer, tree) = tree();
        let link = |target: &str, name: &str| symlink(target, outer.path().join("site").join(name)).unwrap();
        let secret = outer.path().join("secret").display().to_string();
        link("../secret", "up");
        link(&secret, "absolute");
        link("..", "parent");
        link("loop", "loop");
        link("/proc/self/root", "magic");
        link("sub/../../secret", "roundabout");
        for path in
            ["up", "absolute", "parent", "parent/secret", "loop", "magic", "roundabout", "../secret", "/etc/passwd"]
        {
            assert!(
                matches!(tree.find(path.as_bytes()), Err(Miss::Outside)),
                "{path}: {:?}",
                tree.find(path.as_bytes())
            );
        }
        assert!(matches!(tree.entries(b"parent", 9), Err(Miss::Outside)));
    }

    #[test]
    fn special_files_are_not_opened() {
        let (outer, tree) = tree();
        let _socket = UnixListener::bind(outer.path().join("site/socket")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            outer.path().join("site/fifo"),
            FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        for path in ["fifo", "socket"] {
            assert!(matches!(tree.find(path.as_bytes()), Err(Miss::Special)), "{path}");
        }
    }
}
