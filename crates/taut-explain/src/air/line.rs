/// A line of the slack ledger of a radio link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Line {
    /// Its name in recordings.
    pub name: &'static str,
    /// Its name in words.
    pub words: &'static str,
    /// What the time went into, or who held the data.
    pub meaning: &'static str,
    /// Whether nothing was on the air.
    pub idle: bool,
}

/// All lines: what was on the air, then idle time by who held the data.
pub const LINES: [Line; 15] = [
    on_air("payload", "payload", "bytes of the application"),
    on_air("headers", "headers", "preamble, access address, headers, MIC and CRC of PDUs with data, and L2CAP's own"),
    on_air("ifs", "inter frame space", "the pause that the link layer prescribes between PDUs"),
    on_air("empty_polls", "empty PDUs", "PDUs without data: polls and acknowledgements"),
    on_air("signalling", "credits and signalling", "L2CAP signalling: the receiver's credits above all"),
    on_air("control", "link control", "procedures of the link layer itself"),
    on_air("retransmission", "retransmissions", "PDUs sent again, and those that did not arrive"),
    idle("application_had_none", "application had none", "nothing was written that was not sent yet"),
    idle("wake_up", "writer waking up", "the socket was writable and the writing program not yet running"),
    idle("no_credit", "no credit", "the sender had used up its credits and the receiver had not sent new ones"),
    idle("credit_in_flight", "credit in flight", "the receiver had sent credits which the sender did not have yet"),
    idle("host_transport", "host transport", "the data was on its way from the host to its controller"),
    idle("controller_buffer", "controller buffers", "the host waited for a free buffer of its controller"),
    idle("event_closed_early", "event closed early", "the controller had data, but the connection event was over"),
    idle("does_not_fit", "does not fit", "data was ready, but would not have ended before the next anchor"),
];

impl Line {
    /// The line of this name.
    pub fn of(name: &str) -> Option<&'static Self> {
        LINES.iter().find(|line| line.name == name)
    }

    /// Its place among all lines; names that are no line's stand last.
    pub fn place(name: &str) -> usize {
        LINES.iter().position(|line| line.name == name).unwrap_or(LINES.len())
    }
}

const fn on_air(name: &'static str, words: &'static str, meaning: &'static str) -> Line {
    Line { name, words, meaning, idle: false }
}

const fn idle(name: &'static str, words: &'static str, meaning: &'static str) -> Line {
    Line { name, words, meaning, idle: true }
}
