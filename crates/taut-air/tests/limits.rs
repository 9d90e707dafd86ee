//! Saturating runs carry what the formulas say.

use taut_air::{Phy, Scenario, Simulation};

const SECOND: u64 = 1_000_000_000;

fn saturate() -> Scenario {
    Scenario::from_toml(include_str!("../../../scenarios/saturate.toml")).unwrap()
}

/// Bits per second after the first second, and what the formula says.
fn rates(scenario: &Scenario) -> (f64, f64) {
    let seconds = if scenario.phy.is_coded() { 40 } else { 10 };
    let mut simulation = Simulation::new(scenario, 1).unwrap();
    let before = simulation.run(SECOND, &mut ());
    let after = simulation.run(seconds * SECOND, &mut ());
    assert_eq!(after.ledger.total(), after.duration_ns);
    assert_eq!((after.counters.sdus_damaged, after.disconnected), (0, None));
    assert!(after.quantised_limit_bps <= after.limit_bps * 1.000_001);
    let bits = (after.counters.bytes_read - before.counters.bytes_read) * 8;
    (bits as f64 / seconds as f64, after.quantised_limit_bps)
}

fn assert_limit(scenario: &Scenario, what: &str) {
    let (rate, limit) = rates(scenario);
    assert!((rate / limit - 1.0).abs() <= 0.005, "{what}: {rate} of {limit}");
}

#[test]
fn every_phy_length_and_mic_meets_its_limit() {
    for phy in Phy::ALL {
        for length in ["27", "100", "251"] {
            for encrypted in ["false", "true"] {
                for ci in ["50ms", "7.5ms"] {
                    // LE Coded's longest packets don't fit into 7.5 ms.
                    if phy.is_coded() && ci == "7.5ms" {
                        continue;
                    }
                    for sender in ["peripheral", "central"] {
                        let mut scenario = saturate();
                        for (name, value) in [
                            ("phy", phy.name()),
                            ("length", length),
                            ("encrypted", encrypted),
                            ("ci", ci),
                            ("sender", sender),
                        ] {
                            scenario.set(name, value).unwrap();
                        }
                        assert_limit(&scenario, &format!("{phy:?} {length} {encrypted} {ci} {sender}"));
                    }
                }
            }
        }
    }
}

#[test]
fn a_shorter_space_and_interval_meet_their_limit() {
    let mut scenario = saturate();
    for (name, value) in [("ifs", "63us"), ("ci", "3.75ms"), ("phy", "2m")] {
        scenario.set(name, value).unwrap();
    }
    assert_limit(&scenario, "shorter");
}

#[test]
fn links_share_the_air() {
    let mut scenario = saturate();
    scenario.set("links", "4").unwrap();
    let (rate, _) = rates(&scenario);
    // Four events in every interval: each has a remainder that no PDU fits into.
    let mut quarter = saturate();
    quarter.set("ci", "12.5ms").unwrap();
    let limit = quarter.limit().quantised_bps(quarter.ci);
    assert!((rate / limit - 1.0).abs() <= 0.01, "{rate} of {limit}");
}
