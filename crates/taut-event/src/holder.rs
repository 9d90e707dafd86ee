use core::fmt;

/// Who had the data, or who had to act, while none moved.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Holder {
    /// The connection was being opened.
    Handshake,
    /// The sending program had not written.
    SendingProgram,
    /// The sending program waited for the peer's answer.
    PeerTurn,
    /// Nagle's algorithm held a small write until an acknowledgement.
    Nagle,
    /// The socket held the rest of a write for 200 ms, as `TCP_CORK` and `MSG_MORE` make it.
    Cork,
    /// The congestion window was full.
    CongestionWindow,
    /// The congestion window was full while it still doubled.
    SlowStart,
    /// The congestion window had been made small again by a pause.
    AfterIdle,
    /// The sender spaced its segments.
    Pacing,
    /// What had left the socket waited in the queue of the sending host's device.
    DeviceQueue,
    /// The path's queue: the congestion window was full while packets waited in a standing queue.
    PathQueue,
    /// The send buffer or the congestion window; a capture can't tell which.
    SendBufferOrCongestion,
    /// The send buffer was full: the program waited for room in it.
    SendBuffer,
    /// The receive window was full: the receive buffer is small for this path.
    ReceiveWindow,
    /// The receive window was full: the receiving program had not read.
    ReceivingProgram,
    /// The receiving program was ready to run and had no processor.
    Processor,
    /// The connection was open, and the receiving program had not accepted it.
    AcceptQueue,
    /// The peer had given no L2CAP credits.
    Credits,
    /// The peer had given no credits of RFCOMM, or had said that it takes nothing.
    RfcommCredits,
    /// Data in the controller waited for the next connection event.
    ConnectionInterval,
    /// All of the controller's buffers were taken.
    ControllerBuffers,
    /// The sending host's kernel had it, with credits and room in the controller.
    HciQueue,
    /// Data was on the air, or in a controller that had more than an event takes.
    Air,
    /// A connection event of Bluetooth LE was over although its sender had told of more data and there was time for it.
    ClosedEvent,
    /// The sender's controller had nothing to send: its host had handed nothing over, or what came since waited for the
    /// next connection event.
    SendingHost,
    /// Lost segments were being repeated.
    LossRecovery,
    /// The sender waited for its probe of a lost tail.
    TailLossProbe,
    /// The sender waited for its retransmission timer.
    RetransmissionTimeout,
    /// Nobody answered what was then sent once more: it or its answer was lost, or the peer did not answer.
    Unanswered,
    /// All had been sent; the last bytes and their acknowledgement were on their way.
    Delivery,
    /// What was seen does not tell.
    NotKnown,
}

/// Which end has to act for a holder to let go.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Side {
    /// The end that sends the data.
    Sender,
    /// The end that receives them.
    Receiver,
    /// What lies between.
    Path,
    /// Both, or not known.
    Unknown,
}

impl Holder {
    /// All, in the order of their indices.
    pub const ALL: [Self; 31] = [
        Self::Handshake,
        Self::SendingProgram,
        Self::PeerTurn,
        Self::Nagle,
        Self::Cork,
        Self::CongestionWindow,
        Self::SlowStart,
        Self::AfterIdle,
        Self::Pacing,
        Self::DeviceQueue,
        Self::PathQueue,
        Self::SendBufferOrCongestion,
        Self::SendBuffer,
        Self::ReceiveWindow,
        Self::ReceivingProgram,
        Self::Processor,
        Self::AcceptQueue,
        Self::Credits,
        Self::RfcommCredits,
        Self::ConnectionInterval,
        Self::ControllerBuffers,
        Self::HciQueue,
        Self::Air,
        Self::ClosedEvent,
        Self::SendingHost,
        Self::LossRecovery,
        Self::TailLossProbe,
        Self::RetransmissionTimeout,
        Self::Unanswered,
        Self::Delivery,
        Self::NotKnown,
    ];

