//! The other end of the links: sends a message on some of them, and waits until all replies are in.

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use taut_link::{Endpoint, Epoll, Error, Link, Result, SocketOption, clock, descriptors};
use taut_time::{Duration, Instant};

use super::plan::MESSAGE_BYTES;
use crate::interrupt::Interrupt;

/// All links to one host.
pub(super) struct Crowd {
    endpoint: Endpoint,
    links: Vec<Link>,
    /// Asks for replies again and again instead of sleeping until there are some.
    spins: bool,
    epoll: Epoll,
    flights: Vec<Flight>,
    /// Indices of the links; those drawn for an exchange stand first.
    order: Vec<u32>,
    draw: Draw,
    sequence: u64,
    /// Round trips of the last exchange.
    times: Vec<Duration>,
}

/// The message of one link.
#[derive(Clone, Copy)]
struct Flight {
    sequence: u64,
    sent: Instant,
    reply: [u8; MESSAGE_BYTES],
    arrived: usize,
    is_open: bool,
}

/// How an exchange came to its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ending {
    /// Every message was answered.
    Whole,
    /// No reply came for the length of the time-out.
    Silent,
    /// The user wants to stop.
    Interrupted,
}

/// Longest time between two looks at the interrupt.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// Longest wait for one link to open.
const CONNECT: Duration = Duration::from_secs(10);
/// Links that one wait tells of at most.
const EVENTS: usize = 1024;
/// Messages under way at once in the roll call.
const ROLL_CALL: usize = 500;

impl Crowd {
    /// Opens `count` links; `None` when the user wants to stop.
    pub(super) fn connect(
        endpoint: &Endpoint,
        count: usize,
        spins: bool,
        interrupt: &Interrupt,
    ) -> Result<Option<Self>> {
        descriptors::make_room(count)?;
        let fail = |error: std::io::Error| Error::Unavailable(format!("epoll for {count} links: {error}"));
        let epoll = Epoll::new(EVENTS).map_err(fail)?;
        let mut links = Vec::with_capacity(count);
        for index in 0..count {
            if interrupt.is_set() {
                return Ok(None);
            }
            let link = Link::connect(endpoint, CONNECT).map_err(|error| explain(error, links.len(), count))?;
            if endpoint.acknowledges() {
                SocketOption::Nodelay(true).apply(&link)?;
            }
            link.reset_on_close()?;
            link.set_nonblocking(true)?;
            epoll.add(&link, index as u64, EventFlags::IN).map_err(|errno| fail(errno.into()))?;
            links.push(link);
        }
        let idle =
            Flight { sequence: 0, sent: Instant::from_nanos(0), reply: [0; MESSAGE_BYTES], arrived: 0, is_open: false };
        Ok(Some(Self {
            endpoint: endpoint.clone(),
            links,
            spins,
            epoll,
            flights: vec![idle; count],
            order: (0..u32::try_from(count).unwrap_or(u32::MAX)).collect(),
            draw: Draw::new(0),
            sequence: 0,
            times: Vec::with_capacity(count),
        }))
    }

    /// Begins a new series of draws, the same for every crowd of this size.
    pub(super) fn seed(&mut self, seed: u64) {
        self.draw = Draw::new(seed);
        self.order.sort_unstable();
    }

    /// Round trips of the last exchange.
    pub(super) fn times(&self) -> &[Duration] {
        &self.times
    }

