//! One pair of ends, from its opening to its account.

use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;

use taut_link::Fault;
use taut_link::broker::BrokerAccount;
use taut_time::{Duration, Instant};

use crate::end::{End, Form, Left, Unread};
use crate::flow::{Flow, Next, Tee, Turn};
use crate::open::Which;
use crate::plan::{Options, Plan};
use crate::report::{Account, EndedBy, PipeReport};

/// How long a pipe that is over waits for the other sides to acknowledge what they were sent, and for programs to end.
const CLOSING: Duration = Duration::from_secs(5);
/// The same where an end is a broker, which may be away: longer than its connection waits for it by itself.
const CLOSING_WITH_BROKER: Duration = Duration::from_secs(15);
/// How long a client that sends messages may be silent where no limit was set: nothing else tells that it
/// has gone. So long is also waited, for an end that is not open yet, with what a client has left behind.
const SILENT_CLIENT: Duration = Duration::from_secs(60);

/// How long a client that has only closed its side, with nothing to send, is kept while it waits:
/// one that will read and one that has gone look alike.
const HALF_CLOSED: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    /// A client begins TLS.
    Greeting { until: Instant },
    /// An end is being opened.
    Opening,
    /// The other end's client has not come yet.
    Parked,
    /// An end failed to open and is tried again at a time.
    BackingOff { until: Instant },
    /// Bytes move.
    Running,
    /// All was moved; what the other sides have got is waited for.
    Closing { until: Instant, next_look: Instant, pause: Duration },
}

/// Sees the bytes that either end has sent.
pub(crate) type Tap<'a> = &'a mut dyn FnMut(Which, &[u8]);

pub(crate) struct Pipe {
    pub(crate) number: u64,
    pub(crate) plan: usize,
    pub(crate) began: Instant,
    pub(crate) ends: [Option<End>; 2],
    pub(crate) phase: Phase,
    pub(crate) failures: u32,
    /// In the list of those that have a turn.
    pub(crate) is_queued: bool,
    /// The time for which it is in the heap.
    pub(crate) alarm: Option<Instant>,
    flows: [Flow; 2],
    waits: [Option<Instant>; 2],
    last_move: Instant,
    ended: Option<(EndedBy, String, bool)>,
    linger_from: Option<Instant>,
    /// Since when a client that waits has been seen to have closed its side.
    half_closed: Option<Instant>,
    fault: Option<Fault>,
    unread: [Unread; 2],
    asked_to_end: bool,
}

impl Pipe {
    pub(crate) fn new(number: u64, plan: usize, now: Instant) -> Self {
        Self {
            number,
            plan,
            began: now,
            ends: [None, None],
            phase: Phase::Opening,
            failures: 0,
            is_queued: false,
            alarm: None,
            flows: [Flow::default(), Flow::default()],
            waits: [None, None],
            last_move: now,
            ended: None,
            linger_from: None,
            half_closed: None,
            fault: None,
            unread: [Unread::default(); 2],
            asked_to_end: false,
        }
    }

    /// Both ends are there.
    pub(crate) fn run(&mut self, options: &Options, now: Instant) {
        if let [Some(a), Some(b)] = &self.ends {
            let lost = [self.flows[0].lost, self.flows[1].lost];
            self.flows = [
                Flow::new(a, b, options.framing, options.rate, now),
                Flow::new(b, a, options.framing, options.rate, now),
            ];
            // While the other end was being opened there may have been no room for all that came.
            for (flow, lost) in self.flows.iter_mut().zip(lost) {
                flow.lost = lost;
            }
            self.last_move = now;
            self.phase = Phase::Running;
        }
    }

    /// An end could not be opened.
    pub(crate) fn fail(&mut self, which: usize, error: &taut_link::Error) {
        self.fault = Some(error.fault());
        let by = if which == 0 { EndedBy::A } else { EndedBy::B };
        self.ended.get_or_insert_with(|| (by, error.to_string(), true));
    }

    /// Ends it from outside.
    pub(crate) fn end(&mut self, by: EndedBy, why: &str) {
        self.ended.get_or_insert_with(|| (by, why.to_owned(), false));
    }

    /// The phase of TLS before anything else; whether it is over, or at which end it failed and why.
    pub(crate) fn greet(&mut self) -> Result<bool, (usize, taut_link::Error)> {
        for (which, end) in self.ends.iter_mut().enumerate() {
            let Some(end) = end else { continue };
            if let (Form::Tls(tls), Some(fd)) = (&mut end.form, &end.input) {
                match tls.greet(fd.as_fd()) {
                    Ok(true) => {}
                    Ok(false) => return Ok(false),
                    Err(error) => {
                        let (endpoint, reason) = (end.name.clone(), error.to_string());
                        return Err((which, taut_link::Error::Unsecured { endpoint, reason }));
                    }
                }
            }
        }
        Ok(true)
    }

