//! Processes that hold routes, and asking them: a Unix socket for each in one directory, a line of JSON each way.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use taut_link::{Error, Result};

use crate::run::{Engine, Status};

/// How long a holder may take to answer; it looks up every 200 ms.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest answer of a holder: that of [`MOST_ROUTES`](crate::route::MOST_ROUTES) with 16 KiB each.
const LONGEST_ANSWER: u64 = 16 << 20;
/// Clients that wait to be answered.
const BACKLOG: i32 = 16;

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", tag = "ask")]
enum Request {
    Status,
    Stop { name: String },
}

/// Where the sockets are: `$XDG_RUNTIME_DIR/tautline`, for root without that variable `/run/tautline`.
fn directory() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None if rustix::process::geteuid().is_root() => PathBuf::from("/run"),
        None => {
            let text = "nowhere to keep track of routes: XDG_RUNTIME_DIR is not set (set it to a directory of yours)";
            return Err(Error::Unavailable(text.to_owned()));
        }
    };
    Ok(base.join("tautline"))
}

fn failed(what: String) -> impl Fn(io::Error) -> Error {
    move |error| Error::Host { what: what.clone(), error }
}

/// Whether somebody may ask us, or be believed.
fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

fn is_peer_trusted(stream: &UnixStream) -> io::Result<bool> {
    Ok(is_trusted(rustix::net::sockopt::socket_peercred(stream)?.uid.as_raw()))
}

/// Checks that nobody else can put anything into the directory.
fn check_directory(directory: &Path) -> Result<()> {
    let of = fs::symlink_metadata(directory).map_err(failed(format!("look at {}", directory.display())))?;
    let wrong = if !of.is_dir() {
        "is no directory".to_owned()
    } else if !is_trusted(of.uid()) {
        format!("belongs to user {}", of.uid())
    } else if of.mode() & 0o022 != 0 {
        format!("can be written to by others (mode {:o})", of.mode() & 0o7777)
    } else {
        return Ok(());
    };
    let directory = directory.display();
    Err(Error::Unavailable(format!(
        "{directory} {wrong}, and what is in it can't be trusted: set XDG_RUNTIME_DIR to a directory of yours"
    )))
}

/// The end of a holder at which it can be asked.
#[derive(Debug)]
pub struct Desk {
    listener: UnixListener,
    path: PathBuf,
}

impl Desk {
    /// Opens it. Only the same user can ask there.
    ///
    /// # Errors
    /// The directory or the socket can't be made.
    pub fn open() -> Result<Self> {
        Self::open_in(&directory()?)
    }

    fn open_in(directory: &Path) -> Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(failed(format!("make {}", directory.display())))?;
        check_directory(directory)?;
        let path = directory.join(format!("route-{}.sock", std::process::id()));
        // Of a process that had the same number and was killed.
        let _ = fs::remove_file(&path);
        let open = || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            // The file gets the socket's mode when it is made (`unix_bind_bsd`, net/unix/af_unix.c), and never has another one.
            rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
            rustix::net::bind(&socket, &SocketAddrUnix::new(&path)?)?;
            rustix::net::listen(&socket, BACKLOG)?;
            Ok(UnixListener::from(socket))
        };
        let listener = open().map_err(failed(format!("listen at {}", path.display())))?;
        Ok(Self { listener, path })
    }

    /// Answers those who have asked.
    pub fn serve(&self, engine: &mut Engine) {
        while let Ok((stream, _)) = self.listener.accept() {
            // One that asks nothing must not hold up the routes, and what it does not read is its own loss.
            let _ = answer(stream, engine);
        }
    }
}

impl AsFd for Desk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn answer(mut stream: UnixStream, engine: &mut Engine) -> io::Result<()> {
    if !is_peer_trusted(&stream)? {
        return Ok(());
    }
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    stream.set_write_timeout(Some(Duration::from_millis(100)))?;
    let mut line = String::new();
    BufReader::new((&stream).take(4096)).read_line(&mut line)?;
    let status = match serde_json::from_str(&line)? {
        Request::Status => engine.status(),
        Request::Stop { name } => engine.stop(&name).into_iter().collect(),
    };
    let mut text = serde_json::to_string(&status)?;
    text.push('\n');
    stream.write_all(text.as_bytes())
}

/// Asks all holders; those that are gone are forgotten.
fn ask_all(request: &Request) -> Result<Vec<Status>> {
    ask_in(&directory()?, request)
}

