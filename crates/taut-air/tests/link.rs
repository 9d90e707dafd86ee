//! A link with programs outside.

use std::time::Duration;

use taut_air::{AirLink, Role, Scenario};

fn scenario() -> Scenario {
    Scenario::from_toml(include_str!("../../../scenarios/paper-000.toml")).unwrap()
}

#[test]
fn an_echo_takes_an_interval_or_two() {
    let mut scenario = scenario();
    scenario.set("ci", "30ms").unwrap();
    let mut link = AirLink::open(&scenario, 7, &mut ()).unwrap();
    for round in 0..50u8 {
        let begun = link.now();
        let until = begun + Duration::from_secs(1);
        link.write(Role::Central, &[round; 32]);
        let question = link.wait(until, &mut ()).unwrap();
        assert_eq!((question.side, &question.bytes[..]), (Role::Peripheral, &[round; 32][..]));
        link.write(Role::Peripheral, &question.bytes);
        let answer = link.wait(until, &mut ()).unwrap();
        assert_eq!((answer.side, &answer.bytes[..]), (Role::Central, &[round; 32][..]));
        let took = answer.at.saturating_since(begun);
        assert!(took > Duration::from_millis(30) && took < Duration::from_millis(100), "{took:?}");
    }
    let outcome = link.outcome(&mut ());
    assert_eq!(outcome.counters.sdus_read, 100);
    assert_eq!(outcome.counters.sdus_damaged, 0);
    assert_eq!(outcome.ledger.total(), outcome.duration_ns);
}

#[test]
fn long_writes_arrive_in_sdus_and_in_order() {
    let mut link = AirLink::open(&scenario(), 7, &mut ()).unwrap();
    let bytes: Vec<u8> = (0..20_000u32).map(|at| ((at * at) >> 7) as u8).collect();
    link.write(Role::Peripheral, &bytes);
    assert_eq!(link.unwritten(Role::Peripheral), bytes.len());
    let until = link.now() + Duration::from_secs(10);
    let (mut received, mut sizes) = (Vec::new(), Vec::new());
    while received.len() < bytes.len() {
        let arrival = link.wait(until, &mut ()).unwrap();
        sizes.push(arrival.bytes.len());
        received.extend(arrival.bytes);
    }
    assert_eq!(received, bytes);
    assert_eq!((sizes.len(), sizes[0], sizes[29]), (30, 672, 20_000 - 29 * 672));
    assert_eq!(link.unwritten(Role::Peripheral), 0);
}

#[test]
fn time_passes_although_nothing_comes() {
    let mut link = AirLink::open(&scenario(), 7, &mut ()).unwrap();
    let until = link.now() + Duration::from_secs(3);
    assert_eq!(link.wait(until, &mut ()), None);
    assert_eq!(link.now(), until);
    assert!(link.deadline().is_some_and(|next| next >= until));
}

#[test]
fn a_medium_that_loses_all_is_an_error() {
    let mut scenario = scenario();
    scenario.set("per", "1").unwrap();
    let error = AirLink::open(&scenario, 7, &mut ()).unwrap_err();
    assert!(error.to_string().contains("did not come up"), "{error}");
}
