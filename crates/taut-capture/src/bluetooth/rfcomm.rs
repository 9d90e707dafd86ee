//! Frames of RFCOMM and commands of its multiplexer (RFCOMM with TS 07.10, Bluetooth SIG, sections 5 and 6; 3GPP
//! TS 27.010, section 5).

/// The multiplexer of RFCOMM (Assigned Numbers, section 2.5).
pub(super) const RFCOMM_PSM: u16 = 3;

/// A connection on a multiplexer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    pub(super) dlci: u8,
    pub(super) slot: usize,
    /// Whether credits limit it; `None`: the log may lack what was agreed on.
    pub(super) has_credits: Option<bool>,
    pub(super) mtu: u16,
    /// By direction: frames that may be sent at first.
    pub(super) credits: [u16; 2],
    /// By direction: whether its receiver stopped it, and all connections. Only without credits.
    pub(super) stops: [[bool; 2]; 2],
    /// Whether what comes next tells that it is open.
    pub(super) is_opening: bool,
}

/// The octets before a frame's information.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Head {
    pub(super) dlci: u8,
    pub(super) kind: Kind,
    /// Whether the P/F bit is set. In a UIH frame of a connection with credits an octet of them follows.
    pub(super) is_final: bool,
    /// Octets of this header.
    pub(super) size: usize,
    /// Octets of information.
    pub(super) length: usize,
}

/// What a frame is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Sabm,
    Ua,
    Dm,
    Disc,
    Uih,
}

impl Head {
    /// Reads the header; `None` where there is none.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let [address, control, short, ..] = *bytes else { return None };
        if address & 1 == 0 {
            return None;
        }
        let kind = match control & !0x10 {
            0x2f => Kind::Sabm,
            0x63 => Kind::Ua,
            0x0f => Kind::Dm,
            0x43 => Kind::Disc,
            0xef => Kind::Uih,
            _ => return None,
        };
        let (size, length) = match short & 1 {
            1 => (3, usize::from(short >> 1)),
            _ => (4, usize::from(short >> 1) | usize::from(*bytes.get(3)?) << 7),
        };
        Some(Self { dlci: address >> 2, kind, is_final: control & 0x10 > 0, size, length })
    }
}

/// A command of the multiplexer, or its response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Command {
    /// Parameter negotiation.
    Parameters {
        is_command: bool,
        dlci: u8,
        /// Whether credits are wanted, or agreed to.
        has_credits: bool,
        /// Longest information, in bytes.
        mtu: u16,
        /// Frames that the other end may send before more credits come.
        credits: u8,
    },
    /// Modem status: whether its sender takes frames, where no credits are used.
    Status { dlci: u8, is_stopped: bool },
    /// The same for all connections.
    All { is_stopped: bool },
}

/// The commands in a frame on DLCI 0.
pub(super) fn commands(mut bytes: &[u8]) -> impl Iterator<Item = Command> + '_ {
    std::iter::from_fn(move || {
        loop {
            let [kind, length, rest @ ..] = bytes else { return None };
            // No command of interest is longer than 63 octets.
            let (values, rest) = rest.split_at_checked(usize::from(length >> 1)).filter(|_| length & 1 == 1)?;
            bytes = rest;
            if let Some(command) = command(*kind, values) {
                return Some(command);
            }
        }
    })
}

fn command(kind: u8, values: &[u8]) -> Option<Command> {
    let is_command = kind & 2 > 0;
    Some(match (kind >> 2, values) {
        (0x20, &[dlci, flow, _, _, low, high, _, credits]) => Command::Parameters {
            is_command,
            dlci: dlci & 0x3f,
            has_credits: flow >> 4 == if is_command { 0xf } else { 0xe },
            mtu: u16::from_le_bytes([low, high]),
            credits: credits & 7,
        },
        (0x38, &[address, signals, ..]) if is_command => {
            Command::Status { dlci: address >> 2, is_stopped: signals & 2 > 0 }
        }
        (0x28, []) if is_command => Command::All { is_stopped: false },
        (0x18, []) if is_command => Command::All { is_stopped: true },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_commands_are_read() {
        let head = |kind, is_final, size, length| Some(Head { dlci: 10, kind, is_final, size, length });
        assert_eq!(Head::parse(&[0x2b, 0x3f, 1, 0x9c]), head(Kind::Sabm, true, 3, 0));
        assert_eq!(Head::parse(&[0x2b, 0xff, 0xf0, 7, 33]), head(Kind::Uih, true, 4, 1016));
        // An address of two octets, a control octet of no frame of RFCOMM, a length that is cut off.
        for bad in [&[0x2a, 0x3f, 1][..], &[0x2b, 0x03, 1], &[0x2b, 0xef, 0xf0], &[0x2b, 0xef]] {
            assert_eq!(Head::parse(bad), None, "{bad:?}");
        }
        let both = [0x83, 17, 10, 0xf0, 0, 0, 0xf8, 3, 0, 7, 0xe3, 5, 0x2b, 0x8f];
        let parameters = Command::Parameters { is_command: true, dlci: 10, has_credits: true, mtu: 1016, credits: 7 };
        let status = Command::Status { dlci: 10, is_stopped: true };
        assert_eq!(commands(&both).collect::<Vec<_>>(), [parameters, status]);
        assert_eq!(commands(&both[..13]).collect::<Vec<_>>(), [parameters]);
        // A response to a modem status says nothing of its sender.
        assert_eq!(commands(&[0xe1, 5, 0x2b, 0x8f, 0x63, 1]).collect::<Vec<_>>(), [Command::All { is_stopped: true }]);
    }
}
