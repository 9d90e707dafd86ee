//! Changes that can be made on real machines, those that ask least first.

use taut_air::Scenario;

use taut_record::AirSetting;

/// Parameters changed together.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) set: Vec<AirSetting>,
    pub(super) place: &'static str,
    /// How it is put in force.
    pub(super) apply: String,
}

/// What a change asks of the user.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reach {
    /// Programs, sockets, kernels, and what they may ask of the link.
    Host,
    /// Another adapter or other wiring.
    Hardware,
}

impl Change {
    fn new(name: &str, value: impl ToString, place: &'static str, apply: &str) -> Self {
        let set = vec![AirSetting { name: name.to_owned(), value: value.to_string() }];
        Self { set, place, apply: apply.to_owned() }
    }

    /// LE 2M in both directions.
    pub(super) fn phy_2m() -> Self {
        let apply = "LE Set PHY (0x2032) with 2M in both masks, where both controllers have it";
        Self::new("phy", "2m", "the link", apply)
    }

    /// Both changes at once; `None` when they change the same parameter.
    pub(super) fn and(&self, other: &Self) -> Option<Self> {
        let names = |change: &Self| change.set.iter().map(|set| set.name.clone()).collect::<Vec<_>>();
        let apart = names(self).iter().all(|name| !names(other).contains(name));
        apart.then(|| Self {
            set: self.set.iter().chain(&other.set).cloned().collect(),
            place: if self.place == other.place { self.place } else { "several places" },
            apply: format!("{}; {}", self.apply, other.apply),
        })
    }
}

/// Changes that are worth a try on a link as it is; the PHY is not among them.
pub(super) fn changes(scenario: &Scenario, reach: Reach) -> Vec<Change> {
    let mut changes = match reach {
        Reach::Host => host(scenario),
        Reach::Hardware => hardware(),
    };
    // What is in force already is no change.
    changes
        .retain(|change| change.set.iter().any(|set| scenario.get(&set.name).map_or(true, |value| value != set.value)));
    changes
}

fn host(scenario: &Scenario) -> Vec<Change> {
    let receiver = &scenario.side(scenario.sender.other()).host;
    let mtu = u32::from(receiver.mtu);
    let mut changes = Vec::new();
    for blocks in [6, 24, 96] {
        let apply = "write that many bytes at a time: a multiple of the MTU ends in no short SDU";
        changes.push(Change::new("sender.block", blocks * mtu, "the writing program", apply));
    }
    for ci in ["7.5ms", "8.75ms", "10ms", "11.25ms", "12.5ms", "15ms", "20ms", "25ms", "30ms", "50ms", "75ms", "100ms"]
    {
        let apply =
            "conn_min_interval and conn_max_interval in the central's debugfs, or a connection parameter update";
        changes.push(Change::new("ci", ci, "the link", apply));
    }
    let apply = "LE Set Data Length (0x2022) with 251 octets";
    changes.push(Change::new("length", 251, "the link", apply));
    let apply =
        "a kernel that computes credits from the receive buffer: Linux 6.10, or 6.1.93 and 6.8.12 of the stable series";
    changes.push(Change::new("receiver.credits", "linux-recvbuf", "the receiver's kernel", apply));
    for factor in [2, 4] {
        let apply = "setsockopt(SO_RCVBUF) on the receiver with half of that, which the kernel doubles; net.core.rmem_max permitting";
        changes.push(Change::new("receiver.recvbuf", receiver.recvbuf * factor, "the receiver's socket", apply));
    }
    for bytes in [2048, 4096, 65_535] {
        if bytes > mtu {
            let apply = "setsockopt(BT_RCVMTU) on the receiver before listening or connecting";
            changes.push(Change::new("receiver.mtu", bytes, "the receiver's socket", apply));
        }
    }
    let sndbuf = scenario.side(scenario.sender).host.sndbuf;
    let apply = "setsockopt(SO_SNDBUF) on the sender with half of that, which the kernel doubles";
    changes.push(Change::new("sender.sndbuf", sndbuf * 4, "the sender's socket", apply));
    changes
}

fn hardware() -> Vec<Change> {
    let adapter =
        |name: &str, value: &str| Change::new(name, value, "another adapter", "an adapter or firmware that has it so");
    vec![
        Change::new("transport", "uart(3000000)", "the wiring", "3,000,000 baud with flow control, if the UART can"),
        adapter("sender.acl_buffers", "16"),
        adapter("sender.nocp", "each"),
        adapter("packets_per_event", "none"),
        adapter("event_length", "none"),
        adapter("event_margin", "0"),
        adapter("tx_slots", "0"),
        adapter("sender.pickup", "at-once"),
        adapter("transport", "usb(125us)"),
    ]
}
