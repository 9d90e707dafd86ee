//! What stands in the buckets and the stream, and what is refused of it.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::name::token;
use crate::error::Error;
use crate::figure::Measured;
use crate::host::Host;
use crate::outcome::Explained;
use crate::reply::{MOST_FINDINGS, PERIODS, cut};
use crate::work::{Transport, Work};

/// The form of these messages.
const FORM: u32 = 1;
/// What an agent says of itself, in bytes.
pub(super) const LONGEST_MEMBER: usize = 16 << 10;
/// What an agent is told, in bytes. A server's own limit (`max_payload`) is 1 MiB unless it is set.
const LONGEST_ORDERS: usize = 8 << 20;
/// One result, in bytes: findings of a look are the longest part.
pub(super) const LONGEST_REPORT: usize = 1 << 20;
const MOST_LABELS: usize = 32;
/// A label may be a rack, and is a host's name where it is asked for.
const LONGEST_LABEL: usize = 253;
/// A host measures each other host of the largest mesh twice.
const MOST_TASKS: usize = 200_000;
const MOST_WORKS: usize = 16;
/// Both ends have one.
const MOST_RACKS: usize = 2;
/// Seconds after which a plan is over if nobody has taken it back: one that measures once, or for the longest time.
const LONGEST_RUN: u64 = 86_400;
/// The longest time for which agents measure again and again.
pub const MOST_TIME: Duration = Duration::from_secs(LONGEST_RUN);
/// Agents end by themselves so much after who gathers should have told them.
pub(super) const LEFT: Duration = Duration::from_secs(60);
/// Seconds by which two hosts' clocks may differ.
const WRONG_CLOCKS: u64 = 3600;
/// No agent has more patience, whatever a plan says.
const LONGEST_PATIENCE: Duration = Duration::from_secs(600);
/// Names of plans are ours, and part of the value of a lease.
const LONGEST_ID: usize = 64;

/// Who is there.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Member {
    pub(super) form: u32,
    pub(super) name: String,
    /// What the others dial.
    pub(super) address: String,
    /// Ports of its server.
    pub(super) udp: Option<u16>,
    pub(super) tcp: Option<u16>,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    /// Version of Tautline.
    pub(super) taut: String,
    /// Which life of it this is.
    pub(super) epoch: u64,
}

/// What an agent has to do.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Orders {
    pub(super) form: u32,
    /// Which run of which plan.
    pub(super) plan: String,
    /// Each task once, or as often as its work says.
    pub(super) once: bool,
    /// When it was written, by that host's clock, in seconds since 1970.
    pub(super) written_unix_s: u64,
    /// After which it is over, whatever became of who wrote it.
    pub(super) seconds: u64,
    /// Measurements of one host at once.
    pub(super) per_host: usize,
    /// Milliseconds for what should take no time.
    pub(super) patience_ms: u64,
    /// Whether anything of this plan is alone somewhere, in which case all look at leases.
    pub(super) has_leases: bool,
    pub(super) works: Vec<Work>,
    pub(super) tasks: Vec<Task>,
}

/// One pair's work.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Task {
    pub(super) work: usize,
    /// Who is asked, by its name.
    pub(super) peer: String,
    /// Racks that it is alone in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) racks: Vec<String>,
    /// A look into the pair instead of the work, with so many microseconds between messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) look_us: Option<u64>,
}

/// A result.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Report {
    pub(super) form: u32,
    pub(super) agent: String,
    pub(super) epoch: u64,
    /// Counted from 1 in each epoch, without gaps.
    pub(super) seq: u64,
    /// The one before the first of this plan.
    pub(super) before: u64,
    /// Of this plan's, how many had to be dropped unsent until now.
    pub(super) dropped: u64,
    pub(super) plan: String,
    /// By the agent's clock, nanoseconds since 1970.
    pub(super) begin_unix_ns: u64,
    pub(super) end_unix_ns: u64,
    #[serde(flatten)]
    pub(super) found: Found,
}

