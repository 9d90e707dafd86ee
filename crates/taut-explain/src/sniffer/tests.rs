//! Links as a sniffer tells of them, PDU by PDU.

use proptest::prelude::*;
use taut_air::Phy;
use taut_event::{
    Closed, Coverage, Direction as Way, Event, Flow, FlowId, FlowKey, Kind, Le, LeHeader, LeKey, LeLink, LePdu, Sink,
    VantageId, What,
};
use taut_time::{ByteRange, Instant, Layer};

use crate::engine::{Certainty, Direction, Engine, Found, Verdict};

const MS: u64 = 1_000_000;
const INTERVAL: u64 = 30 * MS;
const IFS: u64 = 150_000;

/// A link and a sniffer beside it.
struct Air {
    engine: Engine,
    at: u64,
    sn: [bool; 2],
    place: u64,
    begins: bool,
    unseen: u16,
    /// The next PDU asks for the one before it once more.
    refuses: bool,
    /// The sniffer does not get the next PDU.
    missed: Option<Missed>,
    is_control: bool,
    continues: bool,
    phy: Phy,
    interval: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Missed {
    All,
    Crc,
    /// With its event.
    Event,
}

impl Air {
    fn new(latency: Option<u16>) -> Self {
        let mut engine = Engine::new(8);
        let key = LeKey { access_address: 0x1234_5678, ends: Some([[1; 6], [2; 6]]) };
        let coverage = Coverage::of(&[Kind::AirPdus]);
        engine.flow(FlowId(0), &Flow { key: FlowKey::Le(key), from_start: true, coverage });
        let mut air = Self {
            engine,
            at: MS,
            sn: [false; 2],
            place: 0,
            begins: true,
            unseen: 0,
            refuses: false,
            missed: None,
            is_control: false,
            continues: false,
            phy: Phy::Le1M,
            interval: INTERVAL,
        };
        air.link(INTERVAL, latency);
        air
    }

    fn link(&mut self, interval_ns: u64, latency: Option<u16>) {
        let (is_told, tells_direction, tells_crc, tells_phy) = (true, true, true, true);
        let link = LeLink { interval_ns, is_told, latency, tells_direction, tells_crc, tells_phy, ..LeLink::default() };
        self.tell(Way::Forward, Le::Link(link), 0);
    }

    fn tell(&mut self, direction: Way, what: Le, bytes: u64) {
        self.place += 1;
        self.engine.event(&Event {
            at: Instant::from_nanos(self.at),
            seen_by: VantageId(0),
            flow: FlowId(0),
            direction,
            layer: Layer::Medium,
            what: What::Le(what),
            bytes: ByteRange::new(0, bytes),
            who: None,
            place: self.place,
        });
    }

    /// A PDU and the inter frame space behind it. One whose number is not `new` repeats the one before.
    fn pdu(&mut self, way: Way, length: u8, md: bool, new: bool) {
        let index = way.index();
        self.sn[index] ^= new;
        let missed = self.missed.take();
        let nesn = self.sn[1 - index] == std::mem::take(&mut self.refuses);
        let (is_control, continues, air_ns) =
            (self.is_control, self.continues, self.phy.air_time(length.into(), false));
        let header = LeHeader { sn: self.sn[index], nesn, md, length, is_control, continues };
        let hash = u32::from(length) << 1 | u32::from(self.sn[index]);
        let unseen_events = std::mem::take(&mut self.unseen);
        let pdu = LePdu {
            header: Some(header).filter(|_| missed.is_none()),
            hash,
            air_ns: air_ns as u32,
            phy: self.phy.number(),
            begins_event: std::mem::take(&mut self.begins),
            is_after_hole: false,
            unseen_events,
        };
        if missed != Some(Missed::All) {
            self.tell(way, Le::Pdu(pdu), length.into());
        }
        self.at += air_ns + IFS;
    }

