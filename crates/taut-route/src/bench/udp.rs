//! How long it takes from a sensor's datagram to the notification of the last sink: the published experiment's
//! three ways (open, read, write, close for each event; everything kept open; in the kernel) over UDP.
//!
//! The sensor is a thread in a network namespace of its own, at one end of a virtual cable; what is
//! measured is at the other. The sensor spins on its sockets in `SCHED_FIFO`, so its own waking up is
//! in no figure, nor what other processes do on its processor; its sending and receiving is in all of
//! them. That is the same for all paths. It matters to those in the kernel, since on a virtual cable
//! they run on the sensor's processor, behind its system call, where a device would interrupt.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use taut_link::{Error, Result};

use crate::bpf::{AttachPoint, Attachment, Hop, KernelRoute, KernelSpec, KernelTarget, Own};
use crate::condition::{Layout, Program, Verdict};
use crate::net::namespace::Namespace;
use crate::net::netlink::{Netlink, NextHop};
use crate::route::Source;
use crate::run::set_fifo;

const SENSOR: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);
const ROUTE: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);
const SOURCE: SocketAddrV4 = SocketAddrV4::new(ROUTE, 9000);
const FIRST_SINK: u16 = 7000;
/// The condition of the published experiment.
pub const WHEN: &str = "value == 0";

/// A condition of 20 terms, for [`Bench::starts`].
pub const TERMS: &str = "u8[0] < 3 && u8[1] != 7 && u16be[2] > 9 && u16be[4] >= 80 && u8[6] <= 200 && u8[7] == 1 && i16be[8] > -40 \
                         && i16be[10] < 85 && (u8[12] & 15) == 2 && u8[13] * 3 > 20 && u8[14] / 2 < 90 && len > 8 && count > 3 \
                         && passed < 9000 && since_last > 5ms && value != previous && rise(u8[15] > 4) \
                         && hysteresis(i16be[2], -5, 5) && delta(u8[3]) < 40 && limit(true, 10, 1s)";

/// How long it took to set a program to work, in ns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Start {
    /// From the text to the program in the kernel, verified and compiled, with its sink's address.
    pub loaded_ns: u64,
    /// The same until it is attached to the device, for which the kernel waits until all processors
    /// have seen the change.
    pub at_work_ns: u64,
    /// The same until the sending of the first datagram that the program took, of those that came
    /// all the while, one every
    /// [`EVERY`]: it is at work before the kernel has done waiting. None where sensor and route share a processor.
    pub first_event_ns: Option<u64>,
}

/// From one datagram to the next while a program is started.
pub const EVERY: Duration = Duration::from_micros(20);
/// How long the first of them may take after the program is at work.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Priority of the sensor, which spins.
const SENSOR_FIFO: u8 = 50;

/// A way from the sensor to the sinks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Path {
    /// Sockets made and closed for each event.
    Naive,
    /// A thread that sleeps in the receiving call, with all sockets open.
    KeptOpen,
    /// A program in the kernel.
    Kernel(AttachPoint),
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Events of one measurement, the first tenth of which is not counted.
    pub events: usize,
    /// Time from one notification to the next event.
    pub gap: Duration,
    /// After which silence an event counts as lost.
    pub timeout: Duration,
    /// Processor of the sensor.
    pub sensor_core: Option<usize>,
    /// Processor of the thread under test.
    pub route_core: Option<usize>,
    /// `SCHED_FIFO` priority of the thread under test.
    pub fifo: Option<u8>,
}

/// What was measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// From the sensor's sending to the last notification, in ns, event by event.
    pub edge_to_edge_ns: Vec<u64>,
    /// Events sent.
    pub sent: u64,
    /// Events without a notification from each sink in time.
    pub lost: u64,
    /// `SCHED_FIFO` priority of the sensor; none without the right to it, and where it shares a
    /// processor with the route.
    pub sensor_fifo: Option<u8>,
}

/// A cable between two network namespaces.
#[derive(Debug)]
struct Cable {
    sensor: Namespace,
    route: Namespace,
    hop: Hop,
}

/// Cables for the paths.
#[derive(Debug)]
pub struct Bench {
    /// As devices are made.
    plain: Cable,
    /// With a program in the driver at the sensor's end, as XDP in that of a veth needs it at the other one.
    native: Cable,
    _program: Attachment,
}