/// What became of a task.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub(super) enum Found {
    Measured {
        work: usize,
        peer: String,
        measured: Measured,
    },
    Explained {
        work: usize,
        peer: String,
        explained: Explained,
    },
    Failed {
        work: usize,
        peer: String,
        look: bool,
        why: String,
    },
    /// The agent's own limits are against it.
    Refused {
        work: usize,
        peer: String,
        look: bool,
        why: String,
    },
    /// No more of this plan will come from this epoch.
    Closed,
}

fn read<T: DeserializeOwned>(what: &str, bytes: &[u8], longest: usize) -> Result<T, Error> {
    if bytes.len() > longest {
        return Err(Error::new(format!("{what} of {} bytes is longer than {longest}", bytes.len())));
    }
    // The error quotes what was sent.
    serde_json::from_slice(bytes)
        .map_err(|error| Error::new(cut(&taut_event::printable(&format!("{what} can't be read: {error}")))))
}

fn check_form(what: &str, form: u32) -> Result<(), Error> {
    match form {
        FORM => Ok(()),
        other => Err(Error::new(format!("{what} has form {other}, and this taut knows {FORM}: use one version"))),
    }
}

impl Member {
    pub(super) fn new(host: &Host, ports: &[(Transport, u16)], taut: &str, epoch: u64) -> Self {
        let port = |transport| ports.iter().find(|(one, _)| *one == transport).map(|(_, port)| *port);
        Self {
            form: FORM,
            name: host.name.clone(),
            address: host.address.clone(),
            udp: port(Transport::Udp),
            tcp: port(Transport::Tcp),
            labels: host.labels.clone(),
            taut: taut.to_owned(),
            epoch,
        }
    }

    /// Reads what stands at a key.
    pub(super) fn parse(key: &str, bytes: &[u8]) -> Result<Self, Error> {
        let member: Self = read("an agent", bytes, LONGEST_MEMBER)?;
        check_form("an agent", member.form)?;
        if token(&member.name) != key || member.taut.len() > LONGEST_ID {
            return Err(Error::new("an agent stands at another's key"));
        }
        check_labels(&member.labels)?;
        member.host()?;
        Ok(member)
    }

    /// As a plan has it.
    pub(super) fn host(&self) -> Result<Host, Error> {
        Host::new(&self.name, Some(&self.address), self.labels.clone())
    }

    pub(super) const fn port(&self, transport: Transport) -> Option<u16> {
        match transport {
            Transport::Udp => self.udp,
            Transport::Tcp => self.tcp,
        }
    }
}

/// An agent has as many labels as others take.
pub(super) fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), Error> {
    let is_long = |text: &String| text.is_empty() || text.len() > LONGEST_LABEL;
    if labels.len() > MOST_LABELS || labels.iter().any(|(key, value)| is_long(key) || is_long(value)) {
        let text = format!("an agent has up to {MOST_LABELS} labels, and their parts 1 to {LONGEST_LABEL} bytes");
        return Err(Error::new(text));
    }
    Ok(())
}

impl Orders {
    pub(super) fn new(plan: String, patience: Duration, per_host: usize, works: Vec<Work>) -> Self {
        Self {
            form: FORM,
            plan,
            once: true,
            written_unix_s: unix_ns() / 1_000_000_000,
            seconds: LONGEST_RUN,
            per_host,
            patience_ms: u64::try_from(patience.as_millis()).unwrap_or(u64::MAX),
            has_leases: false,
            works,
            tasks: Vec::new(),
        }
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let mut orders: Self = read("a plan", bytes, LONGEST_ORDERS)?;
        orders.seconds = orders.seconds.min((MOST_TIME + LEFT).as_secs());
        check_form("a plan", orders.form)?;
        let is_name = |text: &str| (1..=253).contains(&text.len()) && !text.chars().any(taut_event::steers);
        let is_sound = |task: &Task| {
            let period = task.look_us.map(Duration::from_micros);
            task.work < orders.works.len()
                && is_name(&task.peer)
                && task.racks.len() <= MOST_RACKS
                && task.racks.iter().all(|rack| is_name(rack))
                && period.is_none_or(|period| (PERIODS[0]..=PERIODS[1]).contains(&period))
        };
        let id_is_sound = (1..=LONGEST_ID).contains(&orders.plan.len())
            && orders.plan.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !id_is_sound
            || orders.works.len() > MOST_WORKS
            || orders.tasks.len() > MOST_TASKS
            || orders.per_host == 0
            || !orders.tasks.iter().all(is_sound)
        {
            return Err(Error::new("a plan with works, peers, racks or limits that no mesh has"));
        }
        Ok(orders)
    }

