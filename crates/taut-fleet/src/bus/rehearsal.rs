//! What agents and who gathers make of what a server says, without one: for tests and fuzz targets.

use std::time::Duration;

use super::board::Board;
use super::message::{Member, Orders, Report, unix_ns, written};
use super::own::{Allowed, Own};
use crate::blank;
use crate::error::Error;
use crate::host::Host;
use crate::judge::judge;
use crate::outcome::{HostOutcome, MeshOutcome};
use crate::pairs::choose;
use crate::plan::Plan;
use crate::task;

const PLAN: &str = "[mesh]\nhosts = [\"a\", \"b\", \"c\"]\nboth_ways = true\n\
                    [[mesh.work]]\necho = \"udp\"\nwarn = \"p50 > 1ms or lost > 1%\"\nexplain = true\n\
                    [[mesh.work]]\nstream = \"tcp\"\nwarn = \"throughput < 1Gbit/s\"\n";

/// An agent that allows echoes at up to 100 messages a second, and a run between the hosts `a`, `b` and `c`.
pub struct Rehearsal {
    plan: Plan,
    board: Board,
    own: Own,
}

impl Rehearsal {
    /// Begins anew.
    ///
    /// # Errors
    /// None: the plan is sound.
    pub fn new() -> Result<Self, Error> {
        let plan = Plan::parse(PLAN)?;
        let pairs = choose(&plan, true)?;
        let host = |host: &Host| HostOutcome { name: host.name.clone(), ..HostOutcome::default() };
        let outcome = MeshOutcome {
            hosts: plan.hosts.iter().map(host).collect(),
            works: blank::works(&plan, &pairs, &|_| "no result came".to_owned()),
            results: None,
        };
        let own = Own {
            allow: vec![Allowed::Echo],
            max_rate: Some(100.0),
            max_time: Duration::from_secs(60),
            hours: None,
            peers: Vec::new(),
            at_once: 4,
        };
        Ok(Self { plan, board: Board::new(outcome, &pairs, 0), own })
    }

    /// Takes orders as an agent does: the commands that they come to, all to one peer, within the agent's own limits.
    /// They are the same when they are written and read again.
    ///
    /// # Errors
    /// Why they are refused.
    pub fn orders(&self, bytes: &[u8]) -> Result<Vec<Vec<String>>, Error> {
        let orders = Orders::parse(bytes)?;
        let again = written(&orders);
        if Orders::parse(&again).map(|orders| written(&orders)).ok() != Some(again) {
            return Err(Error::new("a bug: what is written is not read"));
        }
        let now = unix_ns() / 1_000_000_000;
        let _ = (orders.is_stale(now), orders.left(now), orders.half(), orders.patience());
        let mut commands = Vec::new();
        for task in &orders.tasks {
            let work = &orders.works[task.work];
            let period = task.look_us.map(Duration::from_micros);
            if self.own.refuses(work, period.map(|period| 1.0 / period.as_secs_f64()), 0).is_some() {
                continue;
            }
            let endpoint = task::endpoint(work.transport, "b", 1);
            commands.push(match period {
                Some(period) => task::look(period, endpoint),
                None => task::measure(work, endpoint),
            });
        }
        Ok(commands)
    }

