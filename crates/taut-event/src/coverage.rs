use core::fmt;

/// A kind of event, as far as a source can or can't see it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Kind {
    /// Segments of the wire, with what they acknowledge.
    Segments,
    /// The handshake, in which window scale and segment size are agreed on.
    Handshake,
    /// Datagrams of UDP.
    Datagrams,
    /// ACL packets between a host and its Bluetooth controller, with credits and completions.
    AclPackets,
    /// Data PDUs of Bluetooth LE on the air.
    AirPdus,
    /// What an end of a connection of QUIC logs of itself.
    QuicEvents,
    /// When a message was meant to be sent.
    Schedule,
    /// Writes of the sending program.
    Writes,
    /// Reads of the receiving program.
    Reads,
    /// Timestamps of the kernel on the way down and up.
    KernelStamps,
    /// What waits in the sending socket, with its congestion window.
    Queues,
    /// System calls.
    Calls,
    /// States of tasks.
    Tasks,
    /// What made bytes leave.
    Releases,
}

impl Kind {
    /// All, in the order in which a text names them.
    pub const ALL: [Self; 14] = [
        Self::Segments,
        Self::Handshake,
        Self::Datagrams,
        Self::AclPackets,
        Self::AirPdus,
        Self::QuicEvents,
        Self::Schedule,
        Self::Writes,
        Self::Reads,
        Self::KernelStamps,
        Self::Queues,
        Self::Calls,
        Self::Tasks,
        Self::Releases,
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Segments => "segments",
            Self::Handshake => "the handshake",
            Self::Datagrams => "datagrams",
            Self::AclPackets => "ACL packets of the host controller interface",
            Self::AirPdus => "PDUs of Bluetooth LE on the air",
            Self::QuicEvents => "a log of QUIC",
            Self::Schedule => "the schedule",
            Self::Writes => "writes",
            Self::Reads => "reads",
            Self::KernelStamps => "the kernel's timestamps",
            Self::Queues => "the socket's queue and congestion window",
            Self::Calls => "system calls",
            Self::Tasks => "states of tasks",
            Self::Releases => "what made bytes leave",
        })
    }
}

/// The kinds of events that a source would have reported, had they happened.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Coverage(u16);

impl Coverage {
    /// Nothing is seen.
    pub const NONE: Self = Self(0);

    /// These kinds.
    pub const fn of(kinds: &[Kind]) -> Self {
        let mut bits = 0;
        let mut i = 0;
        while i < kinds.len() {
            bits |= 1 << kinds[i] as u16;
            i += 1;
        }
        Self(bits)
    }

    /// This and these.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What of `needed` is lacking here.
    pub const fn lacks(self, needed: Self) -> Self {
        Self(needed.0 & !self.0)
    }

    /// Whether no kind is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the kind is in it.
    pub const fn has(self, kind: Kind) -> bool {
        self.0 & (1 << kind as u16) != 0
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for kind in Kind::ALL.into_iter().filter(|&kind| self.has(kind)) {
            write!(f, "{}{kind}", if first { "" } else { ", " })?;
            first = false;
        }
        if first { f.write_str("nothing") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn what_is_lacking_is_named() {
        let has = Coverage::of(&[Kind::Segments, Kind::Handshake]);
        let needs = Coverage::of(&[Kind::Segments, Kind::Writes, Kind::Queues]);
        assert_eq!(has.lacks(needs).to_string(), "writes, the socket's queue and congestion window");
        assert!(has.and(needs).lacks(needs).is_empty());
        assert_eq!(Coverage::NONE.to_string(), "nothing");
    }
}
