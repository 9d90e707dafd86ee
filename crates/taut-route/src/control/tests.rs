//! Holders that answer, late or never, and who asks them.

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
