//! A writer and a reader with a broker between them that loses, repeats and forgets.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use proptest::prelude::*;
use taut_time::{Duration, Instant};

use super::carrier::Directions;
use super::envelope::Run;
use super::line::{Carrier, Leave, MOST_TOLD};
use super::reader::Reader;
use super::writer::{Answer, Writer};
use crate::broker::client::{Client, Letter, Message, Posted};
use crate::{Endpoint, clock};

/// Takes whatever is published, as one of MQTT 5 with QoS 1 does.
#[derive(Debug, Default)]
struct Taker {
    posted: VecDeque<Message>,
    tickets: VecDeque<u16>,
    next: u16,
    has_tags: bool,
}

impl Client for Taker {
    fn waits_for(&self) -> &'static str {
        "nothing"
    }

    fn is_ready(&self) -> bool {
        true
    }
    fn failure(&self) -> Option<&str> {
        None
    }
    fn fail(&mut self, _: &str) {}
    fn handle(&mut self, _: &[u8]) {}
    fn next_message(&mut self) -> Option<Message> {
        self.posted.pop_front()
    }
    fn has_message(&self) -> bool {
        !self.posted.is_empty()
    }
    fn publish(&mut self, _: &str, _: &[u8]) -> Result<bool, String> {
        unreachable!("messages are posted")
    }
    fn output(&self) -> &[u8] {
        &[]
    }
    fn wrote(&mut self, _: usize) {}
    fn about(&self) -> Option<String> {
        None
    }
    fn post(&mut self, letter: &Letter<'_>) -> Result<Posted, String> {
        let message = Message::new(letter.topic.to_owned(), letter.payload.to_vec());
        self.posted.push_back(message.with(None, letter.tag.map(str::to_owned)));
        if letter.is_casual {
            return Ok(Posted::Taken(None));
        }
        self.next += 1;
        self.tickets.push_back(self.next);
        Ok(Posted::Taken(Some(self.next)))
    }
    fn takes_tags(&self) -> bool {
        self.has_tags
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// So many messages come from the other end.
    Take(u8),
    /// They go to the broker, which acknowledges so many of those that it has.
    Pump(u8),
    /// The connection breaks.
    Break,
    /// The broker brings so many to the reader.
    Bring(u8),
    /// It forgets one, or brings one twice.
    Forget,
    Twice,
    /// A second passes, and both tell each other.
    Tell,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..20_u8).prop_map(Step::Take),
        (0..20_u8).prop_map(Step::Pump),
        Just(Step::Break),
        (0..20_u8).prop_map(Step::Bring),
        Just(Step::Forget),
        Just(Step::Twice),
        Just(Step::Tell),
    ]
}

struct World {
    writer: Writer,
    reader: Reader,
    taker: Taker,
    /// What the reader publishes.
    back: Taker,
    read: Vec<Vec<u8>>,
    now: Instant,
}

impl World {
    fn pump(&mut self, confirmed: usize) {
        self.writer.pump(&mut self.taker).unwrap();
        for ticket in self.taker.tickets.drain(..confirmed.min(self.taker.tickets.len())) {
            self.writer.confirm(ticket);
        }
    }

    fn bring(&mut self, count: usize) {
        for message in self.taker.posted.drain(..count.min(self.taker.posted.len())) {
            match message.topic.as_str() {
                "t" => self.reader.push(message),
                _ => self.reader.push_tally(message.payload()),
            }
        }
        let mut buffer = [0; 64];
        while let Some(length) = self.reader.next(None, &mut buffer) {
            self.read.push(buffer[..length].to_vec());
        }
    }

    fn tell(&mut self, over: bool) {
        self.now += Duration::from_secs(1);
        self.reader.tell(&mut self.back, self.now, false);
        while let Some(receipt) = self.back.posted.pop_front() {
            self.writer.take_receipt(receipt.payload(), self.now);
        }
        self.writer.tell(&mut self.taker, self.now, over);
    }
}