impl Path {
    /// Its name: that of the published experiment, or of the place in the kernel.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::KeptOpen => "kept-open",
            Self::Kernel(AttachPoint::XdpNative) => "xdp",
            Self::Kernel(AttachPoint::XdpGeneric) => "xdp-generic",
            Self::Kernel(AttachPoint::Tc) => "tc",
        }
    }

    /// The paths for that many sinks.
    pub const fn all(sinks: usize) -> &'static [Self] {
        const SEVERAL: &[Path] = &[Path::Naive, Path::KeptOpen, Path::Kernel(AttachPoint::Tc)];
        const ONE: &[Path] = &[
            Path::Naive,
            Path::KeptOpen,
            Path::Kernel(AttachPoint::XdpNative),
            Path::Kernel(AttachPoint::XdpGeneric),
            Path::Kernel(AttachPoint::Tc),
        ];
        if sinks == 1 { ONE } else { SEVERAL }
    }
}

fn failed(what: &str) -> impl Fn(io::Error) -> Error {
    move |error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            Error::Unavailable(format!("{what}: {error} (network namespaces and bpf(2) need root)"))
        }
        _ => Error::Host { what: what.to_owned(), error },
    }
}

/// A route on the device of the cable's end.
fn spec_of(hop: &Hop, source: SocketAddrV4, sinks: Vec<(KernelTarget, Option<usize>)>) -> KernelSpec {
    KernelSpec { own: Own { ethernet: hop.own, broadcast: None }, ..KernelSpec::new(source.into(), sinks) }
}

fn program() -> Result<Program> {
    let layout = Source::Udp(SOURCE.into()).layout();
    parse(&layout)
}

fn parse(layout: &Layout) -> Result<Program> {
    Program::parse(WHEN, &[], layout).map_err(|error| Error::Input(error.to_string()))
}

impl Cable {
    fn lay() -> io::Result<Self> {
        let (sensor, route) = (Namespace::create()?, Namespace::create()?);
        route.inside(|| Netlink::open()?.add_veth("route0", "sensor0", sensor.as_fd()))?;
        let end = |namespace: &Namespace, name: &str, own: Ipv4Addr| {
            namespace.inside(|| {
                let netlink = Netlink::open()?;
                let device = netlink.device_named(name)?;
                netlink.set_up(device.index, &[own.into()])?;
                let address = device.address.ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
                Ok((device.index, address))
            })
        };
        let (sensor_index, sensor_address) = end(&sensor, "sensor0", SENSOR)?;
        let (route_index, route_address) = end(&route, "route0", ROUTE)?;
        // Known for good, so that no question for an address falls into a measurement.
        sensor.inside(|| {
            Netlink::open()?.set_neighbour(NextHop { ifindex: sensor_index, next: ROUTE.into() }, route_address)
        })?;
        let way = NextHop { ifindex: route_index, next: SENSOR.into() };
        route.inside(|| Netlink::open()?.set_neighbour(way, sensor_address))?;
        let hop = Hop { ifindex: route_index, own: route_address, next: sensor_address };
        Ok(Self { sensor, route, hop })
    }
}

impl Bench {
    /// Lays the cables.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without the right to make network namespaces and devices.
    pub fn set_up() -> Result<Self> {
        let lay = || Cable::lay().map_err(failed("lay a virtual cable between network namespaces"));
        let (plain, native) = (lay()?, lay()?);
        let attach = || {
            let index = Netlink::open()?.device_named("sensor0")?.index;
            Ok(Attachment::leave_alone(index))
        };
        let program = native.sensor.inside(attach).map_err(failed("find the sensor's device"))?;
        let program = program.map_err(|error| Error::Unavailable(error.to_string()))?;
        Ok(Self { plain, native, _program: program })
    }

    /// Whether this kernel takes programs there.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: what it says instead.
    pub fn try_place(&self, place: AttachPoint) -> Result<()> {
        let cable = self.cable(Path::Kernel(place));
        let attempt = || {
            let program = program().map_err(io::Error::other)?;
            let spec = spec_of(&cable.hop, SOURCE, vec![(KernelTarget::Reply, None)]);
            let route = KernelRoute::load(&program, spec, place, "taut_bench").map_err(io::Error::other)?;
            Attachment::attach(cable.hop.ifindex, place, &[&route]).map_err(io::Error::other).map(drop)
        };
        let hint = if place == AttachPoint::Tc { " (tcx needs Linux 6.6)" } else { "" };
        cable.route.inside(attempt).map_err(|error| Error::Unavailable(format!("{}: {error}{hint}", place.name())))
    }

    const fn cable(&self, path: Path) -> &Cable {
        if matches!(path, Path::Kernel(AttachPoint::XdpNative)) { &self.native } else { &self.plain }
    }

