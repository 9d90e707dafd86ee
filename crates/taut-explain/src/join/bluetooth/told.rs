//! What only two files of a link tell, as it is reported.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What only two files of a link of Bluetooth tell together.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct BluetoothWays {
    /// L2CAP PDUs that were told by their bytes; the others by their order and length, as where the sniffer has cipher
    /// text.
    pub by_bytes: u64,
    /// Whether what a controller told of packets that were through came too early for an acknowledgement, so that it
    /// had no part in the clocks.
    pub is_told_early: bool,
    /// Directions of links, the longest first.
    pub ways: Vec<BluetoothWay>,
    /// If the other file is that of a trace and this one a sniffer's: what traced programs send, most first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ProgramOnAir>,
}

/// One direction of one link.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct BluetoothWay {
    /// The adapter and the handle of its link in the sender's log; where there is none, in the receiver's.
    #[serde(default)]
    pub link: (u16, u16),
    /// The file whose host sends; absent where no file is of that host.
    pub sender: Option<String>,
    /// The file whose host receives.
    pub receiver: Option<String>,
    /// The file that is a sniffer's.
    pub sniffer: Option<String>,
    /// L2CAP PDUs that are in both files.
    pub pdus: u64,
    /// L2CAP PDUs of the sender's or receiver's log, of the time in which both files have some, that the other file
    /// does not have.
    pub missing: u64,
    /// L2CAP PDUs on the air, up to the last one that both files have, that the log does not have. What its controller
    /// reported behind the first of those that its host sent is not used.
    #[serde(default)]
    pub not_in_log: u64,
    /// Parts of them that were sent again on the air.
    pub repeats: u64,
    /// From the host's hand-over to the controller to the begin of the first transmission on the air.
    pub to_air: Option<TimesOn>,
    /// From the hand-over to the end of the acknowledgement on the air of the last part.
    pub to_acknowledgement: Option<TimesOn>,
    /// From that acknowledgement to Number Of Completed Packets.
    pub to_report: Option<TimesOn>,
    /// From the end on the air to the receiver's host.
    pub to_host: Option<TimesOn>,
    /// From the hand-over to the receiver's host, of two hosts' logs.
    pub end_to_end: Option<TimesOn>,
    /// What passed while the sender's controller had packets.
    pub in_controller: Option<InController>,
}

/// Times between both places. Each may be wrong by the `uncertainty_ns` of the clock, all in the same direction.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TimesOn {
    /// How many.
    pub count: u64,
    /// The least; negative only by the clock's error.
    pub least_ns: i64,
    /// Half took no longer.
    pub median_ns: i64,
    /// 99 of 100 took no longer.
    pub p99_ns: i64,
    /// The longest.
    pub most_ns: i64,
    /// The longest: its packets in the file where it began, and where it ended.
    pub most_frames: [u64; 2],
}

/// The time in which the sender's controller had packets of a link, once where it had several. The parts add up to
/// `held_ns`; the error of the clock shifts time between what precedes a transmission and what follows it.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct InController {
    /// PDUs whose hand-over and acknowledgement are known.
    pub pdus: u64,
    /// All.
    pub held_ns: u64,
    /// PDUs of this direction, the answers to them, and the spaces between.
    pub on_air_ns: u64,
    /// From a PDU that was sent again to the answer to its last repetition, with events between.
    pub repeats_ns: u64,
    /// For the next connection event: the last one had no time left, or was over or too far when the data came, or only
    /// an acknowledgement was to come.
    pub waits_for_event_ns: u64,
    /// The event was over with time left, although its sender had the data before its last PDU in it.
    pub closed_early_ns: u64,
    /// Within an event, for something else: an empty PDU, control, or what the other side sends.
    pub in_event_ns: u64,
    /// All was acknowledged, and the controller had not told.
    pub reported_late_ns: u64,
    /// The sniffer may have missed something.
    pub not_known_ns: u64,
}

impl InController {
    /// Its parts, by their names for people.
    pub fn parts(&self) -> [(&'static str, u64); 7] {
        [
            ("on the air", self.on_air_ns),
            ("repeats", self.repeats_ns),
            ("for the next event", self.waits_for_event_ns),
            ("event closed early", self.closed_early_ns),
            ("other, in an event", self.in_event_ns),
            ("report of the controller", self.reported_late_ns),
            ("not known", self.not_known_ns),
        ]
    }
}

/// What a traced program sends on a link of Bluetooth: who held it by the trace, and what its link did meanwhile by
/// the sniffer.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ProgramOnAir {
    /// The sender's adapter.
    pub from: String,
    /// The receiver, and the channel.
    pub to: String,
    /// The traced program, where its name is known.
    pub program: Option<String>,
    /// Time of the trace's ledger that the sniffer's capture of the link has, too. The rows add up to it.
    pub held_ns: u64,
    /// Time of that ledger before or after the capture of the link.
    pub outside_ns: u64,
    /// By holder, longest first.
    pub rows: Vec<HeldOnAir>,
    /// What limits that, a sentence each.
    pub remarks: Vec<String>,
}

/// The time that one holder had.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct HeldOnAir {
    /// Who had the data by the trace.
    pub holder: String,
    /// For how long.
    pub held_ns: u64,
    /// Of `held_ns` of all rows.
    pub share: f64,
    /// What its link did then. The parts add up to `held_ns`.
    pub air: Meanwhile,
}

/// What a link did in some time, by the sniffer: with data of this direction in the sender's controller, and without.
/// The parts add up.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Meanwhile {
    /// PDUs of this direction, the answers to them, and the spaces between.
    pub on_air_ns: u64,
    /// From a PDU that was sent again to the answer to its last repetition.
    pub repeats_ns: u64,
    /// Data in the controller waited for the next connection event.
    pub waits_for_event_ns: u64,
    /// The event was over with time left, although its sender had data.
    pub closed_early_ns: u64,
    /// Within an event, for something else.
    pub in_event_ns: u64,
    /// All was acknowledged, and the controller had not told.
    pub reported_late_ns: u64,
    /// The controller had nothing of this direction, and no connection event was on: nothing could come either.
    pub nothing_between_events_ns: u64,
    /// The controller had nothing of this direction, in a connection event.
    pub nothing_in_event_ns: u64,
    /// The sniffer may have missed something.
    pub not_known_ns: u64,
}

impl Meanwhile {
    /// Its parts, by their names for people.
    pub fn parts(&self) -> [(&'static str, u64); 9] {
        [
            ("on the air", self.on_air_ns),
            ("repeats", self.repeats_ns),
            ("for the next event", self.waits_for_event_ns),
            ("event closed early", self.closed_early_ns),
            ("other, in an event", self.in_event_ns),
            ("report of the controller", self.reported_late_ns),
            ("no data there, between events", self.nothing_between_events_ns),
            ("no data there, in an event", self.nothing_in_event_ns),
            ("not known", self.not_known_ns),
        ]
    }

    /// All of it.
    pub fn sum(&self) -> u64 {
        self.parts().iter().map(|(_, ns)| ns).sum()
    }
}

/// What the files are called before their names are known.
pub(super) const NAMES: [&str; 2] = ["reference", "other"];

impl BluetoothWays {
    /// Puts the names of both files in.
    pub fn name(&mut self, reference: &str, other: &str) {
        for way in &mut self.ways {
            for name in [&mut way.sender, &mut way.receiver, &mut way.sniffer].into_iter().flatten() {
                *name = if *name == NAMES[0] { reference.to_owned() } else { other.to_owned() };
            }
        }
    }
}
