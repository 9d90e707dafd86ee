use crate::engine::Episode;

/// The silence after the last data, up to the end of the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Silence {
    /// It was the peer's turn.
    Unanswered(Episode),
    /// Whether an answer was due, the packets do not tell.
    Unclear(Episode),
}
