//! Which bytes of a direction wait, so that a wait can be looked up: counted from the first one that the trace saw.

use taut_event::{Direction as Way, Event, Holder, SocketState, Stamp, What};

/// One direction, by the positions of its events.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    first: Option<u64>,
    /// Up to there nothing waits.
    from: u64,
    to: u64,
    /// Events were lost: until where nothing waits is told by the next of what leaves, or is read.
    is_lost: bool,
}

/// Both directions of a connection.
#[derive(Debug, Default)]
pub(super) struct Places([Place; 2]);

impl Places {
    /// An event is about to be taken in.
    pub(super) fn seen(&mut self, event: &Event) {
        if let What::Reached(stamp) = event.what
            && let Some(way) = way_of(stamp)
        {
            let place = &mut self.0[way.index()];
            place.first.get_or_insert(event.bytes.start);
            place.to = place.to.max(event.bytes.end);
            if matches!(stamp, Stamp::Scheduled | Stamp::Read) && std::mem::take(&mut place.is_lost) {
                place.from = place.from.max(event.bytes.start);
            }
        }
    }

    /// An event was taken in: what has left or was read waits no more. Of a socket that `is_local` nothing leaves, and
    /// each write is told by itself.
    pub(super) fn done(&mut self, event: &Event, is_local: bool) {
        let bytes = event.bytes;
        let (way, from) = match event.what {
            What::Gap => return self.0.iter_mut().for_each(|place| place.is_lost = true),
            What::Reached(Stamp::WriteBegin) if is_local => (Way::Forward, bytes.start),
            What::Reached(Stamp::Scheduled) => (Way::Forward, bytes.end),
            What::Reached(Stamp::Read) => (Way::Backward, bytes.end),
            _ => return,
        };
        let place = &mut self.0[way.index()];
        place.from = place.from.max(from);
        place.is_lost = false;
    }

    /// What a holder has: the first byte, and the one after the last; equal where the source tells no length.
    pub(super) fn waiting(&self, way: Way, holder: Holder, state: Option<&SocketState>) -> Option<[u64; 2]> {
        let place = &self.0[way.index()];
        let first = place.first.filter(|_| !place.is_lost)?;
        let (mut from, mut to) = (place.from.max(first), place.to.max(first));
        if let Some(state) = state.filter(|_| way == Way::Forward) {
            to = to.max(from.saturating_add(state.unsent_bytes.into()));
            let is_sent = matches!(
                holder,
                Holder::DeviceQueue | Holder::LossRecovery | Holder::TailLossProbe | Holder::RetransmissionTimeout
            );
            if is_sent || state.unsent_bytes == 0 {
                from = from.saturating_sub(state.in_flight_bytes.into()).max(first);
            }
        }
        Some([from - first, to.max(from) - first])
    }
}

const fn way_of(stamp: Stamp) -> Option<Way> {
    match stamp {
        Stamp::WriteBegin | Stamp::WriteEnd | Stamp::Scheduled => Some(Way::Forward),
        Stamp::Received | Stamp::Read => Some(Way::Backward),
        _ => None,
    }
}