    /// The next event, after so many that are not seen.
    fn next(&mut self, unseen: u16) {
        let since = (self.at - MS) / self.interval;
        self.at = MS + (since + 1 + u64::from(unseen)) * self.interval;
        (self.begins, self.unseen) = (true, unseen);
    }

    fn explained(mut self) -> Vec<Direction> {
        self.engine.close(FlowId(0), Closed::EndOfSource);
        self.engine.finish().worst
    }

    fn central(self) -> Direction {
        self.explained().into_iter().find(|direction| direction.from.starts_with("central")).expect("data went")
    }
}

fn share(direction: &Direction, holder: &str) -> f64 {
    direction.breakdown.iter().find(|held| held.holder == holder).map_or(0.0, |held| held.share)
}

fn says(direction: &Direction, cause: &str) -> char {
    match direction.verdicts.iter().find(|on| on.cause == cause).expect("all causes are told").verdict {
        Verdict::Found(_) => 'F',
        Verdict::Unknown { .. } => '?',
        Verdict::Clear => '.',
    }
}

fn found<'a>(direction: &'a Direction, cause: &str) -> &'a Found {
    let on = direction.verdicts.iter().find(|on| on.cause == cause).expect("all causes are told");
    let Verdict::Found(found) = &on.verdict else { panic!("{on:?}") };
    found
}

/// So many events, with data of the central and what becomes of it.
fn events(count: u64, latency: Option<u16>, mut event: impl FnMut(&mut Air, u64)) -> Direction {
    let mut air = Air::new(latency);
    for number in 0..count {
        event(&mut air, number);
        air.next(0);
    }
    air.central()
}

#[test]
fn an_event_that_the_central_ends_although_there_is_more_is_told_with_who_did() {
    let direction = events(20, Some(0), |air, _| {
        air.pdu(Way::Forward, 100, true, true);
        air.pdu(Way::Backward, 0, false, true);
    });
    assert!(share(&direction, "closed_event") > 0.9, "{direction:?}");
    assert_eq!(says(&direction, "event_closed_early"), 'F');
    let facts = direction.air.as_ref().unwrap();
    assert_eq!((facts.ended_by_central, facts.ended_by_peripheral, facts.exchanges_per_event), (19, 0, Some(1)));
}

#[test]
fn a_peripheral_that_does_not_answer_ends_events() {
    let direction = events(20, Some(0), |air, number| {
        air.pdu(Way::Forward, 100, true, true);
        if number % 2 == 0 {
            air.pdu(Way::Backward, 0, false, true);
        }
    });
    let facts = direction.air.as_ref().unwrap();
    // How much time was left after the last event is not known.
    assert_eq!((facts.ended_by_peripheral, facts.silent_events), (9, 10));
}

#[test]
fn the_same_pdu_once_more_is_a_repeat_and_the_time_until_then_a_loss() {
    let direction = events(20, Some(0), |air, number| {
        air.pdu(Way::Forward, 100, false, number % 2 == 0);
        air.refuses = number % 2 == 0;
        air.pdu(Way::Backward, 0, false, true);
    });
    assert_eq!((direction.repeated_segments, direction.segments), (10, 10));
    assert!((0.4..0.6).contains(&share(&direction, "loss_recovery")), "{direction:?}");
    let found = found(&direction, "loss");
    assert_eq!((found.certainty, &*found.summary), (Certainty::Seen, "10 of 20 data PDUs (50.0 %) were sent again"));
    let refused = "10 times the receiver answered and asked for the same PDU once more";
    assert!(found.evidence.iter().any(|evidence| evidence.text.starts_with(refused)), "{found:?}");
}

#[test]
fn a_pdu_whose_acknowledgement_got_lost_is_a_repeat() {
    let direction = events(20, Some(0), |air, number| {
        // The central asks once more for the answer that had acknowledged its PDU.
        air.refuses = number % 2 == 1;
        air.pdu(Way::Forward, 100, false, number % 2 == 0);
        air.pdu(Way::Backward, 0, false, number % 2 == 0);
    });
    assert_eq!((direction.repeated_segments, direction.segments), (10, 10));
}

