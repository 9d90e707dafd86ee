//! Processes that hold routes, and asking them: a Unix socket for each in one directory, a line of JSON each way.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use taut_link::{Error, Result};

use crate::run::{Engine, Status};

/// How long a holder may take to answer; it looks up every 200 ms.
const PATIENCE: Duration = Duration::from_secs(5);

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
        let directory = directory()?;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(failed(format!("make {}", directory.display())))?;
        let path = directory.join(format!("route-{}.sock", std::process::id()));
        // Of a process that had the same number and was killed.
        let _ = fs::remove_file(&path);
        let open = || {
            let listener = UnixListener::bind(&path)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
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
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    stream.set_write_timeout(Some(Duration::from_millis(100)))?;
    let mut line = String::new();
    BufReader::new(io::Read::take(&stream, 4096)).read_line(&mut line)?;
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
    let directory = directory()?;
    let mut all = Vec::new();
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(all),
        Err(error) => return Err(failed(format!("read {}", directory.display()))(error)),
    };
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
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_string(request)?;
    text.push('\n');
    stream.write_all(text.as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    if line.is_empty() {
        // It ended just now.
        return Ok(Vec::new());
    }
    Ok(serde_json::from_str(&line)?)
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
