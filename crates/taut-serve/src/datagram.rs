//! Clients of datagram endpoints: one thread for all of an endpoint's clients.
//!
//! An address is answered only with what is no longer than its own datagram, and only after it has repeated a token
//! that was sent to it: a forged sender address gets one 64-byte challenge for a 64-byte hello, and nothing else.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use taut_link::affinity::{Placed, on_core};
use taut_link::bluetooth::Agreed;
use taut_link::clock::{self, RealtimeOffset};
use taut_link::wire::{
    self, Accept, AckPolicy, ArrivalRecord, CONTROL_BYTES, FETCH_BYTES, Frame, Hello, RECORDS_PER_FETCH, Refusal,
    Totals, Work,
};
use taut_link::{Error, Listener, PeerAddress, boot_identity, is_this_boot};
use taut_time::{Duration, Instant};

use crate::faults::sleep_until;
use crate::limits::{Rate, Slot};
use crate::look_period::LOOK_PERIOD;
use crate::processor;
use crate::seen::Seen;
use crate::shared::Shared;

/// How long a session that is over is kept, when its client does not say that it has the report: longer than a
/// client waits for an answer, so that no question comes to a session that is gone.
const LINGER: Duration = Duration::from_secs(10);
/// How long a challenge holds, at least; at most twice that.
const CHALLENGE: Duration = Duration::from_secs(10);

/// Pause between two attempts to find a broker again.
const AGAIN: Duration = Duration::from_secs(1);

/// Serves until the server stops. A broker that went away is waited for, and its clients begin anew.
pub(super) fn serve_all(listener: &Listener, shared: &Arc<Shared>) {
    tell_limit(listener, shared);
    serve_until_lost(listener, shared);
    let endpoint = listener.endpoint();
    let mut lost = listener.lost().unwrap_or_default();
    let mut why_not = String::new();
    while !shared.is_stopping() {
        if !lost.is_empty() {
            shared.notices.add(format!("{endpoint}: the broker {lost}; it is looked for again every second"));
            lost.clear();
        }
        let again = Listener::bind_unless(endpoint, shared.ending.flag());
        match again.and_then(|again| again.set_timeout(Some(LOOK_PERIOD)).map(|()| again)) {
            Ok(again) => {
                shared.notices.add(format!("{endpoint}: the broker is there again"));
                why_not.clear();
                tell_limit(&again, shared);
                serve_until_lost(&again, shared);
                lost = again.lost().unwrap_or_default();
            }
            Err(Error::Interrupted { .. }) => {}
            Err(error) => {
                // Each reason once.
                let error = error.to_string();
                if error != why_not {
                    shared.notices.add(error.clone());
                    why_not = error;
                }
                sleep_until(clock::now() + AGAIN, shared.ending.flag());
            }
        }
    }
}

/// Of a broker that takes less than we do clients with large messages should know.
fn tell_limit(listener: &Listener, shared: &Shared) {
    let ours = shared.config.limits.message_bytes.min(listener.endpoint().datagram_limit().unwrap_or(usize::MAX));
    if let Some(limit) = listener.broker_limit().filter(|limit| *limit < ours as u64) {
        let endpoint = listener.endpoint();
        shared.notices.add(format!(
            "{endpoint}: the server takes messages of at most {limit} bytes (max_payload), clients may ask for {ours}"
        ));
    }
}

fn serve_until_lost(listener: &Listener, shared: &Arc<Shared>) {
    let limit = shared.config.limits.message_bytes.max(FETCH_BYTES);
    // One byte more than allowed, so that a longer datagram shows.
    let mut buffer = vec![0; limit.min(listener.endpoint().datagram_limit().unwrap_or(limit)) + 1];
    let mut server = DatagramServer {
        listener,
        shared,
        key: RandomState::new(),
        clients: HashMap::new(),
        began: clock::now(),
        swept: clock::now(),
        placed: None,
        cpu_shared: clock::thread_cpu(),
        offset: RealtimeOffset::read(),
    };
    // What a broker sent may be in a buffer of ours, and it must hear of us now and then.
    let may_wait = !listener.endpoint().has_broker();
    while !shared.is_stopping() {
        if may_wait && server.clients.is_empty() {
            shared.ending.wait_with(listener);
            if shared.is_stopping() {
                return;
            }
        }
        match listener.receive_from(&mut buffer) {
            Ok((length, from)) => server.handle(&buffer[..length], &from),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) if listener.lost().is_some() => return,
            // For UDP, an earlier answer's ICMP error: nothing to do with the next client.
            Err(_) => clock::sleep(Duration::from_micros(100)),
        }
        server.sweep(clock::now());
    }
}

/// All that one datagram endpoint keeps.
struct DatagramServer<'a> {
    listener: &'a Listener,
    shared: &'a Shared,
    key: RandomState,
    clients: HashMap<PeerAddress, Client>,
    began: Instant,
    swept: Instant,
    /// Where the clients of now want this thread; back to where it was when there are none.
    placed: Option<Placed>,
    /// CPU time of this thread that the sessions have got their shares of.
    cpu_shared: Duration,
    /// How far the clock of arrivals is from ours.
    offset: RealtimeOffset,
}

