//! Whatever stands in the buckets and the stream of a mesh over NATS: orders come to commands within an agent's own
//! limits or are refused, an agent is asked where a plan could ask, and results are taken in or counted, each once.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_fleet::{Reached, Rehearsal};
use taut_link::Endpoint;

/// The form of all messages, so that inputs need not find it out.
const FORM: &str = "\"form\":1,";

fuzz_target!(|text: &str| {
    let mut rehearsal = Rehearsal::new().expect("its plan is sound");
    let (mut came, mut new) = (0, 0);
    for line in text.lines() {
        let Some((kind, rest)) = line.split_at_checked(1) else { continue };
        let json = rest.replacen('{', &format!("{{{FORM}"), 1);
        match kind {
            "o" => {
                for words in rehearsal.orders(json.as_bytes()).unwrap_or_else(|error| {
                    assert!(!error.to_string().starts_with("a bug"), "{json}");
                    Vec::new()
                }) {
                    assert_eq!(words[0], "echo", "{json}");
                    let rate = words.iter().find_map(|word| word.strip_prefix("--rate="));
                    assert!(
                        rate.and_then(|rate| rate.parse().ok()).is_some_and(|rate: f64| rate <= 100.0),
                        "{words:?}"
                    );
                    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-./:=".contains(&byte);
                    assert!(words.iter().all(|word| word.bytes().all(is_plain)), "{words:?}");
                }
            }
            "m" => {
                let Ok(host) = Rehearsal::member("a", json.as_bytes()) else { continue };
                assert_eq!(host.name, "a");
                let bracketed = if host.address.contains(':') { format!("[{}]", host.address) } else { host.address };
                let endpoint = format!("udp://{bracketed}:9100");
                assert!(matches!(endpoint.parse(), Ok(Endpoint::Udp(_))), "{endpoint}");
            }
            agent => {
                came += 1;
                new += u64::from(rehearsal.result(&format!("taut.result.{agent}"), json.as_bytes()));
            }
        }
    }
    let outcome = rehearsal.end();
    let results = outcome.results.as_ref().expect("there are some");
    assert!(results.taken <= new && new + results.again <= came, "{results:?}: {new} of {came}");
    for pair in outcome.works.iter().flat_map(|work| &work.pairs) {
        assert_eq!(pair.measured.is_some(), pair.reached == Reached::Measured);
        assert!(pair.misses.is_empty() || pair.measured.is_some());
    }
    serde_json::to_string(&outcome).expect("keys are strings");
});
