//! What is said to a client of a stream endpoint and heard from it, within its bounds.

use rustix::io::Errno;
use taut_link::wire::{self, CONTROL_BYTES, Frame, HEADER_BYTES, Hello, Refusal};
use taut_link::{Link, clock};
use taut_time::{Duration, Instant};

use crate::shared::Shared;

/// How a session ended.
pub(super) type Outcome = Result<(), SessionError>;

/// Why a client is not served any further.
pub(super) enum SessionError {
    /// It is told so.
    Refused(Refusal),
    /// It sent what it must not, or nothing at all.
    Misbehaved,
    /// It went away.
    Gone,
}

/// Until when a client is served: its time, and the server's own.
pub(super) struct Bounds<'a> {
    shared: &'a Shared,
    deadline: Instant,
}

impl<'a> Bounds<'a> {
    /// Those of a session that begins now.
    pub(super) fn new(shared: &'a Shared, hello: &Hello) -> Self {
        Self { shared, deadline: shared.config.limits.deadline(hello, clock::now()) }
    }

    /// Those of a part of a session that begins now and may take that long.
    pub(super) fn lasting(shared: &'a Shared, time: Duration) -> Self {
        Self { shared, deadline: clock::now() + time }
    }

    /// Whether the client's time is over, or the server is to stop.
    pub(super) fn are_passed(&self) -> bool {
        self.are_passed_at(clock::now())
    }

    #[inline]
    pub(super) fn are_passed_at(&self, now: Instant) -> bool {
        now > self.deadline || self.shared.is_stopping()
    }
}

/// Writes all bytes, for as long as the client takes some now and then and its time is not over.
pub(super) fn send(link: &Link, mut bytes: &[u8], bounds: &Bounds<'_>) -> Outcome {
    let mut last_progress = None;
    loop {
        match link.send(bytes) {
            Ok(sent) if sent == bytes.len() => return Ok(()),
            Ok(sent) => {
                bytes = &bytes[sent..];
                last_progress = None;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return Err(SessionError::Gone),
        }
        let now = clock::now();
        let since = *last_progress.get_or_insert(now);
        if bounds.are_passed_at(now) || now.saturating_since(since) > bounds.shared.config.limits.idle {
            return Err(SessionError::Gone);
        }
    }
}

/// Reads one control frame, all of it before the deadline, however slowly it drips in.
pub(super) fn receive_frame(link: &Link, bounds: &Bounds<'_>) -> Result<(u64, Frame), SessionError> {
    let mut bytes = [0; CONTROL_BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        if bounds.are_passed() {
            return Err(SessionError::Misbehaved);
        }
        match link.receive(&mut bytes[filled..]) {
            Ok(0) if filled == 0 => return Err(SessionError::Gone),
            Ok(0) => return Err(SessionError::Misbehaved),
            Ok(length) => filled += length,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return Err(SessionError::Gone),
        }
        if filled >= HEADER_BYTES {
            match wire::frame_length(&bytes) {
                Ok(CONTROL_BYTES) => {}
                Ok(_) | Err(_) => return Err(SessionError::Refused(Refusal::NotUnderstood)),
            }
        }
    }
    Frame::parse(&bytes).map_err(|error| SessionError::Refused(Refusal::of(error)))
}

/// Reads and forgets until the client closes, for a while.
pub(super) fn drain(link: &Link, bounds: &Bounds<'_>) {
    let mut buffer = [0; 4096];
    while !bounds.are_passed() {
        match link.receive(&mut buffer) {
            Ok(0) => return,
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
