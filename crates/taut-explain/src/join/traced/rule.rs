//! Who is believed where a capture and a trace both tell who held the data.
//!
//! What the kernel of an end knows of its own socket beats what packets let one infer of that end. What happened on
//! the path or at the other end the kernel does not see, and there the capture is believed. What one does not know
//! the other fills in.

use taut_event::Holder;

/// Whose word was taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Told {
    /// Both said the same.
    Both,
    Trace,
    Capture,
    Nobody,
}

/// Nothing is held at the sender: its program has not written, or all has left. Then data that is known to wait at the
/// receiver is what waits.
const FREE: [Holder; 7] = [
    Holder::SendingProgram,
    Holder::PeerTurn,
    Holder::Delivery,
    Holder::ReceiveWindow,
    Holder::ReceivingProgram,
    Holder::Unanswered,
    Holder::NotKnown,
];
/// All has left the host.
const OUT: [Holder; 2] = [Holder::Delivery, Holder::SendBuffer];
/// What became of it then.
const ON_THE_PATH: [Holder; 5] =
    [Holder::PathQueue, Holder::LossRecovery, Holder::TailLossProbe, Holder::RetransmissionTimeout, Holder::Unanswered];
const WINDOW_OF_SENDER: [Holder; 2] = [Holder::CongestionWindow, Holder::SlowStart];
/// Why the receiver takes no more is at the receiver.
const WINDOW_OF_RECEIVER: [Holder; 2] = [Holder::ReceiveWindow, Holder::ReceivingProgram];
/// What a traced receiver knows; while nothing waits there it knows nothing of the sender.
const AT_RECEIVER: [Holder; 3] = [Holder::ReceivingProgram, Holder::Processor, Holder::AcceptQueue];

/// Who held the data of a direction, by what the capture says, the kernel of its sender, and that of its receiver.
pub(super) fn holder(captured: Option<Holder>, sender: Option<Holder>, receiver: Option<Holder>) -> (Holder, Told) {
    let captured = captured.filter(|holder| *holder != Holder::NotKnown);
    let sender = sender.filter(|holder| *holder != Holder::NotKnown);
    let receiver = receiver.filter(|holder| AT_RECEIVER.contains(holder));
    let told = |holder: Holder, by: Told| (holder, if captured == Some(holder) { Told::Both } else { by });
    if let Some(holder) = receiver
        && FREE.contains(&sender.or(captured).unwrap_or(Holder::NotKnown))
    {
        return told(holder, Told::Trace);
    }
    match (sender, captured) {
        (Some(sender), Some(captured)) if sender != captured && is_elsewhere(sender, captured) => {
            (captured, Told::Capture)
        }
        (Some(sender), _) => told(sender, Told::Trace),
        (None, Some(captured)) => (captured, Told::Capture),
        (None, None) => (Holder::NotKnown, Told::Nobody),
    }
}

/// Whether the capture tells of what the kernel of the sender does not see.
fn is_elsewhere(sender: Holder, captured: Holder) -> bool {
    OUT.contains(&sender) && ON_THE_PATH.contains(&captured)
        || WINDOW_OF_SENDER.contains(&sender) && captured == Holder::PathQueue
        || WINDOW_OF_RECEIVER.contains(&sender) && WINDOW_OF_RECEIVER.contains(&captured)
}

/// Whether what the kernel calls on its way is so no more: it has been out for `out_ns`, longer than the least round
/// trip takes, and the capture says that it is the peer's turn. The kernel only knows that no acknowledgement has come.
pub(super) fn is_peers(captured: Option<Holder>, sender: Holder, out_ns: u64, round_trip_ns: u64) -> bool {
    sender == Holder::Delivery && captured == Some(Holder::PeerTurn) && out_ns >= round_trip_ns
}

/// What the trace said, as one word: that of the end whose word counts. Nothing where it has nothing.
pub(super) fn traced(sender: Option<Holder>, receiver: Option<Holder>) -> Option<Holder> {
    match holder(None, sender, receiver) {
        (_, Told::Nobody) => sender.or_else(|| receiver.filter(|holder| AT_RECEIVER.contains(holder))),
        (holder, _) => Some(holder),
    }
}
