//! Figures of a run that has no end, for the tools that collect them.
//!
//! An [`IntervalDocument`] is what one interval came to: a line of JSON. [`IntervalSums`] adds intervals up, at a fixed
//! size in memory, and tells the sums as [`Family`]s. Each form of the wire is made from those: [`text()`] and
//! [`protobuf()`] for Prometheus, [`otlp()`] for receivers of OpenTelemetry.

mod agent;
mod family;
mod interval;
mod otlp;
mod pipe;
mod protobuf;
mod route;
mod sums;
mod text;

pub use agent::{AgentIntervalDocument, AgentPairRow, agent_families};
pub use family::{Family, Kind, Sample, Unit, Value};
pub use interval::{IntervalDocument, IntervalRow};
pub use otlp::{Span, otlp, refused_by_otlp};
pub use pipe::{PipeCounts, PipeIntervalDocument, WayCounts};
pub use protobuf::{MEDIA_TYPE as PROTOBUF, protobuf};
pub use route::{RouteCounts, RouteIntervalDocument, route_families};
pub use sums::{IntervalSums, RowTimes};
pub use text::{MEDIA_TYPE as TEXT, text};
