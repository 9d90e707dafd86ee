//! A path between two network namespaces, with delay, rate, and drops of one's choice, over routers in namespaces of
//! their own if wanted. What passes the two ends of each way is kept as two captures.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![expect(unsafe_code, reason = "rustix has no wrapper for the request that makes a TUN device")]

pub(crate) mod episodes;
pub(crate) mod traffic;

use std::collections::VecDeque;
use std::fs::File;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::thread::LinkNameSpaceType;

pub(crate) const SENDER: &str = "10.99.0.1";
pub(crate) const RECEIVER: &str = "10.99.0.2";

/// What the path does to packets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conditions {
    /// One way.
    pub(crate) delay: Duration,
    /// Towards the receiver, in bits per second.
    pub(crate) rate: Option<u64>,
    /// What may wait at that rate.
    pub(crate) queue_bytes: u64,
    /// Numbers of the segments with data towards the receiver that are lost, from 1.
    pub(crate) lost: Vec<u64>,
}

impl Conditions {
    /// How long a packet to the receiver takes, at least and at most, in nanoseconds.
    pub(crate) fn way_ns(&self) -> RangeInclusive<i64> {
        let queue = self.rate.map_or(0, |rate| self.queue_bytes * 8_000_000_000 / rate);
        let least = self.delay.as_nanos() as i64;
        least..=least + queue as i64
    }
}

/// Namespaces with a path between them; all of it goes away with this.
pub(crate) struct Path {
    /// The sender's, the receiver's, and those of routers.
    names: Vec<String>,
    stop: Arc<AtomicBool>,
    drivers: Vec<JoinHandle<[Vec<u8>; 2]>>,
}

impl Path {
    pub(crate) fn start(conditions: &Conditions) -> Result<Self, String> {
        let ends = [(0, "tun0", Some(format!("{SENDER}/24"))), (1, "tun0", Some(format!("{RECEIVER}/24")))];
        Self::with_ends(0)?.join(conditions, ends)
    }

    /// By way of a router, with a way on either side of it.
    pub(crate) fn start_routed(near: &Conditions, far: &Conditions) -> Result<Self, String> {
        let [sender, receiver] = [SENDER, RECEIVER].map(|address| Some(format!("{address}/32")));
        let path = Self::with_ends(1)?.join(near, [(0, "tun0", sender), (2, "tun0", None)])?;
        let path = path.join(far, [(2, "tun1", None), (1, "tun0", receiver)])?;
        for name in &path.names[..2] {
            ip(&["-n", name, "route", "add", "default", "dev", "tun0"])?;
        }
        let router = &path.names[2];
        ip(&["-n", router, "route", "add", SENDER, "dev", "tun0"])?;
        ip(&["-n", router, "route", "add", RECEIVER, "dev", "tun1"])?;
        inside(router, || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1"))
            .map_err(|error| format!("no forwarding: {error}"))?;
        Ok(path)
    }

    /// Two ends and so many routers, not connected.
    fn with_ends(routers: usize) -> Result<Self, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let ends = ["a", "b", "r"].iter().take(2 + routers);
        let names = ends.map(|end| format!("taut-explain-{}-{number}{end}", std::process::id())).collect();
        let path = Self { names, stop: Arc::default(), drivers: Vec::new() };
        for name in &path.names {
            ip(&["netns", "add", name])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        Ok(path)
    }

    /// Puts a way between devices of two namespaces, which get these addresses.
    fn join(mut self, conditions: &Conditions, ends: [(usize, &str, Option<String>); 2]) -> Result<Self, String> {
        let devices = ends.each_ref().map(|(end, name, _)| inside(&self.names[*end], || device(name)));
        let [Ok(near), Ok(far)] = devices else { return Err(format!("no TUN device: {devices:?}")) };
        for (end, name, address) in &ends {
            if let Some(address) = address {
                ip(&["-n", &self.names[*end], "address", "add", address, "dev", name])?;
            }
        }
        for (end, name, _) in &ends {
            ip(&["-n", &self.names[*end], "link", "set", name, "up", "mtu", "1500"])?;
        }
        let (stop, conditions) = (Arc::clone(&self.stop), conditions.clone());
        self.drivers.push(thread::spawn(move || Driver::new([near, far], conditions).run(&stop)));
        Ok(self)
    }

    /// Runs something on a thread inside the sender's (0) or the receiver's (1) namespace.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        end: usize,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let name = self.names[end].clone();
        thread::spawn(move || inside(&name, run))
    }

    /// The sender's (0) or the receiver's (1) namespace.
    pub(crate) fn name(&self, end: usize) -> &str {
        &self.names[end]
    }

    /// A program that will run inside the sender's (0) or the receiver's (1) namespace.
    pub(crate) fn command(&self, end: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[end], program]);
        command
    }

    /// Ends the path; the captures at the sender and at the receiver.
    pub(crate) fn finish(self) -> [Vec<u8>; 2] {
        let mut captures = self.finish_all().into_iter();
        [captures.next().unwrap(), captures.next_back().unwrap()]
    }

    /// The same, with what passed on both sides of each router, from the sender on.
    pub(crate) fn finish_all(mut self) -> Vec<Vec<u8>> {
        self.stop.store(true, Ordering::Relaxed);
        std::mem::take(&mut self.drivers).into_iter().flat_map(|driver| driver.join().unwrap()).collect()
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.names.iter().for_each(|name| drop(ip(&["netns", "del", name])));
    }
}

