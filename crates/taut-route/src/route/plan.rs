//! What runs where, and why.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use rustix::thread::CapabilitySet;

use super::{Route, Source, Target, Wish, in_module};
use crate::bpf::{KernelSpec, KernelTarget, Place};
use crate::module::{self, ModulePlace, abi};
use crate::net::netlink::{Netlink, Way};

/// What is known of this host.
#[derive(Debug)]
pub struct Host {
    netlink: Option<Netlink>,
    /// Whether programs may be loaded.
    has_right: bool,
    /// The kernel's release: major and minor.
    kernel: (u32, u32),
}

/// Where a route is to run.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Places in the kernel to try, in that order; none for user space.
    pub places: Vec<Place>,
    /// Places in the kernel module to try before those.
    pub module: Vec<ModulePlace>,
    /// The device of the kernel's places.
    pub ifindex: u32,
    /// Its name.
    pub device: String,
    /// Why there.
    pub why: Vec<String>,
    /// What it lacks for the kernel.
    pub lacks: Vec<String>,
}

impl Host {
    /// Asks this host, in the network namespace of the caller.
    pub fn ask() -> Self {
        let held = rustix::thread::capabilities(None).map(|sets| sets.effective).unwrap_or(CapabilitySet::empty());
        let has_right = held.contains(CapabilitySet::NET_ADMIN)
            && (held.contains(CapabilitySet::BPF) || held.contains(CapabilitySet::SYS_ADMIN));
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
        let kernel = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Self { netlink: Netlink::open().ok(), has_right, kernel }
    }

    /// Where a route can run here.
    pub fn plan(&self, route: &Route) -> Plan {
        let mut plan = Plan::default();
        if route.wish == Wish::User {
            plan.why.push("user space was asked for".to_owned());
            return plan;
        }
        let is_of_module = matches!(route.source, Source::Gpio(_) | Source::Input(_));
        if is_of_module || matches!(route.wish, Wish::HardIrq | Wish::Kthread) {
            self.plan_module(route, &mut plan);
            return plan;
        }
        let device = self.source_device(route, &mut plan);
        let spec = kernel_spec(route, &mut plan);
        if !self.has_right {
            plan.lacks.push("the right to load programs (CAP_BPF and CAP_NET_ADMIN, or root)".to_owned());
        }
        let (Some(device), Some(spec)) = (device, spec) else {
            plan.why.push("user space, since the kernel path lacks something".to_owned());
            return plan;
        };
        (plan.ifindex, plan.device) = (device.index, device.name.clone());
        let ways: Vec<Option<Way>> = spec.sinks.iter().map(|(target, _)| self.way(*target)).collect();
        for ((target, _), way) in spec.sinks.iter().zip(&ways) {
            if let (KernelTarget::To(to), None) = (target, way) {
                plan.lacks.push(format!("a way to udp://{to} (see ip route get {})", to.ip()));
            }
        }
        let stays = ways.iter().flatten().all(|way| way.ifindex == device.index);
        let one = spec.sinks.len() <= 1;
        let wanted: &[Place] = match route.wish {
            Wish::XdpNative => &[Place::XdpNative],
            Wish::XdpGeneric => &[Place::XdpGeneric],
            Wish::Tc => &[Place::Tc],
            _ if !(one && stays) => &[Place::Tc],
            // What a driver sends back over a veth gets stuck unless there is a program at the other end, which can't be seen
            // from here (`veth_xdp_flush`, drivers/net/veth.c).
            _ if device.kind.as_deref() == Some("veth") => &[Place::XdpGeneric, Place::Tc],
            _ => &[Place::XdpNative, Place::XdpGeneric, Place::Tc],
        };
        if wanted[0] != Place::Tc && !(one && stays) {
            plan.lacks
                .push("one sink at most, on the device of the source (XDP rewrites the datagram in place)".to_owned());
        }
        if wanted.last() == Some(&Place::Tc) && self.kernel < (6, 6) && wanted.len() == 1 {
            let (major, minor) = self.kernel;
            plan.lacks.push(format!("Linux 6.6 (tcx, for several sinks or another device; this is {major}.{minor})"));
        }
        if !plan.lacks.is_empty() {
            plan.why.push("user space, since the kernel path lacks something".to_owned());
            return plan;
        }
        plan.places = wanted.iter().copied().filter(|place| *place != Place::Tc || self.kernel >= (6, 6)).collect();
        plan.why.push(format!("source and sinks are UDP over IPv4, and datagrams come in on {}", device.name));
        plan.why.push(match (one, stays) {
            (true, true) => "one sink on the same device: the datagram is rewritten in place (XDP, else tc)".to_owned(),
            (true, false) => "the sink is on another device: tc redirects there".to_owned(),
            (false, _) => format!("{} sinks: tc clones", spec.sinks.len()),
        });
        plan
    }