    /// Its place in [`Self::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The one of this [name](Self::name).
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|holder| holder.name() == name)
    }

    /// Short name, the same in all versions: `receive_window`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::SendingProgram => "sending_program",
            Self::PeerTurn => "peer_turn",
            Self::Nagle => "nagle",
            Self::Cork => "cork",
            Self::CongestionWindow => "congestion_window",
            Self::SlowStart => "slow_start",
            Self::AfterIdle => "after_idle",
            Self::Pacing => "pacing",
            Self::DeviceQueue => "device_queue",
            Self::PathQueue => "path_queue",
            Self::SendBufferOrCongestion => "send_buffer_or_congestion",
            Self::SendBuffer => "send_buffer",
            Self::ReceiveWindow => "receive_window",
            Self::ReceivingProgram => "receiving_program",
            Self::Processor => "processor",
            Self::AcceptQueue => "accept_queue",
            Self::Credits => "credits",
            Self::RfcommCredits => "rfcomm_credits",
            Self::ConnectionInterval => "connection_interval",
            Self::ControllerBuffers => "controller_buffers",
            Self::HciQueue => "hci_queue",
            Self::Air => "air",
            Self::ClosedEvent => "closed_event",
            Self::SendingHost => "sending_host",
            Self::LossRecovery => "loss_recovery",
            Self::TailLossProbe => "tail_loss_probe",
            Self::RetransmissionTimeout => "retransmission_timeout",
            Self::Unanswered => "unanswered",
            Self::Delivery => "delivery",
            Self::NotKnown => "not_known",
        }
    }

    /// The end that has to act.
    pub const fn side(self) -> Side {
        match self {
            Self::SendingProgram
            | Self::Nagle
            | Self::Cork
            | Self::CongestionWindow
            | Self::SlowStart
            | Self::AfterIdle
            | Self::Pacing
            | Self::DeviceQueue
            | Self::SendBuffer
            | Self::SendBufferOrCongestion
            | Self::HciQueue => Side::Sender,
            Self::PeerTurn
            | Self::ReceiveWindow
            | Self::ReceivingProgram
            | Self::Processor
            | Self::AcceptQueue
            | Self::Credits
            | Self::RfcommCredits => Side::Receiver,
            Self::PathQueue
            | Self::ConnectionInterval
            | Self::ControllerBuffers
            | Self::Air
            | Self::ClosedEvent
            | Self::LossRecovery
            | Self::TailLossProbe
            | Self::RetransmissionTimeout
            | Self::Unanswered
            | Self::Delivery
            | Self::Handshake => Side::Path,
            Self::SendingHost | Self::NotKnown => Side::Unknown,
        }
    }
}

/// The field's words.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Handshake => "handshake",
            Self::SendingProgram => "sending program",
            Self::PeerTurn => "peer's turn",
            Self::Nagle => "Nagle's algorithm",
            Self::Cork => "cork (TCP_CORK, MSG_MORE)",
            Self::CongestionWindow => "congestion window",
            Self::SlowStart => "slow start",
            Self::AfterIdle => "slow start after idle",
            Self::Pacing => "pacing",
            Self::DeviceQueue => "queue of the device",
            Self::PathQueue => "queue of the path",
            Self::SendBufferOrCongestion => "send buffer or congestion window",
            Self::SendBuffer => "send buffer",
            Self::ReceiveWindow => "receive window",
            Self::ReceivingProgram => "receiving program",
            Self::Processor => "wait for a processor",
            Self::AcceptQueue => "accept queue",
            Self::Credits => "L2CAP credits",
            Self::RfcommCredits => "RFCOMM credits",
            Self::ConnectionInterval => "connection interval",
            Self::ControllerBuffers => "controller's buffers",
            Self::HciQueue => "HCI queue of the kernel",
            Self::Air => "controller and air",
            Self::ClosedEvent => "event closed early",
            Self::SendingHost => "sender's host or wait for event",
            Self::LossRecovery => "loss recovery",
            Self::TailLossProbe => "tail loss probe",
            Self::RetransmissionTimeout => "retransmission timeout",
            Self::Unanswered => "no answer, asked again",
            Self::Delivery => "delivery",
            Self::NotKnown => "not known",
        })
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
            Self::Path => "path",
            Self::Unknown => "not known",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_holder_has_its_place_and_its_name() {
        for (index, holder) in Holder::ALL.into_iter().enumerate() {
            assert_eq!(holder.index(), index);
            let others = Holder::ALL.into_iter().filter(|other| other.name() == holder.name());
            assert_eq!(others.count(), 1, "{holder}");
        }
    }
}
