//! `taut trace` on a program with two threads that do the same, of which one reads late. Where the kernel does not let
//! this user trace, it is skipped.

#[path = "support/mod.rs"]
mod support;
mod trace_support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Barrier, mpsc};
use std::thread::{self, sleep};
use std::time::Duration;

use rustix::thread::gettid;
use serde_json::Value;
use support::{taut, text};
use trace_support::{Traced, has_gap, held_ns, may_trace, sent_by};

/// Pairs of messages that are sent, and the time between them.
const MESSAGES: usize = 40;
const EACH: Duration = Duration::from_millis(25);
/// So late does the one thread read.
const LATE: Duration = Duration::from_millis(60);

/// Reads to the end, each time so late; the number of the thread that does.
fn reader(mut stream: TcpStream, late: Duration) -> (thread::JoinHandle<()>, i64) {
    let (tell, told) = mpsc::channel();
    let thread = thread::spawn(move || {
        tell.send(i64::from(gettid().as_raw_nonzero().get())).unwrap();
        loop {
            sleep(late);
            if stream.read(&mut [0; 4096]).unwrap() == 0 {
                return;
            }
        }
    });
    (thread, told.recv().unwrap())
}

fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key}: {row:#}"))
}

/// How long data waited for a thread.
fn waited_ns(row: &Value) -> u64 {
    number(row, "receiving_program_ns") + number(row, "processor_ns")
}

/// The rows add up to what all breakdowns lay to programs.
fn rows_add_up(document: &Value) {
    let threads = &document["threads"];
    let rows = || threads["worst"].as_array().unwrap().iter().chain([&threads["of_others"], &threads["no_thread"]]);
    for holder in ["receiving_program", "processor", "sending_program"] {
        let sum: u64 = rows().map(|row| number(row, &format!("{holder}_ns"))).sum();
        let laid: u64 = document["worst"].as_array().unwrap().iter().map(|direction| held_ns(direction, holder)).sum();
        assert_eq!(sum, laid, "{holder}: {document:#}");
    }
}

/// As programs do that answer from several threads.
#[test]
fn two_threads_that_write_to_one_connection_at_once_have_all_their_writes() {
    const CONNECTIONS: usize = 8;
    const WRITES: usize = 10;
    const LENGTHS: [usize; 2] = [100, 300];
    if !may_trace("two_threads_that_write_to_one_connection_at_once_have_all_their_writes") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let trace = Traced::start(port);
    let written: Vec<(u16, u64)> = (0..CONNECTIONS).map(|_| write_by_two(&listener, WRITES, LENGTHS)).collect();
    let document = trace.finish();
    rows_add_up(&document);
    let mut whole = 0;
    for (own, bytes) in written {
        let direction = sent_by(&document, own);
        let writes = number(direction, "writes");
        let all = (LENGTHS.len() * WRITES) as u64;
        // A thread that wakes up in the middle of another one's program has its own left out by the kernel.
        // So has the one that reads, whose socket has a row of its own.
        let mut seen_at = document["worst"].as_array().unwrap().iter().filter(|one| one["from"] == direction["from"]);
        if seen_at.any(has_gap) {
            assert!(writes <= all, "{direction:#}");
            continue;
        }
        whole += 1;
        assert_eq!((writes, number(direction, "bytes")), (all, bytes), "{direction:#}");
        // Whatever was followed was read. (The last ones may be acknowledged after the end, which is not seen.)
        let messages = &direction["messages"];
        let followed = number(messages, "followed");
        let got = ["left", "read"].map(|stage| number(&messages[stage], "messages"));
        assert!(followed > 0 && got == [followed; 2], "{direction:#}");
    }
    assert!(whole > 0, "of no connection all events were seen: {document:#}");
}

