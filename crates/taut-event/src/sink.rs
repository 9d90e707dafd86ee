use crate::{Event, Flow, FlowId};

/// Takes what a source reports, event by event, in the order in which the source saw them.
pub trait Sink {
    /// A flow begins, or is seen for the first time, under a number that no open flow has.
    fn flow(&mut self, id: FlowId, flow: &Flow);

    /// Something happened. Its flow is open.
    fn event(&mut self, event: &Event);

    /// Nothing more will be reported of a flow; its number may be used again.
    fn close(&mut self, id: FlowId, why: Closed);
}

/// Why a source reports nothing more of a flow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Closed {
    /// The flow itself has ended.
    Over,
    /// The source has come to its end.
    EndOfSource,
    /// The connection ended.
    Ended,
    /// Another connection between the same ends began.
    Replaced,
    /// The source can follow so many flows only, and this one had been silent the longest.
    Evicted,
}
