//! Files of packets, read as streams, and the flows of TCP and UDP and channels of L2CAP in them as events.
//!
//! - [`Reader`]: packets of a pcap, pcapng, btsnoop or snoop file, compressed by gzip or zstd or not, from anything
//!   that can be read, a pipe too; or of the capture in a zip archive. What it holds in memory does not grow with
//!   the file.
//! - `decode`: from a packet to its TCP header, through link and IP headers.
//! - `datagrams`: the flows of UDP, and what each host asks servers of DNS.
//! - `bluetooth`: from packets of the host controller interface to L2CAP channels.
//! - `sniffer`: links of Bluetooth LE on the air, their connection events and PDUs.
//! - [`Qlog`]: a log that an end of QUIC wrote of itself, as events.
//! - [`Recorded`]: what a live trace saw, as [`Recorder`] wrote it. [`Source`] tells which of all a file is.
//! - [`Flows`]: from headers to [`taut_event::Event`]s for a [`taut_event::Sink`].
//!
//! No input makes it panic; what is damaged ends the reading, and is told by [`Reader::ending`].

mod archive;
mod bluetooth;
mod buffer;
mod bytes;
mod counts;
mod datagrams;
mod decode;
mod ends;
mod error;
mod flows;
mod format;
mod input;
mod packet;
mod qlog;
mod reader;
mod recorded;
mod sniffer;
mod source;
mod step;
mod ways;

pub use archive::Member;
pub use bluetooth::crossing::{HostPacket, HostPackets};
pub use bluetooth::links::HostLinks;
pub use counts::Counts;
pub use decode::{Skipped, TcpPacket, UdpPacket, decode, decode_udp, tunnelled};
pub use ends::Ends;
pub use error::Error;
pub use flows::Flows;
pub use packet::{Ending, LinkType, Packet};
pub use qlog::{Qlog, QlogCounts};
pub use reader::Reader;
pub use recorded::{Recorded, RecordedEnd, Recorder};
pub use sniffer::{AirPayload, air_payload};
pub use source::Source;
