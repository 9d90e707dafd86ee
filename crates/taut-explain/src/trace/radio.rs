//! Channels of Bluetooth below the traced sockets: each goes with the socket that is an end of it, and the two together
//! tell who held what the program wrote.

use std::collections::BTreeMap;

use taut_event::{ChannelEnd, ChannelKey, Direction as Way, Event, Flow, FlowKey, Holder, What};

use super::connection::Connection;
use super::report::{TracedDirection, held};
use crate::channel::{self, Channel};
use crate::engine::{Evidence, Held, Verdict, VerdictOn};
use crate::words;

/// So many channels are followed at once.
const MOST: usize = 1024;

/// The channels, by the numbers of their flows.
#[derive(Debug, Default)]
pub(super) struct Radio {
    /// Those that are open.
    channels: BTreeMap<u32, Tracked>,
    /// Those of sockets that are not reported yet, by the numbers of the sockets' flows.
    over: BTreeMap<u32, Tracked>,
    /// Where pictures are wanted: stretches of each.
    spans: Option<usize>,
}

#[derive(Debug)]
struct Tracked {
    key: ChannelKey,
    channel: Box<Channel>,
    /// Number of the socket's flow.
    socket: Option<u32>,
    is_nonblocking: bool,
}

impl Radio {
    /// From now on so many stretches of each channel are kept for a picture.
    pub(super) const fn keep_trails(&mut self, limit: usize) {
        self.spans = Some(limit);
    }

    /// Whether a flow is one of these.
    pub(super) fn has(&self, id: u32) -> bool {
        self.channels.contains_key(&id)
    }

    /// A channel opens; one of the sockets may be an end of it.
    pub(super) fn opens(&mut self, id: u32, key: ChannelKey, flow: Flow) {
        self.ends(id);
        if self.channels.len() >= MOST {
            return;
        }
        let mut channel = Box::new(Channel::new(flow));
        if let Some(limit) = self.spans {
            channel.breakdowns().into_iter().for_each(|breakdown| breakdown.keep_trail(limit));
        }
        self.channels.insert(id, Tracked { key, channel, socket: None, is_nonblocking: false });
    }

    /// Something happened on a channel.
    pub(super) fn event(&mut self, event: &Event) {
        if let Some(tracked) = self.channels.get_mut(&event.flow.0) {
            tracked.channel.event(&Event { place: 0, ..*event });
        }
    }

    /// Nothing more comes of a channel. One that no socket is an end of is forgotten.
    pub(super) fn ends(&mut self, id: u32) {
        let Some(mut tracked) = self.channels.remove(&id) else { return };
        let Some(socket) = tracked.socket else { return };
        tracked.channel.finish();
        // A socket is connected once.
        self.over.entry(socket).or_insert(tracked);
    }

    /// A socket is an end of a channel. Of several that fit nobody can tell which.
    pub(super) fn joins(&mut self, socket: u32, end: &ChannelEnd, connection: &Connection, at: u64) {
        let mut fit = self.channels.values_mut().filter(|tracked| end.is_of(&tracked.key));
        let (Some(tracked), None) = (fit.next(), fit.next()) else { return };
        if tracked.socket.is_some() || self.over.contains_key(&socket) {
            return;
        }
        (tracked.socket, tracked.is_nonblocking) = (Some(socket), end.is_nonblocking);
        let is_known = connection.is_from_start && tracked.channel.flow.from_start;
        let (written, is_waiting) = (connection.tally.sent_bytes, connection.is_waiting());
        tracked.channel.program(at, |half, program| {
            let queued = written.cast_signed().saturating_sub_unsigned(half.tally.bytes);
            program.has_queued(is_known.then_some(queued));
            program.waits(is_waiting, at);
        });
    }

    /// When the channel of a socket began, in ns.
    pub(super) fn begin(&self, socket: u32) -> Option<u64> {
        let open = self.channels.values().find(|tracked| tracked.socket == Some(socket));
        self.over.get(&socket).or(open)?.channel.half(Way::Forward).span_start
    }

    /// What a socket's event tells of its program.
    pub(super) fn program(&mut self, socket: u32, event: &Event, connection: &Connection) {
        let mut channels = self.channels.values_mut();
        let Some(tracked) = channels.find(|tracked| tracked.socket == Some(socket)) else { return };
        let (at, bytes) = (event.at.as_nanos(), event.bytes.end.saturating_sub(event.bytes.start));
        let is_waiting = connection.is_waiting();
        tracked.channel.program(at, |half, program| {
            use taut_event::Stamp::{WriteBegin, WriteEnd};
            match event.what {
                What::Reached(WriteBegin) => half.write_begins(),
                What::Reached(WriteEnd) => program.wrote(bytes),
                // Nothing of what it wrote is in the kernel.
                What::State(state) if state.unsent_bytes == 0 && !is_waiting => program.has_queued(Some(0)),
                What::Gap => program.has_queued(None),
                _ => {}
            }
            program.waits(is_waiting, at);
        });
    }

