//! Packet captures, most of them of a simulated radio, for Wireshark and btmon.
//!
//! - [`AirCapture`]: what an ideal sniffer would have seen, as pcapng of link type 256
//!   (`LINKTYPE_BLUETOOTH_LE_LL_WITH_PHDR`).
//! - [`HostCapture`]: what passed between one host and its controller, as btsnoop of type 1002 (H4).
//! - [`StreamCapture`]: what passed through pipes, as pcapng of link type 228 (`LINKTYPE_IPV4`).
//!
//! All files of one simulated run share one clock: virtual time 0 is 1970-01-01 00:00:00 UTC, so
//! captures of the air and of both hosts can be merged.

mod air;
mod baseband;
mod crc;
mod host;
mod pcapng;
mod stream;

pub use air::AirCapture;
pub use host::HostCapture;
pub use stream::StreamCapture;
