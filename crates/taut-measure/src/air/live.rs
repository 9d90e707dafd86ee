//! The other driver of `taut-air`'s machines: real time, and kernels for the hosts.

use rustix::event::{Timespec, poll};
use taut_air::hci::H4Error;
use taut_air::{Air, Observer, Role, Scenario, ScenarioError};
use taut_link::bluetooth::{self, DeviceAddress, VirtualAdapter};
use taut_link::{Endpoint, Error, Listener, clock};
use taut_time::{Duration, Instant};

use super::host::{FromHost, Host, StreamHost};
use crate::Interrupt;
use taut_record::stats::Distribution;

/// Controllers around one simulated medium, each an adapter of this kernel as long as this value
/// lives, or one of whoever connects to it.
pub struct LiveRadio {
    air: Air,
    hosts: Vec<Host>,
    /// A host had its turn and may have more.
    more: bool,
    /// From the time when something was to happen to the time when the thread came to it.
    lateness: Distribution,
    to_hosts: u64,
    from_hosts: u64,
    lost: u64,
}

/// A controller that was made.
#[derive(Clone, Debug)]
pub struct LiveController {
    /// Its public device address.
    pub address: DeviceAddress,
    /// The side of the scenario that it is made as.
    pub side: Role,
    /// Where its host is.
    pub place: HostPlace,
}

/// Where the host of a controller is.
#[derive(Clone, Debug)]
pub enum HostPlace {
    /// This kernel, which has it as the adapter of this number: 0 is hci0.
    Adapter(u16),
    /// Whoever connects there and speaks H4.
    Stream(Endpoint),
}

/// What happened between a controller and a host that connects to it.
#[derive(Clone, Debug)]
pub struct HostNotice {
    /// Number of the controller: 0 is the central.
    pub number: usize,
    /// What it was.
    pub what: HostChange,
}

/// What can happen there.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HostChange {
    /// A host connected.
    #[error("a host has come")]
    Came,
    /// The host is gone, and the controller with it: until the next one comes it is off.
    #[error("its host is gone: {0}")]
    Gone(String),
    /// The host's bytes can't be followed. It was told so (Hardware Error), and has to reset the controller.
    #[error("what its host sends can't be followed until it resets the controller: {0}")]
    Lost(H4Error),
}

/// What a radio has done.
#[derive(Clone, Debug)]
pub struct LiveFigures {
    /// How late the driver came to what was due, in ns. The medium keeps its times regardless;
    /// hosts get packets so much later.
    pub lateness: Distribution,
    /// HCI packets handed to hosts.
    pub to_hosts: u64,
    /// HCI packets taken from hosts.
    pub from_hosts: u64,
    /// HCI packets that no host took, because its adapter was down or nobody was there.
    pub lost: u64,
    /// ACL packets of hosts that were lost, as they sent more of them than their controllers have buffers.
    pub overflowed: u64,
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
const LOOK_PERIOD: Duration = Duration::from_millis(200);
/// HCI packets taken from one host before others get their turn.
const TURN: usize = 16;

impl LiveRadio {
    /// Makes the controllers of a scenario: the central's first, then its peripherals'. One of a
    /// number in `streams` takes its host there; the others become adapters of this kernel.
    ///
    /// # Errors
    /// When the scenario can't be, has no controller of such a number, or the kernel offers no virtual controllers.
    pub fn start(scenario: &Scenario, seed: u64, streams: Vec<(usize, Listener)>) -> Result<Self, LiveError> {
        let air = Air::new(scenario, seed, clock::now())?;
        let mut hosts: Vec<Option<Host>> = air.controllers().map(|_| None).collect();
        for (number, listener) in streams {
            let host = StreamHost::new(listener, air.acl_limit(number))?;
            let there_are = hosts.len() - 1;
            let place = hosts.get_mut(number).ok_or_else(|| {
                Error::Input(format!(
                    "there is no peripheral {number}: the scenario has {there_are} (its parameter `links`)"
                ))
            })?;
            *place = Some(Host::Stream(Box::new(host)));
        }
        let all = hosts.into_iter().map(|host| host.map_or_else(|| VirtualAdapter::create().map(Host::Kernel), Ok));
        let hosts = all.collect::<Result<_, _>>()?;
        Ok(Self { air, hosts, more: false, lateness: Distribution::new(), to_hosts: 0, from_hosts: 0, lost: 0 })
    }

    /// The controllers, in that order.
    pub fn controllers(&self) -> Vec<LiveController> {
        let made = self.air.controllers().zip(&self.hosts);
        made.map(|((address, side), host)| LiveController {
            address: DeviceAddress::from_wire(address),
            side,
            place: match host {
                Host::Kernel(adapter) => HostPlace::Adapter(adapter.index()),
                Host::Stream(host) => HostPlace::Stream(host.endpoint().clone()),
            },
        })
        .collect()
    }

