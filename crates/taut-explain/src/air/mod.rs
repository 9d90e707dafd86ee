//! A Bluetooth LE link: its ledger's lines in words, and what may bind its throughput.

mod line;
mod suspect;

pub use line::{LINES, Line};
pub use suspect::{Run, Suspect, suspects};
