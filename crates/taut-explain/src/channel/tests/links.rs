//! Links that change while data goes and after, and peripherals that skip events.

use super::*;

/// One packet in each event of 7.5 ms; the link is then changed.
fn then(change: impl FnOnce(&mut RadioLink)) -> Direction {
    let mut talk = Talk::new(coc(), 15 * MS / 2, 1_000, 20);
    let end = busy(&mut talk, 8 * MS, 200);
    talk.link(end + 100 * MS, change);
    talk.forward()
}

/// So many packets from then on, each handed over 7.4 ms before it is through.
fn busy(talk: &mut Talk, from: u64, packets: u64) -> u64 {
    for n in 0..packets {
        talk.send(from + n * 15 * MS / 2, Turn::Free);
        talk.completed(from + n * 15 * MS / 2 + 74 * MS / 10);
    }
    from + packets * 15 * MS / 2
}

#[test]
fn what_the_link_becomes_after_the_data_is_not_its_own() {
    let unchanged = then(|_| {});
    assert_eq!(found(&unchanged)[0], "phy", "{unchanged:#?}");
    for changed in [then(|link| link.interval_ns = 500 * MS), then(|link| link.phy = [2; 2])] {
        assert_eq!(changed, unchanged);
    }
}

#[test]
fn a_link_that_changes_meanwhile_is_told() {
    let mut talk = Talk::new(coc(), 15 * MS / 2, 1_000, 20);
    let middle = busy(&mut talk, 8 * MS, 200);
    talk.link(middle, |link| link.phy = [2; 2]);
    busy(&mut talk, middle + MS, 100);
    let direction = talk.forward();
    assert_eq!(direction.channel.as_ref().unwrap().phy.as_deref(), Some("1M"), "{direction:#?}");
    let remark = "interval 7.50 ms, LE 1M, 251 B; then interval 7.50 ms, LE 2M, 251 B";
    assert!(direction.remarks.iter().any(|told| told.contains(remark)), "{direction:#?}");
}

/// Commands to a peripheral at 30 ms that are through after 700 ms each.
pub(super) fn slow(latency: u16, is_central: bool) -> Direction {
    let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 8);
    talk.link(MS, |link| (link.latency, link.is_central) = (latency, Some(is_central)));
    for n in 0..40 {
        talk.send(100 * MS + n * 720 * MS, Turn::Free);
        talk.completed(800 * MS + n * 720 * MS);
    }
    talk.forward()
}

#[test]
fn a_peripheral_that_skips_events_is_the_links_parameter() {
    let direction = slow(30, true);
    assert_eq!(found(&direction)[0], "interval_quantisation", "{direction:#?}");
    assert!(share(&direction, Holder::ConnectionInterval) > 0.9);
    assert!(evidence(&direction, "interval_quantisation").contains("may skip 30 events"), "{direction:#?}");
    // It listens to each event; or it sends itself, which it may do in any.
    for other in [slow(0, true), slow(30, false)] {
        assert!(share(&other, Holder::ConnectionInterval) < 0.1, "{other:#?}");
        assert!(share(&other, Holder::Air) > 0.8, "{other:#?}");
    }
}

/// So many packets, each of which is through with the next event.
pub(super) fn few(packets: u64) -> Direction {
    let mut talk = Talk::new(coc(), 30 * MS, 100, 8);
    for n in 0..packets {
        talk.send(31 * MS + n * 30 * MS, Turn::Free);
        talk.completed(60 * MS + n * 30 * MS);
    }
    talk.forward()
}

#[test]
fn few_packets_are_named_as_what_lacks() {
    let direction = few(1);
    let on = direction.verdicts.iter().find(|on| on.cause == "controller").unwrap();
    let Verdict::Unknown { missing, .. } = &on.verdict else { panic!("{on:?}") };
    assert_eq!(missing, "enough packets to reckon with");
}

#[test]
fn a_rate_beyond_any_link_is_not_told() {
    let mut talk = Talk::new(coc(), 15 * MS / 2, 60_000, 20);
    // Times of a host that hands over and completes in the same microsecond.
    for n in 0..200 {
        talk.send(8 * MS + n * 2_000, Turn::Free);
        talk.completed(8 * MS + n * 2_000 + 1_000);
    }
    let direction = talk.forward();
    for on in &direction.verdicts {
        if let Verdict::Found(found) = &on.verdict {
            assert!(!found.evidence.iter().any(|seen| seen.text.contains("by the model")), "{found:#?}");
        }
    }
}
