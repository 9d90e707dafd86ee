//! Small packets that Nagle's algorithm holds on the way to a broker or from it, until a delayed acknowledgement.
//!
//! With QoS 1 and 2 each side of a connection sends an acknowledgement of MQTT just before its next message, or just
//! after. The second of two small segments waits with Nagle's algorithm (RFC 896) until TCP has acknowledged the first,
//! which the receiver delays as it has nothing to send (RFC 1122, section 4.2.3.2). What an end sends depends on its
//! `TCP_NODELAY`; what the broker sends does not, but it is let go by prompt acknowledgements of the ends, since then
//! there is nothing to wait for. Both are tried, and the differences are the findings.

use crate::finding::{Finding, Unit};
use crate::words;

/// Mean round trips in ns, a round each, with other acknowledgements in turn.
#[derive(Clone, Copy, Debug)]
pub struct Tried<'a> {
    /// What it was measured on: an endpoint, with the workload.
    pub on: &'a str,
    /// What the broker says that it is.
    pub broker: Option<&'a str>,
    /// As it was asked for.
    pub as_asked: &'a [u64],
    /// With `TCP_NODELAY` at our end.
    pub nodelay: &'a [u64],
    /// With that, and `TCP_QUICKACK` after each read at both ends of the test.
    pub prompt: &'a [u64],
}

/// Of less, in ns, nobody would speak: delayed acknowledgements take 8 ms at least.
const LEAST_NS: u64 = 4_000_000;

/// Who holds packets back: our end, the broker, both or none.
pub fn find(tried: &Tried<'_>) -> Vec<Finding> {
    let client = gain(tried.as_asked, tried.nodelay).map(|gain| client_nagle(tried, gain));
    let broker = gain(tried.nodelay, tried.prompt).map(|gain| broker_nagle(tried, gain));
    client.into_iter().chain(broker).collect()
}

/// What the change saves a message in every round, the median; `None` where it does not save that much in each.
fn gain(without: &[u64], with: &[u64]) -> Option<u64> {
    let mut gains: Vec<u64> = without.iter().zip(with).map(|(without, with)| without.saturating_sub(*with)).collect();
    gains.sort_unstable();
    gains.first().filter(|least| **least >= LEAST_NS)?;
    gains.get(gains.len() / 2).copied()
}

fn client_nagle(tried: &Tried<'_>, gain: u64) -> Finding {
    Finding {
        cause: "client_nagle".to_owned(),
        summary: "Nagle's algorithm of this client held messages until the broker's delayed acknowledgement."
            .to_owned(),
        on: tried.on.to_owned(),
        share: 1.0,
        share_of: Unit::Messages,
        cost_ns: gain,
        evidence: vec![
            compared("as asked", tried.as_asked, "with TCP_NODELAY at this end", tried.nodelay),
            "nothing else was changed, and each round had a link of its own".to_owned(),
        ],
        remedy: "Set TCP_NODELAY in the client (rumqttc: NetworkOptions::set_tcp_nodelay(true); mosquitto: \
                 MOSQ_OPT_TCP_NODELAY; taut: --opt nodelay)."
            .to_owned(),
        proof: None,
    }
}

fn broker_nagle(tried: &Tried<'_>, gain: u64) -> Finding {
    let name = tried.broker.map_or_else(|| "the broker".to_owned(), |name| format!("the broker ({name})"));
    let option = match tried.broker {
        Some(name) if !name.to_lowercase().contains("mosquitto") => "Switch Nagle's algorithm off in the broker",
        _ => "Set `set_tcp_nodelay true` in mosquitto.conf (in other brokers what switches TCP_NODELAY on)",
    };
    Finding {
        cause: "broker_nagle".to_owned(),
        summary: "Nagle's algorithm of the broker held messages until a delayed acknowledgement of its clients."
            .to_owned(),
        on: tried.on.to_owned(),
        share: 1.0,
        share_of: Unit::Messages,
        cost_ns: gain,
        evidence: vec![
            compared(
                "with TCP_NODELAY at this end",
                tried.nodelay,
                "and TCP_QUICKACK after each read at both ends",
                tried.prompt,
            ),
            format!(
                "what this end sends was free to leave in both; prompt acknowledgements can only let go what {name} held"
            ),
        ],
        remedy: format!(
            "{option}. Where the broker can't be touched, set TCP_QUICKACK after each read in all its clients: `--opt \
             nodelay --opt quickack --peer-ack prompt` measures that."
        ),
        proof: None,
    }
}

fn compared(before: &str, without: &[u64], after: &str, with: &[u64]) -> String {
    let range = |times: &[u64]| {
        let (low, high) = (times.iter().min().copied().unwrap_or(0), times.iter().max().copied().unwrap_or(0));
        format!("{} to {}", words::time(low), words::time(high))
    };
    format!(
        "{before}, a message took {}; {after}, {} (means of {} rounds in turn)",
        range(without),
        range(with),
        without.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn causes(as_asked: [u64; 3], nodelay: [u64; 3], prompt: [u64; 3]) -> Vec<String> {
        let tried = Tried { on: "x", broker: None, as_asked: &as_asked, nodelay: &nodelay, prompt: &prompt };
        find(&tried).into_iter().map(|finding| finding.cause).collect()
    }

    #[test]
    fn each_cause_stands_where_its_cure_helps_and_nowhere_else() {
        let (slow, slower, quick) = ([44 * MS; 3], [88 * MS; 3], [MS / 20; 3]);
        assert_eq!(causes(slower, slow, quick), ["client_nagle", "broker_nagle"]);
        assert_eq!(causes(slow, slow, quick), ["broker_nagle"]);
        assert_eq!(causes(slow, quick, quick), ["client_nagle"]);
        // Far away, not held: nothing helps. Nor do changes that make it worse.
        assert!(causes(slow, slow, slow).is_empty());
        assert!(causes(quick, slow, slower).is_empty());
    }

    #[test]
    fn one_round_that_does_not_agree_leaves_it_unsaid() {
        assert!(causes([44 * MS, 44 * MS, MS], [44 * MS, MS, MS], [44 * MS, MS, MS]).is_empty());
        assert!(find(&Tried { on: "x", broker: None, as_asked: &[], nodelay: &[], prompt: &[] }).is_empty());
    }

    #[test]
    fn the_remedy_names_the_broker_that_was_found() {
        let with = |broker| {
            let (slow, quick) = ([44 * MS; 3], [MS / 20; 3]);
            let tried = Tried { on: "x", broker, as_asked: &slow, nodelay: &slow, prompt: &quick };
            find(&tried).swap_remove(0)
        };
        let stock = with(Some("mosquitto version 2.0.11"));
        assert!(stock.remedy.contains("set_tcp_nodelay true") && stock.evidence[1].contains("2.0.11"), "{stock:?}");
        assert!(!with(Some("other 1")).remedy.contains("mosquitto"));
    }
}
