//! The slack ledger: what the air was used for, and who kept it idle.

use core::ops::AddAssign;

use crate::time::Nanos;

/// What a nanosecond of the run went to. The first eight are on the air, the rest are idle by the
/// layer that held the data.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Category {
    /// Bytes of the application.
    Payload,
    /// Everything around them in data PDUs: preamble, access address, headers, SDU lengths, MIC, CRC.
    Headers,
    /// Inter frame spaces, and listening for an answer that doesn't come.
    Ifs,
    /// Empty data PDUs: polls and acknowledgements.
    EmptyPolls,
    /// L2CAP signalling: credits.
    Signalling,
    /// Link layer control.
    Control,
    /// Data PDUs sent before or not received, and the wait for the next event after one that wasn't received.
    Retransmission,
    /// The program had nothing to send.
    ApplicationHadNone,
    /// The program was being woken, or the sender's kernel was at work.
    WakeUp,
    /// The receiver had not given credits.
    NoCredit,
    /// It had, and they were on their way.
    CreditInFlight,
    /// The data was between host and controller.
    HostTransport,
    /// The host waited for a buffer in the controller, or the controller did not get the data ready to be sent.
    ControllerBuffer,
    /// Data was in the controller, there was time for it, and the connection event was closed.
    EventClosedEarly,
    /// Data was in the controller, and would not have ended before the next anchor.
    DoesNotFit,
}

impl Category {
    /// All of them, in the order of a report.
    pub const ALL: [Self; 15] = [
        Self::Payload,
        Self::Headers,
        Self::Ifs,
        Self::EmptyPolls,
        Self::Signalling,
        Self::Control,
        Self::Retransmission,
        Self::ApplicationHadNone,
        Self::WakeUp,
        Self::NoCredit,
        Self::CreditInFlight,
        Self::HostTransport,
        Self::ControllerBuffer,
        Self::EventClosedEarly,
        Self::DoesNotFit,
    ];

    /// Name for reports: `payload`, `no_credit`, …
    pub const fn name(self) -> &'static str {
        match self {
            Self::Payload => "payload",
            Self::Headers => "headers",
            Self::Ifs => "ifs",
            Self::EmptyPolls => "empty_polls",
            Self::Signalling => "signalling",
            Self::Control => "control",
            Self::Retransmission => "retransmission",
            Self::ApplicationHadNone => "application_had_none",
            Self::WakeUp => "wake_up",
            Self::NoCredit => "no_credit",
            Self::CreditInFlight => "credit_in_flight",
            Self::HostTransport => "host_transport",
            Self::ControllerBuffer => "controller_buffer",
            Self::EventClosedEarly => "event_closed_early",
            Self::DoesNotFit => "does_not_fit",
        }
    }

    /// One sentence on what it means.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Payload => "bytes of the application",
            Self::Headers => "preamble, access address, headers, SDU length, MIC and CRC of data PDUs",
            Self::Ifs => "inter frame spaces, and listening for an answer that did not come",
            Self::EmptyPolls => "empty PDUs: polls and acknowledgements",
            Self::Signalling => "L2CAP signalling, which is credits",
            Self::Control => "link layer control",
            Self::Retransmission => "data sent again or not received, and the wait for the event after that",
            Self::ApplicationHadNone => "the program had nothing to send",
            Self::WakeUp => "the program was being woken, or the kernel was at work",
            Self::NoCredit => "the receiver had not given credits",
            Self::CreditInFlight => "credits were given and on their way",
            Self::HostTransport => "the data was between host and controller",
            Self::ControllerBuffer => "the controller had no buffer free, or did not have the data ready to send",
            Self::EventClosedEarly => "the connection event was closed although there was time for the data",
            Self::DoesNotFit => "the data would not have ended before the next anchor",
        }
    }

    /// Whether the air is idle.
    pub const fn is_idle(self) -> bool {
        self as usize > Self::Retransmission as usize
    }
}

/// Nanoseconds by category. Their sum is the length of the run, exactly.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Ledger([Nanos; Category::ALL.len()]);

impl Ledger {
    /// Time of one category.
    pub const fn get(&self, category: Category) -> Nanos {
        self.0[category as usize]
    }

    /// All categories with their times, in the order of a report.
    pub fn iter(&self) -> impl Iterator<Item = (Category, Nanos)> {
        Category::ALL.into_iter().zip(self.0)
    }

    /// Sum of all.
    pub fn total(&self) -> Nanos {
        self.0.iter().sum()
    }

    pub(crate) const fn charge(&mut self, category: Category, nanos: Nanos) {
        self.0[category as usize] += nanos;
    }
}

impl AddAssign for Ledger {
    fn add_assign(&mut self, other: Self) {
        for (sum, nanos) in self.0.iter_mut().zip(other.0) {
            *sum += nanos;
        }
    }
}