proptest! {
    #[test]
    fn both_accounts_add_up_and_are_what_came_out(
        steps in prop::collection::vec(step(), 0..80), limit in 1..40_usize, has_tags: bool,
    ) {
        let run = Run { writer: 1, epoch: 2 };
        let mut world = World {
            writer: Writer::new("t".to_owned(), "t/sent".to_owned(), run, limit).with(true, true),
            reader: Reader::new("t".to_owned(), "t/receipt".to_owned(), "r".to_owned(), 3).with(true, true),
            taker: Taker { has_tags, ..Taker::default() },
            back: Taker::default(),
            read: Vec::new(),
            now: Instant::from_nanos(1_000_000_000),
        };
        let mut sent = 0_u64;
        for step in steps {
            match step {
                Step::Take(count) => for _ in 0..count {
                    sent += 1;
                    world.writer.take(sent.to_string().as_bytes());
                },
                Step::Pump(confirmed) => world.pump(confirmed.into()),
                Step::Break => {
                    world.taker.tickets.clear();
                    world.writer.lose_connection();
                    world.reader.lose_connection();
                }
                Step::Bring(count) => world.bring(count.into()),
                Step::Forget => drop(world.taker.posted.pop_front()),
                Step::Twice => {
                    let first = world.taker.posted.front().cloned();
                    world.taker.posted.extend(first);
                }
                Step::Tell => world.tell(false),
            }
        }
        // All is brought to the broker and to the reader, and told.
        while !world.writer.is_done() {
            world.pump(usize::MAX);
        }
        for _ in 0..3 {
            world.bring(usize::MAX);
            world.tell(true);
        }
        let (written, heard) = (world.writer.account(true), world.reader.account());
        let mut distinct = world.read.clone();
        distinct.sort();
        distinct.dedup();
        prop_assert_eq!(distinct.len(), world.read.len(), "nothing is given on twice");
        prop_assert_eq!((written.sent, heard.read), (sent, world.read.len() as u64));
        let confirmed = sent - written.dropped_here - world.writer.given_up();
        prop_assert_eq!(written.confirmed_by_broker, Some(confirmed));
        prop_assert_eq!(written.readers.len(), 1);
        let told = &written.readers[0];
        prop_assert_eq!((told.read, told.twice, told.out_of_order), (heard.read, heard.twice, heard.out_of_order));
        prop_assert_eq!(told.read + written.dropped_here + told.missing, sent);
        prop_assert_eq!(heard.missing + heard.before, told.missing);
        let dropped_there = if told.read + told.missing > 0 { written.dropped_here } else { 0 };
        prop_assert_eq!((told.unanswered, heard.dropped_there), (0, dropped_there));
        let answer = world.writer.answer();
        prop_assert_eq!(answer, if told.missing == 0 { Answer::Whole } else { Answer::Told });
    }
}

/// A broker that acknowledges what comes, and closes the connection instead where it is told to. The messages that it
/// acknowledged, how often it closed, and what the writer gave up.
fn closing(messages: u64, mut closes: impl FnMut(&[u8]) -> bool) -> (Vec<String>, u32, Vec<(u64, usize)>) {
    let run = Run { writer: 1, epoch: 2 };
    let mut writer = Writer::new("t".to_owned(), "t/sent".to_owned(), run, 100).with(true, true);
    let mut broker = Taker { has_tags: true, ..Taker::default() };
    (1..=messages).for_each(|number| writer.take(number.to_string().as_bytes()));
    let (mut taken, mut breaks, mut given_up) = (Vec::new(), 0, Vec::new());
    while !writer.is_done() {
        writer.pump(&mut broker).unwrap();
        while let (Some(message), Some(ticket)) = (broker.posted.pop_front(), broker.tickets.pop_front()) {
            if closes(message.payload()) {
                (broker.posted, broker.tickets) = (VecDeque::new(), VecDeque::new());
                breaks += 1;
                given_up.extend(writer.lose_connection());
                assert!(breaks < 50, "{writer:?}");
                break;
            }
            taken.push(String::from_utf8_lossy(message.payload()).into_owned());
            writer.confirm(ticket);
        }
    }
    (taken, breaks, given_up)
}

fn numbers(of: impl Iterator<Item = u64>) -> Vec<String> {
    of.map(|number| number.to_string()).collect()
}

#[test]
fn a_message_at_which_the_broker_closes_each_time_is_given_up_and_no_other() {
    let (taken, breaks, given_up) = closing(40, |payload| payload == b"7");
    assert_eq!((taken, given_up), (numbers((1..=40).filter(|number| *number != 7)), vec![(7, 1)]));
    // Two with others, three alone, and one after another message has passed.
    assert_eq!(breaks, 6);
    // Two of them in a row.
    let (taken, breaks, given_up) = closing(40, |payload| [&b"7"[..], b"8"].contains(&payload));
    assert_eq!((taken, given_up), (numbers((1..=40).filter(|number| ![7, 8].contains(number))), vec![(7, 1), (8, 1)]));
    assert_eq!(breaks, 8);
}

/// With QoS 2 the broker closes before it has acknowledged what came in front of it.
#[test]
fn what_is_in_front_of_such_a_message_goes_alone_at_most_once() {
    let mut breaks = 0;
    let (taken, ..) = closing(40, |payload| {
        let number: u64 = String::from_utf8_lossy(payload).parse().unwrap();
        // Of sixteen at once, it is the last one that closes the connection, twice.
        let closes = number == 5 && breaks < 2 || number == 20;
        breaks += u32::from(closes);
        closes
    });
    assert_eq!((taken, breaks), (numbers((1..=40).filter(|number| *number != 20)), 6));
}

