//! Engines: how a process drives its I/O.
//!
//! An engine only waits; reading and writing are the same calls for all, so that what differs is the waiting. To add
//! one, implement [`Engine`] in a file of its own and name it in [`EngineKind`]. What one costs tells [`overhead`].

mod epoll;
pub mod overhead;
mod poll;
mod tokio;
mod wait;
mod without;

use std::fmt;
use std::io;
use std::str::FromStr;

use taut_link::Link;

pub use wait::Engine;

/// The engines there are.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum EngineKind {
    /// A thread for each link, which sleeps in the receiving call.
    #[default]
    Blocking,
    /// Never sleeps: tries again and again.
    Spin,
    /// poll(2).
    Poll,
    /// epoll(7).
    Epoll,
    /// The tokio runtime, current-thread flavour.
    Tokio,
}

impl EngineKind {
    /// All engines.
    pub const ALL: [Self; 5] = [Self::Blocking, Self::Spin, Self::Poll, Self::Epoll, Self::Tokio];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blocking => "blocking",
            Self::Spin => "spin",
            Self::Poll => "poll",
            Self::Epoll => "epoll",
            Self::Tokio => "tokio",
        }
    }

    /// Whether links sleep in their calls under this engine.
    pub fn blocks(self) -> bool {
        self == Self::Blocking
    }

    /// An engine for these links.
    ///
    /// # Errors
    /// The kernel refuses what the engine needs (descriptors, memory).
    pub fn build<'a>(self, links: &[&'a Link]) -> io::Result<Box<dyn Engine + 'a>> {
        Ok(match self {
            Self::Blocking | Self::Spin => Box::new(without::Without::new(links.len())),
            Self::Poll => Box::new(poll::Poll::new(links)),
            Self::Epoll => Box::new(epoll::Epoll::new(links)?),
            Self::Tokio => Box::new(tokio::Tokio::new(links)?),
        })
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for EngineKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|kind| kind.name()).collect();
            format!("there is no engine `{text}`; there are {}", names.join(", "))
        })
    }
}
