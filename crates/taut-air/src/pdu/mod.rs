//! PDUs on the air: their header, link layer control, advertising (Core Specification, Vol 6, Part B, section 2).

pub mod advertising;
pub mod control;
mod data;

pub use data::{Header, Llid, Pdu};
