//! What a C program sees.

pub mod control_block;
pub mod posix;
