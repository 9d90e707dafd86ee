//! `taut trace` on programs that wait for several sockets at once: whether what came waited for a busy event loop, or
//! for the task that was to read it. Where the kernel does not let this user trace, they are skipped.

#[path = "support/mod.rs"]
mod support;
mod trace_support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread::{self, sleep};
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::Value;
use taut_link::Epoll;
use trace_support::{Traced, may_trace};

const MESSAGES: usize = 40;
const WORK: Duration = Duration::from_millis(15);

/// What a reader does between two waits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reader {
    /// It reads at once, and then does something else.
    WorksAfterwards,
    /// It is told, does something else, and then reads.
    WorksFirst,
    /// Another thread is told, and two threads read in turn.
    HandsOver,
    /// It waits in a read.
    Blocks,
}

/// A client sends 8 bytes every so often; how they came to be read.
fn read_by(reader: Reader, pause: Duration) -> Value {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let trace = Traced::start(port);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (stream, _) = listener.accept().unwrap();
            serve(reader, stream);
        });
        let mut sender = TcpStream::connect(("127.0.0.1", port)).unwrap();
        sender.set_nodelay(true).unwrap();
        for _ in 0..MESSAGES {
            sender.write_all(&[1; 8]).unwrap();
            sleep(pause);
        }
    });
    let document = trace.finish();
    let end = format!(":{port}");
    let mut directions = document["worst"].as_array().unwrap().iter();
    let inward = directions.find(|one| one["is_outgoing"] == false && one["to"].as_str().unwrap().ends_with(&end));
    inward.unwrap_or_else(|| panic!("{document:#}")).clone()
}

fn serve(reader: Reader, mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    match reader {
        Reader::Blocks => while stream.read(&mut buffer).unwrap() > 0 {},
        Reader::WorksAfterwards | Reader::WorksFirst => loop {
            // Both ways in which programs wait: poll here, epoll below.
            poll(&mut [PollFd::new(&stream, PollFlags::IN)], None).unwrap();
            if reader == Reader::WorksFirst {
                sleep(WORK);
            }
            if stream.read(&mut buffer).unwrap() == 0 {
                break;
            }
            if reader == Reader::WorksAfterwards {
                sleep(WORK);
            }
        },
        Reader::HandsOver => thread::scope(|scope| {
            let (done, is_done) = mpsc::channel();
            let stream = &stream;
            let [first, second] = [done.clone(), done].map(|done| {
                let (go, is_to_go) = mpsc::channel::<()>();
                scope.spawn(move || {
                    let (mut stream, mut buffer) = (stream, [0; 4096]);
                    while is_to_go.recv().is_ok() {
                        sleep(WORK);
                        done.send(stream.read(&mut buffer).unwrap()).unwrap();
                    }
                });
                go
            });
            let mut waits = Epoll::new(4).unwrap();
            waits.add(stream, 0, EventFlags::IN).unwrap();
            for go in [first, second].iter().cycle() {
                waits.wait(None).unwrap();
                go.send(()).unwrap();
                if is_done.recv().unwrap() == 0 {
                    break;
                }
            }
        }),
    }
}

/// How long what came waited for the event loop, for the wake-up and for the task, in ms.
fn parts(direction: &Value) -> [f64; 3] {
    let readiness = &direction["readiness"];
    ["at_work", "waking", "task"].map(|part| readiness[part]["held_ns"].as_f64().unwrap() / 1e6)
}

#[test]
fn a_busy_event_loop_is_told_from_a_task_that_reads_late() {
    const NAME: &str = "a_busy_event_loop_is_told_from_a_task_that_reads_late";
    if !may_trace(NAME) {
        return;
    }
    thread::scope(|scope| {
        // In the 15 ms in which the loop is at something else, another message comes.
        let busy = scope.spawn(|| read_by(Reader::WorksAfterwards, Duration::from_millis(10)));
        // The loop waits again when the next one comes.
        let late = scope.spawn(|| read_by(Reader::WorksFirst, Duration::from_millis(30)));
        let blocked = read_by(Reader::Blocks, Duration::from_millis(5));
        let (busy, late) = (busy.join().unwrap(), late.join().unwrap());
        let [at_work, waking, task] = parts(&busy);
        assert!(at_work > 100.0 && at_work > 2.0 * (waking + task), "{busy:#}");
        let [at_work, waking, task] = parts(&late);
        assert!(task > 400.0 && task > 2.0 * (at_work + waking), "{late:#}");
        let said = late["verdicts"][0]["evidence"].to_string();
        assert!(said.contains("epoll_wait, poll or select told the program of"), "{late:#}");
        assert!(blocked["readiness"].is_null(), "{blocked:#}");
    });
}

/// As runtimes with several threads do: one learns of the socket, another one reads it.
#[test]
fn what_one_thread_learns_is_told_of_what_another_one_reads() {
    const NAME: &str = "what_one_thread_learns_is_told_of_what_another_one_reads";
    if !may_trace(NAME) {
        return;
    }
    // With a port it is seen only of threads that use such sockets: this one traces the test itself.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let trace = Traced::of(&["--pid", &std::process::id().to_string()]);
    thread::scope(|scope| {
        scope.spawn(|| serve(Reader::HandsOver, listener.accept().unwrap().0));
        let mut sender = TcpStream::connect(("127.0.0.1", port)).unwrap();
        for _ in 0..MESSAGES {
            sender.write_all(&[1; 8]).unwrap();
            sleep(Duration::from_millis(20));
        }
    });
    let document = trace.finish();
    let end = format!(":{port}");
    let mut directions = document["worst"].as_array().unwrap().iter();
    let inward = directions.find(|one| one["is_outgoing"] == false && one["to"].as_str().unwrap().ends_with(&end));
    let inward = inward.unwrap_or_else(|| panic!("{document:#}"));
    let [at_work, waking, task] = parts(inward);
    assert!(task > 400.0 && task > 2.0 * (at_work + waking), "{inward:#}");
}