#[test]
fn connections_that_break_whatever_is_sent_give_nothing_up() {
    for bad in 1..=30 {
        let mut left = bad;
        let (mut taken, breaks, given_up) = closing(40, |_| {
            let closes = left > 0;
            left -= u32::from(closes);
            closes
        });
        taken.sort_by_key(|number| number.parse::<u64>().unwrap());
        assert_eq!((taken, breaks, given_up), (numbers(1..=40), bad, Vec::new()));
    }
}

#[test]
fn an_end_waits_as_long_as_something_is_taken() {
    let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
    let leave = || Leave { since: at(100), progress: (5, at(100)), answered: None };
    // Nothing is taken any more, or less than was.
    let mut still = leave();
    assert!(!still.is_over(5, at(109)) && still.is_over(4, at(110)));
    // Slowly, and then nothing.
    let mut slow = leave();
    assert!((1..=8).all(|number| !slow.is_over(5 + number, at(100 + 9 * number))));
    assert!(!slow.is_over(13, at(181)) && slow.is_over(13, at(182)));
    // For ever.
    let mut endless = leave();
    assert!((1..=119).all(|number| !endless.is_over(5 + number, at(100 + number))) && endless.is_over(1000, at(220)));
}

/// A broker of MQTT 5 that lets a client in, takes its subscriptions, and ends the connection with a reason.
fn end_with_a_reason(mut stream: TcpStream) -> std::io::Result<()> {
    let mut packet = [0; 1024];
    // Its CONNECT, and a SUBSCRIBE of less than 128 bytes, with its number behind the length.
    if stream.read(&mut packet)? == 0 {
        return Ok(());
    }
    stream.write_all(&[0x20, 3, 0, 0, 0])?;
    if stream.read(&mut packet)? < 4 {
        return Ok(());
    }
    stream.write_all(&[0x90, 5, packet[2], packet[3], 0, 1, 1])?;
    // Long enough for the client to be in; then: quota exceeded.
    thread::sleep(Duration::from_millis(20));
    stream.write_all(&[0xE0, 2, 0x97, 0])?;
    // What is unread would take the reason away.
    let _ = stream.read(&mut packet);
    Ok(())
}

/// Who ends a session and says why has it still: to come again at once, each time, would be a busy loop.
#[test]
fn a_lasting_session_that_is_ended_for_a_reason_is_not_asked_for_again_and_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("mqtt://{}/t?v=5&qos=1&session=s", listener.local_addr().unwrap());
    let endpoint: Endpoint = address.parse().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::Relaxed);
            // A client that has gone needs no answer.
            let _ = end_with_a_reason(stream);
        }
    });
    let directions = Directions { writes: false, reads: true, topic_is_heard: true };
    let mut carrier = Carrier::open(&endpoint, directions, Duration::from_secs(10)).unwrap();
    let until = clock::now() + Duration::from_millis(700);
    while clock::now() < until {
        carrier.drive(clock::now());
        thread::sleep(Duration::from_millis(1));
    }
    // At once, and then after 0.1, 0.2 and 0.4 s.
    let connections = connections.load(Ordering::Relaxed);
    assert!((2..=6).contains(&connections), "{connections}");
    assert!(carrier.take_error().is_none());
}

/// A broker of MQTT 5 that lets one client in with these bytes, and what it then does with the connection; its address.
fn broker(connack: &'static [u8], then: impl FnOnce(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("mqtt://{}/t?v=5&envelope=off", listener.local_addr().unwrap());
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        // Its CONNECT; there is nothing that it subscribes to.
        assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
        stream.write_all(connack).unwrap();
        then(stream);
    });
    address
}

/// One that only publishes there.
fn publisher(address: &str) -> Carrier {
    let endpoint: Endpoint = address.parse().unwrap();
    let directions = Directions { writes: true, reads: false, topic_is_heard: false };
    Carrier::open(&endpoint, directions, Duration::from_secs(10)).unwrap()
}

/// A broker of MQTT 3.1.1 that acknowledges short messages and closes the connection at another one.
fn take_short_ones(mut stream: TcpStream) -> std::io::Result<()> {
    let mut packet = [0; 1024];
    // Its CONNECT; there is nothing that it subscribes to.
    if stream.read(&mut packet)? == 0 {
        return Ok(());
    }
    stream.write_all(&[0x20, 2, 0, 0])?;
    loop {
        // PUBLISH of less than 128 bytes to `t`, with its number behind that.
        stream.read_exact(&mut packet[..2])?;
        let length = usize::from(packet[1]);
        stream.read_exact(&mut packet[..length])?;
        if length > 100 {
            // What is unread would take the acknowledgements before it away.
            stream.shutdown(Shutdown::Write)?;
            while stream.read(&mut packet)? > 0 {}
            return Ok(());
        }
        stream.write_all(&[0x40, 2, packet[3], packet[4]])?;
    }
}