    /// Whether it was over before it was read, so much that no clock that is a little wrong says so.
    pub(super) fn is_stale(&self, now_unix_s: u64) -> bool {
        now_unix_s > self.written_unix_s.saturating_add(self.seconds).saturating_add(WRONG_CLOCKS)
    }

    /// How long it is in force, of an agent that reads it now. One that starts again does not begin to count again,
    /// unless clocks are that wrong.
    pub(super) fn left(&self, now_unix_s: u64) -> Duration {
        let end = self.written_unix_s.saturating_add(self.seconds).saturating_add(WRONG_CLOCKS);
        Duration::from_secs(end.saturating_sub(now_unix_s).min(self.seconds))
    }

    /// Over how much the first measurements may be spread, if there is any need to.
    pub(super) fn half(&self) -> Duration {
        Duration::from_secs(self.seconds).saturating_sub(LEFT) / 2
    }

    pub(super) fn patience(&self) -> Duration {
        Duration::from_millis(self.patience_ms).min(LONGEST_PATIENCE)
    }
}

/// Which plan orders are of, whatever else is in them.
pub(super) fn plan_of(bytes: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct OfPlan {
        plan: String,
    }
    serde_json::from_slice::<OfPlan>(bytes).ok().map(|of| of.plan)
}

impl Report {
    pub(super) fn new(agent: &str, epoch: u64, seq: u64, before: u64, plan: &str, found: Found) -> Self {
        let (agent, plan) = (agent.to_owned(), plan.to_owned());
        Self { form: FORM, agent, epoch, seq, before, dropped: 0, plan, begin_unix_ns: 0, end_unix_ns: 0, found }
    }

    /// Reads what came on a subject.
    pub(super) fn parse(subject: &str, bytes: &[u8]) -> Result<Self, Error> {
        let report: Self = read("a result", bytes, LONGEST_REPORT)?;
        check_form("a result", report.form)?;
        if subject.strip_prefix(RESULTS_BELOW) != Some(token(&report.agent).as_str()) || report.before >= report.seq {
            return Err(Error::new("a result came as another agent's, or is counted wrongly"));
        }
        Ok(Self { found: report.found.cut(), ..report })
    }

    /// By which a server knows it again.
    pub(super) fn id(&self) -> String {
        format!("{}-{}-{}", token(&self.agent), self.epoch, self.seq)
    }
}

impl Found {
    /// That it failed in the end.
    pub(super) fn failed(self, why: String) -> Self {
        match self {
            Self::Measured { work, peer, .. } => Self::Failed { work, peer, look: false, why },
            Self::Explained { work, peer, .. } => Self::Failed { work, peer, look: true, why },
            Self::Failed { work, peer, look, .. } | Self::Refused { work, peer, look, .. } => {
                Self::Failed { work, peer, look, why }
            }
            Self::Closed => Self::Closed,
        }
    }

    /// With texts as long as they are kept.
    fn cut(self) -> Self {
        match self {
            Self::Failed { work, peer, look, why } => Self::Failed { work, peer, look, why: cut(&why) },
            Self::Refused { work, peer, look, why } => Self::Refused { work, peer, look, why: cut(&why) },
            Self::Explained { work, peer, mut explained } => {
                explained.findings.truncate(MOST_FINDINGS);
                let findings = &mut explained.findings;
                let of_findings =
                    findings.iter_mut().flat_map(|one| [&mut one.cause, &mut one.summary, &mut one.remedy]);
                let texts = explained.layer.iter_mut().chain(&mut explained.failed).chain(of_findings);
                texts.for_each(|text| *text = cut(text));
                Self::Explained { work, peer, explained }
            }
            Self::Measured { .. } | Self::Closed => self,
        }
    }
}

/// Before the token of an agent.
pub(super) const RESULTS_BELOW: &str = "taut.result.";