    /// The end whose TLS has not begun yet.
    pub(crate) fn greeting(&self) -> Option<(usize, &End)> {
        let is_greeting = |end: &End| matches!(&end.form, Form::Tls(tls) if tls.is_greeting());
        let ends = self.ends.iter().enumerate();
        ends.filter_map(|(which, end)| Some((which, end.as_ref()?))).find(|(_, end)| is_greeting(end))
    }

    /// Gives both directions a turn. Whether they want another one at once.
    pub(crate) fn turn(&mut self, options: &Options, turn: &mut Turn<'_>, tee: Option<Tap<'_>>) -> bool {
        let mut tee = tee;
        let [Some(a), Some(b)] = &mut self.ends else { return false };
        let mut more = false;
        a.drive(turn.now);
        b.drive(turn.now);
        for which in [0, 1] {
            let (from, to) = if which == 0 { (&mut *a, &mut *b) } else { (&mut *b, &mut *a) };
            let flow = &mut self.flows[which];
            let before = (flow.taken, flow.delivered);
            let was_over = flow.stop.is_some();
            let mut copy = tee.as_mut().map(|tee| |bytes: &[u8]| tee(Which::of(which), bytes));
            let mut turn = Turn {
                now: turn.now,
                scratch: &mut *turn.scratch,
                spare: &mut *turn.spare,
                tee: copy.as_mut().map(|copy| copy as Tee<'_>),
            };
            let next = flow.turn(from, to, &mut turn);
            if (flow.taken, flow.delivered) != before {
                self.last_move = turn.now;
            }
            self.waits[which] = if let Next::Until(time) = next { Some(time) } else { None };
            // What ends one direction may end the other, which had its turn before.
            more |= next == Next::More || next == Next::Over && !was_over;
            if next == Next::Over
                && let Some(stop) = &flow.stop
                && !flow.is_absent
            {
                let by = if (which == 0) == stop.by_source { EndedBy::A } else { EndedBy::B };
                // What a broker refuses comes behind the end of what it was sent, and concerns that.
                let is_of_broker = matches!((if stop.by_source { from } else { to }).form, Form::Broker(_));
                let is_late = is_of_broker && stop.error.is_some() && !was_over;
                let has_failed = self.ended.as_ref().is_some_and(|(_, _, failed)| *failed);
                if self.ended.is_none() || is_late && !has_failed {
                    let why = stop.error.clone().unwrap_or_else(|| "closed".to_owned());
                    self.ended = Some((by, why, stop.error.is_some()));
                }
            }
        }
        more |= a.drive(turn.now) | b.drive(turn.now);
        self.look_at_ends(options, turn.now);
        more
    }

    /// What a user may want to read.
    pub(crate) fn take_note(&mut self) -> Option<String> {
        self.ends.iter_mut().flatten().find_map(End::take_note)
    }

    /// Takes what ended a broker's connection when nothing was read from it or written to it any more. It counts more
    /// than an end in order, as of what had been written the broker may have taken nothing.
    fn heed_errors(&mut self) {
        for (which, end) in self.ends.iter_mut().enumerate() {
            let has_failed = self.ended.as_ref().is_some_and(|(_, _, failed)| *failed);
            if let Some(error) = end.as_mut().and_then(End::take_error)
                && !has_failed
            {
                let by = if which == 0 { EndedBy::A } else { EndedBy::B };
                self.ended = Some((by, error.to_string(), true));
            }
        }
    }

    /// How long it waits when it is over.
    fn closing(&self) -> Duration {
        let has_broker = self.ends.iter().flatten().any(|end| matches!(end.form, Form::Broker(_)));
        if has_broker { CLOSING_WITH_BROKER } else { CLOSING }
    }

    /// What follows from directions that are over.
    fn look_at_ends(&mut self, options: &Options, now: Instant) {
        let is_over = |which: usize| self.flows[which].stop.is_some();
        let [Some(a), Some(b)] = &self.ends else { return };
        let can_be_told = |flow: &Flow, back: &Flow, from: &End, to: &End| match &flow.stop {
            Some(_) if flow.is_absent || flow.discarded.is_some() => true,
            // What comes back is not wanted.
            Some(_) if back.discarded.is_some() => false,
            Some(stop) if stop.by_source => to.halves,
            // The sink is gone: the source would have to be told not to send any more, which no kind can.
            Some(_) => from.halves,
            None => true,
        };
        // A broker's connection that is over for good is so both ways.
        let is_gone = a.is_gone() && is_over(0) || b.is_gone() && is_over(1);
        if is_over(0) && is_over(1) || is_gone {
            self.close(now);
            return;
        }
        let [to_b, to_a] = &self.flows;
        if !can_be_told(to_b, to_a, a, b) || !can_be_told(to_a, to_b, b, a) {
            let from = *self.linger_from.get_or_insert(now);
            if now.saturating_since(from.max(self.last_move)) >= options.linger {
                self.close(now);
            }
        }
    }

    /// Nothing more is moved.
    pub(crate) fn close(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Closing { .. }) {
            return;
        }
        self.heed_errors();
        for (which, end) in self.ends.iter_mut().enumerate() {
            let Some(end) = end else { continue };
            self.unread[which] = end.unread();
            end.wind_up(now);
            if end.child.is_some() {
                // It sees the end of its input, or its terminal hangs up.
                end.input = None;
                end.output = None;
            }
        }
        self.phase = Phase::Closing { until: now + self.closing(), next_look: now, pause: Duration::from_millis(1) };
    }