#[test]
fn a_message_at_which_the_broker_closes_is_no_client_that_takes_the_session_over() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("mqtt://{}/t?qos=1&session=s&envelope=off", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // The client has gone.
            let _ = take_short_ones(stream);
        }
    });
    let mut carrier = publisher(&address);
    for number in 1..=10 {
        carrier.press(if number == 7 { &[0; 105][..] } else { &b"1"[..] });
    }
    let begin = clock::now().as_nanos();
    let mut notes: Vec<String> = Vec::new();
    let at_seven =
        |notes: &[String]| notes.iter().filter(|note| note.contains("at message 7 (105 bytes) each time")).count();
    while at_seven(&notes) == 0 {
        let since = clock::now().as_nanos() - begin;
        assert!(since < 10_000_000_000 && !carrier.has_left(), "{carrier:?}");
        // Time is faster here: it waits for a second after each connection.
        carrier.drive(Instant::from_nanos(begin + 10 * since));
        notes.extend(std::iter::from_fn(|| carrier.take_note()));
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((at_seven(&notes), carrier.account().written.unwrap().confirmed_by_broker), (1, Some(9)), "{notes:?}");
    assert!(carrier.take_error().is_none());
}

fn drive_until(carrier: &mut Carrier, is_so: impl Fn(&Carrier) -> bool) {
    let until = clock::now() + Duration::from_secs(10);
    while !is_so(carrier) {
        assert!(clock::now() < until, "{carrier:?}");
        carrier.drive(clock::now());
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_pressed_on_a_carrier_that_is_refused_is_dropped_at_once() {
    let address = broker(&[0x20, 3, 0, 0, 0], |mut stream| {
        // PUBLISH of less than 128 bytes to `t`, with its number behind that; not authorised.
        let mut packet = [0; 1024];
        assert!(stream.read(&mut packet).unwrap() > 7);
        stream.write_all(&[0x40, 3, packet[5], packet[6], 0x87]).unwrap();
        // What is unread would take the answer away.
        while stream.read(&mut packet).is_ok_and(|bytes| bytes > 0) {}
    });
    let mut carrier = publisher(&format!("{address}&qos=1"));
    carrier.press(b"1");
    drive_until(&mut carrier, Carrier::has_left);
    let error = carrier.take_error().unwrap().to_string();
    assert!(error.contains("refused a message"), "{error}");
    (0..5).for_each(|_| carrier.press(b"2"));
    let written = carrier.account().written.unwrap();
    assert_eq!((written.sent, written.dropped_here, written.confirmed_by_broker), (6, 5, Some(0)));
}

#[test]
fn messages_that_a_broker_does_not_take_are_each_counted_and_said_once() {
    // Maximum Packet Size 64.
    let address = broker(&[0x20, 8, 0, 0, 5, 0x27, 0, 0, 0, 64], |mut stream| {
        while stream.read(&mut [0; 1024]).is_ok_and(|bytes| bytes > 0) {}
    });
    let mut carrier = publisher(&address);
    for count in 1..=20 {
        carrier.press(&[0; 100]);
        drive_until(&mut carrier, |carrier| carrier.account().written.unwrap().dropped_here == count);
    }
    carrier.press(b"1");
    let notes: Vec<String> = std::iter::from_fn(|| carrier.take_note()).collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("its limit is 64 bytes"), "{notes:?}");
    assert_eq!(carrier.account().written.unwrap().sent, 21);
}

#[test]
fn a_broker_that_ends_each_connection_is_told_of_so_often_and_again_when_one_lasts() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("mqtt://{}/t?envelope=off", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut packet = [0; 1024];
            // Its CONNECT; what is published after that is not wanted.
            assert!(stream.read(&mut packet).unwrap() > 0);
            stream.write_all(&[0x20, 2, 0, 0]).unwrap();
            let _ = stream.read(&mut packet);
        }
    });
    let mut carrier = publisher(&address);
    let notes = |carrier: &mut Carrier| std::iter::from_fn(|| carrier.take_note()).collect::<Vec<String>>();
    // The one before has been told of.
    carrier.short_lived = MOST_TOLD - 1;
    let mut told = Vec::new();
    for reconnections in 1..=3 {
        carrier.press(b"1");
        drive_until(&mut carrier, |carrier| carrier.account().reconnections == reconnections);
        told.extend(notes(&mut carrier));
    }
    assert!(told.len() == 1 && told[0].contains("no more is said"), "{told:?}");
    carrier.drive(clock::now() + Duration::from_secs(6));
    let told = notes(&mut carrier);
    assert!(told.len() == 1 && told[0].contains("with the broker again"), "{told:?}");
    assert_eq!(carrier.short_lived, 0);
}
