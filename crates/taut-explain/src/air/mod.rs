//! A Bluetooth LE link: its ledger's lines in words.

mod line;

pub use line::{LINES, Line};