    /// How long it takes from the text of a condition ([`TERMS`]) to the program at work on a device, sample by sample.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn starts(&self, place: AttachPoint, samples: usize, plan: &Plan) -> Result<Vec<Start>> {
        (0..samples).map(|_| self.start(place, plan)).collect::<io::Result<_>>().map_err(failed("start a program"))
    }

    /// Twice: with nothing else going on, and with datagrams that come all the while.
    fn start(&self, place: AttachPoint, plan: &Plan) -> io::Result<Start> {
        let Cable { sensor, route, hop } = &self.plain;
        let alone = route.inside(|| {
            pin(plan.route_core)?;
            Started::now(*hop, place)
        })?;
        let start = Start { loaded_ns: alone.loaded_ns, at_work_ns: alone.at_work_ns, first_event_ns: None };
        drop(alone);
        if plan.sensor_core.is_none() {
            return Ok(start);
        }
        route.inside(|| {
            pin(plan.route_core)?;
            // Takes what comes before the program does, or the sensor were told that nobody is there.
            let _drain = UdpSocket::bind(SOURCE)?;
            let stop = AtomicBool::new(false);
            thread::scope(|scope| {
                let (ready, sending) = sync_channel(1);
                let stop = &stop;
                let sensor = scope.spawn(move || sensor.inside(move || send_steadily(plan, stop, &ready)));
                // An end without a beginning is an error, which the sensor returns.
                let _ = sending.recv();
                let began = Instant::now();
                let started = Started::now(*hop, place).and_then(Started::once_taken);
                stop.store(true, Ordering::Relaxed);
                let sent = sensor.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))?;
                // From the first one on it took all.
                let taken = started?.route.counters()?.count;
                let first = usize::try_from(taken).ok().and_then(|taken| sent.iter().rev().nth(taken.checked_sub(1)?));
                let first = first.ok_or_else(|| io::Error::other("no datagram came to the program"))?;
                Ok(Start { first_event_ns: Some(nanos(first.saturating_duration_since(began))), ..start })
            })
        })
    }

    /// Measures one path once, with new sockets or a new program. In the kernel, so many other
    /// routes are at work on the same device.
    ///
    /// # Errors
    /// The path can't be set up here.
    pub fn measure(&self, path: Path, sinks: usize, others: u16, plan: &Plan) -> Result<Measured> {
        let cable = self.cable(path);
        match path {
            Path::Kernel(place) => {
                let target = |sink| KernelTarget::To(sink_address(sink).into());
                let spec = spec_of(&cable.hop, SOURCE, (0..sinks).map(|i| (target(i), None)).collect());
                let load = |spec| {
                    KernelRoute::load(&program()?, spec, place, "taut_bench")
                        .map_err(|error| Error::Unavailable(error.to_string()))
                };
                let mut route = load(spec)?;
                for sink in 0..sinks {
                    route.set_hop(sink, Some(cable.hop)).map_err(failed("tell the program its sinks"))?;
                }
                let other = |index: u16| {
                    let source = SocketAddrV4::new(ROUTE, SOURCE.port() + 1 + index);
                    load(spec_of(&cable.hop, source, vec![(KernelTarget::Reply, None)]))
                };
                let others: Vec<KernelRoute> = (0..others).map(other).collect::<Result<_>>()?;
                let all: Vec<&KernelRoute> = others.iter().chain([&route]).collect();
                let attach = || Attachment::attach(cable.hop.ifindex, place, &all).map_err(io::Error::other);
                let _attached = cable.route.inside(attach).map_err(failed("attach the program"))?;
                sense(cable, sinks, plan)
            }
            Path::Naive | Path::KeptOpen => {
                let stop = AtomicBool::new(false);
                thread::scope(|scope| {
                    let (ready, began) = sync_channel(1);
                    let stop = &stop;
                    // Told once: later events find the channel full.
                    let began_once = move || {
                        let _ = ready.try_send(());
                    };
                    let work = move || {
                        cable.route.inside(|| {
                            pin(plan.route_core)?;
                            plan.fifo.map_or(Ok(()), set_fifo)?;
                            match path {
                                Path::Naive => naive(sinks, stop, &began_once),
                                _ => kept_open(sinks, stop, &began_once),
                            }
                        })
                    };
                    let worker = scope.spawn(work);
                    // An end without a beginning is an error, which the worker returns.
                    let sensed = began.recv().ok().map(|()| sense(cable, sinks, plan));
                    stop.store(true, Ordering::Relaxed);
                    let worked = worker.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause));
                    worked.map_err(failed("run the path under test"))?;
                    sensed.unwrap_or_else(|| Ok(Measured::default()))
                })
            }
        }
    }
}