/// Each of two threads writes so often to one connection, both at once; its port, and the bytes that came.
fn write_by_two(listener: &TcpListener, writes: usize, lengths: [usize; 2]) -> (u16, u64) {
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    let own = client.local_addr().unwrap().port();
    let (mut server, _) = listener.accept().unwrap();
    // The connection stays open until all is read: what is read behind its end is in no message.
    let bytes = lengths.iter().sum::<usize>() * writes;
    let reading = thread::spawn(move || server.read_exact(&mut vec![0; bytes]).map(|()| server).unwrap());
    let together = Barrier::new(lengths.len());
    thread::scope(|scope| {
        for length in lengths {
            let (mut client, together) = (&client, &together);
            scope.spawn(move || {
                for _ in 0..writes {
                    together.wait();
                    client.write_all(&vec![1; length]).unwrap();
                }
            });
        }
    });
    drop(reading.join().unwrap());
    (own, bytes as u64)
}

#[test]
fn of_two_threads_the_one_that_reads_late_is_named() {
    if !may_trace("of_two_threads_the_one_that_reads_late_is_named") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let events = directory.path().join("x.events");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let trace = Traced::of(&["--port", &port.to_string(), "--events", events.to_str().unwrap()]);
    let mut senders = Vec::new();
    let mut connect = |late| {
        let sender = TcpStream::connect(("127.0.0.1", port)).unwrap();
        sender.set_nodelay(true).unwrap();
        senders.push(sender);
        reader(listener.accept().unwrap().0, late)
    };
    let (prompt, prompt_thread) = connect(Duration::ZERO);
    let (late, late_thread) = connect(LATE);
    for _ in 0..MESSAGES {
        senders.iter_mut().for_each(|sender| sender.write_all(b"a message").unwrap());
        sleep(EACH);
    }
    drop(senders);
    prompt.join().unwrap();
    late.join().unwrap();
    let document = trace.finish();
    rows_add_up(&document);

    let rows = document["threads"]["worst"].as_array().unwrap();
    let worst = &rows[0];
    assert_eq!(worst["thread"], late_thread, "{document:#}");
    assert!(worst["program"].as_str().unwrap().ends_with(&format!("({})", std::process::id())), "{worst:#}");
    // It sleeps nearly all the time, with something to read for most of that.
    let whole = u64::try_from(EACH.as_nanos()).unwrap() * MESSAGES as u64;
    assert!(number(worst, "receiving_program_ns") * 3 > whole, "{document:#}");
    let twin = rows.iter().find(|row| row["thread"] == prompt_thread).map_or(0, waited_ns);
    assert!(twin * 5 < waited_ns(worst), "{document:#}");

    // The longest waits are those of what it did not read.
    let longest = &document["waits"][0];
    assert_eq!(longest["thread"], worst["thread"], "{document:#}");
    assert_eq!(longest["holder"], "receiving_program", "{document:#}");
    assert!(longest["to"].as_str().unwrap().ends_with(&format!(":{port}")), "{longest:#}");
    assert!(number(longest, "held_ns") > 20_000_000, "{longest:#}");
    let [from, to] = [0, 1].map(|place| longest["bytes"][place].as_u64().unwrap());
    assert!(from < to && to <= (MESSAGES * b"a message".len()) as u64, "{longest:#}");
    // Its messages are followed to the other end, which is traced, too.
    let directions = document["worst"].as_array().unwrap();
    let read = directions.iter().filter_map(|direction| direction["messages"]["read"]["longest_ns"].as_u64());
    assert!(read.max().is_some_and(|longest| longest > 20_000_000), "{document:#}");

    let output = taut().args(["explain", "--full"]).arg(&events).output().unwrap();
    let told = text(&output.stdout);
    assert!(output.status.success() && told.contains("Longest waits"), "{told}");
    let rows = told.split("Threads, by how long data waited for them:").nth(1).unwrap();
    let named = rows.lines().find(|line| line.contains(", thread ")).unwrap_or_default();
    assert!(named.contains(&format!("({}), thread {late_thread} ", std::process::id())), "{told}");
}