    /// Sends a message on each of `active` links drawn at random, and waits for all replies. Says how many came.
    pub(super) fn exchange(
        &mut self,
        active: usize,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<(usize, Ending)> {
        self.draw.bring_forward(&mut self.order, active);
        self.times.clear();
        self.send(0..active)?;
        let ending = self.collect(active, timeout, interrupt)?;
        Ok((self.times.len(), ending))
    }

    /// Sends a message on every link, some at a time, and waits for all replies. Says how many came.
    pub(super) fn roll_call(&mut self, timeout: Duration, interrupt: &Interrupt) -> Result<(usize, Ending)> {
        let count = self.links.len();
        self.times.clear();
        let mut sent = 0;
        let mut batch = ROLL_CALL;
        loop {
            let end = (sent + batch).min(count);
            self.send(sent..end)?;
            sent = end;
            match self.collect(sent, timeout, interrupt)? {
                Ending::Interrupted => return Ok((self.times.len(), Ending::Interrupted)),
                ending if sent == count => return Ok((self.times.len(), ending)),
                Ending::Whole => {}
                // Somebody is left out: all others at once, or it would take a time-out for each batch.
                Ending::Silent => batch = count,
            }
        }
    }

    fn send(&mut self, range: std::ops::Range<usize>) -> Result<()> {
        for place in range {
            let index = self.order[place];
            let link = &self.links[index as usize];
            self.sequence += 1;
            let flight = &mut self.flights[index as usize];
            *flight =
                Flight { sequence: self.sequence, sent: clock::now(), arrived: 0, is_open: true, reply: flight.reply };
            let message = message(self.sequence, index);
            match link.send(&message) {
                Ok(MESSAGE_BYTES) => {}
                // There is room for thousands of messages on a link, and one is under way at most.
                Ok(_) | Err(Errno::AGAIN) => return Err(link.error("send on", Errno::NOBUFS)),
                Err(errno) => return Err(link.error("send on", errno)),
            }
        }
        Ok(())
    }

    /// Waits until as many replies are in as there should be.
    fn collect(&mut self, expected: usize, timeout: Duration, interrupt: &Interrupt) -> Result<Ending> {
        let mut last_reply = clock::now();
        while self.times.len() < expected {
            if interrupt.is_set() {
                return Ok(Ending::Interrupted);
            }
            let left = (last_reply + timeout).saturating_since(clock::now());
            if left.is_zero() {
                return Ok(Ending::Silent);
            }
            self.wait(if self.spins { Duration::ZERO } else { left.min(LOOK_PERIOD) })?;
            let before = self.times.len();
            for place in 0..self.epoll.events().len() {
                let index = self.epoll.events()[place].data.u64() as usize;
                self.receive(index)?;
            }
            if self.times.len() > before {
                last_reply = clock::now();
            }
        }
        Ok(Ending::Whole)
    }

    fn wait(&mut self, at_most: Duration) -> Result<()> {
        let waited = self.epoll.wait(Some(at_most)).map(drop);
        waited.map_err(|error| Error::Host { what: format!("epoll for {} links", self.links.len()), error })
    }

    #[inline]
    fn receive(&mut self, index: usize) -> Result<()> {
        let flight = &mut self.flights[index];
        // A byte that nobody asked for is read as well, or it would be reported again and again.
        let room = if flight.is_open { &mut flight.reply[flight.arrived..] } else { &mut [0][..] };
        match self.links[index].receive(room) {
            Ok(0) => Err(Error::Closed { endpoint: self.endpoint.to_string(), when: "in the middle of the crowd" }),
            Ok(_) if !flight.is_open => Err(self.broken("it sent more than it was sent")),
            Ok(bytes) => {
                flight.arrived += bytes;
                if flight.arrived < MESSAGE_BYTES {
                    return Ok(());
                }
                flight.is_open = false;
                let took = clock::now().saturating_since(flight.sent);
                if flight.reply != message(flight.sequence, index as u32) {
                    return Err(self.broken("a reply is not what was sent"));
                }
                self.times.push(took);
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(errno) => Err(self.links[index].error("receive on", errno)),
        }
    }

    fn broken(&self, what: &str) -> Error {
        Error::Protocol { endpoint: self.endpoint.to_string(), what: what.to_owned() }
    }
}

/// Why a link could not be opened, in words that say what to do.
fn explain(error: Error, open: usize, wanted: usize) -> Error {
    match error {
        Error::Io { error: source, .. } if source.kind() == std::io::ErrorKind::AddrNotAvailable => {
            let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
            let range = range.split_whitespace().collect::<Vec<_>>().join(" to ");
            Error::Unavailable(format!(
                "{open} of {wanted} connections are open and no local port is left: one address has those of \
                 net.ipv4.ip_local_port_range ({range}); widen it, or take fewer connections"
            ))
        }
        error => error,
    }
}

/// What is sent: no two messages are alike.
fn message(sequence: u64, index: u32) -> [u8; MESSAGE_BYTES] {
    let mut message = [0xA5; MESSAGE_BYTES];
    message[..8].copy_from_slice(&sequence.to_be_bytes());
    message[8..12].copy_from_slice(&index.to_be_bytes());
    message
}

/// Draws links at random, the same ones for the same seed (SplitMix64).
struct Draw(u64);

impl Draw {
    const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// Brings `count` of the elements to the front, each as likely as any other (Fisher and Yates,
    /// the first steps of it).
    fn bring_forward(&mut self, order: &mut [u32], count: usize) {
        for place in 0..count.min(order.len()) {
            let rest = (order.len() - place) as u64;
            order.swap(place, place + (self.next() % rest) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const SHORT: Duration = Duration::from_millis(200);

    /// A crowd of `count` links to a server which answers on those for which `answers` holds, as `answer` says.
    fn crowd(count: usize, answers: fn(usize) -> bool, answer: fn(&mut [u8])) -> Crowd {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
        thread::spawn(move || {
            for index in 0..count {
                let (mut stream, _) = listener.accept().unwrap();
                thread::spawn(move || {
                    let mut message = [0; MESSAGE_BYTES];
                    while stream.read_exact(&mut message).is_ok() {
                        if answers(index) {
                            answer(&mut message);
                            // In two pieces, so that a reply may come in parts.
                            stream.write_all(&message[..5]).unwrap();
                            stream.write_all(&message[5..]).unwrap();
                        }
                    }
                });
            }
        });
        Crowd::connect(&endpoint, count, false, &Interrupt::default()).unwrap().unwrap()
    }

    #[test]
    fn all_replies_of_an_exchange_are_waited_for() {
        let mut crowd = crowd(20, |_| true, |_| {});
        let interrupt = Interrupt::default();
        assert_eq!(crowd.roll_call(SHORT * 20, &interrupt).unwrap(), (20, Ending::Whole));
        for active in [1, 7, 20] {
            assert_eq!(crowd.exchange(active, SHORT * 20, &interrupt).unwrap(), (active, Ending::Whole));
            assert_eq!(crowd.times().len(), active);
            assert!(crowd.times().iter().all(|time| !time.is_zero()));
        }
    }

    #[test]
    fn those_who_never_answer_are_counted_and_end_the_wait() {
        let mut crowd = crowd(700, |index| index % 10 != 3, |_| {});
        let began = clock::now();
        assert_eq!(crowd.roll_call(SHORT, &Interrupt::default()).unwrap(), (630, Ending::Silent));
        assert!(clock::now().saturating_since(began) < SHORT * 20);
    }

    #[test]
    fn an_interrupt_ends_the_wait() {
        let mut crowd = crowd(2, |_| false, |_| {});
        let interrupt = Interrupt::default();
        interrupt.flag().store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(crowd.exchange(1, SHORT * 100, &interrupt).unwrap(), (0, Ending::Interrupted));
    }

    #[test]
    fn a_wrong_reply_is_none() {
        let mut crowd = crowd(1, |_| true, |message| message[20] ^= 1);
        let error = crowd.exchange(1, SHORT * 20, &Interrupt::default()).unwrap_err().to_string();
        assert!(error.contains("not what was sent"), "{error}");
    }

    #[test]
    fn draws_are_repeatable_and_take_everyone() {
        let draw = |seed| {
            let mut order: Vec<u32> = (0..100).collect();
            Draw::new(seed).bring_forward(&mut order, 10);
            order
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1)[..10], draw(2)[..10]);
        let mut all = draw(3);
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
        let mut seen = [false; 100];
        (0..200).for_each(|seed| draw(seed)[..10].iter().for_each(|&index| seen[index as usize] = true));
        assert!(seen.iter().all(|&seen| seen));
    }
}