/// A program at work.
struct Started {
    route: KernelRoute,
    _attached: Attachment,
    loaded_ns: u64,
    at_work_ns: u64,
}

impl Started {
    /// From the text on.
    fn now(hop: Hop, place: AttachPoint) -> io::Result<Self> {
        let layout = Source::Udp(SOURCE.into()).layout();
        let began = Instant::now();
        let program = Program::parse(TERMS, &[], &layout).map_err(io::Error::other)?;
        let spec = spec_of(&hop, SOURCE, vec![(KernelTarget::Reply, None)]);
        let mut route = KernelRoute::load(&program, spec, place, "taut_bench").map_err(io::Error::other)?;
        route.set_hop(0, Some(hop))?;
        let loaded_ns = nanos(began.elapsed());
        let attached = Attachment::attach(hop.ifindex, place, &[&route]).map_err(io::Error::other)?;
        Ok(Self { route, _attached: attached, loaded_ns, at_work_ns: nanos(began.elapsed()) })
    }

    /// Waits for the first datagram, if it has not come yet.
    fn once_taken(self) -> io::Result<Self> {
        let began = Instant::now();
        while self.route.counters()?.count == 0 && began.elapsed() < LONGEST_WAIT {
            thread::sleep(EVERY);
        }
        Ok(self)
    }
}

/// Sends a datagram every [`EVERY`] until it is to stop; when each was sent.
fn send_steadily(plan: &Plan, stop: &AtomicBool, ready: &SyncSender<()>) -> io::Result<Vec<Instant>> {
    pin(plan.sensor_core)?;
    first_in_line(plan);
    let socket = UdpSocket::bind((SENSOR, 0))?;
    socket.connect(SOURCE)?;
    let mut sent = Vec::with_capacity(10_000);
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        socket.send(&[0; 16])?;
        sent.push(now);
        // Told once: later ones find the channel full.
        let _ = ready.try_send(());
        while now.elapsed() < EVERY {
            spin(plan);
        }
    }
    Ok(sent)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn sink_address(index: usize) -> SocketAddrV4 {
    SocketAddrV4::new(SENSOR, FIRST_SINK + index as u16)
}

