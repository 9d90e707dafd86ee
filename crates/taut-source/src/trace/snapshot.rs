//! A socket of TCP at one moment.

use taut_event::{Recovery, SocketState};

use super::layout::{Known, Layout};
use super::record::{Record, What};

/// States of include/net/tcp_states.h in which the peer's FIN counts as a received byte.
pub(super) const AFTER_FIN: [u64; 3] = [8, 9, 11];
/// Those in which the own FIN counts as a byte that was written and is not acknowledged, and those after that.
const OWN_FIN: [u64; 3] = [4, 9, 11];
const AFTER_OWN_FIN: [u64; 2] = [5, 6];
pub(super) const SYN_SENT: u64 = 2;
pub(super) const SYN_RECEIVED: u64 = 3;
pub(super) const CLOSED: u64 = 7;
/// `TCP_NAGLE_OFF` and `TCP_NAGLE_CORK` of include/net/tcp.h.
const NAGLE_OFF: u64 = 1;
const NAGLE_CORK: u64 = 2;
/// `SK_PACING_NEEDED` of include/net/sock.h; with `fq` it is the device's queue that spaces.
pub(super) const PACING_NEEDED: u64 = 1;

/// `TCP_URG_VALID` and `TCP_URG_READ` of include/net/tcp.h: the urgent byte has come, and its program may have read it.
const URGENT_CAME: u64 = 0x500;

/// A number of TCP that never wraps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    seq: u32,
    at: u64,
}

impl Position {
    /// Positions are the numbers of TCP, counted on beyond 2^32: so a capture's segments can be told by them. They
    /// begin well above zero, so that a repetition of what came before the first one has one, too.
    pub(super) const fn new(seq: u32) -> Self {
        Self { seq, at: 1 << 32 | seq as u64 }
    }

    pub(super) fn of(&mut self, seq: u32) -> u64 {
        let at = self.at.saturating_add_signed(ahead(seq, self.seq).into());
        if at > self.at {
            *self = Self { seq, at };
        }
        at
    }
}

/// How far `a` is ahead of `b`.
pub(super) const fn ahead(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
}

/// The one that is ahead.
pub(super) const fn later(a: u32, b: u32) -> u32 {
    if ahead(b, a) > 0 { b } else { a }
}

/// The numbers of a snapshot that the correction is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot {
    pub(super) write_seq: u32,
    pub(super) snd_nxt: u32,
    pub(super) snd_una: u32,
    pub(super) snd_wnd: u32,
    pub(super) snd_sml: u32,
    pub(super) packets_out: u32,
    pub(super) rcv_nxt: u32,
    pub(super) copied_seq: u32,
    pub(super) wstamp: u64,
}

/// Of what has come and was not read, what the program can read, as the kernel tells it that there is something
/// (`tcp_stream_is_readable` and `tcp_poll`, net/ipv4/tcp.c). It waits for `SO_RCVLOWAT` bytes unless no more come. An
/// urgent byte keeps its place among the others until these are read beyond it, also where it was read by itself.
fn readable(layout: &Layout, record: &Record<'_>, unread: u32) -> u32 {
    let state = layout.get(record.copies, Known::State);
    let is_urgent_alone = unread == 1 && layout.get(record.copies, Known::UrgentData) & URGENT_CAME != 0;
    let is_short = unread < layout.word(record.copies, Known::ReceiveLeast);
    let is_fin = record.what == What::Receive && record.segment.is_fin;
    let is_all = is_fin || AFTER_FIN.contains(&state) || state == CLOSED;
    if !is_all && (is_short || is_urgent_alone) { 0 } else { unread }
}

/// The state just after the record.
pub(super) fn state(layout: &Layout, record: &Record<'_>, now: &Snapshot) -> SocketState {
    let get = |known| layout.get(record.copies, known);
    let number = |known| layout.word(record.copies, known);
    let connection = get(Known::State);
    let has_fin = AFTER_FIN.contains(&connection);
    let left = (number(Known::SackedOut)).saturating_add(number(Known::LostOut));
    let nonagle = get(Known::Nonagle);
    let bytes = |a: u32, b: u32| ahead(a, b).max(0) as u32;
    let is_paced = get(Known::PacingStatus) == PACING_NEEDED;
    let wait = if is_paced { now.wstamp.saturating_sub(record.ns) } else { 0 };
    let (unsent, in_flight) = (bytes(now.write_seq, now.snd_nxt), bytes(now.snd_nxt, now.snd_una));
    let own_fin = OWN_FIN.contains(&connection);
    let small = ahead(now.snd_sml, now.snd_una) > 0 && ahead(now.snd_sml, now.snd_nxt) <= 0;
    SocketState {
        unsent_bytes: unsent.saturating_sub(u32::from(own_fin)),
        in_flight_bytes: in_flight.saturating_sub(u32::from(own_fin && unsent == 0)),
        unread_bytes: readable(layout, record, bytes(now.rcv_nxt, now.copied_seq).saturating_sub(u32::from(has_fin))),
        in_flight_segments: now.packets_out.saturating_sub(left).saturating_add(number(Known::RetransOut)),
        congestion_window_segments: number(Known::SndCwnd),
        slow_start_threshold_segments: number(Known::SndSsthresh),
        send_window_bytes: Some(now.snd_wnd),
        mss_bytes: number(Known::MssCache),
        // The tracepoint stands before the change.
        is_opening: connection == SYN_SENT && record.what != What::Opened,
        is_ended: unsent == 0 && own_fin || AFTER_OWN_FIN.contains(&connection),
        recovery: match get(Known::CaState) {
            3 => Recovery::Repeating,
            4.. => Recovery::AfterTimeout,
            _ => Recovery::None,
        },
        timeouts: get(Known::Retransmits) as u8,
        window_probes: get(Known::ProbesOut) as u8,
        small_in_flight: Some(small),
        pacing_wait_ns: u32::try_from(wait).unwrap_or(u32::MAX),
        // Of that another tracepoint tells.
        device_bytes: 0,
        send_buffer_full: number(Known::WriteQueued) >= number(Known::SendBuffer),
        no_delay: Some(nonagle & NAGLE_OFF != 0),
        cork: Some(nonagle & NAGLE_CORK != 0),
        duplicates: number(Known::Duplicates),
    }
}
