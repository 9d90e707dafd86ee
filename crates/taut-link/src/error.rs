use std::{fmt, io};

use crate::peer_clock::Disagreement;
use crate::refusal;

/// Result of an operation on an endpoint or a link.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation on an endpoint or a link failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("{operation} {endpoint}: {error}{}", refusal::by_whom(operation, endpoint, error))]
    Io {
        /// What was tried: `connect to`, `send on`.
        operation: &'static str,
        /// On which endpoint.
        endpoint: String,
        /// What the kernel answered. Part of the message, and so not the error's source as well.
        error: io::Error,
    },
    /// The user's input can't be used.
    #[error("{0}")]
    Input(String),
    /// The peer closed the link before the test was over.
    #[error("{endpoint}: the peer closed the link {when}")]
    Closed {
        /// The peer's endpoint.
        endpoint: String,
        /// At which point of the test.
        when: &'static str,
    },
    /// The broker between the ends took no connection, or ended it.
    #[error("{endpoint}: the broker {what}")]
    Broker {
        /// The broker's endpoint.
        endpoint: String,
        /// What it did.
        what: String,
    },
    /// The peer answered that it will not serve this.
    #[error("{endpoint}: the server refused: {reason}")]
    Refused {
        /// The peer's endpoint.
        endpoint: String,
        /// The peer's reason, printable.
        reason: String,
    },
    /// TLS did not begin.
    #[error("{endpoint}: {reason}")]
    Unsecured {
        /// The peer's endpoint.
        endpoint: String,
        /// Which side refused, and why.
        reason: String,
    },
    /// The peer broke the protocol, or does not speak it.
    #[error("{endpoint}: {what} (is it `taut serve`? for any other echo server use --plain)")]
    Protocol {
        /// The peer's endpoint.
        endpoint: String,
        /// What was wrong.
        what: String,
    },
    /// A peer that should echo sends something else.
    #[error("{endpoint}: {what}: it is no echo server")]
    NoEcho {
        /// The peer's endpoint.
        endpoint: String,
        /// What came instead of an echo.
        what: String,
    },
    /// The peer did not answer.
    #[error("{endpoint}: no answer to {to} within {after_ms} ms")]
    Silent {
        /// The peer's endpoint.
        endpoint: String,
        /// What was left without an answer.
        to: &'static str,
        /// How long was waited, in milliseconds.
        after_ms: u64,
    },
    /// The peer's clock and ours can't be brought together.
    #[error("{endpoint}: {why}; measure again, or over a shorter time")]
    Clocks {
        /// The peer's endpoint.
        endpoint: String,
        /// Why they can't.
        why: Disagreement,
    },
    /// The user ended the wait for an answer.
    #[error("{endpoint}: interrupted while waiting for its answer")]
    Interrupted {
        /// The peer's endpoint.
        endpoint: String,
    },
    /// Something that belongs to no endpoint failed on this host.
    #[error("{what}: {error}")]
    Host {
        /// What failed.
        what: String,
        /// What the kernel answered. Part of the message, and so not the error's source as well.
        error: io::Error,
    },
    /// A right, a device or a kernel feature is missing on this host.
    #[error("{0}")]
    Unavailable(String),
}

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// The user's input.
    Input,
    /// The other end of the link.
    Peer,
    /// This machine: its limits, rights or kernel.
    Host,
}

impl Error {
    /// Whose fault the error is.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Input(_) => Fault::Input,
            Self::Closed { .. }
            | Self::Broker { .. }
            | Self::Refused { .. }
            | Self::Unsecured { .. }
            | Self::Protocol { .. }
            | Self::NoEcho { .. }
            | Self::Silent { .. }
            | Self::Clocks { .. } => Fault::Peer,
            // A path without a listener is to a Unix socket what a port without one is to TCP.
            Self::Io { operation: "connect to", error, .. } if error.kind() == io::ErrorKind::NotFound => Fault::Peer,
            Self::Io { error, .. } => match error.kind() {
                io::ErrorKind::ConnectionRefused
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::TimedOut => Fault::Peer,
                io::ErrorKind::NotFound | io::ErrorKind::AddrNotAvailable | io::ErrorKind::InvalidInput => Fault::Input,
                _ => Fault::Host,
            },
            // The user's wish is nobody's fault.
            Self::Host { .. } | Self::Unavailable(_) | Self::Interrupted { .. } => Fault::Host,
        }
    }

    /// Whether the peer went away (as against never having been there).
    pub fn is_peer_gone(&self) -> bool {
        match self {
            Self::Closed { .. } | Self::Broker { .. } => true,
            Self::Io { error, .. } => {
                matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
            }
            _ => false,
        }
    }

    /// Whether a right or a device is missing on this host.
    pub fn is_missing_right(&self) -> bool {
        match self {
            Self::Unavailable(_) => true,
            Self::Io { error, .. } | Self::Host { error, .. } => error.kind() == io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }

    /// A crowd was asked of a datagram endpoint.
    pub(crate) fn no_crowd(endpoint: &impl fmt::Display) -> Self {
        Self::Input(format!("{endpoint}: a crowd is one of streams: write tcp://HOST:PORT or unix:PATH"))
    }

    pub(crate) fn io(operation: &'static str, endpoint: &impl fmt::Display, error: impl Into<io::Error>) -> Self {
        Self::Io { operation, endpoint: endpoint.to_string(), error: error.into() }
    }
}
