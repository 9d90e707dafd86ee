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
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;
    use crate::run::{BrokerSink, Counters};

    /// Takes one that asks and hears it out: who answers before and closes breaks the pipe under the question.
    fn asked(listener: &UnixListener) -> UnixStream {
        let stream = listener.accept().unwrap().0;
        BufReader::new(&stream).read_line(&mut String::new()).unwrap();
        stream
    }

    /// A holder that answers once with these bytes, as often as it can.
    fn holder(directory: &Path, text: String, times: usize) -> thread::JoinHandle<usize> {
        let listener = UnixListener::bind(directory.join("route-1.sock")).unwrap();
        thread::spawn(move || {
            let mut stream = asked(&listener);
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
        let broker = BrokerSink { endpoint: evil.clone(), error: Some(evil.clone()), ..BrokerSink::default() };
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
            counters: Counters { brokers: vec![broker], ..Counters::default() },
        };
        let text = format!("{}\n", serde_json::to_string(&[status]).unwrap());
        let answering = holder(directory.path(), text, 1);
        let told = ask_in(directory.path(), &Request::Status).unwrap().routes.remove(0);
        answering.join().unwrap();
        let BrokerSink { endpoint, error, .. } = told.counters.brokers[0].clone();
        let names = vec![told.name, told.from, told.when, told.runs, told.device.unwrap(), endpoint, error.unwrap()];
        let all = [names, told.to, told.why, told.lacks];
        for text in all.concat() {
            assert_eq!(text.chars().filter(|c| c.is_control()).count(), 0, "{text:?}");
            assert!(text.starts_with('x') && text.ends_with("y z"), "{text:?}");
        }

        let directory = private();
        let endless = holder(directory.path(), " ".repeat(1 << 20), 4096);
        let error = ask_in(directory.path(), &Request::Status).unwrap().silent.remove(0).to_string();
        assert!(error.contains("more than 16 MiB"), "{error}");
        assert!(endless.join().unwrap() < 32);
    }

    #[test]
    fn directories_of_others_are_not_looked_into() {
        let directory = private();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = ask_in(directory.path(), &Request::Status).unwrap_err().to_string();
        assert!(error.contains("mode 777") && error.contains("XDG_RUNTIME_DIR"), "{error}");
        assert!(ControlServer::open_in(directory.path()).is_err());
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
        let server = ControlServer::open_in(&directory.path().join("tautline")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&server.path), mode(server.path.parent().unwrap())), (0o600, 0o700));
    }

    fn status() -> Status {
        let text = "x".to_owned();
        Status {
            name: text.clone(),
            from: text.clone(),
            when: text.clone(),
            to: Vec::new(),
            runs: text,
            device: None,
            why: Vec::new(),
            lacks: Vec::new(),
            pid: 1,
            counters: Counters::default(),
        }
    }

    #[test]
    fn who_takes_long_to_ask_is_answered_and_holds_nobody_up() {
        let directory = private();
        let mut server = ControlServer::open_in(directory.path()).unwrap();
        let mut slow = UnixStream::connect(&server.path).unwrap();
        slow.write_all(b"{\"ask\":").unwrap();
        let serve = |server: &mut ControlServer| server.serve_with(|_| Some(vec![status()]));
        serve(&mut server);
        let asked = thread::spawn({
            let path = server.path.clone();
            move || ask_at(&path, &Request::Status).unwrap().len()
        });
        while !asked.is_finished() {
            serve(&mut server);
        }
        assert_eq!(asked.join().unwrap(), 1);
        // More than a holder that waits for each question would have waited.
        thread::sleep(Duration::from_millis(300));
        serve(&mut server);
        slow.write_all(b"\"status\"}\n").unwrap();
        serve(&mut server);
        let mut answer = String::new();
        slow.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("[{\"name\":\"x\""), "{answer:?}");
    }

    /// The end of a route that takes its time.
    fn stop() -> Request {
        Request::Stop { name: "x".to_owned() }
    }

    fn serve(server: &mut ControlServer, has_ended: bool) {
        server.serve_with(|request| match request {
            Request::Stop { .. } if !has_ended => None,
            Request::Stop { .. } | Request::Status => Some(vec![status()]),
        });
    }

    /// One who asks; how many routes he is told of.
    fn ask(server: &ControlServer, request: Request) -> thread::JoinHandle<usize> {
        let path = server.path.clone();
        thread::spawn(move || ask_at(&path, &request).unwrap().len())
    }

    /// Serves until so many have asked for an end.
    fn serve_until_waiting(server: &mut ControlServer, count: usize) {
        while server.asking.iter().filter(|asking| asking.has_asked()).count() < count {
            serve(server, false);
        }
    }

    #[test]
    fn an_end_that_takes_its_time_holds_nobody_up() {
        let directory = private();
        let mut server = ControlServer::open_in(directory.path()).unwrap();
        let stops = [ask(&server, stop()), ask(&server, stop())];
        serve_until_waiting(&mut server, 2);
        let asked = ask(&server, Request::Status);
        while !asked.is_finished() {
            serve(&mut server, false);
        }
        assert_eq!(asked.join().unwrap(), 1);
        assert!(stops.iter().all(|stop| !stop.is_finished()));
        serve(&mut server, true);
        assert!(stops.into_iter().all(|stop| stop.join().unwrap() == 1));
        assert!(server.asking.is_empty());
    }

    #[test]
    fn who_asked_for_an_end_and_went_keeps_the_holder_from_no_sleep() {
        let directory = private();
        let mut server = ControlServer::open_in(directory.path()).unwrap();
        let mut gone = UnixStream::connect(&server.path).unwrap();
        gone.write_all(format!("{}\n", serde_json::to_string(&stop()).unwrap()).as_bytes()).unwrap();
        serve_until_waiting(&mut server, 1);
        drop(gone);
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::new(&server.ready, PollFlags::IN)], Some(&at_once)).unwrap(), 0);
        // What he has asked for is seen through.
        serve(&mut server, false);
        assert_eq!(server.asking.len(), 1);
        serve(&mut server, true);
        assert!(server.asking.is_empty());
    }

    #[test]
    fn who_says_nothing_or_too_much_makes_room() {
        let directory = private();
        let mut server = ControlServer::open_in(directory.path()).unwrap();
        let serve = |server: &mut ControlServer| server.serve_with(|_| Some(vec![status()]));
        let mut silent = Vec::new();
        for _ in 0..4 * BACKLOG {
            silent.push(UnixStream::connect(&server.path).unwrap());
            serve(&mut server);
        }
        assert_eq!(server.asking.len(), usize::from(BACKLOG));
        let mut long = UnixStream::connect(&server.path).unwrap();
        long.write_all(&[b'x'; LONGEST_QUESTION]).unwrap();
        serve(&mut server);
        assert_eq!(server.asking.len(), usize::from(BACKLOG) - 1);
    }

    #[test]
    fn a_holder_that_closed_without_an_answer_is_asked_again() {
        let directory = private();
        let path = directory.path().join("route-1.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let answering = thread::spawn(move || {
            drop(listener.accept().unwrap());
            let mut stream = asked(&listener);
            let text = format!("{}\n", serde_json::to_string(&[status()]).unwrap());
            stream.write_all(text.as_bytes()).unwrap();
        });
        assert_eq!(ask_in(directory.path(), &Request::Status).unwrap().routes.len(), 1);
        answering.join().unwrap();
        // Now it is gone, and its file with it.
        let Answers { routes, silent } = ask_in(directory.path(), &Request::Status).unwrap();
        assert!(routes.is_empty() && silent.is_empty() && !path.exists());
    }

    #[test]
    fn one_that_is_stopped_hides_no_other_and_is_named() {
        let directory = private();
        let bind = |name: &str| {
            let socket =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
            rustix::net::bind(&socket, &SocketAddrUnix::new(directory.path().join(name)).unwrap()).unwrap();
            rustix::net::listen(&socket, 0).unwrap();
            UnixListener::from(socket)
        };
        // Nobody accepts: the question of the first waits in its queue, and that of the second is full.
        let (_silent, _full) = (bind("route-1.sock"), bind("route-2.sock"));
        let _fills = UnixStream::connect(directory.path().join("route-2.sock")).unwrap();
        let text = format!("{}\n", serde_json::to_string(&[status()]).unwrap());
        let other = bind("route-3.sock");
        let answering = thread::spawn(move || {
            let mut stream = asked(&other);
            stream.write_all(text.as_bytes()).unwrap();
        });
        let Answers { routes, silent } = ask_in(directory.path(), &Request::Status).unwrap();
        answering.join().unwrap();
        assert_eq!(routes.len(), 1);
        let silent: Vec<String> = silent.iter().map(Error::to_string).collect();
        assert_eq!(silent.len(), 2, "{silent:?}");
        for (text, name) in silent.iter().zip(["route-1.sock", "route-2.sock"]) {
            assert!(text.contains(name) && text.contains("is its process stopped?"), "{text}");
        }
    }

    #[test]
    fn one_that_opens_while_others_ask_is_not_taken_for_one_left_behind() {
        let directory = private();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    // Nobody serves here: only whether one is there is looked at.
                    for entry in fs::read_dir(directory.path()).unwrap().flatten() {
                        if entry.path().extension().is_some_and(|extension| extension == "sock")
                            && UnixStream::connect(entry.path())
                                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
                        {
                            // A server that went has its file removed by itself.
                            let _ = fs::write(directory.path().join("refused"), b"");
                        }
                    }
                }
            });
            let mut kept = Vec::new();
            for _ in 0..200 {
                // Kept: one that is dropped refuses, too.
                kept.push(ControlServer::open_in(directory.path()).unwrap());
                fs::remove_file(directory.path().join(format!("route-{}.sock", std::process::id()))).unwrap();
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert!(!directory.path().join("refused").exists());
    }
}
