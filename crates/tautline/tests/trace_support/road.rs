//! What lies between the two ends of a staged connection: nothing, a queue of the device that is slow, or a path with
//! delay and losses.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::explain_support::{Conditions, Path, RECEIVER, inside, ip};

/// Between the ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    /// Loopback, with segments as on a wire.
    Near,
    /// Loopback whose queue lets so many kbit/s go.
    Narrow(u32),
    /// A path that takes so many ms each way, with the congestion window of a new connection in segments, if that is
    /// not the kernel's, and with losses towards the receiver.
    Far { ms: u64, first_window: Option<u32>, is_lossy: bool },
}

/// Network namespaces of the sender and of the receiver, and where that is. They go away with this.
pub(crate) struct Road {
    pub(crate) spaces: [String; 2],
    pub(crate) receiver: &'static str,
    made: Vec<String>,
    /// Alive as long as this.
    _path: Option<Path>,
}

impl Drop for Road {
    fn drop(&mut self) {
        self.made.iter().for_each(|name| drop(ip(&["netns", "del", name])));
    }
}

const NEAR: &str = "127.0.0.1";
const BEYOND: &str = "10.98.2.1";

impl Road {
    pub(crate) fn build(way: Way) -> Result<Self, String> {
        let road = match way {
            Way::Near => Self::near()?,
            Way::Narrow(kbps) => {
                let road = Self::near()?;
                let rate = format!("{kbps}kbit");
                tc(&road.spaces[0], "lo", &["tbf", "rate", &rate, "burst", "3000", "limit", "1000000"])?;
                road
            }
            Way::Far { ms, first_window, is_lossy } => {
                let road = if has_netem() { Self::emulated(ms, is_lossy) } else { Self::simulated(ms, is_lossy) }?;
                if let Some(window) = first_window {
                    road.widen(window)?;
                }
                road
            }
        };
        // The same on all hosts; and what a connection has at its beginning may pace it ever after.
        for space in &road.spaces {
            set(space, "tcp_congestion_control", "reno");
        }
        Ok(road)
    }

    fn of(spaces: [String; 2], receiver: &'static str) -> Self {
        Self { made: Vec::new(), spaces, receiver, _path: None }
    }

    fn add(&mut self, name: &str) -> Result<(), String> {
        ip(&["netns", "add", name])?;
        self.made.push(name.to_owned());
        ip(&["-n", name, "link", "set", "lo", "up", "mtu", "1500"])
    }

    fn near() -> Result<Self, String> {
        let name = name("near");
        let mut road = Self::of([name.clone(), name.clone()], NEAR);
        road.add(&name)?;
        Ok(road)
    }

    /// A router between the two, with the kernel's network emulator. It is not at the ends: there the packets that wait
    /// would wait in a queue of the sender's.
    fn emulated(ms: u64, is_lossy: bool) -> Result<Self, String> {
        let [near, router, far] = ["near", "router", "far"].map(name);
        let mut road = Self::of([near.clone(), far.clone()], BEYOND);
        for name in [&near, &router, &far] {
            road.add(name)?;
        }
        let (delay, loss): (_, &[&str]) = (format!("{ms}ms"), if is_lossy { &["loss", "20%"] } else { &[] });
        for (space, at_router, net, loss) in [(&near, "v1", "10.98.1", &[][..]), (&far, "v2", "10.98.2", loss)] {
            ip(&["-n", space, "link", "add", "v0", "type", "veth", "peer", "name", at_router, "netns", &router])?;
            for (space, device, host) in [(space, "v0", 1), (&router, at_router, 2)] {
                ip(&["-n", space, "address", "add", &format!("{net}.{host}/24"), "dev", device])?;
                // One segment a packet: of a large one all would be lost, and it would fill a small buffer for long.
                ip(&["-n", space, "link", "set", device, "up", "gso_max_segs", "1"])?;
            }
            ip(&["-n", space, "route", "add", "default", "via", &format!("{net}.2")])?;
            tc(&router, at_router, &[&["netem", "delay", &delay], loss].concat())?;
        }
        set(&router, "ip_forward", "1");
        Ok(road)
    }

    /// The same by a program between two TUN devices.
    fn simulated(delay_ms: u64, is_lossy: bool) -> Result<Self, String> {
        let lost = if is_lossy { (1..1000).filter(|number| number % 5 == 0).collect() } else { Vec::new() };
        let delay = Duration::from_millis(delay_ms);
        let path = Path::start(&Conditions { delay, lost, ..Conditions::default() })?;
        let spaces = [0, 1].map(|end| path.name(end).to_owned());
        for space in &spaces {
            ip(&["-n", space, "link", "set", "tun0", "gso_max_segs", "1"])?;
        }
        let mut road = Self::of(spaces, RECEIVER);
        road._path = Some(path);
        Ok(road)
    }

    /// Connections from the sender begin with this congestion window.
    fn widen(&self, segments: u32) -> Result<(), String> {
        let output = Command::new("ip").args(["-n", &self.spaces[0], "route", "get", self.receiver]).output();
        let text = output.map_err(|error| error.to_string())?.stdout;
        let text = String::from_utf8_lossy(&text).into_owned();
        let after = |word: &str| text.split_whitespace().skip_while(|is| *is != word).nth(1).map(str::to_owned);
        let device = after("dev").ok_or_else(|| format!("no way to {}: {text}", self.receiver))?;
        let (receiver, window) = (format!("{}/32", self.receiver), segments.to_string());
        let mut route = vec!["-n", &self.spaces[0], "route", "replace", &receiver];
        let via = after("via");
        if let Some(via) = &via {
            route.extend(["via", via]);
        }
        route.extend(["dev", &device, "initcwnd", &window]);
        ip(&route)
    }
}

fn name(part: &str) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("taut-causes-{}-{}{part}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Gives a device of a namespace a queue.
fn tc(space: &str, device: &str, queue: &[&str]) -> Result<(), String> {
    let mut command = Command::new("tc");
    command.args(["-n", space, "qdisc", "replace", "dev", device, "root"]).args(queue);
    let output = command.output().map_err(|error| format!("tc: {error}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("tc {}: {}", queue.join(" "), error.trim())) }
}

/// Whether the kernel emulates networks.
fn has_netem() -> bool {
    static IS_THERE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *IS_THERE.get_or_init(|| {
        let Ok(road) = Road::near() else { return false };
        tc(&road.spaces[0], "lo", &["netem", "delay", "1ms"]).is_ok()
    })
}

fn set(space: &str, name: &str, value: &str) {
    inside(space, || std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value).unwrap());
}