    /// Whether what was sent has arrived and programs have ended, or there was time enough for both.
    pub(crate) fn is_closed(&mut self, options: &Options, now: Instant) -> bool {
        let Phase::Closing { until, next_look, pause } = self.phase else { return false };
        let failed = self.ended.as_ref().is_some_and(|(_, _, failed)| *failed);
        let mut waits = false;
        let began = until.offset_by(-(self.closing().as_nanos() as i64));
        for which in [0, 1] {
            let Some(end) = &mut self.ends[which] else { continue };
            waits |= end.is_winding_up(now);
            if end.child.is_some() {
                if end.exit_status().is_none() {
                    waits = true;
                    if !self.asked_to_end && now.saturating_since(began) >= options.linger {
                        self.asked_to_end = true;
                        if let Some(child) = &end.child
                            && let Some(pid) = rustix::process::Pid::from_raw(child.id() as i32)
                        {
                            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
                        }
                    }
                }
                continue;
            }
            let finished = self.flows[1 - which].stop.is_some();
            waits |= !failed && end.unconfirmed(finished).is_some_and(|bytes| bytes > 0) && end.may_confirm();
        }
        self.heed_errors();
        if !waits || now >= until {
            return true;
        }
        if now >= next_look {
            let pause = (pause * 2).min(Duration::from_millis(50));
            self.phase = Phase::Closing { until, next_look: now + pause, pause };
        }
        false
    }

    /// The next time at which something is due, if nothing happens before.
    pub(crate) fn deadline(&self, options: &Options) -> Option<Instant> {
        let time = options.time.map(|time| self.began + time);
        let idle = self.idle(options).map(|idle| self.last_move + idle);
        let gone = self.half_closed.map(|since| since + HALF_CLOSED);
        match self.phase {
            Phase::Greeting { until } | Phase::BackingOff { until } => {
                [Some(until), time, idle, gone].into_iter().flatten().min()
            }
            Phase::Opening | Phase::Parked => [time, idle, gone].into_iter().flatten().min(),
            Phase::Closing { until, next_look, .. } => Some(until.min(next_look)),
            Phase::Running => {
                let linger = self.linger_from.map(|from| from.max(self.last_move) + options.linger);
                let due = self.ends.iter().flatten().filter_map(End::due).min();
                [self.waits[0], self.waits[1], linger, time, idle, due].into_iter().flatten().min()
            }
        }
    }

    /// Whether a client that is there waits for the other end.
    fn is_waiting(&self) -> bool {
        let waits = matches!(self.phase, Phase::Opening | Phase::Parked | Phase::BackingOff { .. });
        waits && self.ends.iter().flatten().any(|end| end.is_client)
    }

    /// How long nothing may move; `None`: for ever.
    fn idle(&self, options: &Options) -> Option<Duration> {
        let waits = self.is_waiting();
        if !waits && self.phase != Phase::Running {
            return None;
        }
        let has_gone = |end: &End| matches!(end.form, Form::Client { .. }) || waits && end.is_client && end.hung_up;
        let may_be_gone = self.ends.iter().flatten().any(has_gone);
        options.idle.or_else(|| may_be_gone.then_some(SILENT_CLIENT))
    }

    /// Gives up one whose client left while it waited, with nothing that could be carried: at once where
    /// it is closed both ways, after [`HALF_CLOSED`] where it may still want to read. While the other
    /// end is opened for the first time the latter waits: opening is bounded. Whether it is given up.
    pub(crate) fn give_up_if_left(&mut self, now: Instant) -> bool {
        let Some((which, left)) = self.who_left() else {
            self.half_closed = None;
            return false;
        };
        if left == Left::Half {
            if self.phase == Phase::Opening && self.failures == 0 {
                return false;
            }
            let since = *self.half_closed.get_or_insert(now);
            if now.saturating_since(since) < HALF_CLOSED {
                return false;
            }
        }
        let by = if which == 0 { EndedBy::A } else { EndedBy::B };
        self.end(by, "closed before the other end was there");
        self.close(now);
        true
    }