/// What is written; keys are strings and nothing else can fail, but what can't be written is not worth a crash.
pub(super) fn written(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// Nanoseconds since 1970, by this host's clock.
pub(super) fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn orders() -> Orders {
        let work = toml::from_str("echo = \"udp\"").unwrap();
        let mut orders = Orders::new("1-2".to_owned(), Duration::from_secs(20), 4, vec![work]);
        orders.tasks.push(Task { work: 0, peer: "b".to_owned(), racks: Vec::new(), look_us: None });
        orders
    }

    #[test]
    fn what_is_written_is_read() {
        let read = Orders::parse(&written(&orders())).unwrap();
        let now = unix_ns() / 1_000_000_000;
        assert!(!read.is_stale(now) && !read.is_stale(now + LONGEST_RUN) && read.is_stale(now + 2 * LONGEST_RUN));
        assert_eq!((read.patience(), read.tasks), (Duration::from_secs(20), orders().tasks));
        assert_eq!(plan_of(&written(&orders())).as_deref(), Some("1-2"));
        let host = Host::new("a b", Some("10.0.0.1"), BTreeMap::new()).unwrap();
        let member = Member::new(&host, &[(Transport::Udp, 7)], "0.1.0", 5);
        let read = Member::parse("a=20b", &written(&member)).unwrap();
        assert_eq!((read.port(Transport::Udp), read.port(Transport::Tcp)), (Some(7), None));
        assert!(Member::parse("b", &written(&member)).is_err());
        let report = Report::new("a b", 5, 1, 0, "1-2", Found::Closed);
        assert!(Report::parse("taut.result.a=20b", &written(&report)).is_ok());
        assert!(Report::parse("taut.result.b", &written(&report)).is_err());
        assert_eq!(report.id(), "a=20b-5-1");
    }

    #[test]
    fn a_plan_ends_whoever_wrote_it_and_however_often_an_agent_starts() {
        let long = Orders { seconds: u64::MAX, ..orders() };
        let read = Orders::parse(&written(&long)).unwrap();
        assert_eq!(read.seconds, 86_460);
        let now = read.written_unix_s;
        assert_eq!(read.left(now), Duration::from_secs(86_460));
        // Of an hour all clocks may be wrong.
        assert_eq!(read.left(now + 3600 + 80_000), Duration::from_secs(6_460));
        assert_eq!(read.left(now + 200_000), Duration::ZERO);
        let short = Orders { seconds: 60 + 20, ..orders() };
        assert_eq!((short.half(), Orders { seconds: 3, ..orders() }.half()), (Duration::from_secs(10), Duration::ZERO));
    }

    #[test]
    fn a_plan_names_works_and_peers_and_nothing_else() {
        let refused = |from: &str, to: &str| {
            let text = String::from_utf8(written(&orders())).unwrap();
            assert!(text.contains(from), "{text}");
            Orders::parse(text.replacen(from, to, 1).as_bytes()).unwrap_err().to_string()
        };
        assert!(refused("\"peer\":\"b\"", "\"peer\":\"b\",\"run\":\"rm -rf /\"").contains("`run`"));
        assert!(refused("\"peer\":\"b\"", "\"peer\":\"b\",\"address\":\"10.0.0.1\"").contains("`address`"));
        assert!(refused("{\"echo\":\"udp\"", "{\"echo\":\"udp; reboot\"").contains("unknown variant"));
        assert!(refused("\"work\":0", "\"work\":1").contains("that no mesh has"));
        assert!(refused("\"form\":1", "\"form\":2").contains("form 2"));
        assert!(refused("\"messages\":100", "\"messages\":1000001").contains("from 1 to"));
        assert!(refused("\"plan\":\"1-2\"", "\"plan\":\"../x\"").contains("that no mesh has"));
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            at in 0_usize..200,
            cut in 0_usize..300,
        ) {
            let mut changed = written(&orders());
            let at = at % changed.len();
            changed[at] = bytes.first().copied().unwrap_or(0);
            changed.truncate(cut.max(at + 1));
            for bytes in [bytes, changed] {
                let _ = (Orders::parse(&bytes), Member::parse("a", &bytes), Report::parse("taut.result.a", &bytes));
            }
        }
    }
}