    /// Runs until the user wants to stop. A radio waits for nobody: the thread gets a real-time
    /// priority if it may. What happens to hosts that connect is told to `notice`.
    ///
    /// # Errors
    /// When the kernel's device fails.
    pub fn run(
        &mut self,
        interrupt: &Interrupt,
        observer: &mut impl Observer,
        notice: &mut impl FnMut(HostNotice),
    ) -> Result<(), Error> {
        clock::set_timer_slack(Duration::from_nanos(1));
        // Without the right to it the adapters work just as well, if later.
        let _ = clock::set_fifo_scheduling();
        while !interrupt.is_set() {
            self.serve(observer, notice)?;
            self.wait()?;
        }
        Ok(())
    }

    /// Does what is due, and takes what hosts have for us.
    fn serve(&mut self, observer: &mut impl Observer, notice: &mut impl FnMut(HostNotice)) -> Result<(), Error> {
        let now = clock::now();
        if let Some(due) = self.air.deadline().filter(|due| *due <= now) {
            self.lateness.record(now.saturating_since(due));
        }
        self.deliver(now, observer)?;
        self.more = false;
        for number in 0..self.hosts.len() {
            let mut turn = 0;
            while let Some(heard) = self.hosts[number].read()? {
                self.hear(number, heard, observer, notice);
                turn += 1;
                if turn == TURN {
                    self.more = true;
                    break;
                }
            }
        }
        self.deliver(clock::now(), observer)
    }

    fn hear(
        &mut self,
        number: usize,
        heard: FromHost,
        observer: &mut impl Observer,
        notice: &mut impl FnMut(HostNotice),
    ) {
        let now = clock::now();
        let what = match heard {
            FromHost::Packet(packet) => {
                self.from_hosts += 1;
                return self.air.handle(now, number, packet, observer);
            }
            FromHost::Came => HostChange::Came,
            FromHost::Gone(why) => {
                self.air.power_cycle(now, number, observer);
                HostChange::Gone(why)
            }
            FromHost::Lost(error) => {
                self.air.lose_synchronisation(now, number, observer);
                HostChange::Lost(error)
            }
        };
        notice(HostNotice { number, what });
    }

    fn deliver(&mut self, now: Instant, observer: &mut impl Observer) -> Result<(), Error> {
        while let Some(packet) = self.air.poll(now, observer) {
            self.to_hosts += 1;
            if !self.hosts[packet.number].write(&packet.packet)? {
                self.lost += 1;
            }
        }
        Ok(())
    }

    fn wait(&self) -> Result<(), Error> {
        if self.more {
            return Ok(());
        }
        let now = clock::now();
        let left = self.air.deadline().map_or(LOOK_PERIOD, |due| due.saturating_since(now).min(LOOK_PERIOD));
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut fds: Vec<_> = self.hosts.iter().map(Host::poll_fd).collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Error::Host { what: "wait for packets of hosts".to_owned(), error: error.into() }),
        }
    }

    /// What it has done so far.
    pub fn figures(&self) -> LiveFigures {
        LiveFigures {
            lateness: self.lateness.clone(),
            to_hosts: self.to_hosts,
            from_hosts: self.from_hosts,
            lost: self.lost,
            overflowed: self.air.overflows(),
        }
    }
}

/// Waits until the kernel has set up the adapters of these numbers, and gives them the connection
/// parameters of the scenario, if there is one, for the links that they will make. To be called
/// from another thread than the radio's: the kernel talks to the controllers meanwhile.
///
/// # Errors
/// When the kernel doesn't set them up in time, or the parameters can't be given (debugfs isn't mounted, or no right).
pub fn prepare(adapters: &[u16], scenario: Option<&Scenario>, interrupt: &Interrupt) -> Result<(), Error> {
    const PATIENCE: Duration = Duration::from_secs(20);
    let deadline = clock::now() + PATIENCE;
    for &index in adapters {
        while !bluetooth::is_set_up(index)? {
            if interrupt.is_set() {
                return Ok(());
            }
            if clock::now() > deadline {
                let what = format!("hci{index} was not set up within {} s", PATIENCE.as_secs());
                return Err(Error::Unavailable(format!("{what}: `dmesg | grep -i bluetooth` may tell why")));
            }
            clock::sleep(Duration::from_millis(5));
        }
        let Some(scenario) = scenario else { continue };
        let parameters = bluetooth::ConnectionParameters {
            interval_ns: scenario.ci,
            latency: scenario.latency,
            timeout_ns: scenario.timeout(),
        };
        bluetooth::set_connection_parameters(index, parameters)?;
    }
    Ok(())
}
