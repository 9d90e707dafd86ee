//! A host: HCI flow control, L2CAP as Linux does it, and the programs on top: a writer and a reader.
//!
//! It is a machine like the controller. What takes time in a real host (interrupt to protocol
//! stack, waking a task, a system call) is drawn from the ranges of its configuration.

mod connection;
mod latency;
mod setup;
mod writer;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use taut_time::Instant;

use crate::hci::{self, PacketView};
use crate::l2cap::{ChannelParameters, CreditPolicy};
use crate::pdu::advertising::Address;
use crate::phy::Phy;
use crate::rng::Random;
use crate::time::{NEVER, Nanos, after, deadline};

use connection::Connection;
pub use latency::Latency;
use setup::Setup;
pub use writer::Blocked;
pub(crate) use writer::{Activity, is_pattern};

/// What the programs and the kernel of a host are like.
#[derive(Clone, Debug, PartialEq)]
pub struct HostConfig {
    /// Longest SDU that its channel takes (`BT_RCVMTU`; 672 unless set).
    pub mtu: u16,
    /// Longest information payload of a PDU; `None` for Linux's: what fits into one ACL packet, and
    /// no more than the MTU.
    pub mps: Option<u16>,
    /// How it gives credits back.
    pub credits: CreditPolicy,
    /// `SO_RCVBUF` as the kernel counts it, in bytes.
    pub recvbuf: usize,
    /// `sizeof(struct sk_buff)`.
    pub skb_overhead: usize,
    /// `SO_SNDBUF` as the kernel counts it, in bytes.
    pub sndbuf: usize,
    /// Bytes that the writer has at a time, written in SDUs of at most the peer's MTU.
    pub block: u32,
    /// Bytes of the first block, 0 for as many as in the others: where in a connection event and an
    /// SDU the flow gets going is up to what came before it.
    pub first: u32,
    /// Time that it takes to have the next block, once the last one is written.
    pub block_work: Latency,
    /// Time from one block's beginning to the next at least; 0 for as fast as it goes.
    pub period: Nanos,
    /// Time of one `send`.
    pub send: Latency,
    /// Time of one `recv`.
    pub recv: Latency,
    /// From a socket's becoming ready to the program's next system call: waking the task through the runtime.
    pub wakeup: Latency,
    /// From a packet's arrival over the host transport to its being handled: interrupt, receive work.
    pub rx: Latency,
    /// From the protocol's handing over a packet to its reaching the driver: transmit work.
    pub tx: Latency,
}

/// What a host sets out to do.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Advertises, and takes the connection and the channel.
    Peripheral,
    /// Connects to the peers one after another and opens a channel on each link.
    Central(Vec<Wish>),
}

/// What a central wants of a link.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The peer's address.
    pub peer: Address,
    /// Connection interval, in the controller's units.
    pub interval: u16,
    /// Peripheral latency in events.
    pub latency: u16,
    /// Supervision timeout in units of 10 ms.
    pub timeout: u16,
    /// Longest payload of a data PDU.
    pub length: u16,
    /// Physical layer.
    pub phy: Phy,
}

/// What a host gives.
#[derive(Clone, Debug)]
pub enum Output {
    /// An HCI packet for the controller.
    Controller(Vec<u8>),
    /// Something worth telling.
    Notice(Notice),
}

/// Something that happened in a host. `handle` is the connection's.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Notice {
    /// Connection handle at this host's controller.
    pub handle: u16,
    /// What happened.
    pub what: What,
}

/// What happened in a host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum What {
    /// The channel is open.
    Open(ChannelParameters),
    /// The link is gone; the reason is HCI's.
    Closed(u8),
    /// The program's `send` took an SDU.
    Written {
        /// Bytes.
        bytes: usize,
        /// PDUs that it was cut into.
        pdus: usize,
    },
    /// The program could not send.
    Blocked(Blocked),
    /// It can again; it will know after its wake-up latency.
    Writable,
    /// An SDU is complete and waits for the program.
    Complete {
        /// Bytes.
        bytes: usize,
    },
    /// The program has read an SDU.
    Read {
        /// Its bytes.
        sdu: Vec<u8>,
    },
    /// Credits were given back.
    Granted(u16),
    /// Credits were received.
    Received {
        /// How many.
        credits: u16,
        /// How many there are now.
        total: u32,
    },
    /// The controller reported packets completed.
    Completed {
        /// How many.
        packets: u16,
        /// Free buffers in the controller, as far as the host knows.
        free: u16,
    },
    /// The peer broke a rule of L2CAP; the channel is no longer used.
    Broken,
}