struct Client {
    id: u64,
    hello: Hello,
    slot: Slot,
    rate: Rate,
    deadline: Instant,
    last_seen: Instant,
    summary: Totals,
    records: Vec<ArrivalRecord>,
    seen: Seen,
    /// Datagrams since the sessions last got their shares of the thread's CPU time.
    handled: u32,
    /// The client has said that the work is done.
    finished: bool,
}

impl DatagramServer<'_> {
    #[inline]
    fn handle(&mut self, datagram: &[u8], from: &PeerAddress) {
        self.shared.bytes_in.fetch_add(datagram.len() as u64, Ordering::Relaxed);
        match wire::data_sequence(datagram) {
            Some((session, sequence)) => self.handle_data(datagram, session, sequence, from),
            None => self.handle_control(datagram, from),
        }
    }

    #[inline]
    fn handle_data(&mut self, datagram: &[u8], id: u64, sequence: u64, from: &PeerAddress) {
        let now = clock::now();
        let Some(session) = self.clients.get_mut(from).filter(|session| session.id == id && !session.finished) else {
            return self.drop_datagram();
        };
        let is_over = now > session.deadline;
        if is_over || datagram.len() > session.hello.message_bytes as usize || session.rate.pass(now).is_err() {
            return self.drop_datagram();
        }
        session.last_seen = now;
        session.handled = session.handled.saturating_add(1);
        match session.hello.work {
            Work::Echo => {
                self.shared.config.faults.wait(self.began, self.shared.ending.flag());
                if self.listener.send_to(datagram, from).is_err() {
                    self.drop_datagram();
                }
            }
            Work::Collect => {
                if session.records.len().is_multiple_of(64) {
                    self.offset = RealtimeOffset::read();
                }
                session.collect(datagram.len(), sequence, self.listener.arrival(self.offset), now);
            }
            Work::Sink | Work::Source | Work::Duplex | Work::Crowd | Work::Shape => {
                // A repeat would stand in for one that was lost.
                if !session.seen.is_new(sequence) {
                    return self.drop_datagram();
                }
                session.count(datagram.len(), now);
            }
        }
    }

    fn handle_control(&mut self, datagram: &[u8], from: &PeerAddress) {
        let number = wire::number_of(datagram);
        let (id, frame) = match Frame::parse(datagram) {
            Ok(parsed) => parsed,
            Err(error) => {
                // Only what is as long as a hello is worth an answer: never one to a mere scrap.
                if datagram.len() == CONTROL_BYTES && wire::frame_length(datagram) == Ok(CONTROL_BYTES) {
                    self.answer(&Frame::Refuse(Refusal::of(error)), (0, number), from);
                }
                self.shared.misbehaved.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        if let Frame::Hello(hello) = frame {
            return self.handle_hello(hello, number, from);
        }
        if frame == Frame::Bye {
            self.share_cpu();
        }
        let now = clock::now();
        let Some(session) = self.clients.get_mut(from).filter(|session| session.id == id) else {
            return self.drop_datagram();
        };
        if now > session.deadline || session.rate.pass(now).is_err() {
            return self.drop_datagram();
        }
        session.last_seen = now;
        session.handled = session.handled.saturating_add(1);
        let answer = match frame {
            Frame::Clock { .. } => Frame::Clock { server_ns: now.as_nanos() },
            Frame::Start => Frame::Ready,
            Frame::Bye => Frame::Summary(session.finish()),
            Frame::Fetch { index } => {
                let start = usize::try_from(index).unwrap_or(usize::MAX).min(session.records.len());
                let end = (start + RECORDS_PER_FETCH).min(session.records.len());
                Frame::Records { index, records: session.records[start..end].to_vec() }
            }
            Frame::Done => {
                self.clients.remove(from);
                return self.suit_clients();
            }
            _ => return self.drop_datagram(),
        };
        self.answer(&answer, (id, number), from);
    }

    fn handle_hello(&mut self, hello: Hello, number: u32, from: &PeerAddress) {
        let now = clock::now();
        let period = now.saturating_since(self.began).as_secs() / CHALLENGE.as_secs();
        let token = |period: u64| self.key.hash_one((from, hello.nonce, period)).max(1);
        if hello.token != token(period) && (period == 0 || hello.token != token(period - 1)) {
            return self.answer(&Frame::Challenge { token: token(period) }, (hello.nonce, number), from);
        }
        let answer = match self.admit(hello, from, now) {
            Ok(accept) => Frame::Accept(accept),
            Err(refusal) => {
                self.shared.refused.fetch_add(1, Ordering::Relaxed);
                Frame::Refuse(refusal)
            }
        };
        self.answer(&answer, (hello.nonce, number), from);
    }

    fn admit(&mut self, hello: Hello, from: &PeerAddress, now: Instant) -> Result<Accept, Refusal> {
        let limits = &self.shared.config.limits;
        limits.check(&hello)?;
        if matches!(hello.work, Work::Source | Work::Duplex | Work::Crowd | Work::Shape) {
            return Err(Refusal::WorkNotOffered);
        }
        match hello.acks {
            AckPolicy::System => {}
            AckPolicy::Prompt if self.listener.endpoint().acknowledges() => {}
            _ => return Err(Refusal::AcksNotOffered),
        }
        // A repeated hello, whose answer was lost, finds its session as it is.
        if self.clients.get(from).is_none_or(|session| session.id != hello.nonce) {
            self.clients.remove(from);
            let slot = self.shared.slots.take()?;
            self.place(&hello);
            self.shared.clients.fetch_add(1, Ordering::Relaxed);
            self.clients.insert(from.clone(), Client::new(hello, slot, self.shared, now));
            self.suit_clients();
        }
        Ok(Accept {
            receive_buffer: 0,
            credit_rule: None,
            agreed: Agreed::default(),
            boot: boot_identity(),
            max_message_bytes: u32::try_from(limits.message_bytes).unwrap_or(u32::MAX),
            max_duration: limits.session,
            core: processor::bound_core(&hello),
        })
    }

    /// Goes to the processor that a new client wants, unless there are others that want something else.
    fn place(&mut self, hello: &Hello) {
        let wish = |hello: &Hello| hello.core.filter(|_| is_this_boot(hello.boot));
        if self.clients.is_empty() {
            self.placed = None;
        }
        let agreed = self.clients.values().all(|session| wish(&session.hello) == wish(hello));
        if self.placed.is_none() && agreed {
            // A processor that it may not use leaves it where it is, and the answer says so.
            self.placed = on_core(wish(hello).map(usize::from)).unwrap_or(None);
        }
    }

    /// All clients come over one connection to a broker, which acknowledges at once and tells arrivals as long as one
    /// of them wants that.
    fn suit_clients(&self) {
        let any = |wants: fn(&Hello) -> bool| self.clients.values().any(|session| wants(&session.hello));
        self.listener.acknowledge_at_once(any(|hello| hello.acks == AckPolicy::Prompt));
        // Without such stamps there are no times of arrival, which the client says.
        let _ = self.listener.stamp_arrivals(any(|hello| hello.work == Work::Collect));
    }

    /// Gives each session its share of the CPU time that this thread has used since it last did: by
    /// the datagrams handled for it. What no session had a datagram in belongs to none.
    fn share_cpu(&mut self) {
        let used = clock::thread_cpu();
        let since = used.saturating_sub(self.cpu_shared);
        self.cpu_shared = used;
        let handled: u64 = self.clients.values().map(|session| u64::from(session.handled)).sum();
        for session in self.clients.values_mut().filter(|session| session.handled > 0) {
            session.summary.cpu += since.mul_f64(f64::from(session.handled) / handled as f64);
            session.handled = 0;
        }
    }

    /// Answers a question of that session and number; records are told by their index.
    fn answer(&self, frame: &Frame, (session, number): (u64, u32), to: &PeerAddress) {
        let mut bytes = frame.emit(session);
        if !matches!(frame, Frame::Records { .. }) {
            wire::set_number(&mut bytes, number);
        }
        if self.listener.send_to(&bytes, to).is_err() {
            self.drop_datagram();
        }
    }

    fn drop_datagram(&self) {
        self.shared.datagrams_dropped.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    fn sweep(&mut self, now: Instant) {
        if now.saturating_since(self.swept) > LOOK_PERIOD {
            self.swept = now;
            self.share_cpu();
            let idle = self.shared.config.limits.idle;
            self.clients.retain(|_, session| {
                let patience = if session.finished { LINGER } else { idle };
                now < session.deadline && now.saturating_since(session.last_seen) < patience
            });
            self.suit_clients();
        }
    }
}

impl Client {
    fn new(hello: Hello, slot: Slot, shared: &Shared, now: Instant) -> Self {
        let limits = &shared.config.limits;
        let deadline = limits.deadline(&hello, now);
        Self {
            id: hello.nonce,
            hello,
            slot,
            rate: Rate::new(limits.rate, now),
            deadline,
            last_seen: now,
            summary: Totals::default(),
            records: Vec::new(),
            seen: Seen::default(),
            handled: 0,
            finished: false,
        }
    }

    fn collect(&mut self, bytes: usize, sequence: u64, received: Option<Instant>, now: Instant) {
        self.count(bytes, now);
        if self.slot.take_record() {
            let received_ns = received.map_or(0, Instant::as_nanos);
            let end = (sequence.saturating_add(1)).saturating_mul(self.hello.message_bytes.into());
            self.records.push(ArrivalRecord { end, received_ns, read_ns: now.as_nanos() });
        } else {
            self.summary.records_dropped = self.summary.records_dropped.saturating_add(1);
        }
    }

    fn count(&mut self, bytes: usize, now: Instant) {
        if self.summary.messages == 0 {
            self.summary.first_ns = now.as_nanos();
        }
        self.summary.messages += 1;
        self.summary.bytes += bytes as u64;
        self.summary.last_ns = now.as_nanos();
    }

    const fn finish(&mut self) -> Totals {
        self.finished = true;
        self.summary
    }
}
