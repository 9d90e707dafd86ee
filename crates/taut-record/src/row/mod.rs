//! The kinds of rows: a file each, and a line in the list here.

mod air;
mod check;
mod comparison;
mod crowd;
mod echo;
mod floor;
mod observer;
mod pace;
mod published;
mod round;
mod route;
mod setting;
mod stream;
mod tcp;
mod tune;
mod usual;
mod watch;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

pub use air::{AirChangeRow, AirEventExcerpt, AirExcerpt, AirIdle, AirPdu, AirRow, AirSetting};
pub use check::CheckRow;
pub use comparison::{Comparison, LossComparison, Verdict};
pub use crowd::{CpuComparison, CrowdRound, CrowdRow, Starvation};
pub use echo::EchoRow;
pub use floor::FloorRow;
pub use observer::ObserverCost;
pub use pace::{BrokerHold, MessageExcerpt, PaceRound, PaceRow};
pub use published::{FigureUnit, PublishedFigure, PublishedRow};
pub use round::Round;
pub use route::RouteRow;
pub use setting::{SettingRow, SettingVerdict};
pub use stream::{Coarse, Counted, StreamRound, StreamRow};
pub use tcp::TcpFacts;
pub use tune::TuneRow;
pub use watch::{WatchRow, WatchedCount, WatchedLoss, WatchedPlace};

/// Declares the kinds of rows, each with its name in JSON. All that goes through the kinds follows from this one list.
macro_rules! rows {
    ($($(#[$about:meta])+ $name:literal => $variant:ident($of:ty),)+) => {
        /// One thing measured.
        #[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
        #[serde(tag = "workload")]
        pub enum Row {
            $($(#[$about])+ #[serde(rename = $name)] $variant($of),)+
        }

        impl Row {
            /// Names of all kinds, as `workload` has them.
            pub const KINDS: &[&str] = &[$($name),+];

            /// Reads a row of this kind; `None` when there is no such kind. Unlike reading a `Row`,
            /// which has to look for its kind first, this knows where something does not fit.
            pub fn of_kind<'de, D: Deserializer<'de>>(kind: &str, row: D) -> Option<Result<Self, D::Error>> {
                match kind {
                    $($name => Some(<$of>::deserialize(row).map(Self::$variant)),)+
                    _ => None,
                }
            }
        }
    };
}

rows! {
    /// Round trips.
    "echo" => Echo(Box<EchoRow>),
    /// Periodic sending.
    "pace" => Pace(Box<PaceRow>),
    /// Throughput.
    "stream" => Stream(Box<StreamRow>),
    /// Many links, few of them active.
    "crowd" => Crowd(Box<CrowdRow>),
    /// From a sensor to its sinks.
    "route" => Route(Box<RouteRow>),
    /// One setting tried against the base.
    "tune" => Tune(Box<TuneRow>),
    /// A Bluetooth LE link in virtual time.
    "air" => Air(Box<AirRow>),
    /// A change of such a link's parameters that was tried.
    "air_change" => AirChange(Box<AirChangeRow>),
    /// What the tool and the host cost by themselves.
    "floor" => Floor(Box<FloorRow>),
    /// Whether something that Tautline needs works here.
    "check" => Check(CheckRow),
    /// What the live connections of a host lose, and to what.
    "watch" => Watch(Box<WatchRow>),
    /// A setting of the host.
    "setting" => Setting(SettingRow),
    /// A published experiment beside its repetition.
    "published" => Published(Box<PublishedRow>),
}