/// Who holds the data of a writer, as its host knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Hold {
    /// The program has none.
    Application,
    /// The program is being woken, or the kernel is at work.
    WakeUp,
    /// PDUs wait for credits.
    Credit,
    /// Packets wait for buffers in the controller.
    Buffers,
}

/// A host.
#[derive(Clone, Debug)]
pub struct Host {
    config: HostConfig,
    random: Random,
    setup: Setup,
    connections: Vec<Connection>,
    /// Buffers that are free in the controller, as far as known, and the size of each.
    free: u16,
    acl_size: u16,
    /// Packets that have arrived and are not handled yet.
    rx: VecDeque<(Instant, Vec<u8>)>,
    /// Packets on their way to the driver.
    tx: VecDeque<(Instant, Vec<u8>)>,
    out: VecDeque<Output>,
    due: Instant,
}

impl Host {
    /// A host that begins with its plan at once. `random` draws its latencies.
    pub fn new(config: HostConfig, plan: Plan, random: Random) -> Self {
        let mut host = Self {
            config,
            random,
            setup: Setup::new(plan),
            connections: Vec::new(),
            free: 0,
            acl_size: 0,
            rx: VecDeque::new(),
            tx: VecDeque::new(),
            out: VecDeque::new(),
            due: Instant::default(),
        };
        host.start();
        host
    }

    /// How it is made.
    pub const fn config(&self) -> &HostConfig {
        &self.config
    }

