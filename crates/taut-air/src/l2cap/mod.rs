//! L2CAP on LE: frames, signalling, and credit-based channels (Core Specification, Vol 3, Part A).

mod channel;
mod credit;
mod frame;
mod signal;

pub use channel::{Channel, ChannelError, ChannelParameters};
pub use credit::{CreditPolicy, ReceiveBuffer};
pub use frame::{Frame, FrameError, Reassembly};
pub use signal::{Signal, SignalError};

/// Channel of LE signalling.
pub const SIGNALLING_CID: u16 = 0x0005;
/// First channel that credit-based connections may use on LE.
pub const FIRST_DYNAMIC_CID: u16 = 0x0040;
