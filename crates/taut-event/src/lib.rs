//! What happens to bytes of a flow, in the form in which any source reports it.
//!
//! - [`Event`]: something that happened at a time, seen from a vantage point; `Copy`, no allocation.
//! - [`Flow`]: between whom the bytes travel. [`Vantage`]: who saw it, on which clock.
//! - [`Coverage`]: what a source would have reported. Only inside it is absence evidence.
//! - [`Holder`]: who had the data meanwhile.
//! - [`SocketState`]: what a kernel tells of one of its sockets.
//! - [`Sink`]: takes the events; the engine of `taut-explain` is one.
//! - [`printable`]: names and other texts that come with them, without what steers a terminal.
//!
//! [`taut_time::Event`] is the older form, of one flow and two hosts, in which the workloads of this
//! project keep their own stamps; a [`taut_time::Timeline`] is a list of those. [`Event::from_stamp`]
//! turns one into this form, so both reach the same engine. The timeline stays what it is until
//! the workloads report here directly.
//!
//! No I/O, no clock, no thread, no randomness.
#![no_std]

extern crate alloc;

mod connection_id;
mod coverage;
mod datagram;
mod event;
mod flow;
mod hci;
mod holder;
mod l2cap;
mod le;
mod quic;
mod sink;
mod socket;
mod text;

pub use connection_id::{ConnectionId, QuicKey};
pub use coverage::{Coverage, Kind};
pub use datagram::{Content, Datagram, Dns, Numbered, QuicLong, RtpClock};
pub use event::{AckSentBy, Call, Direction, Event, Release, Segment, SegmentFlags, Stamp, Task, TaskId, Timer};
pub use event::{Listening, SackBlock, TimestampOption, What};
pub use flow::{Address, Flow, FlowId, FlowKey, LocalKey, LocalKind, Vantage, VantageId};
pub use hci::{ByteSum, Hci, LinkKey};
pub use holder::{Holder, Side};
pub use l2cap::{Acl, Att, AttKind, AttUuid, Channel, ChannelEnd, ChannelKey, Characteristic, L2cap, RadioLink, Turn};
pub use le::{Le, LeHeader, LeKey, LeLink, LePdu};
pub use quic::{Quic, QuicCongestion, QuicMetric, QuicPacket};
pub use sink::{Closed, Sink};
pub use socket::{Recovery, SocketState};
pub use text::{printable, steers};