#[test]
fn one_that_is_alike_is_no_repeat_where_the_sniffer_missed_what_was_between() {
    for missed in [Missed::All, Missed::Crc, Missed::Event] {
        let mut air = Air::new(Some(0));
        for number in 0..100 {
            if number % 5 == 4 && missed == Missed::Event {
                air.sn = air.sn.map(|sn| !sn);
                air.next(1);
            }
            air.pdu(Way::Forward, 0, false, true);
            air.missed = Some(missed).filter(|_| number % 5 == 4 && missed != Missed::Event);
            air.pdu(Way::Backward, 50, false, true);
            air.next(0);
        }
        let direction = air.explained().remove(0);
        assert_eq!((direction.repeated_segments, says(&direction, "loss")), (0, '.'), "{missed:?} {direction:?}");
        assert!(share(&direction, "not_known") > 0.1, "{missed:?} {direction:?}");
    }
}

#[test]
fn where_nothing_was_repeated_the_events_without_an_answer_are_told() {
    let mut air = Air::new(Some(0));
    for number in 0..61 {
        air.pdu(Way::Forward, 0, false, number % 3 == 1);
        if number % 3 == 0 {
            air.pdu(Way::Backward, 50, false, true);
        }
        air.next(0);
    }
    let direction = air.explained().remove(0);
    let found = found(&direction, "loss");
    let summary = "In 40 of 61 events the peripheral was not seen to answer";
    assert_eq!((found.certainty, &*found.summary), (Certainty::Consistent, summary));
    assert!(found.remedy.starts_with("On the peripheral"), "{found:?}");
}

#[test]
fn a_link_that_carries_hardly_any_data_is_not_busy() {
    for (count, is_control, said) in [(7, false, '.'), (20, true, '.'), (20, false, 'F')] {
        let mut air = Air::new(Some(0));
        air.is_control = is_control;
        for left in (0..count).rev() {
            air.pdu(Way::Forward, 27, left > 0, true);
            air.pdu(Way::Backward, 0, false, true);
        }
        assert_eq!(says(&air.central(), "phy"), said, "{count}");
    }
}

#[test]
fn a_controller_with_nothing_to_send_waits_for_its_host() {
    let direction = events(40, Some(0), |air, number| {
        air.pdu(Way::Forward, if number % 4 == 0 { 100 } else { 0 }, false, true);
        air.pdu(Way::Backward, 0, false, true);
    });
    assert!(share(&direction, "sending_host") > 0.9, "{direction:?}");
    assert_eq!((says(&direction, "sending_host"), says(&direction, "loss")), ('?', '.'));
}

#[test]
fn one_pdu_in_each_event_without_a_mark_may_be_a_limit_of_the_controller() {
    let direction = events(20, Some(0), |air, _| {
        air.pdu(Way::Forward, 100, false, true);
        air.pdu(Way::Backward, 0, false, true);
    });
    assert_eq!(says(&direction, "event_closed_early"), '?');
    let varied = events(20, Some(0), |air, number| {
        for left in (0..=number % 5).rev() {
            air.pdu(Way::Forward, 100, left > 0, true);
            air.pdu(Way::Backward, 0, false, true);
        }
    });
    assert_eq!(says(&varied, "event_closed_early"), '.');
}

#[test]
fn time_of_events_that_were_not_seen_is_not_known() {
    let mut air = Air::new(Some(0));
    for _ in 0..10 {
        air.pdu(Way::Forward, 100, true, true);
        air.pdu(Way::Backward, 0, false, true);
        air.next(3);
    }
    let direction = air.central();
    assert!(share(&direction, "not_known") > 0.9, "{direction:?}");
    assert_eq!(says(&direction, "event_closed_early"), '.');
    assert_eq!(direction.air.unwrap().unseen_events, 27);
}