    /// When [`poll`](Self::poll) has something to do at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        deadline(self.due())
    }

    /// The same, and the end of time for none.
    #[inline]
    pub(crate) fn due(&self) -> Instant {
        if self.out.is_empty() { self.due } else { Instant::default() }
    }

    /// Takes an HCI packet from the controller that arrives now.
    pub fn handle(&mut self, now: Instant, packet: Vec<u8>) {
        let due = self.config.rx.draw(&mut self.random);
        let due = after(now, due).max(self.rx.back().map_or(now, |(due, _)| *due));
        self.rx.push_back((due, packet));
        self.due = self.due.min(due);
    }

    /// The next output, after doing what is due at `now`.
    pub fn poll(&mut self, now: Instant) -> Option<Output> {
        if self.out.is_empty() && self.due <= now {
            self.work(now);
        }
        self.out.pop_front()
    }

    /// Starts writing blocks on all open channels.
    pub fn start_writing(&mut self, now: Instant) {
        for connection in &mut self.connections {
            connection.writer.start(now);
        }
        self.settle();
    }

    /// Bytes for the channel of that connection, from outside: they are written as blocks are.
    pub fn write(&mut self, now: Instant, handle: u16, bytes: &[u8]) {
        let wakeup = self.config.wakeup.draw(&mut self.random);
        if let Some(connection) = self.connections.iter_mut().find(|connection| connection.handle == handle) {
            connection.writer.give(after(now, wakeup), bytes);
            self.settle();
        }
    }

    /// Bytes given to [`write`](Self::write) that no `send` has taken yet.
    pub fn unwritten(&self, handle: u16) -> usize {
        self.connection(handle).map_or(0, |connection| connection.writer.pending())
    }

    /// What was agreed for that connection's channel, once it is open.
    pub fn channel(&self, handle: u16) -> Option<&ChannelParameters> {
        self.connection(handle)?.channel.as_ref().map(crate::l2cap::Channel::parameters)
    }

    /// Whether all channels of the plan are open.
    pub fn is_ready(&self) -> bool {
        self.setup.is_done()
    }

    fn connection(&self, handle: u16) -> Option<&Connection> {
        self.connections.iter().find(|connection| connection.handle == handle)
    }

    /// Who holds the data of that connection's writer.
    pub(crate) fn hold(&self, handle: u16) -> Hold {
        let Some(connection) = self.connection(handle) else { return Hold::Application };
        if connection.has_packets() {
            Hold::Buffers
        } else if self.tx.iter().any(|(_, packet)| connection.owns(packet)) {
            Hold::WakeUp
        } else if connection.waits_for_credit() {
            Hold::Credit
        } else {
            match connection.writer.activity() {
                Activity::Idle | Activity::Producing => Hold::Application,
                Activity::Waking | Activity::Sending => Hold::WakeUp,
                Activity::Blocked(Blocked::Credits) => Hold::Credit,
                Activity::Blocked(Blocked::SendBuffer) => Hold::Buffers,
            }
        }
    }

    fn settle(&mut self) {
        let mut due = NEVER;
        if let Some((at, _)) = self.rx.front() {
            due = due.min(*at);
        }
        if let Some((at, _)) = self.tx.front() {
            due = due.min(*at);
        }
        for connection in &self.connections {
            due = due.min(connection.due());
        }
        self.due = due;
    }

    fn work(&mut self, now: Instant) {
        while let Some((_, packet)) = self.rx.pop_front_if(|(due, _)| *due <= now) {
            self.received(now, &packet);
        }
        for index in 0..self.connections.len() {
            self.write_some(now, index);
            self.read_some(now, index);
        }
        self.schedule(now);
        while let Some((_, packet)) = self.tx.pop_front_if(|(due, _)| *due <= now) {
            self.left(now, &packet);
            self.out.push_back(Output::Controller(packet));
        }
        self.settle();
    }

    /// A packet reaches the driver: the socket's memory is free again.
    fn left(&mut self, now: Instant, packet: &[u8]) {
        let wakeup = &self.config.wakeup;
        if let Some(connection) = self.connections.iter_mut().find(|connection| connection.owns(packet)) {
            connection.charged = connection.charged.saturating_sub(packet.len() + self.config.skb_overhead);
            if connection.writer.is_blocked_on(Blocked::SendBuffer) && connection.charged <= self.config.sndbuf / 2 {
                connection.writer.wake(after(now, wakeup.draw(&mut self.random)));
                self.out.push_back(Output::Notice(Notice { handle: connection.handle, what: What::Writable }));
            }
        }
    }

    fn received(&mut self, now: Instant, packet: &[u8]) {
        match PacketView::parse(packet) {
            Ok(PacketView::Event { code: hci::event::COMPLETED_PACKETS, parameters }) => self.completed(parameters),
            Ok(PacketView::Event { code, parameters }) => self.event(now, code, parameters),
            Ok(PacketView::Acl(acl)) => self.data(now, acl),
            Ok(PacketView::Command { .. }) | Err(_) => {}
        }
    }

    fn completed(&mut self, parameters: &[u8]) {
        let [_, rest @ ..] = parameters else { return };
        for entry in rest.chunks_exact(4) {
            let (handle, packets) =
                (u16::from_le_bytes([entry[0], entry[1]]) & 0xfff, u16::from_le_bytes([entry[2], entry[3]]));
            self.free = self.free.saturating_add(packets);
            let what = What::Completed { packets, free: self.free };
            self.out.push_back(Output::Notice(Notice { handle, what }));
        }
    }

    /// Hands packets to the driver as far as the controller has buffers: signalling first, then the links in turn.
    fn schedule(&mut self, now: Instant) {
        while self.free > 0 {
            let next = self.connections.iter_mut().find_map(|connection| connection.signals.pop_front());
            let packet = match next {
                Some(packet) => packet,
                None => {
                    let fullest = self.connections.iter_mut().max_by_key(|connection| connection.packets.len());
                    let Some(packet) = fullest.and_then(|connection| connection.packets.pop_front()) else { return };
                    packet
                }
            };
            self.free -= 1;
            self.transmit(now, packet);
        }
    }

    fn transmit(&mut self, now: Instant, packet: Vec<u8>) {
        let due = after(now, self.config.tx.draw(&mut self.random)).max(self.tx.back().map_or(now, |(due, _)| *due));
        self.tx.push_back((due, packet));
    }
}