    /// Takes what an agent says of itself: where others ask it.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn member(key: &str, bytes: &[u8]) -> Result<Host, Error> {
        Member::parse(key, bytes)?.host()
    }

    /// Takes a result; whether it is new.
    pub fn result(&mut self, subject: &str, bytes: &[u8]) -> bool {
        let Ok(report) = Report::parse(subject, bytes) else {
            self.board.account.strange();
            return false;
        };
        let is_new = self.board.is_new(&report);
        if is_new {
            let _ = self.board.enter(report);
        }
        is_new
    }

    /// What it comes to.
    pub fn end(mut self) -> MeshOutcome {
        judge(&self.plan, &mut self.board.outcome);
        self.board.outcome.results = Some(self.board.account.results());
        self.board.outcome
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::outcome::Reached;

    /// A result as an agent, or somebody else, may have made it.
    fn result() -> impl Strategy<Value = Value> {
        let names = || prop::sample::select(vec!["a", "b", "c", "d"]);
        let numbers = || prop_oneof![0_u64..8, Just(u64::MAX - 1), Just(u64::MAX)];
        let kinds = prop::sample::select(vec!["measured", "explained", "failed", "refused", "closed"]);
        (names(), names(), numbers(), numbers(), 0_usize..4, kinds, any::<bool>(), numbers()).prop_map(
            |(agent, peer, seq, before, work, what, look, of)| {
                json!({
                    "form": 1, "agent": agent, "epoch": of.min(2), "seq": seq, "before": before, "dropped": of,
                    "plan": "p", "begin_unix_ns": of, "end_unix_ns": before, "what": what, "work": work, "peer": peer,
                    "look": look, "why": "w",
                    "measured": { "sent": of, "lost": seq, "throughput_bps": if look { json!(1.5) } else { json!(null) } },
                    "explained": { "begin_ns": 0, "end_ns": 0, "messages": of, "lost": seq, "findings": [] },
                })
            },
        )
    }

    proptest! {
        #[test]
        fn whatever_comes_is_taken_in_or_counted_and_stands_once(results in prop::collection::vec(result(), 0..60)) {
            let mut rehearsal = Rehearsal::new().unwrap();
            let (mut new, mut closed, mut failed) = (0, 0, 0);
            for result in &results {
                let agent = result["agent"].as_str().unwrap();
                if rehearsal.result(&format!("taut.result.{agent}"), &serde_json::to_vec(result).unwrap()) {
                    new += 1;
                    closed += u64::from(result["what"] == "closed");
                    failed += u64::from(["failed", "refused"].contains(&result["what"].as_str().unwrap())
                        && result["look"] == false && result["work"].as_u64() < Some(2)
                        && agent != result["peer"] && result["peer"] != "d");
                }
            }
            let outcome = rehearsal.end();
            let results = outcome.results.clone().unwrap();
            // A life may say more than once that it is over.
            prop_assert!((new - closed..=new).contains(&results.taken), "{results:?}");
            let pairs = || outcome.works.iter().flat_map(|work| &work.pairs);
            for pair in pairs() {
                prop_assert_eq!(pair.measured.is_some(), pair.reached == Reached::Measured);
                prop_assert!(pair.misses.is_empty() || pair.measured.is_some());
                prop_assert!(pair.failures.is_some() || !matches!(pair.reached, Reached::Failed(_)));
            }
            let told: u64 = pairs().filter_map(|pair| pair.failures.as_ref()).map(|failures| failures.times).sum();
            prop_assert_eq!(told, failed);
            let text = serde_json::to_string(&outcome).unwrap();
            let again: MeshOutcome = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(serde_json::to_string(&again).unwrap(), text);
        }

        #[test]
        fn no_orders_come_to_more_than_an_agent_allows(
            rate in prop_oneof![Just(None), (0.01_f64..300.0).prop_map(Some)],
            messages in 1_u64..20_000,
            kind in prop::sample::select(vec!["echo", "stream"]),
            look in prop_oneof![Just(None), (1_u64..1_000_000).prop_map(Some)],
        ) {
            let mut work = json!({ kind: "udp" });
            if kind == "echo" {
                work["messages"] = messages.into();
                work["rate"] = json!(rate);
            }
            let orders = json!({
                "form": 1, "plan": "p", "once": true, "written_unix_s": 1, "seconds": 60, "per_host": 4,
                "patience_ms": 1, "has_leases": false, "works": [work],
                "tasks": [{ "work": 0, "peer": "b", "look_us": look }],
            });
            let found = Rehearsal::new().unwrap().orders(&serde_json::to_vec(&orders).unwrap());
            let commands = found.unwrap_or_default();
            let is_within = |rate: f64| rate <= 100.0 && messages as f64 / rate <= 60.0;
            let is_echo = kind == "echo" && look.is_none();
            prop_assert!(commands.is_empty() || is_echo && rate.is_some_and(is_within), "{commands:?}");
            for word in commands.iter().flatten() {
                prop_assert!(word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-./:=".contains(&byte)));
            }
        }
    }
}
