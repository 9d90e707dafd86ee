//! What a plan comes to, before anything is sent.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pairs::Pair;
use crate::plan::Plan;
use crate::work::{Kind, Transport, Work};

/// What a plan comes to.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Sums {
    /// Hosts.
    pub hosts: usize,
    /// Racks that they stand in.
    pub racks: usize,
    /// Pairs, each way counted.
    pub pairs: usize,
    /// Fewest pairs that a host is in.
    pub fewest_pairs_of_a_host: usize,
    /// Most pairs that a host is in.
    pub most_pairs_of_a_host: usize,
    /// Measurements in a day.
    pub measurements_per_day: f64,
    /// Time series: one for each pair and work.
    pub series: usize,
    /// Bytes that echoes put on the wire in a day, Ethernet frames on one link.
    pub wire_bytes_per_day: f64,
    /// Bytes of documents in a day, where all are kept: some 5 kB each.
    pub kept_bytes_per_day: f64,
    /// Seconds that one run takes at least.
    pub least_run_s: f64,
    /// Of each work.
    pub works: Vec<WorkSums>,
}

/// What one work comes to.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct WorkSums {
    /// `echo` or `stream`.
    pub work: String,
    /// `tcp` or `udp`.
    pub transport: String,
    /// How often it is done.
    pub every_s: f64,
    /// Messages that a host sends of its own accord, mean over the hosts; absent of streams, which send what goes.
    pub probes_per_second_of_a_host: Option<f64>,
    /// Packets that reach or leave the busiest host, of its own and of others' echoes.
    pub most_packets_per_second_of_a_host: Option<f64>,
    /// The same in bits per second, as Ethernet frames.
    pub most_bits_per_second_of_a_host: Option<f64>,
    /// Share of the time that the busiest host is in such a measurement, if each takes no longer than it has to.
    pub most_busy_share_of_a_host: f64,
    /// Measurements of it that can run at once, for all leases and limits.
    pub at_once: usize,
    /// Seconds that it takes at least, once for every pair.
    pub least_run_s: f64,
}

/// Start and end of a `taut` on either side; over ssh(1) it is more.
const START_S: f64 = 0.1;
/// A document of `taut echo --json` with one round: `wc -c` says 4.6 to 5.2 kB.
const DOCUMENT_BYTES: f64 = 5000.0;
const DAY_S: f64 = 86_400.0;

impl Sums {
    /// Adds up.
    pub fn of(plan: &Plan, pairs: &[Pair]) -> Self {
        let mut of_host = vec![0_usize; plan.hosts.len()];
        for pair in pairs {
            of_host[pair.near] += 1;
            of_host[pair.far] += 1;
        }
        let most = of_host.iter().copied().max().unwrap_or(0);
        let racks = plan.hosts.iter().filter_map(|host| host.rack.as_deref()).collect::<BTreeSet<_>>().len();
        let works: Vec<WorkSums> =
            plan.work.iter().map(|work| WorkSums::of(plan, work, racks, pairs.len(), most)).collect();
        let per_day = |work: &Work| pairs.len() as f64 * DAY_S / work.every.as_secs_f64();
        let measurements_per_day: f64 = plan.work.iter().map(per_day).sum();
        let wire = |work: &Work| per_day(work) * echo_frames(work).map_or(0.0, |(_, bytes)| bytes);
        Self {
            hosts: plan.hosts.len(),
            racks,
            pairs: pairs.len(),
            fewest_pairs_of_a_host: of_host.iter().copied().min().unwrap_or(0),
            most_pairs_of_a_host: most,
            measurements_per_day,
            series: pairs.len() * plan.work.len(),
            wire_bytes_per_day: plan.work.iter().map(wire).sum(),
            kept_bytes_per_day: measurements_per_day * DOCUMENT_BYTES,
            // Works may run side by side, so what is sure is the longest of them.
            least_run_s: works.iter().map(|work| work.least_run_s).fold(0.0, f64::max),
            works,
        }
    }
}