    /// A socket is reported next: its channel is over.
    pub(super) fn socket_ends(&mut self, socket: u32) {
        let open = self.channels.iter().find(|(_, tracked)| tracked.socket == Some(socket));
        if let Some(id) = open.map(|(&id, _)| id) {
            self.ends(id);
        }
    }

    /// A socket was reported.
    pub(super) fn forget(&mut self, socket: u32) {
        self.over.remove(&socket);
    }

    /// Puts into a socket's report what its channel tells of what it sends.
    pub(super) fn tell(&self, socket: u32, start: u64, most: Option<usize>, report: &mut TracedDirection) -> bool {
        let Some(tracked) = self.over.get(&socket) else { return false };
        let Some((direction, breakdown, _)) = channel::direction(&tracked.channel, Way::Forward, start, false) else {
            return false;
        };
        report.breakdown = direction.breakdown;
        report.begin_ns = direction.begin_ns;
        report.span_ns = direction.span_ns;
        report.verdicts = direction.verdicts;
        // There is no file whose frames could be looked at.
        for on in &mut report.verdicts {
            if let Verdict::Found(found) = &mut on.verdict {
                found.evidence.iter_mut().for_each(|seen| seen.frames = None);
            }
        }
        report.remarks.extend(direction.remarks);
        report.link = Some((tracked.key.adapter, tracked.key.handle));
        report.channel = direction.channel;
        report.picture = most.and_then(|most| breakdown.picture(start, most));
        let half = tracked.channel.half(Way::Forward);
        let waited = half.program.as_ref().map(|program| program.waited_ns).unwrap_or_default();
        report.waited = waits(&waited);
        let lines = written(report, tracked.is_nonblocking);
        match report.verdicts.first_mut() {
            Some(VerdictOn { verdict: Verdict::Found(worst), .. }) => {
                worst.evidence.splice(..0, lines.into_iter().map(|text| Evidence { text, frames: None }));
            }
            _ if report.waited.is_empty() => {}
            _ => report.remarks.splice(..0, lines).for_each(drop),
        }
        true
    }
}

/// Who held the data while the program waited for room, longest first.
fn waits(waited: &[u64; Holder::ALL.len()]) -> Vec<Held> {
    let whole = waited.iter().sum();
    let rows = Holder::ALL.into_iter().zip(waited).filter(|(_, ns)| **ns > 0);
    let mut rows: Vec<Held> = rows.map(|(holder, &ns)| held(holder, ns, whole, 0, Vec::new())).collect();
    rows.sort_by_key(|held| std::cmp::Reverse(held.held_ns));
    rows
}

/// What became of the program's writes, and who held the data while it waited.
fn written(report: &TracedDirection, is_nonblocking: bool) -> Vec<String> {
    let names: Vec<String> = report.written_by.iter().map(|name| format!("{name}()")).collect();
    let by = if names.is_empty() { String::new() } else { format!(" by {}", names.join(" and ")) };
    let mut lines = Vec::new();
    let mut refused = format!("{} more were refused (EAGAIN)", report.refused_writes);
    if report.refused_with_room > 0 {
        refused.push_str(&format!(
            ", {} of them with room in the send buffer: Linux takes no more while all credits are used, also by packets \
             that wait in its own queue",
            report.refused_with_room
        ));
    }
    lines.push(format!(
        "Of the program's {} writes{by} {} waited in the call; {refused}.",
        report.writes, report.waited_writes
    ));
    if is_nonblocking && report.waited_writes > 0 {
        lines.push(
            "The socket is non-blocking, and its calls waited all the same, with all else that the thread has to do: \
             Linux before 5.18 does that while the channel has no credits."
                .to_owned(),
        );
    }
    let whole: u64 = report.waited.iter().map(|held| held.held_ns).sum();
    if whole > 0 {
        let who = report.waited.iter().take(4).map(|held| {
            let name = Holder::named(&held.holder);
            format!("{} {}", name.map_or_else(String::new, |holder| holder.to_string()), words::time(held.held_ns))
        });
        let who: Vec<String> = who.collect();
        lines.push(format!(
            "It waited for room for {}; who held its data then: {}.",
            words::time(whole),
            who.join(", ")
        ));
    }
    lines
}

/// The channel that a flow is.
pub(super) const fn key(flow: &Flow) -> Option<ChannelKey> {
    match flow.key {
        FlowKey::L2cap(key) => Some(key),
        _ => None,
    }
}
