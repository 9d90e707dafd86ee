use taut_time::{Duration, Instant, MessageTimes};

/// A layer in which a message can wait, on its way from the schedule to the peer's program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stage {
    /// The program called late: from the intended time to the start of the sending call.
    Program,
    /// The sending call itself.
    Call,
    /// The socket and its transport held the bytes: from the return of the call to the queueing discipline.
    Socket,
    /// Queueing discipline and driver.
    Driver,
    /// The medium and the peer's kernel: up to the arrival in the peer's socket.
    Medium,
    /// A broker between both ends, with the network and the kernels on the way to it and from it: up to the arrival in
    /// the reader's socket.
    Broker,
    /// The peer's program had not read yet.
    PeerProgram,
}

impl Stage {
    /// All stages, in the order in which a message passes them.
    pub const ALL: [Self; 7] =
        [Self::Program, Self::Call, Self::Socket, Self::Driver, Self::Medium, Self::Broker, Self::PeerProgram];

    /// Name of the stage in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::Call => "call",
            Self::Socket => "socket",
            Self::Driver => "driver",
            Self::Medium => "medium",
            Self::Broker => "broker",
            Self::PeerProgram => "peer program",
        }
    }

    /// When the message reached the end of the stage, if that is known.
    pub const fn end(self, message: &MessageTimes) -> Option<Instant> {
        match self {
            Self::Program => message.write_begin,
            Self::Call => message.write_end,
            Self::Socket => message.scheduled,
            Self::Driver => message.left,
            Self::Medium => message.received,
            Self::Broker => message.forwarded,
            Self::PeerProgram => message.read,
        }
    }
}

/// Time that the messages spent in each stage, summed. What lies between two known times goes to the
/// stage in which the message arrives at the second; so for each message the parts add up to the time
/// from its intended start to the last time known of it. Stages may overlap by the cost of a system call
/// (bytes can leave before the call returns): what would be negative is 0, and later parts shrink by it.
pub fn ledger(messages: impl IntoIterator<Item = MessageTimes>) -> [(Stage, Duration); 7] {
    let mut sums = Stage::ALL.map(|stage| (stage, Duration::ZERO));
    for message in messages {
        let mut reached = message.intended;
        for (stage, sum) in &mut sums {
            if let Some(end) = stage.end(&message) {
                *sum += end.saturating_since(reached);
                reached = reached.max(end);
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_parts_add_up_to_the_whole(times in proptest::collection::vec(proptest::option::of(0..1_000_000u64), 7)) {
            let at = |i: usize| times[i].map(Instant::from_nanos);
            let message = MessageTimes {
                write_begin: at(0), write_end: at(1), scheduled: at(2), left: at(3), received: at(4), forwarded: at(5),
                read: at(6), ..MessageTimes::default()
            };
            let sum: Duration = ledger([message]).iter().map(|(_, part)| *part).sum();
            let last = times.iter().flatten().max().copied().unwrap_or(0);
            prop_assert_eq!(sum, Duration::from_nanos(last));
        }
    }

    #[test]
    fn waiting_goes_to_the_layer_that_held_it() {
        let at = |ms: u64| Some(Instant::from_nanos(ms * 1_000_000));
        let message = MessageTimes {
            write_begin: at(1),
            write_end: at(2),
            scheduled: at(46),
            left: at(46),
            received: at(47),
            ..MessageTimes::default()
        };
        let held: Vec<u128> = ledger([message]).iter().map(|(_, part)| part.as_millis()).collect();
        assert_eq!(held, [1, 1, 44, 0, 1, 0, 0]);
    }

    #[test]
    fn what_a_broker_held_is_neither_the_mediums_nor_the_readers() {
        let at = |ms: u64| Some(Instant::from_nanos(ms * 1_000_000));
        let message =
            MessageTimes { left: at(1), acked: at(41), forwarded: at(31), read: at(33), ..Default::default() };
        let held: Vec<u128> = ledger([message]).iter().map(|(_, part)| part.as_millis()).collect();
        assert_eq!(held, [0, 0, 0, 1, 0, 30, 2]);
    }
}