impl WorkSums {
    fn of(plan: &Plan, work: &Work, racks: usize, pairs: usize, most: usize) -> Self {
        let every = work.every.as_secs_f64();
        let frames = echo_frames(work);
        let messages = match work.kind {
            Kind::Echo { messages, .. } => Some(messages as f64),
            Kind::Stream { .. } => None,
        };
        let hosts = plan.hosts.len();
        let places = match (work.alone_on_host, work.alone_in_rack) {
            // At best every one of them has both its ends in one rack.
            (_, true) => racks,
            (true, false) => hosts / 2,
            (false, false) => hosts * plan.per_host / 2,
        };
        let at_once = plan.at_once.min(places).max(1);
        let at_once_of_a_host = if work.alone_on_host { 1 } else { plan.per_host.min(at_once) };
        let one_s = work.expected().as_secs_f64() + START_S;
        Self {
            work: work.kind.name().to_owned(),
            transport: work.transport.name().to_owned(),
            every_s: every,
            probes_per_second_of_a_host: messages.map(|messages| pairs as f64 * messages / every / hosts as f64),
            most_packets_per_second_of_a_host: frames.map(|(packets, _)| most as f64 * packets / every),
            most_bits_per_second_of_a_host: frames.map(|(_, bytes)| most as f64 * bytes * 8.0 / every),
            most_busy_share_of_a_host: most as f64 * one_s / every / at_once_of_a_host as f64,
            at_once,
            least_run_s: pairs as f64 * one_s / at_once as f64,
        }
    }
}

/// Frames of the messages and replies of one echo, and their bytes; without handshakes and plain acknowledgements.
fn echo_frames(work: &Work) -> Option<(f64, f64)> {
    let Kind::Echo { messages, size, .. } = work.kind else { return None };
    // Ethernet with its check sequence, IPv4, and UDP, or TCP with timestamps.
    let (head, most) = match work.transport {
        Transport::Udp => (18 + 20 + 8, 1472),
        Transport::Tcp => (18 + 20 + 32, 1448),
    };
    let frames = size.div_ceil(most).max(1);
    let both_ways = 2.0 * messages as f64;
    Some((both_ways * frames as f64, both_ways * (size + frames * head) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairs::choose;

    /// The sums of 10,000 hosts in 250 racks of 40, each asking 39 in its rack and 16 elsewhere.
    #[test]
    fn ten_thousand_hosts() {
        let hosts: Vec<String> =
            (0..10_000).map(|host| format!("{{ name = \"h{host}\", rack = \"r{}\" }}", host / 40)).collect();
        let text = format!(
            "[mesh]\nhosts = [{}]\npairs = \"rack\"\nboth_ways = true\nat_once = 1000\n\
             [[mesh.work]]\necho = \"udp\"\nevery = \"60s\"\nmessages = 100\n\
             [[mesh.work]]\nstream = \"tcp\"\nevery = \"6h\"\ntime = \"10s\"\nalone = [\"host\", \"rack\"]\n",
            hosts.join(",")
        );
        let plan = Plan::parse(&text).unwrap();
        let sums = Sums::of(&plan, &choose(&plan, false).unwrap());
        assert_eq!((sums.pairs, sums.series, sums.racks), (550_000, 1_100_000, 250));
        assert_eq!((sums.fewest_pairs_of_a_host, sums.most_pairs_of_a_host), (110, 110));
        let echo = &sums.works[0];
        assert_eq!(echo.probes_per_second_of_a_host.map(f64::round), Some(92.0));
        // 110 pairs of 0.1 s in a minute, four at a time; alone they have the host one by one.
        assert_eq!((echo.most_busy_share_of_a_host * 1e4).round(), 458.0);
        assert_eq!((sums.works[1].most_busy_share_of_a_host * 1e4).round(), 514.0);
        assert_eq!(sums.least_run_s, sums.works[1].least_run_s);
        // 110 pairs of 100 messages there and back in a minute, of 78 bytes.
        assert_eq!(echo.most_packets_per_second_of_a_host.map(f64::round), Some(367.0));
        assert_eq!(echo.most_bits_per_second_of_a_host.map(f64::round), Some(228_800.0));
        assert_eq!((sums.works[1].at_once, sums.works[1].most_packets_per_second_of_a_host), (250, None));
        assert_eq!(sums.wire_bytes_per_day, 550_000.0 * 1440.0 * 200.0 * 78.0);
    }
}
