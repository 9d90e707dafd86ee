//! What of a link can be chosen, and how it is put in force for good.

use taut_link::bluetooth::{LinkChoice, Phy, interval_in_words};
use taut_link::wire::Shape;

use super::plan::RadioPlan;
use crate::stream::Direction;

/// A link as it was found.
#[derive(Clone, Debug, Default)]
pub(super) struct InitialLink {
    /// Connection interval in units of 1.25 ms, where it was heard.
    pub(super) interval: Option<u16>,
    pub(super) phy: Option<Phy>,
    /// Longest payload of a data PDU that the sender sends, in bytes.
    pub(super) length: Option<u16>,
    /// Largest SDU and largest PDU that the receiver takes, in bytes.
    pub(super) mtu: Option<u16>,
    pub(super) mps: Option<u16>,
    /// The receiver's kernel gives credits for one SDU, whatever its buffer.
    pub(super) for_one_sdu: bool,
}

/// One way to have the link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Choice {
    pub(super) interval: Option<u16>,
    pub(super) phy: Option<Phy>,
    pub(super) length: Option<u16>,
    /// The receiver's.
    pub(super) mtu: Option<u16>,
    pub(super) receive_buffer: Option<u32>,
    /// Writes are a multiple of the MTU.
    pub(super) whole: bool,
}

/// SDUs of so many full PDUs: what 7.5 ms hold on LE 1M, three times that, and what 50 ms hold, twice
/// that. Larger ones don't fit into the default send buffer with what the kernel adds to each PDU.
const SDU_PDUS: [u16; 4] = [3, 9, 20, 40];
/// `SO_RCVBUF`, of which the kernel makes twice as much: net.core.rmem_max, as it is unless somebody changed it.
const RECEIVE_BUFFER: u32 = 212_992;
/// 15 ms: what phones allow.
const MIDDLE_INTERVAL: u16 = 12;
/// SDUs of a write.
const MANY: usize = 100;
/// Longest payload of a data PDU (Bluetooth Core Specification, Vol 6, Part B, section 2.4).
const LONGEST: u16 = 251;

impl InitialLink {
    /// The link as it was.
    pub(super) const fn base(&self) -> Choice {
        let Self { interval, phy, length, .. } = *self;
        Choice { interval, phy, length, mtu: None, receive_buffer: None, whole: false }
    }
}

impl Choice {
    /// Everything that differs from this in one thing, and could help.
    pub(super) fn steps(&self, plan: &RadioPlan, found: &InitialLink) -> Vec<Self> {
        let mut steps = Vec::new();
        let mtu = self.mtu.or(found.mtu).unwrap_or(0);
        if let Some(mps) = found.mps.filter(|_| !plan.plain) {
            // The first PDU of an SDU carries its length too.
            let sizes = SDU_PDUS.iter().map(|pdus| pdus * mps - 2).filter(|size| *size > mtu);
            steps.extend(sizes.map(|size| Self { mtu: Some(size), ..self.clone() }));
            if self.receive_buffer.is_none() && !found.for_one_sdu {
                steps.push(Self { receive_buffer: Some(RECEIVE_BUFFER), ..self.clone() });
            }
        }
        let now = self.interval.unwrap_or(0);
        let shorter = [plan.least_interval, MIDDLE_INTERVAL.max(plan.least_interval)];
        let mut shorter: Vec<u16> = shorter.into_iter().filter(|&units| units < now).collect();
        shorter.dedup();
        steps.extend(shorter.into_iter().map(|units| Self { interval: Some(units), ..self.clone() }));
        if self.phy == Some(Phy::Le1M) || self.phy == Some(Phy::LeCoded) {
            steps.push(Self { phy: Some(Phy::Le2M), ..self.clone() });
        }
        if self.length.is_some_and(|length| length < LONGEST) {
            steps.push(Self { length: Some(LONGEST), ..self.clone() });
        }
        let has_tail = mtu > 0 && !plan.block_bytes.is_multiple_of(mtu.into());
        // One short SDU of very many is nothing.
        if !self.whole && has_tail && plan.block_bytes / usize::from(mtu) < MANY {
            steps.push(Self { whole: true, ..self.clone() });
        }
        steps
    }

    /// Bytes of one write.
    pub(super) fn block(&self, plan: &RadioPlan, found: &InitialLink) -> usize {
        let mtu = usize::from(self.mtu.or(found.mtu).unwrap_or(1)).max(1);
        if self.whole { (plan.block_bytes - plan.block_bytes % mtu).max(mtu) } else { plan.block_bytes }
    }

    /// What this end has to be opened with.
    pub(super) fn here(&self, plan: &RadioPlan) -> LinkChoice {
        let Self { interval, phy, length, mtu, receive_buffer, .. } = *self;
        let link = LinkChoice { phy, interval, length, ..LinkChoice::default() };
        if plan.direction == Direction::Down { LinkChoice { mtu, receive_buffer, ..link } } else { link }
    }

