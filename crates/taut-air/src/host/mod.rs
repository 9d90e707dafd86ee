//! A host: HCI flow control, L2CAP as Linux does it, and the programs on top: a writer and a reader.
//!
//! It is a machine like the controller. What takes time in a real host (interrupt to protocol
//! stack, waking a task, a system call) is drawn from the ranges of its configuration.

mod connection;
mod latency;
mod setup;
mod state;
mod step;
mod terms;
mod traffic;
mod writer;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use taut_time::Instant;

use crate::hci::{self, PacketView};
use crate::l2cap::ChannelParameters;
use crate::rng::Random;
use crate::time::{NEVER, after, deadline};

use connection::Connection;
pub use latency::Latency;
pub use state::Host;
use step::Setup;
pub(crate) use terms::Hold;
pub use terms::{HostConfig, Notice, Output, Plan, What, Wish};
pub use writer::Blocked;
pub(crate) use writer::{Activity, is_pattern};

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