#[test]
fn a_peripheral_may_skip_events_if_its_latency_allows_that() {
    let told = |latency, is_acknowledged| {
        let mut air = Air::new(latency);
        for number in 0..20 {
            air.pdu(Way::Forward, 0, false, is_acknowledged || number % 2 == 1);
            if number % 2 == 0 {
                air.pdu(Way::Backward, 50, false, true);
            }
            air.next(0);
        }
        let all = air.explained();
        let direction = all.into_iter().find(|direction| direction.from.starts_with("peripheral")).unwrap();
        ["sending_host", "loss_recovery", "not_known"].map(|holder| share(&direction, holder) > 0.9)
    };
    assert_eq!(told(Some(4), false), [true, false, false]);
    assert_eq!(told(Some(0), false), [false, true, false]);
    assert_eq!(told(None, false), [false, false, true]);
    // The central goes on: only the sniffer did not hear the peripheral.
    assert_eq!(told(Some(0), true), [false, false, true]);
}

#[test]
fn what_is_repeated_to_a_peripheral_that_sleeps_was_not_lost() {
    let told = |latency| {
        events(40, latency, |air, number| {
            air.pdu(Way::Forward, 100, false, number % 4 == 0);
            if number % 4 == 3 {
                air.pdu(Way::Backward, 0, false, true);
            }
        })
    };
    let sleeps = told(Some(3));
    assert_eq!((says(&sleeps, "interval_quantisation"), says(&sleeps, "loss")), ('F', '.'), "{sleeps:?}");
    assert_eq!(sleeps.repeated_segments, 0);
    for latency in [0, 2] {
        let lost = told(Some(latency));
        assert_eq!(says(&lost, "loss"), 'F', "{lost:?}");
    }
}

#[test]
fn what_is_repeated_after_events_without_an_answer_is_no_loss_where_the_latency_is_not_known() {
    let told = |is_heard| {
        events(40, None, |air, number| {
            air.pdu(Way::Forward, 100, false, number % 4 == 0);
            air.refuses = number % 4 != 3;
            if is_heard || number % 4 == 3 {
                air.pdu(Way::Backward, 0, false, true);
            }
            air.refuses = false;
        })
    };
    let silent = told(false);
    assert_eq!((says(&silent, "loss"), says(&silent, "interval_quantisation")), ('?', '.'), "{silent:?}");
    assert_eq!((silent.repeated_segments, silent.segments), (0, 10));
    assert!(share(&silent, "not_known") > 0.7, "{silent:?}");
    let remark = "How many events the peripheral may skip is not known";
    assert!(silent.remarks.iter().any(|it| it.starts_with(remark)), "{:?}", silent.remarks);
    let heard = told(true);
    assert_eq!((says(&heard, "loss"), heard.repeated_segments), ('F', 30), "{heard:?}");
}

#[test]
fn what_was_skipped_is_told_with_the_latency_of_then() {
    let direction = events(40, Some(3), |air, number| {
        air.pdu(Way::Forward, 100, false, number % 4 == 0);
        if number % 4 == 3 {
            air.pdu(Way::Backward, 0, false, true);
        }
        if number == 39 {
            air.link(INTERVAL, None);
        }
    });
    let found = found(&direction, "interval_quantisation");
    assert!(found.evidence.iter().any(|evidence| evidence.text.contains("may skip 3 events")), "{found:?}");
}

#[test]
fn without_an_interval_nobody_knows_whether_events_ended_early() {
    for md in [true, false] {
        let mut air = Air::new(Some(0));
        air.link(0, Some(0));
        for _ in 0..20 {
            air.pdu(Way::Forward, 100, md, true);
            air.pdu(Way::Backward, 0, false, true);
            air.next(0);
        }
        let direction = air.central();
        assert_eq!(says(&direction, "event_closed_early"), '.', "{direction:?}");
        assert!(share(&direction, "not_known") > 0.9, "{direction:?}");
    }
}

