//! What runs where, and why.

use std::net::{Ipv4Addr, SocketAddr};

use rustix::thread::CapabilitySet;

use super::{Route, Source, Target, Wish, in_module};
use crate::bpf::{AttachPoint, KernelSpec, KernelTarget, LONGEST_SUMMED, Own};
use crate::module::{self, ModulePlace, abi};
use crate::net::filter;
use crate::net::netlink::{Device, LOOPBACK, Netlink, NextHop};

/// What is known of this host.
#[derive(Debug)]
pub struct Host {
    netlink: Option<Netlink>,
    /// Whether programs may be loaded.
    has_right: bool,
    /// The kernel's release: major and minor.
    kernel: (u32, u32),
    /// Whether it was built with PREEMPT_RT.
    is_realtime: bool,
}

/// Where a route is to run.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Places in the kernel to try, in that order; none for user space.
    pub places: Vec<AttachPoint>,
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
        let name = rustix::system::uname();
        let release = name.release().to_string_lossy().into_owned();
        let is_realtime = name.version().to_string_lossy().contains("PREEMPT_RT");
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
        let kernel = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Self { netlink: Netlink::open().ok(), has_right, kernel, is_realtime }
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
        let ways: Vec<Option<NextHop>> = spec.sinks.iter().map(|(target, _)| self.way(*target)).collect();
        for ((target, _), way) in spec.sinks.iter().zip(&ways) {
            if let (KernelTarget::To(to), None) = (target, way) {
                plan.lacks.push(format!("a way to udp://{to} (see ip route get {})", to.ip()));
            }
            // The stack takes none from an address of its own that it has not sent itself
            // (`fib_validate_source`, net/ipv4/fib_frontend.c).
            if let (KernelTarget::To(to), Some(NextHop { ifindex: LOOPBACK, .. })) = (target, way)
                && device.index != LOOPBACK
            {
                plan.lacks.push(format!("a sink on another host: udp://{to} is this host's own"));
            }
        }
        let stays = ways.iter().flatten().all(|way| way.ifindex == device.index);
        let one = spec.sinks.len() <= 1;
        // XDP has to sum up what comes over a cable, and what it sends on as it came over IPv6.
        let sends_on = spec.source.is_ipv6() && spec.sinks.iter().any(|(_, output)| output.is_none());
        let sums = sends_on || device.index != LOOPBACK;
        let longest = LONGEST_SUMMED as u32 + 48;
        let too_long = sums && device.mtu > longest;
        let wanted: &[AttachPoint] = match route.wish {
            Wish::XdpNative => &[AttachPoint::XdpNative],
            Wish::XdpGeneric => &[AttachPoint::XdpGeneric],
            Wish::Tc => &[AttachPoint::Tc],
            _ if !(one && stays) || too_long => &[AttachPoint::Tc],
            // What a driver sends back over a veth gets stuck unless there is a program at the
            // other end, which can't be seen from here (`veth_xdp_flush`, drivers/net/veth.c).
            _ if device.kind.as_deref() == Some("veth") => &[AttachPoint::XdpGeneric, AttachPoint::Tc],
            _ => &[AttachPoint::XdpNative, AttachPoint::XdpGeneric, AttachPoint::Tc],
        };
        if wanted[0] != AttachPoint::Tc && !(one && stays) {
            plan.lacks
                .push("one sink at most, on the device of the source (XDP rewrites the datagram in place)".to_owned());
        }
        if wanted[0] != AttachPoint::Tc && too_long {
            plan.lacks.push(format!(
                "an MTU of {longest} at most on {} ({}): XDP sums up what comes, and what it sends on over IPv6",
                device.name, device.mtu
            ));
        }
        if wanted.last() == Some(&AttachPoint::Tc) && self.kernel < (6, 6) && wanted.len() == 1 {
            let (major, minor) = self.kernel;
            let what =
                if one && stays { "payloads longer than XDP sums up" } else { "several sinks or another device" };
            plan.lacks.push(format!("Linux 6.6 (tcx, for {what}; this is {major}.{minor})"));
        }
        if !plan.lacks.is_empty() {
            plan.why.push("user space, since the kernel path lacks something".to_owned());
            return plan;
        }
        let filters = filter::in_the_way(spec.source.is_ipv4(), &device.name);
        if route.wish == Wish::Auto && !filters.is_empty() {
            plan.why.push(format!(
                "user space, since a packet filter stands in the way: {}; --place kernel passes it by",
                filters.join(", ")
            ));
            return plan;
        }
        plan.places =
            wanted.iter().copied().filter(|place| *place != AttachPoint::Tc || self.kernel >= (6, 6)).collect();
        let version = version(spec.source);
        plan.why.push(format!("source and sinks are UDP over {version}, and datagrams come in on {}", device.name));
        plan.why.push(match (one, stays) {
            (true, true) if too_long => format!("payloads may be too long to be summed up by XDP (MTU {})", device.mtu),
            (true, true) => "one sink on the same device: the datagram is rewritten in place (XDP, else tc)".to_owned(),
            (true, false) => "the sink is on another device: tc redirects there".to_owned(),
            (false, _) => format!("{} sinks: tc clones", spec.sinks.len()),
        });
        plan.why.push(match filters[..] {
            [] => "before any packet filter: rules made later see nothing of what it takes and sends".to_owned(),
            _ => format!("it passes by {}", filters.join(", ")),
        });
        plan
    }

    fn plan_module(&self, route: &Route, plan: &mut Plan) {
        if matches!(route.wish, Wish::XdpNative | Wish::XdpGeneric | Wish::Tc) {
            plan.lacks.push(format!("a source of the network, not {}", route.source));
        }
        match in_module::places(route, self.is_realtime) {
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
            _ if self.is_realtime => "in a thread, since drivers can sleep on this kernel (PREEMPT_RT)".to_owned(),
            _ => "in a thread, since sending UDP can sleep".to_owned(),
        });
        let has_led = route.sinks.iter().any(|sink| matches!(sink.target, Target::Led(_)));
        if has_led && plan.module.first() == Some(&ModulePlace::HardIrq) {
            plan.why.push("LEDs right after the interrupt, since their drivers may take the source's locks".to_owned());
        }
        if let Some(log) = &route.log {
            let room = abi::LOG_RECORDS;
            plan.why.push(format!("{} is written from the module's log of {room} records", log.display()));
        }
    }

    fn source_device(&self, route: &Route, plan: &mut Plan) -> Option<Device> {
        let Source::Udp(source) = route.source else {
            plan.lacks.push(format!("a source that the kernel path has: udp://, not {}", route.source));
            return None;
        };
        if source.ip().is_unspecified() || source.port() == 0 {
            plan.lacks.push("an address of one device and a port, not all of them, as the source".to_owned());
            return None;
        }
        if let SocketAddr::V6(source) = source
            && source.ip().is_unicast_link_local()
            && source.scope_id() == 0
        {
            plan.lacks
                .push(format!("a device for {source}, which every link may have: write [{}%NUMBER]", source.ip()));
            return None;
        }
        let netlink = self.netlink.as_ref()?;
        let found = netlink.device_of(own_address(source)).ok().flatten();
        let Some(index) = found else {
            plan.lacks.push(format!("a device with the address {}", source.ip()));
            return None;
        };
        netlink.device(index).ok()
    }

    /// This host's addresses on the device of a source.
    pub(crate) fn own(&self, source: SocketAddr, ifindex: u32) -> Own {
        let Some(netlink) = &self.netlink else { return Own::default() };
        let broadcast = match source {
            SocketAddr::V4(own) => netlink.broadcast_of(*own.ip()).ok().flatten(),
            SocketAddr::V6(_) => None,
        };
        let ethernet = netlink.device(ifindex).ok().and_then(|device| device.address).unwrap_or_default();
        Own { ethernet, broadcast }
    }

    /// The way to a target; a reply takes that on which the datagram came.
    pub(crate) fn way(&self, target: KernelTarget) -> Option<NextHop> {
        match target {
            KernelTarget::Reply => None,
            KernelTarget::To(to) => self.netlink.as_ref()?.next_hop_to(to).ok().filter(|way| way.ifindex != 0),
        }
    }
}