fn pin(core: Option<usize>) -> io::Result<()> {
    let Some(core) = core.filter(|core| *core < CpuSet::MAX_CPU) else { return Ok(()) };
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// How long a thread under test waits for a datagram before it looks whether it is to end.
const LOOK_UP: Duration = Duration::from_millis(50);

fn is_quiet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// open, read, write, close: all sockets are made for each event.
fn naive(sinks: usize, stop: &AtomicBool, ready: impl Fn()) -> io::Result<()> {
    let program = program().map_err(io::Error::other)?;
    let (mut memory, mut outputs, mut buffer) = (program.memory(), Vec::new(), [0; 2048]);
    while !stop.load(Ordering::Relaxed) {
        let socket = UdpSocket::bind(SOURCE)?;
        socket.set_read_timeout(Some(LOOK_UP))?;
        ready();
        let length = match socket.recv(&mut buffer) {
            Err(error) if is_quiet(&error) => continue,
            length => length?,
        };
        let now = now_ns();
        if program.handle(&mut memory, now, &buffer[..length], &mut outputs) == Verdict::Passed {
            for sink in 0..sinks {
                UdpSocket::bind((ROUTE, 0))?.send_to(&buffer[..length], sink_address(sink))?;
            }
        }
    }
    Ok(())
}

/// The same with all sockets kept open: what the user path does.
fn kept_open(sinks: usize, stop: &AtomicBool, ready: impl Fn()) -> io::Result<()> {
    let program = program().map_err(io::Error::other)?;
    let (mut memory, mut outputs, mut buffer) = (program.memory(), Vec::new(), [0; 2048]);
    let socket = UdpSocket::bind(SOURCE)?;
    socket.set_read_timeout(Some(LOOK_UP))?;
    ready();
    while !stop.load(Ordering::Relaxed) {
        let length = match socket.recv(&mut buffer) {
            Err(error) if is_quiet(&error) => continue,
            length => length?,
        };
        let now = now_ns();
        if program.handle(&mut memory, now, &buffer[..length], &mut outputs) == Verdict::Passed {
            for sink in 0..sinks {
                socket.send_to(&buffer[..length], sink_address(sink))?;
            }
        }
    }
    Ok(())
}

fn now_ns() -> i64 {
    taut_link::clock::now().as_nanos().cast_signed()
}

/// With one processor for all, whoever waits for another has to let it run.
fn spin(plan: &Plan) {
    if plan.sensor_core.is_none() {
        thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// Puts the sensor before all that would preempt it. Not where it has to let others run, and not where that is refused.
fn first_in_line(plan: &Plan) -> Option<u8> {
    plan.sensor_core.filter(|_| set_fifo(SENSOR_FIFO).is_ok()).map(|_| SENSOR_FIFO)
}

/// The sensor: sends, and spins until each sink has been notified.
fn sense(cable: &Cable, sinks: usize, plan: &Plan) -> Result<Measured> {
    let run = || {
        pin(plan.sensor_core)?;
        let socket = UdpSocket::bind((SENSOR, 0))?;
        socket.connect(SOURCE)?;
        let notified: Vec<UdpSocket> =
            (0..sinks).map(|sink| UdpSocket::bind(sink_address(sink))).collect::<io::Result<_>>()?;
        for socket in &notified {
            socket.set_nonblocking(true)?;
        }
        let warm_up = plan.events / 10;
        let mut measured = Measured { sensor_fifo: first_in_line(plan), ..Measured::default() };
        let mut buffer = [0; 64];
        // Zero, as the condition wants it, and a number by which a late notification is told from the one waited for.
        let mut payload = [0; 16];
        for event in 0..warm_up + plan.events {
            payload[8..].copy_from_slice(&(event as u64).to_be_bytes());
            let began = Instant::now();
            match socket.send(&payload) {
                // What became of an earlier one: this one has not been sent.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => socket.send(&payload)?,
                sent => sent?,
            };
            let arrived = notified.iter().all(|socket| {
                loop {
                    match socket.recv(&mut buffer) {
                        Ok(length) if buffer[..length] == payload => return true,
                        // A port that nobody has open at the moment is told of by ICMP.
                        Ok(_) | Err(_) if began.elapsed() > plan.timeout => return false,
                        Ok(_) | Err(_) => spin(plan),
                    }
                }
            });
            let took = began.elapsed();
            if event >= warm_up {
                measured.sent += 1;
                if arrived {
                    measured.edge_to_edge_ns.push(nanos(took));
                } else {
                    measured.lost += 1;
                }
            }
            let done = Instant::now();
            while done.elapsed() < plan.gap {
                spin(plan);
            }
        }
        Ok(measured)
    };
    cable.sensor.inside(run).map_err(failed("run the sensor"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan {
        events: 50,
        gap: Duration::from_micros(200),
        timeout: Duration::from_millis(200),
        sensor_core: None,
        route_core: None,
        fifo: None,
    };

    #[test]
    fn every_path_notifies_every_sink() {
        let bench = match Bench::set_up() {
            Ok(bench) => bench,
            Err(error) => return crate::skip::note("bench::every_path_notifies_every_sink", &error.to_string()),
        };
        for (sinks, others) in [(1, 0), (4, 0), (1, 5)] {
            for &path in Path::all(sinks) {
                let measured =
                    bench.measure(path, sinks, others, &PLAN).unwrap_or_else(|error| panic!("{path:?}: {error}"));
                assert_eq!(measured.sent, 50, "{path:?}");
                assert_eq!(measured.lost + measured.edge_to_edge_ns.len() as u64, 50, "{path:?}");
                // Sockets that are closed between events may miss some.
                let most = if path == Path::Naive { 25 } else { 0 };
                assert!(measured.lost <= most, "{path:?} with {sinks} sinks lost {}", measured.lost);
            }
        }
    }

    #[test]
    fn a_program_of_20_terms_is_started() {
        let layout = Source::Udp(SOURCE.into()).layout();
        assert_eq!(TERMS.split("&&").count(), 20);
        assert!(Program::parse(TERMS, &[], &layout).is_ok());
        let bench = match Bench::set_up() {
            Ok(bench) => bench,
            Err(error) => return crate::skip::note("bench::a_program_of_20_terms_is_started", &error.to_string()),
        };
        let two = thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
        let plan = Plan { sensor_core: two.then_some(0), route_core: two.then_some(1), ..PLAN };
        for place in [AttachPoint::XdpGeneric, AttachPoint::Tc] {
            let starts = bench.starts(place, 3, &plan).unwrap();
            assert_eq!(starts.len(), 3);
            for start in starts {
                assert!(start.loaded_ns < start.at_work_ns, "{start:?}");
                assert_eq!(start.first_event_ns.is_some(), two, "{start:?}");
            }
        }
    }
}