fn ask_in(directory: &Path, request: &Request) -> Result<Vec<Status>> {
    let mut all = Vec::new();
    if !directory.try_exists().unwrap_or(true) {
        return Ok(all);
    }
    check_directory(directory)?;
    let entries = fs::read_dir(directory).map_err(failed(format!("read {}", directory.display())))?;
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sock"))
        .collect();
    paths.sort();
    for path in paths {
        let stream = match UnixStream::connect(&path) {
            Ok(stream) => stream,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let _ = fs::remove_file(&path);
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(format!("ask {}", path.display()))(error)),
        };
        match ask(&stream, request) {
            Ok(status) => all.extend(status),
            // It ended with the question in its queue.
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => {}
            Err(error) => return Err(failed(format!("ask {}", path.display()))(error)),
        }
    }
    Ok(all)
}

fn ask(mut stream: &UnixStream, request: &Request) -> io::Result<Vec<Status>> {
    if !is_peer_trusted(stream)? {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user's process holds it"));
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_string(request)?;
    text.push('\n');
    stream.write_all(text.as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST_ANSWER)).read_line(&mut line)?;
    if line.is_empty() {
        // It ended just now.
        return Ok(Vec::new());
    }
    if line.len() as u64 == LONGEST_ANSWER {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it answers more than 16 MiB"));
    }
    let status: Vec<Status> = serde_json::from_str(&line)?;
    Ok(status.into_iter().map(Status::printable).collect())
}

/// All routes of this user at work.
///
/// # Errors
/// A holder does not answer.
pub fn status() -> Result<Vec<Status>> {
    ask_all(&Request::Status)
}

/// Ends the route of that name; its last counters, or nothing when there is none.
///
/// # Errors
/// A holder does not answer.
pub fn stop(name: &str) -> Result<Option<Status>> {
    Ok(ask_all(&Request::Stop { name: name.to_owned() })?.pop())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::thread;

    use super::*;
    use crate::run::Counters;

    /// A holder that answers once with these bytes, as often as it can.
    fn holder(directory: &Path, text: String, times: usize) -> thread::JoinHandle<usize> {
        let listener = UnixListener::bind(directory.join("route-1.sock")).unwrap();
        thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            (0..times).take_while(|_| stream.write_all(text.as_bytes()).is_ok()).count()
        })
    }

    fn private() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn what_a_holder_says_is_printable_and_bounded() {
        let directory = private();
        let evil = "x\x1b]0;owned\x07\x1b[31m\u{9b}y\nz".to_owned();
        let status = Status {
            name: evil.clone(),
            from: evil.clone(),
            when: evil.clone(),
            to: vec![evil.clone()],
            runs: evil.clone(),
            device: Some(evil.clone()),
            why: vec![evil.clone()],
            lacks: vec![evil],
            pid: 1,
            counters: Counters::default(),
        };
        let text = format!("{}\n", serde_json::to_string(&[status]).unwrap());
        let answering = holder(directory.path(), text, 1);
        let told = ask_in(directory.path(), &Request::Status).unwrap().remove(0);
        answering.join().unwrap();
        let all =
            [vec![told.name, told.from, told.when, told.runs, told.device.unwrap()], told.to, told.why, told.lacks];
        for text in all.concat() {
            assert_eq!(text.chars().filter(|c| c.is_control()).count(), 0, "{text:?}");
            assert!(text.starts_with('x') && text.ends_with("y z"), "{text:?}");
        }

        let directory = private();
        let endless = holder(directory.path(), " ".repeat(1 << 20), 4096);
        let error = ask_in(directory.path(), &Request::Status).unwrap_err().to_string();
        assert!(error.contains("more than 16 MiB"), "{error}");
        assert!(endless.join().unwrap() < 32);
    }

    #[test]
    fn directories_of_others_are_not_looked_into() {
        let directory = private();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = ask_in(directory.path(), &Request::Status).unwrap_err().to_string();
        assert!(error.contains("mode 777") && error.contains("XDG_RUNTIME_DIR"), "{error}");
        assert!(Desk::open_in(directory.path()).is_err());
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(".", &link).unwrap();
        assert!(ask_in(&link, &Request::Status).unwrap_err().to_string().contains("no directory"));
        if std::os::unix::fs::chown(directory.path(), Some(65_534), None).is_err() {
            return crate::skip::note("control::directories_of_others_are_not_looked_into", "needs root");
        }
        let error = ask_in(directory.path(), &Request::Status).unwrap_err().to_string();
        assert!(error.contains("belongs to user 65534"), "{error}");
        assert!(is_trusted(0) && is_trusted(rustix::process::geteuid().as_raw()) && !is_trusted(65_534));
    }

    #[test]
    fn the_socket_is_its_users_alone_from_the_start() {
        let directory = private();
        let desk = Desk::open_in(&directory.path().join("tautline")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&desk.path), mode(desk.path.parent().unwrap())), (0o600, 0o700));
    }
}
