use taut_event::{Direction, Event, FlowId, L2cap, Sink, VantageId, What};
use taut_time::{ByteRange, Instant, Layer};

use crate::counts::Counts;

pub(super) const NO_BYTES: ByteRange = ByteRange { start: 0, end: 0 };

/// The H4 indicator, the handle with flags, and the length.
pub(super) const ACL_HEADER: usize = 5;

/// When and where something was seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) at: Instant,
    pub(super) seen_by: VantageId,
    pub(super) frame: u64,
}

/// Where events go.
pub(super) struct Out<'a, S> {
    pub(super) sink: &'a mut S,
    pub(super) counts: &'a mut Counts,
    pub(super) place: Place,
    /// So many bytes of the packet were kept, its H4 indicator among them, and zeros stand for the rest; `None`: all.
    pub(super) kept: Option<usize>,
}

impl<S> Out<'_, S> {
    pub(super) const fn is_cut(&self) -> bool {
        self.kept.is_some()
    }

    /// Bytes kept of what follows the header of an ACL packet, which has so many.
    pub(super) fn kept_of(&self, length: usize) -> usize {
        self.kept.map_or(length, |kept| kept.saturating_sub(ACL_HEADER))
    }
}

impl<S: Sink> Out<'_, S> {
    pub(super) fn tell(&mut self, flow: FlowId, direction: Direction, what: L2cap, bytes: ByteRange) {
        let Place { at, seen_by, frame } = self.place;
        let what = What::L2cap(what);
        let layer = Layer::Driver;
        self.sink.event(&Event { at, seen_by, flow, direction, layer, what, bytes, who: None, place: frame });
    }
}