    fn plan_module(&self, route: &Route, plan: &mut Plan) {
        if matches!(route.wish, Wish::XdpNative | Wish::XdpGeneric | Wish::Tc) {
            plan.lacks.push(format!("a source of the network, not {}", route.source));
        }
        match in_module::places(route) {
            Ok(places) => plan.module = places,
            Err(mut lacks) => plan.lacks.append(&mut lacks),
        }
        if !self.has_right {
            plan.lacks.push("the right to load programs (CAP_BPF and CAP_NET_ADMIN, or root)".to_owned());
        }
        plan.lacks.extend(module::missing());
        if !plan.lacks.is_empty() {
            plan.module.clear();
            plan.why.push("user space, since the kernel path lacks something".to_owned());
            return;
        }
        plan.why.push(format!("{} and all sinks are the kernel module's", route.source));
        plan.why.push(match plan.module[..] {
            [ModulePlace::HardIrq, ..] if route.wish == Wish::HardIrq => "hard irq was asked for".to_owned(),
            [ModulePlace::HardIrq, ..] => "in hard irq, or in a thread when a chip can sleep".to_owned(),
            _ if route.wish == Wish::Kthread => "a thread was asked for".to_owned(),
            _ => "in a thread, since sending UDP can sleep".to_owned(),
        });
        if let Some(log) = &route.log {
            let room = abi::LOG_RECORDS;
            plan.why.push(format!("{} is written from the module's log of {room} records", log.display()));
        }
    }

    fn source_device(&self, route: &Route, plan: &mut Plan) -> Option<crate::net::netlink::Device> {
        let Source::Udp(SocketAddr::V4(source)) = &route.source else {
            plan.lacks.push(format!("a source that the kernel path has: udp:// on IPv4, not {}", route.source));
            return None;
        };
        if source.ip().is_unspecified() || source.port() == 0 {
            plan.lacks.push("an address of one device and a port, not all of them, as the source".to_owned());
            return None;
        }
        let netlink = self.netlink.as_ref()?;
        let found = netlink.device_of(own_address(*source)).ok().flatten();
        let Some(index) = found else {
            plan.lacks.push(format!("a device with the address {}", source.ip()));
            return None;
        };
        netlink.device(index).ok()
    }

    /// The way to a target; a reply takes that on which the datagram came.
    pub(crate) fn way(&self, target: KernelTarget) -> Option<Way> {
        match target {
            KernelTarget::Reply => None,
            KernelTarget::To(to) => self.netlink.as_ref()?.way_to(*to.ip()).ok().filter(|way| way.ifindex != 0),
        }
    }
}

/// The whole of 127.0.0.0/8 is the loopback device's.
const fn own_address(source: SocketAddrV4) -> Ipv4Addr {
    if source.ip().is_loopback() { Ipv4Addr::LOCALHOST } else { *source.ip() }
}

/// The route as the kernel would run it.
pub(crate) fn kernel_spec(route: &Route, plan: &mut Plan) -> Option<KernelSpec> {
    let mut sinks = Vec::new();
    for sink in &route.sinks {
        match &sink.target {
            Target::Reply => sinks.push((KernelTarget::Reply, sink.output)),
            Target::Udp(SocketAddr::V4(to)) => sinks.push((KernelTarget::To(*to), sink.output)),
            other => {
                plan.lacks.push(format!("a sink that the kernel path has: reply or udp:// on IPv4, not {other}"));
            }
        }
    }
    let Source::Udp(SocketAddr::V4(source)) = route.source else { return None };
    let all = sinks.len() == route.sinks.len();
    // A table of sinks is one value of a map, addressed by 16 bits.
    all.then(|| KernelSpec { source, sinks, log: route.log.as_ref().map(|_| route.logged) })
}
