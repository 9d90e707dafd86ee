//! Processes that hold routes, and asking them: a Unix socket for each in one directory, a line of JSON each way.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use taut_link::{Error, Result};

use crate::run::{Engine, Status};

/// How long a holder may take to answer; it looks up every 200 ms.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest answer of a holder: that of [`MOST_ROUTES`](crate::route::MOST_ROUTES) with 16 KiB each.
const LONGEST_ANSWER: u64 = 16 << 20;
/// Clients that wait to be answered: as many in the kernel's queue, and as many whose question is not whole yet.
const BACKLOG: u8 = 16;
/// Longest question.
const LONGEST_QUESTION: usize = 4096;
/// How long whoever reads an answer may hold up the holder.
const READING: Duration = Duration::from_millis(100);
/// How often a holder is asked again that closed without an answer.
const ATTEMPTS: usize = 5;

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
pub struct ControlServer {
    listener: UnixListener,
    path: PathBuf,
    /// Readable while there is something to do: an epoll(7) of the listener and of those who ask.
    ready: OwnedFd,
    asking: Vec<Asking>,
}

/// One who is asking.
#[derive(Debug)]
struct Asking {
    stream: UnixStream,
    question: Vec<u8>,
    since: Instant,
}

/// How far a question has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Heard {
    Part,
    All,
    /// No more will come.
    Nothing,
}

impl ControlServer {
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
        // One that can't be connected to yet would be taken for one that was left behind, and removed.
        let unready = path.with_extension("new");
        let open = || {
            // Of a process that had the same number and was killed.
            let _ = fs::remove_file(&unready);
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            // The file gets the socket's mode when it is made (`unix_bind_bsd`,
            // net/unix/af_unix.c), and never has another one.
            rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
            rustix::net::bind(&socket, &SocketAddrUnix::new(&unready)?)?;
            rustix::net::listen(&socket, BACKLOG.into())?;
            fs::rename(&unready, &path)?;
            let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            epoll::add(&ready, &socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
            Ok((UnixListener::from(socket), ready))
        };
        let (listener, ready) = open().map_err(failed(format!("listen at {}", path.display())))?;
        Ok(Self { listener, path, ready, asking: Vec::new() })
    }

    /// Answers those whose question is there. Waits for nobody's, nor for a route that takes its time to end: who asked
    /// for that is answered later.
    pub fn serve(&mut self, engine: &mut Engine) {
        self.serve_with(|request| match request {
            Request::Status => Some(engine.status()),
            Request::Stop { name } if engine.ask_to_end(&name) => None,
            Request::Stop { name } => Some(engine.stop(&name).into_iter().collect()),
        });
    }

    /// The same with another's answers; `None` is not yet.
    fn serve_with(&mut self, mut answer: impl FnMut(Request) -> Option<Vec<Status>>) {
        while let Ok((stream, _)) = self.listener.accept() {
            // Who can't be looked at is not trusted.
            if !is_peer_trusted(&stream).unwrap_or(false) || stream.set_nonblocking(true).is_err() {
                continue;
            }
            // Where there is no room in it, the question is found when the holder looks up.
            let _ = epoll::add(&self.ready, &stream, epoll::EventData::new_u64(0), epoll::EventFlags::IN);
            if self.asking.len() >= BACKLOG.into() {
                // What has been asked for is seen through.
                let slowest = self.asking.iter().position(|asking| !asking.has_asked()).unwrap_or(0);
                self.asking.remove(slowest);
            }
            self.asking.push(Asking { stream, question: Vec::new(), since: Instant::now() });
        }
        self.asking.retain_mut(|asking| match asking.hear() {
            Heard::Part => asking.since.elapsed() < PATIENCE,
            Heard::Nothing => false,
            // What is not read is the loss of who asked.
            Heard::All if asking.answer(&mut answer).unwrap_or(true) => false,
            Heard::All => {
                // One that went meanwhile would be readable all the time.
                let _ = epoll::delete(&self.ready, &asking.stream);
                true
            }
        });
    }
}

impl Asking {
    /// Whether the question is whole.
    fn has_asked(&self) -> bool {
        self.question.contains(&b'\n')
    }

