//! Hosts in namespaces behind one bridge, with ways between some of them that are slow or lose packets.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::Value;
use tempfile::TempDir;

use crate::explain_support::{device, inside, ip};

/// Hosts in namespaces behind one bridge, which goes away with this.
pub(crate) struct Net {
    names: Vec<String>,
    detours: Vec<Detour>,
    directory: TempDir,
}

/// A way of its own between two hosts.
struct Detour {
    stop: Arc<AtomicBool>,
    driver: Option<JoinHandle<()>>,
}

/// What happens to packets on a detour.
#[derive(Clone, Copy, Default)]
struct Way {
    /// One way.
    delay: Duration,
    /// Of so many packets, whichever way they go, one is lost.
    lost: Option<u64>,
}

impl Net {
    pub(crate) fn start(hosts: usize) -> Result<Self, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let mark = format!("mesh-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut net = Self { names: Vec::new(), detours: Vec::new(), directory: tempfile::tempdir().unwrap() };
        let switch = format!("{mark}-switch");
        for name in (0..hosts).map(|host| format!("{mark}-{host}")).chain([switch.clone()]) {
            ip(&["netns", "add", &name])?;
            net.names.push(name);
        }
        ip(&["-n", &switch, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", &switch, "link", "set", "br0", "up"])?;
        for host in 0..hosts {
            let (name, port) = (net.names[host].clone(), format!("p{host}"));
            let link =
                ["link", "add", "eth0", "address", &hardware(host), "netns", &name, "type", "veth", "peer", "name"];
            ip(&[&link[..], &[&port, "netns", &switch]].concat())?;
            ip(&["-n", &switch, "link", "set", &port, "master", "br0", "up"])?;
            ip(&["-n", &name, "address", "add", &format!("{}/24", address(host)), "dev", "eth0"])?;
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
            ip(&["-n", &name, "link", "set", "eth0", "up"])?;
            // All namespaces share one table of neighbours, which 64 hosts would fill; those that stay don't count.
            let others = (0..hosts).filter(|other| *other != host);
            let entries: String = others
                .map(|other| {
                    format!("neigh add {} lladdr {} dev eth0 nud permanent\n", address(other), hardware(other))
                })
                .collect();
            let batch = net.path("neighbours");
            fs::write(&batch, entries).unwrap();
            ip(&["-n", &name, "-batch", batch.to_str().unwrap()])?;
        }
        Ok(net)
    }

    fn detour(&mut self, ends: [usize; 2], way: Way) -> Result<(), String> {
        let devices = ends.map(|end| inside(&self.names[end], || device("tun0")));
        let [Ok(near), Ok(far)] = devices else { return Err(format!("no TUN device: {devices:?}")) };
        for (here, there) in [(ends[0], ends[1]), (ends[1], ends[0])] {
            let name = &self.names[here];
            ip(&["-n", name, "link", "set", "tun0", "up", "mtu", "1500"])?;
            let (to, from) = (format!("{}/32", address(there)), address(here));
            ip(&["-n", name, "route", "add", &to, "dev", "tun0", "src", &from])?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let driver = Some(thread::spawn(move || drive([near, far], way, &stopped)));
        self.detours.push(Detour { stop, driver });
        Ok(())
    }

    /// A program that will run on a host, or with the number of hosts in the namespace of the bridge.
    pub(crate) fn command(&self, host: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[host], program]);
        command
    }

    /// Gives the namespace of the bridge an address that all hosts reach.
    pub(crate) fn address_of_switch(&self) -> Result<String, String> {
        let (switch, here) = (&self.names[self.names.len() - 1], address(253));
        ip(&["-n", switch, "link", "set", "lo", "up"])?;
        ip(&["-n", switch, "link", "set", "br0", "address", &hardware(253)])?;
        ip(&["-n", switch, "address", "add", &format!("{here}/24"), "dev", "br0"])?;
        let neighbour = |namespace: &str, host: usize, device: &str| {
            let (to, at) = (address(host), hardware(host));
            ip(&["-n", namespace, "neigh", "add", &to, "lladdr", &at, "dev", device, "nud", "permanent"])
        };
        self.hosts().iter().enumerate().try_for_each(|(host, name)| {
            neighbour(name, 253, "eth0")?;
            neighbour(switch, host, "br0")
        })?;
        Ok(here)
    }

    pub(crate) fn hosts(&self) -> &[String] {
        &self.names[..self.names.len() - 1]
    }

    /// Writes a plan for all hosts, `per_rack` in each rack, and what follows on the hosts.
    pub(crate) fn plan(&self, per_rack: usize, rest: &str) -> PathBuf {
        let mut text = "[mesh]\nhosts = [\n".to_owned();
        for (host, name) in self.hosts().iter().enumerate() {
            let (address, rack) = (address(host), host / per_rack);
            let _ = writeln!(text, "  {{ name = \"{name}\", address = \"{address}\", rack = \"r{rack}\" }},");
        }
        text.push_str("]\n");
        text.push_str(rest);
        let path = self.path("mesh.toml");
        fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The two hosts of a pair, by their numbers.
    pub(crate) fn ends(&self, document: &Value, pair: &Value) -> (usize, usize) {
        let number = |end: &str| {
            let name = document["hosts"][pair[end].as_u64().unwrap() as usize]["name"].as_str().unwrap();
            self.hosts().iter().position(|host| host == name).unwrap()
        };
        let (near, far) = (number("near"), number("far"));
        (near.min(far), near.max(far))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for detour in &mut self.detours {
            detour.stop.store(true, Ordering::Relaxed);
            let driver = detour.driver.take();
            // It panics in no case that matters now.
            driver.into_iter().for_each(|driver| drop(driver.join()));
        }
        self.names.iter().for_each(|name| drop(ip(&["netns", "del", name])));
    }
}

pub(crate) fn address(host: usize) -> String {
    format!("10.77.0.{}", host + 1)
}

pub(crate) fn hardware(host: usize) -> String {
    format!("02:00:00:00:77:{:02x}", host + 1)
}

fn drive(devices: [OwnedFd; 2], way: Way, stop: &AtomicBool) {
    let mut waiting: [VecDeque<(Instant, Vec<u8>)>; 2] = Default::default();
    let mut buffer = vec![0; 2048];
    let mut seen = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        for end in 0..2 {
            while let Some((_, packet)) = waiting[end].pop_front_if(|(due, _)| *due <= Instant::now()) {
                let _ = rustix::io::write(&devices[1 - end], &packet);
            }
        }
        let next = waiting.iter().filter_map(|waiting| waiting.front()).map(|(due, _)| *due).min();
        let wait = next.map_or(Duration::from_millis(50), |due| due.saturating_duration_since(Instant::now()));
        let wait = Timespec { tv_sec: 0, tv_nsec: wait.min(Duration::from_millis(50)).subsec_nanos().into() };
        let mut fds = [0, 1].map(|end| PollFd::from_borrowed_fd(devices[end].as_fd(), PollFlags::IN));
        if !rustix::event::poll(&mut fds, Some(&wait)).is_ok_and(|ready| ready > 0) {
            continue;
        }
        for end in 0..2 {
            while let Ok(length) = rustix::io::read(&devices[end], &mut buffer) {
                seen += 1;
                if way.lost.is_some_and(|every| seen.is_multiple_of(every)) {
                    continue;
                }
                waiting[end].push_back((Instant::now() + way.delay, buffer[..length].to_vec()));
            }
        }
    }
}

pub(crate) fn named(net: &Net, document: &Value, work: usize) -> BTreeSet<(usize, usize)> {
    let pairs = document["works"][work]["pairs"].as_array().unwrap();
    let beyond = pairs.iter().filter(|pair| pair["misses"].as_array().is_some_and(|misses| !misses.is_empty()));
    beyond.map(|pair| net.ends(document, pair)).collect()
}

/// A slow way between 1 and 4, and one that loses between 2 and 5. A busy machine keeps the limits, too.
pub(crate) fn with_detours(hosts: usize) -> Result<Net, String> {
    let mut net = Net::start(hosts)?;
    net.detour([1, 4], Way { delay: Duration::from_millis(30), lost: None })?;
    net.detour([2, 5], Way { delay: Duration::ZERO, lost: Some(25) })?;
    Ok(net)
}