/// The whole of 127.0.0.0/8 is the loopback device's.
fn own_address(source: SocketAddr) -> SocketAddr {
    match source {
        SocketAddr::V4(own) if own.ip().is_loopback() => (Ipv4Addr::LOCALHOST, own.port()).into(),
        other => other,
    }
}

const fn version(address: SocketAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// The route as the kernel would run it.
pub(crate) fn kernel_spec(route: &Route, plan: &mut Plan) -> Option<KernelSpec> {
    let mut sinks = Vec::new();
    for sink in &route.sinks {
        match &sink.target {
            Target::Reply => sinks.push((KernelTarget::Reply, sink.output)),
            Target::Udp(to) => match &route.source {
                // The headers of one are longer than the other's, and what is sent is the datagram rewritten.
                Source::Udp(source) if source.is_ipv4() != to.is_ipv4() => {
                    let (from, version) = (version(*source), version(*to));
                    plan.lacks.push(format!("one version of IP: the source is {from}, and udp://{to} {version}"));
                }
                _ => sinks.push((KernelTarget::To(*to), sink.output)),
            },
            other => plan.lacks.push(format!("a sink that the kernel path has: reply or udp://, not {other}")),
        }
    }
    let Source::Udp(source) = route.source else { return None };
    let all = sinks.len() == route.sinks.len();
    // A table of sinks is one value of a map, addressed by 16 bits.
    all.then(|| KernelSpec {
        source,
        sinks,
        log: route.log.as_ref().map(|_| route.logged),
        own: Own::default(),
        replies: route.replies,
    })
}
