//! A direction's time as stretches one after another, to be drawn.

use taut_event::Holder;

/// One stretch in which one holder had the data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Span {
    /// Who had the data.
    pub holder: Holder,
    /// From the beginning of the capture, in nanoseconds.
    pub begin_ns: u64,
    /// How long, in nanoseconds.
    pub held_ns: u64,
    /// The packet before, and the one that ended it.
    pub frames: [u64; 2],
}

/// The stretches of one direction. With what was left out they last as long as its breakdown says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Picture {
    /// By time; none begins before the one before has ended.
    pub spans: Vec<Span>,
    /// How many of the shortest were left out, so that the others have room.
    pub left_out: u64,
    /// What those lasted together, in nanoseconds.
    pub left_out_ns: u64,
}