#[test]
fn an_exchange_both_ways_needs_time_for_both() {
    // Two exchanges take 8 ms; what is left of the interval is enough for one of 4 ms.
    let told = |exchanges| {
        events(20, Some(0), |air, _| {
            (0..exchanges).for_each(|_| {
                air.pdu(Way::Forward, 251, true, true);
                air.pdu(Way::Backward, 251, true, true);
            });
        })
    };
    let full = told(6);
    assert_eq!(says(&full, "event_closed_early"), '.', "{full:?}");
    assert_eq!(says(&told(5), "event_closed_early"), 'F');
}

#[test]
fn a_link_that_is_busy_with_short_pdus_needs_longer_ones() {
    let direction = events(20, Some(0), |air, _| {
        for left in (0..44).rev() {
            air.continues = left % 8 != 0;
            air.pdu(Way::Forward, 27, left > 0, true);
            air.pdu(Way::Backward, 0, false, true);
        }
    });
    assert!(share(&direction, "air") > 0.9, "{direction:?}");
    assert_eq!((says(&direction, "length"), says(&direction, "phy")), ('F', 'F'));
}

#[test]
fn le_coded_takes_the_time_of_its_coding() {
    // Exchanges of 3468 us and of 1656 us. With an answer of LE 1M one more would end before the next anchor.
    for (phy, exchanges, length, faster) in [(Phy::CodedS8, 11, 0.448, 0.612), (Phy::CodedS2, 24, 0.660, 0.432)] {
        let told = |exchanges: u64| {
            let mut air = Air::new(Some(0));
            (air.phy, air.interval) = (phy, 41_250_000);
            air.link(air.interval, Some(0));
            for _ in 0..20 {
                for exchange in 0..exchanges {
                    air.continues = exchange % 8 != 0;
                    air.pdu(Way::Forward, 27, true, true);
                    air.pdu(Way::Backward, 0, false, true);
                }
                air.next(0);
            }
            air.central()
        };
        let full = told(exchanges);
        assert_eq!(says(&full, "event_closed_early"), '.', "{full:?}");
        assert_eq!(says(&told(exchanges - 1), "event_closed_early"), 'F');
        for (cause, cost) in [("length", length), ("phy", faster)] {
            let share = found(&full, cause).cost.share;
            assert!((share - cost).abs() < 0.01, "{phy:?} {cause} {share}");
        }
    }
}

#[test]
fn no_phy_saves_more_than_there_is_time() {
    let mut air = Air::new(Some(0));
    air.at += 7_200_000 * MS;
    for number in 0..60 {
        for left in (0..12).rev() {
            air.pdu(Way::Forward, 250, left > 0, true);
            air.pdu(Way::Backward, 0, false, true);
        }
        air.next(0);
        // Half a minute each time, which the link's own times do not follow.
        air.at -= if number % 10 == 3 { 30_000 * MS } else { 0 };
    }
    let direction = air.central();
    let found = found(&direction, "phy");
    assert!(found.cost.share <= 0.5 && found.cost.held_ns <= direction.span_ns / 2, "{direction:?}");
}

proptest! {
    /// Whatever a sniffer tells, each nanosecond has one holder.
    #[test]
    fn the_ledger_adds_up(
        pdus in prop::collection::vec(
            (0..4_u8, any::<bool>(), any::<bool>(), any::<u8>(), any::<bool>(), 0..40_000_000_u64),
            0..60,
        )
    ) {
        let mut air = Air::new(None);
        for (what, md, new, length, is_forward, gap) in pdus {
            let way = if is_forward { Way::Forward } else { Way::Backward };
            air.begins = what == 0;
            air.unseen = u16::from(what == 0) * u16::from(length % 3);
            match what {
                3 => {
                    let pdu = LePdu { air_ns: u32::MAX, is_after_hole: md, begins_event: new, ..LePdu::default() };
                    air.tell(way, Le::Pdu(pdu), 0);
                }
                _ => air.pdu(way, length, md, new),
            }
            air.at += gap;
        }
        for direction in air.explained() {
            let sum: u64 = direction.breakdown.iter().map(|held| held.held_ns).sum();
            prop_assert_eq!(sum, direction.span_ns);
        }
    }
}
