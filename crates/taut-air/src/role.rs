//! The two sides of a connection.

/// Which side of a connection.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Role {
    /// Sets the anchors and speaks first in every connection event.
    #[default]
    Central,
    /// Follows.
    Peripheral,
}

impl Role {
    /// The other side.
    pub const fn other(self) -> Self {
        match self {
            Self::Central => Self::Peripheral,
            Self::Peripheral => Self::Central,
        }
    }

    /// `central` or `peripheral`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Central => "central",
            Self::Peripheral => "peripheral",
        }
    }
}