    /// What is asked of the peer.
    pub(super) fn there(&self, plan: &RadioPlan) -> Shape {
        if plan.direction == Direction::Down {
            return Shape::default();
        }
        Shape { mtu: self.mtu, receive_buffer: self.receive_buffer, ..Shape::default() }
    }

    /// What it changes, as `name=value`.
    pub(super) fn name(&self, found: &InitialLink) -> String {
        let changes: Vec<String> = self.changes(found).map(|change| change.name(self)).collect();
        if changes.is_empty() { "base".to_owned() } else { changes.join(" ") }
    }

    /// What it changes of another choice.
    pub(super) fn beyond(&self, other: &Self, found: &InitialLink) -> String {
        let before: Vec<String> = other.changes(found).map(|change| change.name(other)).collect();
        let changes = self.changes(found).map(|change| change.name(self)).filter(|name| !before.contains(name));
        changes.collect::<Vec<_>>().join(" ")
    }

    /// Where it is set.
    pub(super) fn place(&self, plan: &RadioPlan, found: &InitialLink) -> String {
        let mut places: Vec<&str> = self.changes(found).map(|change| change.place(plan)).collect();
        places.dedup();
        if places.is_empty() { "nothing set".to_owned() } else { places.join(", ") }
    }

    /// The lines that make it last; `None` for the base.
    pub(super) fn apply(&self, plan: &RadioPlan, found: &InitialLink) -> Option<String> {
        let lines: Vec<String> = self.changes(found).map(|change| change.apply(self, plan)).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    fn changes(&self, found: &InitialLink) -> impl Iterator<Item = Change> {
        let base = found.base();
        let changed = [
            (self.interval != base.interval, Change::Interval),
            (self.phy != base.phy, Change::Phy),
            (self.length != base.length, Change::Length),
            (self.mtu.is_some(), Change::Mtu),
            (self.receive_buffer.is_some(), Change::ReceiveBuffer),
            (self.whole, Change::Whole),
        ];
        changed.into_iter().filter(|(is, _)| *is).map(|(_, change)| change)
    }
}

/// One thing that can be changed.
#[derive(Clone, Copy)]
enum Change {
    Interval,
    Phy,
    Length,
    Mtu,
    ReceiveBuffer,
    Whole,
}

impl Change {
    fn name(self, choice: &Choice) -> String {
        match self {
            Self::Interval => format!("interval={}", interval_in_words(choice.interval.unwrap_or(0))),
            Self::Phy => "phy=2m".to_owned(),
            Self::Length => format!("length={}", choice.length.unwrap_or(0)),
            Self::Mtu => format!("mtu={}", choice.mtu.unwrap_or(0)),
            Self::ReceiveBuffer => format!("rcvbuf={}", choice.receive_buffer.unwrap_or(0)),
            Self::Whole => "whole SDUs".to_owned(),
        }
    }

    fn place(self, plan: &RadioPlan) -> &'static str {
        match self {
            Self::Interval | Self::Phy | Self::Length => "both controllers",
            Self::Mtu | Self::ReceiveBuffer if plan.direction == Direction::Down => "this socket",
            Self::Mtu | Self::ReceiveBuffer => "the peer's socket",
            Self::Whole if plan.direction == Direction::Down => "the peer's program",
            Self::Whole => "the program",
        }
    }