    fn hear(&mut self) -> Heard {
        if self.has_asked() {
            return Heard::All;
        }
        let mut chunk = [0; 512];
        while self.question.len() < LONGEST_QUESTION {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Heard::Nothing,
                Ok(length) => self.question.extend(&chunk[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Heard::Part,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Heard::Nothing,
            }
            if self.has_asked() {
                return Heard::All;
            }
        }
        Heard::Nothing
    }

    /// Answers, if the answer is there; whether it is.
    fn answer(&mut self, answer: &mut impl FnMut(Request) -> Option<Vec<Status>>) -> io::Result<bool> {
        let Some(status) = answer(serde_json::from_slice(&self.question)?) else { return Ok(false) };
        let mut text = serde_json::to_string(&status)?;
        text.push('\n');
        self.stream.set_nonblocking(false)?;
        self.stream.set_write_timeout(Some(READING))?;
        self.stream.write_all(text.as_bytes())?;
        Ok(true)
    }
}

impl AsFd for ControlServer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// What came of asking the holders.
#[derive(Debug, Default)]
pub struct Answers {
    /// Routes of those that answered.
    pub routes: Vec<Status>,
    /// Why others did not answer: each names the holder's socket, `route-PID.sock`.
    pub silent: Vec<Error>,
}

/// Asks all holders; those that are gone are forgotten.
fn ask_all(request: &Request) -> Result<Answers> {
    ask_in(&directory()?, request)
}

/// Asks all at once, so that one that is stopped holds up no other.
fn ask_in(directory: &Path, request: &Request) -> Result<Answers> {
    let mut all = Answers::default();
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
    let ask = |path: &Path| ask_at(path, request);
    thread::scope(|scope| {
        let begin = |path| thread::Builder::new().spawn_scoped(scope, move || ask(path));
        let asked: Vec<_> = paths.iter().map(|path| (path, begin(path))).collect();
        for (path, asked) in asked {
            let panicked = |_| Err(io::Error::other("asking it failed"));
            match asked.and_then(|thread| thread.join().unwrap_or_else(panicked)) {
                Ok(routes) => all.routes.extend(routes),
                Err(error) => all.silent.push(failed(format!("ask {}", path.display()))(error)),
            }
        }
    });
    Ok(all)
}

/// Connects to a holder. One that is stopped takes nobody out of its queue, which is full in the end.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let stream = UnixStream::from(socket);
    // connect(2) waits for room as long as a send would: `unix_stream_connect`, net/unix/af_unix.c.
    stream.set_write_timeout(Some(PATIENCE))?;
    let address = SocketAddrUnix::new(path)?;
    rustix::io::retry_on_intr(|| rustix::net::connect(&stream, &address))?;
    Ok(stream)
}

fn no_answer(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::WouldBlock {
        return error;
    }
    io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {PATIENCE:?}: is its process stopped?"))
}

/// Asks the holder at a socket; nothing when it is gone.
fn ask_at(path: &Path, request: &Request) -> io::Result<Vec<Status>> {
    for _ in 0..ATTEMPTS {
        let stream = match connect(path) {
            Ok(stream) => stream,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                // Left behind by one that was killed.
                let _ = fs::remove_file(path);
                return Ok(Vec::new());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(no_answer(error)),
        };
        match ask(&stream, request) {
            Ok(Some(status)) => return Ok(status),
            // It ended with the question in its queue, which the next attempt shows, or had no time for it.
            Ok(None) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => {}
            Err(error) => return Err(no_answer(error)),
        }
    }
    Err(io::Error::other("it closes without an answer"))
}

/// Asks once; nothing when the holder closed without an answer.
fn ask(mut stream: &UnixStream, request: &Request) -> io::Result<Option<Vec<Status>>> {
    if !is_peer_trusted(stream)? {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user's process holds it"));
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_string(request)?;
    text.push('\n');
    stream.write_all(text.as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST_ANSWER)).read_line(&mut line)?;
    if line.len() as u64 == LONGEST_ANSWER {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it answers more than 16 MiB"));
    }
    if !line.ends_with('\n') {
        return Ok(None);
    }
    let status: Vec<Status> = serde_json::from_str(&line)?;
    Ok(Some(status.into_iter().map(Status::printable).collect()))
}

/// All routes of this user at work, as far as their holders answer.
///
/// # Errors
/// The directory of the holders can't be read or trusted.
pub fn status() -> Result<Answers> {
    ask_all(&Request::Status)
}

/// Ends the route of that name; its last counters, or no route when those that answer have none of that name.
///
/// # Errors
/// The directory of the holders can't be read or trusted.
pub fn stop(name: &str) -> Result<Answers> {
    ask_all(&Request::Stop { name: name.to_owned() })
}

#[cfg(test)]
mod tests;