    /// The client that waits and has closed, with nothing that could be carried.
    pub(crate) fn who_left(&mut self) -> Option<(usize, Left)> {
        if !self.is_waiting() {
            return None;
        }
        self.ends.iter_mut().enumerate().find_map(|(which, end)| match end.as_mut()?.left() {
            Left::No => None,
            left => Some((which, left)),
        })
    }

    /// Ends it when one of its limits is reached.
    pub(crate) fn keep_limits(&mut self, options: &Options, now: Instant) {
        if matches!(self.phase, Phase::Closing { .. }) {
            return;
        }
        if options.time.is_some_and(|time| now >= self.began + time) {
            self.end(EndedBy::TimeLimit, "its time was over");
            self.close(now);
        } else if self.idle(options).is_some_and(|idle| now >= self.last_move + idle) {
            self.end(EndedBy::IdleLimit, "nothing moved for as long as the limit says");
            self.close(now);
        }
    }

    /// Messages that the kernel had no room for, which were for this one.
    pub(crate) fn note_dropped(&mut self, end: usize, messages: u64) {
        self.flows[end].lost += messages;
    }

    /// A message for one of many clients' ends; whether there was room.
    pub(crate) fn deliver(&mut self, end: usize, message: &[u8], now: Instant) -> bool {
        if self.is_waiting() {
            // Its client is there; whether something moves is not for it to say.
            self.last_move = now;
        }
        let Some(end_) = &mut self.ends[end] else { return false };
        let Form::Client { inbox, .. } = &mut end_.form else { return false };
        // Of one that is over, what was left has been counted already.
        if inbox.len() >= crate::end::INBOX || matches!(self.phase, Phase::Closing { .. }) {
            self.flows[end].lost += 1;
            return false;
        }
        inbox.push_back(message.to_vec());
        end_.readable = true;
        true
    }

    /// What it has carried so far.
    pub(crate) fn add_to(&self, sums: &mut [Account; 2]) {
        for (flow, sum) in self.flows.iter().zip(sums) {
            sum.bytes += flow.delivered;
            sum.spliced += flow.spliced;
            sum.writes += flow.writes;
            sum.messages += flow.messages;
            sum.lost_messages += flow.lost;
        }
    }

    /// The account.
    pub(crate) fn summary(&mut self, plan: &Plan, now: Instant) -> PipeReport {
        if !matches!(self.phase, Phase::Closing { .. }) {
            self.close(now);
        }
        let mut accounts = [Account::default(); 2];
        let mut exits = [None, None];
        for which in [0, 1] {
            let flow = &self.flows[which];
            let unconfirmed =
                self.ends[1 - which].as_ref().and_then(|to| to.unconfirmed(flow.stop.is_some())).unwrap_or(0);
            accounts[which] = Account {
                bytes: flow.delivered,
                spliced: flow.spliced,
                writes: flow.writes,
                messages: flow.messages,
                lost_messages: flow.lost
                    + flow.held_messages()
                    + self.unread[which].messages
                    + self.unread[which].dropped,
                undelivered: flow.held() + self.unread[which].bytes,
                unconfirmed: unconfirmed.min(flow.delivered),
            };
            let status = self.ends[which].as_mut().and_then(End::exit_status);
            exits[which] = status.and_then(|status| status.code().or_else(|| status.signal().map(|signal| -signal)));
        }
        let brokers = [0, 1].map(|which| self.ends[which].as_ref().and_then(End::broker_account));
        let lost = brokers.iter().flatten().any(BrokerAccount::has_losses);
        let names = [0, 1].map(|which| match &self.ends[which] {
            Some(end) => end.name.clone(),
            None => plan.sides[which].to_string(),
        });
        let (ended_by, why, failed) =
            self.ended.clone().unwrap_or_else(|| (EndedBy::Signal, "ended".to_owned(), false));
        // What nobody wanted is told, but is no failure.
        let left = accounts.iter().zip(&self.flows).any(|(account, flow)| match flow.discarded {
            Some(discarded) => account.undelivered > discarded,
            None => account.undelivered > 0 || account.lost_messages > 0,
        });
        PipeReport {
            pipe: self.number,
            plan: self.plan,
            names,
            duration: now.saturating_since(self.began),
            ended_by,
            why,
            failed: failed || left || lost,
            broke: failed || left,
            fault: self.fault,
            accounts,
            brokers,
            exits,
        }
    }
}
