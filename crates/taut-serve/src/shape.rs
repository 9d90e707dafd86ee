//! Links that are received as a client wants them, for as long as it holds its link open.

use taut_link::bluetooth::IntervalLimits;
use taut_link::wire::{Frame, Hello, Refusal, Shape, Shaped};
use taut_link::{Error, Link, Listener};

use crate::exchange::{Bounds, Outcome, SessionError, receive_frame, send};
use crate::shared::Shared;

/// Serves a client whose hello has been accepted.
pub(super) fn serve(link: &Link, listener: &Listener, shared: &Shared, hello: &Hello, session: u64) -> Outcome {
    let adapter = listener.shapeable().filter(|_| !shared.config.fixed);
    let adapter = adapter.ok_or(SessionError::Refused(Refusal::ShapeNotOffered))?;
    let bounds = Bounds::new(shared, hello);
    let mut before = Before { listener, adapter, intervals: IntervalLimits::read(adapter).ok(), changed: None };
    loop {
        match receive_frame(link, &bounds) {
            Ok((_, Frame::Shape(shape))) => {
                let shaped = before.shape(shape);
                send(link, &Frame::Shaped(shaped).emit(session), &bounds)?;
            }
            Ok(_) => return Err(SessionError::Misbehaved),
            Err(_) if bounds.are_passed() => return Err(SessionError::Gone),
            Err(trouble) => return Err(trouble),
        }
    }
}

/// How links were received before; they are so again when it is dropped.
struct Before<'a> {
    listener: &'a Listener,
    adapter: u16,
    intervals: Option<IntervalLimits>,
    /// Whether to leave things as the last shape made them.
    changed: Option<bool>,
}

impl Before<'_> {
    fn shape(&mut self, shape: Shape) -> Shaped {
        self.changed = Some(shape.keep);
        let received = self.listener.shape(shape.mtu, shape.receive_buffer);
        // Putting back what may not be changed is no failure.
        let limits = match (shape.intervals, self.intervals) {
            (Some(limits), _) => limits.write(self.adapter),
            (None, Some(before)) => before.write(self.adapter).or(Ok(())),
            (None, None) => Ok(()),
        };
        let error = received.err().or_else(|| limits.err());
        Shaped { intervals: IntervalLimits::read(self.adapter).ok(), errno: error.map_or(0, errno) }
    }
}

impl Drop for Before<'_> {
    fn drop(&mut self) {
        if self.changed == Some(false) {
            self.shape(Shape::default());
        }
    }
}

fn errno(error: Error) -> u32 {
    let number = match error {
        Error::Io { error, .. } | Error::Host { error, .. } => error.raw_os_error(),
        Error::Unavailable(_) => Some(rustix::io::Errno::PERM.raw_os_error()),
        _ => None,
    };
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or(rustix::io::Errno::INVAL.raw_os_error() as u32)
}