    fn apply(self, choice: &Choice, plan: &RadioPlan) -> String {
        let receiver = if plan.direction == Direction::Down { "here" } else { "at the peer" };
        match self {
            Self::Interval => {
                let units = choice.interval.unwrap_or(0);
                format!(
                    "connection interval, on BOTH machines (the central's alone is put back by the peripheral): \
                     /etc/bluetooth/main.conf, section [LE]: MinConnectionInterval={units} and MaxConnectionInterval={units}, then \
                     systemctl restart bluetooth; without bluetoothd: for f in min max min; do echo {units} \
                     >/sys/kernel/debug/bluetooth/hci0/conn_${{f}}_interval; done; for one link of taut: ?interval={}",
                    interval_in_words(units)
                )
            }
            Self::Phy => {
                "PHY, on one side: btmgmt phy LE1MTX LE1MRX LE2MTX LE2MRX, or hcitool cmd 0x08 0x0031 00 02 02 (default of connections \
                 to come); for one link of taut: ?phy=2m"
                    .to_owned()
            }
            Self::Length => format!(
                "data length, on both sides: hcitool cmd 0x08 0x0024 {:02x} 00 90 42 (default of connections to come); for one link of \
                 taut: ?length={}",
                choice.length.unwrap_or(LONGEST),
                choice.length.unwrap_or(LONGEST)
            ),
            Self::Mtu => {
                let mtu = choice.mtu.unwrap_or(0);
                format!(
                    "receive MTU, {receiver}, before connect or listen: C: uint16_t mtu = {mtu}; setsockopt(fd, SOL_BLUETOOTH, BT_RCVMTU, \
                     &mtu, sizeof mtu); Rust: bluer::l2cap::Socket::set_recv_mtu({mtu}); taut: ?mtu={mtu}"
                )
            }
            Self::ReceiveBuffer => {
                let bytes = choice.receive_buffer.unwrap_or(0);
                format!(
                    "receive buffer, {receiver}: C: setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){{{bytes}}}, sizeof(int)); Rust: \
                     bluer::l2cap::Socket::set_recv_buffer({bytes}); taut: ?rcvbuf={bytes}"
                )
            }
            Self::Whole => {
                "write in multiples of the peer's MTU: C: uint16_t mtu; socklen_t n = sizeof mtu; getsockopt(fd, SOL_BLUETOOTH, BT_SNDMTU, \
                 &mtu, &n); Rust: bluer::l2cap::Socket::send_mtu()"
                    .to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use taut_link::Endpoint;

    use super::*;

    fn plan(direction: Direction) -> RadioPlan {
        RadioPlan {
            endpoint: "l2cap://00:AA:01:01:00:00/129".parse::<Endpoint>().unwrap(),
            direction,
            block_bytes: 4096,
            plain: false,
            rounds: 5,
            time: None,
            least_interval: 6,
            keep: false,
            command: String::new(),
        }
    }

    fn found() -> InitialLink {
        InitialLink {
            interval: Some(40),
            phy: Some(Phy::Le1M),
            length: Some(251),
            mtu: Some(672),
            mps: Some(247),
            for_one_sdu: false,
        }
    }

    fn names(plan: &RadioPlan, found: &InitialLink, choice: &Choice) -> Vec<String> {
        choice.steps(plan, found).iter().map(|step| step.name(found)).collect()
    }

    #[test]
    fn each_step_changes_one_thing() {
        let (plan, found) = (plan(Direction::Up), found());
        let all = [
            "mtu=739",
            "mtu=2221",
            "mtu=4938",
            "mtu=9878",
            "rcvbuf=212992",
            "interval=7.5ms",
            "interval=15ms",
            "phy=2m",
            "whole SDUs",
        ];
        assert_eq!(names(&plan, &found, &found.base()), all);
        let old = InitialLink { for_one_sdu: true, ..found.clone() };
        let large = RadioPlan { block_bytes: 131_072, ..plan.clone() };
        assert!(!names(&large, &old, &old.base()).iter().any(|name| name.contains("rcvbuf") || name.contains("whole")));
        let settled = Choice { mtu: Some(4938), interval: Some(6), phy: Some(Phy::Le2M), ..found.base() };
        let further = settled.steps(&plan, &found);
        let names: Vec<String> = further.iter().map(|step| step.name(&found)).collect();
        assert_eq!(names.len(), 3);
        assert_eq!(names[0], "interval=7.5ms phy=2m mtu=9878");
        assert_eq!(further[0].beyond(&settled, &found), "mtu=9878");
    }

    #[test]
    fn what_can_t_be_asked_for_is_not_tried() {
        let held = RadioPlan { least_interval: 40, plain: true, ..plan(Direction::Up) };
        assert_eq!(names(&held, &found(), &found().base()), ["phy=2m", "whole SDUs"]);
        let short = InitialLink { length: Some(27), ..found() };
        assert!(names(&held, &short, &short.base()).contains(&"length=251".to_owned()));
    }

    #[test]
    fn a_block_of_whole_sdus_is_never_empty() {
        let (plan, found) = (plan(Direction::Up), found());
        let whole = Choice { whole: true, ..found.base() };
        assert_eq!((found.base().block(&plan, &found), whole.block(&plan, &found)), (4096, 6 * 672));
        let large = Choice { mtu: Some(9878), ..whole };
        assert_eq!(large.block(&plan, &found), 9878);
    }

    #[test]
    fn the_receiver_is_asked_for_what_is_the_receivers() {
        let choice = Choice { mtu: Some(2221), ..found().base() };
        assert_eq!(choice.there(&plan(Direction::Up)).mtu, Some(2221));
        assert_eq!(choice.here(&plan(Direction::Up)).mtu, None);
        assert_eq!(choice.there(&plan(Direction::Down)).mtu, None);
        assert_eq!(choice.here(&plan(Direction::Down)).mtu, Some(2221));
        assert_eq!(choice.here(&plan(Direction::Down)).interval, Some(40));
    }

    #[test]
    fn the_lines_name_both_machines_and_both_languages() {
        let choice = Choice { mtu: Some(2221), interval: Some(6), whole: true, ..found().base() };
        let lines = choice.apply(&plan(Direction::Up), &found()).unwrap();
        for part in ["BOTH", "MinConnectionInterval=6", "BT_RCVMTU", "set_recv_mtu(2221)", "at the peer", "BT_SNDMTU"] {
            assert!(lines.contains(part), "{part}: {lines}");
        }
        assert_eq!(found().base().apply(&plan(Direction::Up), &found()), None);
    }
}
