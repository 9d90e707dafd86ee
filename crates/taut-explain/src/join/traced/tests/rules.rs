//! Who is believed, and the merge of stretches.

use proptest::prelude::*;
use taut_event::Holder;

use super::super::ledger::{Part, Stretch, episodes, merge};
use super::super::rule::{Told, holder, is_peers, traced};

const NONE: Option<Holder> = None;

#[test]
fn the_kernel_is_believed_on_its_host_and_the_capture_beyond() {
    use Holder::*;
    let table = [
        // Captured, by the sender's kernel, by the receiver's, and who it is.
        (Some(SendBufferOrCongestion), Some(SendBuffer), NONE, SendBuffer, Told::Trace),
        (Some(PeerTurn), Some(Delivery), NONE, Delivery, Told::Trace),
        (Some(Nagle), Some(Nagle), NONE, Nagle, Told::Both),
        (Some(Delivery), Some(Nagle), Some(ReceivingProgram), Nagle, Told::Trace),
        // What became of what has left.
        (Some(TailLossProbe), Some(Delivery), NONE, TailLossProbe, Told::Capture),
        (Some(RetransmissionTimeout), Some(SendBuffer), NONE, RetransmissionTimeout, Told::Capture),
        (Some(PathQueue), Some(CongestionWindow), NONE, PathQueue, Told::Capture),
        (Some(LossRecovery), Some(CongestionWindow), NONE, CongestionWindow, Told::Trace),
        (Some(ReceivingProgram), Some(ReceiveWindow), NONE, ReceivingProgram, Told::Capture),
        // A receiver's kernel knows what waits there, and nothing of the sender.
        (Some(PeerTurn), NONE, Some(ReceivingProgram), ReceivingProgram, Told::Trace),
        (Some(SendingProgram), Some(SendingProgram), Some(Processor), Processor, Told::Trace),
        (Some(Nagle), NONE, Some(ReceivingProgram), Nagle, Told::Capture),
        (Some(SendingProgram), NONE, Some(PeerTurn), SendingProgram, Told::Capture),
        (NONE, NONE, Some(PeerTurn), NotKnown, Told::Nobody),
        // What one does not know.
        (Some(NotKnown), Some(Cork), NONE, Cork, Told::Trace),
        (Some(Cork), Some(NotKnown), NONE, Cork, Told::Capture),
        (Some(NotKnown), Some(NotKnown), NONE, NotKnown, Told::Nobody),
    ];
    for (captured, sender, receiver, who, told) in table {
        assert_eq!(holder(captured, sender, receiver), (who, told), "{captured:?} {sender:?} {receiver:?}");
    }
    assert_eq!(traced(Some(NotKnown), NONE), Some(NotKnown));
    assert_eq!((traced(NONE, Some(PeerTurn)), traced(NONE, NONE)), (NONE, NONE));
}

#[test]
fn what_is_out_for_longer_than_a_round_trip_waits_for_the_peer_if_the_capture_says_so() {
    let out = |from, to| Stretch { from, to, holder: Holder::Delivery };
    let says = |holder| [Stretch { from: 0, to: 100, holder }];
    let holders = |captured, round_trip| -> Vec<(Holder, u64)> {
        let parts = merge(&says(captured), &[out(10, 90)], &[], round_trip);
        episodes(&parts).iter().map(|one| (one.holder, one.to - one.from)).collect()
    };
    let (turn, delivery) = (Holder::PeerTurn, Holder::Delivery);
    assert_eq!(holders(turn, Some(30)), [(turn, 10), (delivery, 30), (turn, 60)]);
    assert_eq!(holders(turn, None), [(turn, 10), (delivery, 80), (turn, 10)]);
    let program = Holder::SendingProgram;
    assert_eq!(holders(program, Some(30)), [(program, 10), (delivery, 80), (program, 10)]);
}

#[test]
fn whoever_tells_nobody_is_named_whom_nobody_named() {
    let all = || Holder::ALL.into_iter().map(Some).chain([NONE]);
    for captured in all() {
        for sender in all() {
            for receiver in all() {
                let (who, told) = holder(captured, sender, receiver);
                let named = [captured, sender, receiver].contains(&Some(who));
                assert!(
                    named || (who, told) == (Holder::NotKnown, Told::Nobody),
                    "{captured:?} {sender:?} {receiver:?}"
                );
                // It is known if the capture or the sender's kernel knows it.
                let is_known = [captured, sender].into_iter().flatten().any(|one| one != Holder::NotKnown);
                assert!(!is_known || who != Holder::NotKnown, "{captured:?} {sender:?} {receiver:?}");
                assert_eq!(told == Told::Both, captured == Some(who) && told != Told::Capture && told != Told::Nobody);
            }
        }
    }
}

/// Stretches with gaps between them.
fn any_source() -> impl Strategy<Value = Vec<Stretch>> {
    let one = (0..50_u64, 1..100_u64, prop::sample::select(Holder::ALL.to_vec()));
    (1_000..2_000_u64, prop::collection::vec(one, 0..12)).prop_map(|(mut at, parts)| {
        let stretch = |(gap, length, holder)| {
            let from = at + gap;
            at = from + length;
            Stretch { from, to: at, holder }
        };
        parts.into_iter().map(stretch).collect()
    })
}

fn said(all: &[Stretch], at: u64) -> Option<Holder> {
    all.iter().find(|stretch| (stretch.from..stretch.to).contains(&at)).map(|stretch| stretch.holder)
}

proptest! {
    #[test]
    fn each_nanosecond_has_one_holder_by_the_rule(
        captured in any_source(), sender in any_source(), receiver in any_source(),
        round_trip in prop::option::of(0..150_u64),
    ) {
        let parts = merge(&captured, &sender, &receiver, round_trip);
        let edges = || [&captured, &sender, &receiver].into_iter().flatten();
        let (first, last) = (edges().map(|one| one.from).min(), edges().map(|one| one.to).max());
        prop_assert_eq!(parts.first().map(|part| part.from), first);
        prop_assert_eq!(parts.last().map(|part| part.to), last);
        prop_assert!(parts.windows(2).all(|pair| pair[0].to == pair[1].from));
        for Part { from, to, holder: who, told, .. } in &parts {
            for at in [*from, *to - 1] {
                let (of_capture, of_sender) = (said(&captured, at), said(&sender, at));
                let begin = sender.iter().find(|one| (one.from..one.to).contains(&at)).map(|one| one.from);
                let is_late = begin.zip(round_trip).is_some_and(|(begin, round_trip)| {
                    is_peers(of_capture, of_sender.unwrap(), at - begin, round_trip)
                });
                let by_rule = holder(of_capture, of_sender.filter(|_| !is_late), said(&receiver, at));
                prop_assert_eq!((*who, *told), by_rule);
            }
        }
        let whole: u64 = episodes(&parts).iter().map(|one| one.to - one.from).sum();
        prop_assert_eq!(whole, last.unwrap_or(0) - first.unwrap_or(0));
        prop_assert!(episodes(&parts).windows(2).all(|pair| pair[0].holder != pair[1].holder));
    }
}
