//! The state of a socket that was told last, and what became of it since without a copy of the socket.
//!
//! A call that writes much sends segments while it copies, and copies on when no more may leave. Of that the next
//! record tells, which may be a round trip later. As copying takes no time to speak of, it was so from the last
//! record on.
//!
//! `net_dev_start_xmit` tells of each segment that leaves a device's queue, and of none whose device has no queue.
//! So the first segment of a connection, which carries no data, shows whether there is a queue. In it segments stay in
//! order: where one has left, those before it have left or were dropped.

use taut_event::SocketState;

use super::record::Segment;
use super::snapshot::{Snapshot, ahead, later};

/// What was told of a socket last.
#[derive(Debug, Default)]
pub(super) struct Last {
    /// Up to where segments have left the queue of the device; none where it has none.
    left_to: Option<u32>,
    told: Option<Told>,
}

/// The state that was told last.
#[derive(Clone, Copy, Debug)]
struct Told {
    state: SocketState,
    snd_una: u32,
    snd_nxt: u32,
    ns: u64,
}

impl Last {
    /// Completes a state that is about to be told.
    pub(super) fn told(&mut self, state: &mut SocketState, now: &Snapshot, ns: u64) {
        // The peer has what was not seen to leave: by now it goes another way.
        if self.left_to.is_some_and(|left| ahead(now.snd_una, left) > 0) {
            self.left_to = None;
        }
        let told = Told { state: *state, snd_una: now.snd_una, snd_nxt: now.snd_nxt, ns };
        state.device_bytes = self.waiting(&told);
        self.told = Some(Told { state: *state, ..told });
    }

    /// A segment has left: the state since then, if that is another one.
    pub(super) fn left(&mut self, segment: &Segment, ns: u64) -> Option<SocketState> {
        let mut told = self.told?;
        // It may be the header of another protocol around ours.
        if ahead(segment.end, told.snd_una) < 0 || ahead(segment.end, told.snd_nxt) > 0 {
            return None;
        }
        self.left_to = Some(self.left_to.map_or(segment.end, |left| later(left, segment.end)));
        let before = told.state.device_bytes;
        told.state.device_bytes = self.waiting(&told);
        let since = u32::try_from(ns.saturating_sub(told.ns)).unwrap_or(u32::MAX);
        told.state.pacing_wait_ns = told.state.pacing_wait_ns.saturating_sub(since);
        told.ns = told.ns.max(ns);
        self.told = Some(told);
        (told.state.device_bytes != before).then_some(told.state)
    }

    /// A call that goes on has written up to `write_seq` by now: the state as it was since it was told, and when that
    /// was, if no segment has left since.
    pub(super) fn written(&self, now: &Snapshot, is_full: bool) -> Option<(SocketState, u64)> {
        let Told { state, snd_nxt, ns, .. } = self.told?;
        let unsent_bytes = ahead(now.write_seq, snd_nxt).max(0).cast_unsigned();
        let state = SocketState { unsent_bytes, send_buffer_full: is_full, ..state };
        (now.snd_nxt == snd_nxt && unsent_bytes > self.told?.state.unsent_bytes).then_some((state, ns))
    }

    fn waiting(&self, told: &Told) -> u32 {
        let left = self.left_to.map(|left| later(left, told.snd_una));
        let numbers = left.map_or(0, |left| ahead(told.snd_nxt, left).max(0).cast_unsigned());
        // The own end has the last number and is no byte.
        numbers.saturating_sub(u32::from(told.state.is_ended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(snd_una: u32, snd_nxt: u32) -> Snapshot {
        Snapshot {
            write_seq: snd_nxt,
            snd_nxt,
            snd_una,
            snd_wnd: 0,
            snd_sml: 0,
            packets_out: 0,
            rcv_nxt: 0,
            copied_seq: 0,
            wstamp: 0,
        }
    }

    fn up_to(end: u32) -> Segment {
        Segment { end, ..Segment::default() }
    }

    fn told(last: &mut Last, snd_una: u32, snd_nxt: u32) -> u32 {
        let mut state = SocketState { pacing_wait_ns: 10, ..SocketState::default() };
        last.told(&mut state, &now(snd_una, snd_nxt), 100);
        state.device_bytes
    }

    #[test]
    fn what_has_not_left_waits_once_a_queue_was_seen() {
        let mut last = Last::default();
        assert_eq!(told(&mut last, 0, 1), 0);
        // What opened the connection has left a queue.
        assert_eq!(last.left(&up_to(1), 101), None);
        assert_eq!(told(&mut last, 1, 3001), 3000);
        let state = last.left(&up_to(1001), 104).unwrap();
        assert_eq!((state.device_bytes, state.pacing_wait_ns), (2000, 6));
        // One that is sent again changes nothing.
        assert_eq!(last.left(&up_to(1001), 105), None);
        assert_eq!(told(&mut last, 1001, 3001), 2000);
        assert_eq!(last.left(&up_to(3001), 106).unwrap().device_bytes, 0);
        assert_eq!(told(&mut last, 1001, 3001), 0);
    }

    #[test]
    fn the_own_end_is_no_byte_that_waits() {
        let mut last = Last::default();
        told(&mut last, 0, 1);
        last.left(&up_to(1), 101);
        let mut ended = SocketState { is_ended: true, ..SocketState::default() };
        last.told(&mut ended, &now(1, 102), 102);
        assert_eq!(ended.device_bytes, 100);
        // The end waits alone, and then nothing does.
        assert_eq!(last.left(&up_to(101), 103).map(|state| state.device_bytes), Some(0));
        assert_eq!(last.left(&up_to(102), 104), None);
        last.told(&mut ended, &now(102, 102), 105);
        assert_eq!(ended.device_bytes, 0);
    }

    #[test]
    fn without_a_queue_nothing_waits() {
        let mut last = Last::default();
        assert_eq!((told(&mut last, 0, 1), told(&mut last, 1, 3001)), (0, 0));
        // Nor by what is no segment of this socket.
        assert_eq!((last.left(&up_to(9000), 101), told(&mut last, 1, 3001)), (None, 0));
        // Or where it goes another way from now on.
        let mut last = Last::default();
        told(&mut last, 0, 1);
        last.left(&up_to(1), 101);
        assert_eq!((told(&mut last, 1, 3001), told(&mut last, 2001, 4001), told(&mut last, 2001, 5001)), (3000, 0, 0));
    }

    #[test]
    fn what_a_call_has_copied_since_was_there_from_then_on() {
        let mut last = Last::default();
        assert_eq!(last.written(&now(1, 1), true), None);
        told(&mut last, 1, 3001);
        let copied = Snapshot { write_seq: 5001, ..now(1, 3001) };
        let (state, ns) = last.written(&copied, true).unwrap();
        assert_eq!((state.unsent_bytes, state.send_buffer_full, ns), (2000, true, 100));
        // Nothing was copied; or something of it has left.
        assert_eq!(last.written(&now(1, 3001), true), None);
        assert_eq!(last.written(&Snapshot { snd_nxt: 4001, ..copied }, true), None);
    }
}