pub(crate) fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output().map_err(|error| format!("ip: {error}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("ip {}: {}", arguments.join(" "), error.trim())) }
}

/// Calls something in a namespace, on a thread of its own, so that the caller stays where it is.
pub(crate) fn inside<T: Send>(name: &str, run: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let inner = scope.spawn(|| {
            let namespace = File::open(format!("/run/netns/{name}")).unwrap();
            rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            run()
        });
        inner.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Lets this thread, and those that it makes, run before all others, where that is allowed: nothing of a path and its
/// programs is then late because the machine is busy. A single processor they would have for themselves, until the
/// kernel stops them for a while (`sched_rt_runtime_us`).
pub(crate) fn before_others() {
    if thread::available_parallelism().is_ok_and(|processors| processors.get() > 1) {
        let _ = taut_link::clock::set_fifo_scheduling();
    }
}

/// `struct ifreq` (netdevice(7)), as large as on any architecture.
#[repr(C, align(8))]
struct InterfaceRequest {
    name: [u8; 16],
    flags: i16,
    rest: [u8; 22],
}

/// linux/if_tun.h.
const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
const IFF_TUN: i16 = 1;
const IFF_NO_PI: i16 = 0x1000;

pub(crate) fn device(name: &str) -> Result<OwnedFd, String> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device =
        rustix::fs::open("/dev/net/tun", flags, Mode::empty()).map_err(|error| format!("/dev/net/tun: {error}"))?;
    let mut request = InterfaceRequest { name: [0; 16], flags: IFF_TUN | IFF_NO_PI, rest: [0; 22] };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the request reads and writes one struct ifreq, which the live `request` is as large as.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), TUNSETIFF, std::ptr::from_mut(&mut request)) };
    if result < 0 { Err(std::io::Error::last_os_error().to_string()) } else { Ok(device) }
}

/// Takes packets from each end and hands them to the other when they are due.
struct Driver {
    devices: [OwnedFd; 2],
    conditions: Conditions,
    waiting: [VecDeque<(Instant, Vec<u8>)>; 2],
    link_free: Instant,
    data_segments: u64,
    captures: [Vec<u8>; 2],
}

/// Bytes kept of each packet.
const KEPT: usize = 128;

impl Driver {
    fn new(devices: [OwnedFd; 2], conditions: Conditions) -> Self {
        let header: Vec<u8> =
            [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, KEPT as u32, 101].iter().flat_map(|word| word.to_le_bytes()).collect();
        Self {
            devices,
            conditions,
            waiting: Default::default(),
            link_free: Instant::now(),
            data_segments: 0,
            captures: [header.clone(), header],
        }
    }

    fn run(mut self, stop: &AtomicBool) -> [Vec<u8>; 2] {
        before_others();
        let mut buffer = vec![0; 2048];
        while !stop.load(Ordering::Relaxed) {
            for end in 0..2 {
                self.deliver(end);
            }
            let next = self.waiting.iter().filter_map(|waiting| waiting.front()).map(|(due, _)| *due).min();
            let wait = next.map_or(Duration::from_millis(50), |due| due.saturating_duration_since(Instant::now()));
            let wait = wait.min(Duration::from_millis(50));
            let wait = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
            let mut fds = [0, 1].map(|end| PollFd::from_borrowed_fd(self.devices[end].as_fd(), PollFlags::IN));
            if !rustix::event::poll(&mut fds, Some(&wait)).is_ok_and(|ready| ready > 0) {
                continue;
            }
            for end in 0..2 {
                for _ in 0..64 {
                    let Ok(length) = rustix::io::read(&self.devices[end], &mut buffer) else { break };
                    self.take(end, &buffer[..length]);
                }
            }
        }
        self.captures
    }

    fn deliver(&mut self, end: usize) {
        let now = Instant::now();
        while let Some((_, packet)) = self.waiting[end].pop_front_if(|(due, _)| *due <= now) {
            self.capture(1 - end, &packet);
            // A device that is down loses it, as a path may.
            let _ = rustix::io::write(&self.devices[1 - end], &packet);
        }
    }

    fn take(&mut self, end: usize, packet: &[u8]) {
        self.capture(end, packet);
        let now = Instant::now();
        let mut leaves = now;
        if end == 0 {
            let has_data = is_data(packet);
            self.data_segments += u64::from(has_data);
            if has_data && self.conditions.lost.contains(&self.data_segments) {
                return;
            }
            if let Some(rate) = self.conditions.rate {
                let begin = self.link_free.max(now);
                let queued = (begin - now).as_nanos() as u64 * rate / 8_000_000_000;
                if queued + packet.len() as u64 > self.conditions.queue_bytes {
                    return;
                }
                leaves = begin + Duration::from_nanos(packet.len() as u64 * 8_000_000_000 / rate);
                self.link_free = leaves;
            }
        }
        self.waiting[end].push_back((leaves + self.conditions.delay, packet.to_vec()));
    }

    fn capture(&mut self, end: usize, packet: &[u8]) {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let kept = packet.len().min(KEPT);
        let words = [at.as_secs() as u32, at.subsec_nanos(), kept as u32, packet.len() as u32];
        self.captures[end].extend(words.iter().flat_map(|word| word.to_le_bytes()));
        self.captures[end].extend(&packet[..kept]);
    }
}

/// TCP over IPv4 with a payload.
fn is_data(packet: &[u8]) -> bool {
    let header = usize::from(packet[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    packet[0] >> 4 == 4 && packet[9] == 6 && total > header + usize::from(packet[header + 12] >> 4) * 4
}
