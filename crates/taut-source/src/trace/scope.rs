/// What is traced.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// Processes, named by [`Tracer::follow`](super::Tracer::follow), and what they fork.
    Processes,
    /// All connections with this port at either end, of any process.
    Port(u16),
}
