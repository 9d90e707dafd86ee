//! The other driver of `taut-air`'s machines: real time, and a kernel for the hosts.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use taut_air::{Air, Observer, Role, Scenario, ScenarioError};
use taut_link::bluetooth::{self, DeviceAddress, VirtualAdapter};
use taut_link::{Error, clock};
use taut_time::{Duration, Instant};

use crate::Interrupt;
use crate::stats::Distribution;

/// Controllers around one simulated medium, each an adapter of this kernel as long as this value lives.
pub struct LiveRadio {
    air: Air,
    adapters: Vec<VirtualAdapter>,
    /// From the time when something was to happen to the time when the thread came to it.
    lateness: Distribution,
    to_hosts: u64,
    from_hosts: u64,
    lost: u64,
}

/// An adapter that was made.
#[derive(Clone, Copy, Debug)]
pub struct LiveAdapter {
    /// Its number: 0 is hci0.
    pub index: u16,
    /// Its public device address.
    pub address: DeviceAddress,
    /// The side of the scenario that its controller is made as.
    pub side: Role,
}

/// What a radio has done.
#[derive(Clone, Debug)]
pub struct LiveFigures {
    /// How late the driver came to what was due, in ns. The medium keeps its times regardless; hosts get packets so much later.
    pub lateness: Distribution,
    /// HCI packets handed to hosts.
    pub to_hosts: u64,
    /// HCI packets taken from hosts.
    pub from_hosts: u64,
    /// HCI packets that no host took, because its adapter was down.
    pub lost: u64,
}

/// Why a radio can't be.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The scenario's parameters don't fit each other, or no kernel could have them.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The host lacks something, or failed.
    #[error(transparent)]
    Link(#[from] Error),
}

/// Signals interrupt a wait; one that comes just before it is seen after this time.
const GLANCE: Duration = Duration::from_millis(200);
/// HCI packets taken from one host before others get their turn.
const TURN: usize = 16;

impl LiveRadio {
    /// Makes the adapters of a scenario: the central's first, then its peripherals'.
    ///
    /// # Errors
    /// When the scenario can't be, or the kernel offers no virtual controllers.
    pub fn start(scenario: &Scenario, seed: u64) -> Result<Self, LiveError> {
        let air = Air::new(scenario, seed, clock::now())?;
        let adapters = air.controllers().map(|_| VirtualAdapter::create()).collect::<Result<_, _>>()?;
        Ok(Self { air, adapters, lateness: Distribution::new(), to_hosts: 0, from_hosts: 0, lost: 0 })
    }

    /// The adapters, in that order.
    pub fn adapters(&self) -> Vec<LiveAdapter> {
        let made = self.air.controllers().zip(&self.adapters);
        made.map(|((address, side), adapter)| LiveAdapter {
            index: adapter.index(),
            address: DeviceAddress::from_wire(address),
            side,
        })
        .collect()
    }

    /// Runs until the user wants to stop. A radio waits for nobody: the thread gets a real-time priority if it may.
    ///
    /// # Errors
    /// When the kernel's device fails.
    pub fn run(&mut self, interrupt: &Interrupt, observer: &mut impl Observer) -> Result<(), Error> {
        clock::set_timer_slack(Duration::from_nanos(1));
        // Without the right to it the adapters work just as well, if later.
        let _ = clock::set_fifo_scheduling();
        while !interrupt.is_set() {
            self.serve(observer)?;
            self.wait()?;
        }
        Ok(())
    }

    /// Does what is due, and takes what hosts have for us.
    fn serve(&mut self, observer: &mut impl Observer) -> Result<(), Error> {
        let now = clock::now();
        if let Some(due) = self.air.deadline().filter(|due| *due <= now) {
            self.lateness.record(now.saturating_since(due));
        }
        self.deliver(now, observer)?;
        for number in 0..self.adapters.len() {
            for _ in 0..TURN {
                let Some(packet) = self.adapters[number].read()? else { break };
                self.from_hosts += 1;
                self.air.handle(clock::now(), number, packet, observer);
            }
        }
        self.deliver(clock::now(), observer)
    }

    fn deliver(&mut self, now: Instant, observer: &mut impl Observer) -> Result<(), Error> {
        while let Some(packet) = self.air.poll(now, observer) {
            self.to_hosts += 1;
            if !self.adapters[packet.number].write(&packet.packet)? {
                self.lost += 1;
            }
        }
        Ok(())
    }

    fn wait(&self) -> Result<(), Error> {
        let now = clock::now();
        let left = self.air.deadline().map_or(GLANCE, |due| due.saturating_since(now).min(GLANCE));
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut fds: Vec<_> = self.adapters.iter().map(|adapter| PollFd::new(adapter, PollFlags::IN)).collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Error::Host { what: "wait for packets of the kernel".to_owned(), error: error.into() }),
        }
    }

    /// What it has done so far.
    pub fn figures(&self) -> LiveFigures {
        LiveFigures {
            lateness: self.lateness.clone(),
            to_hosts: self.to_hosts,
            from_hosts: self.from_hosts,
            lost: self.lost,
        }
    }
}

/// Waits until the kernel has set up these adapters, and gives them the connection parameters of the scenario for the links
/// that they will make. To be called from another thread than the radio's: the kernel talks to the controllers meanwhile.
///
/// # Errors
/// When the kernel doesn't set them up in time, or the parameters can't be given (debugfs isn't mounted, or no right).
pub fn prepare(adapters: &[LiveAdapter], scenario: &Scenario, interrupt: &Interrupt) -> Result<(), Error> {
    const PATIENCE: Duration = Duration::from_secs(20);
    let deadline = clock::now() + PATIENCE;
    for adapter in adapters {
        while !bluetooth::is_set_up(adapter.index)? {
            if interrupt.is_set() {
                return Ok(());
            }
            if clock::now() > deadline {
                let what = format!("hci{} was not set up within {} s", adapter.index, PATIENCE.as_secs());
                return Err(Error::Unavailable(format!("{what}: `dmesg | grep -i bluetooth` may tell why")));
            }
            clock::sleep(Duration::from_millis(5));
        }
        let parameters = bluetooth::ConnectionParameters {
            interval_ns: scenario.ci,
            latency: scenario.latency,
            timeout_ns: scenario.timeout(),
        };
        bluetooth::set_connection_parameters(adapter.index, parameters)?;
    }
    Ok(())
}
