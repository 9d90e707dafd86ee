//! What of Tautline works on this host, and what is missing and why.

use std::thread;

use rustix::process::{Resource, getrlimit};
use taut_link::bluetooth::{self, CreditRule, IntervalLimits, interval_in_words};
use taut_link::foreign::{AckTimer, ForeignHost};
use taut_link::{Endpoint, Link, Listener, Result, SocketOption, affinity, clock, stamp};
use taut_time::Duration;

use crate::echo;
use crate::interrupt::Interrupt;
use taut_record::CheckRow;

/// Tries everything, without leaving anything behind.
pub fn checks() -> Vec<CheckRow> {
    let mut rows = vec![cores()];
    rows.extend(["tcp://127.0.0.1:0", "tcp://[::1]:0", "udp://127.0.0.1:0", "udp://[::1]:0"].map(bind));
    rows.extend([transmit_timestamps(), option(SocketOption::DelackMaxUs(8000)), option(SocketOption::BusyPoll(50))]);
    rows.extend([foreign_peer(), fifo(), descriptors(), observer()]);
    rows.extend(bluetooth());
    rows
}

fn check(what: &str, needed_for: &str, outcome: std::result::Result<String, (String, &str)>) -> CheckRow {
    let (works, found, remedy) = match outcome {
        Ok(found) => (true, found, None),
        Err((found, remedy)) => (false, found, Some(remedy.to_owned())),
    };
    CheckRow { what: what.to_owned(), works, needed_for: needed_for.to_owned(), found, remedy }
}

fn cores() -> CheckRow {
    let allowed = affinity::allowed_cores();
    let outcome = if allowed.len() >= 2 {
        Ok(format!("{} to use: {allowed:?}", allowed.len()))
    } else {
        Err((
            "one to use".to_owned(),
            "both ends of every local test share it: times are of context switches; allow a second one (taskset, cpuset)",
        ))
    };
    check("processors", "both ends of a local test at once", outcome)
}

fn bind(endpoint: &'static str) -> CheckRow {
    let outcome = endpoint.parse::<Endpoint>().and_then(|endpoint| Listener::bind(&endpoint));
    check(
        &format!("listen on {endpoint}"),
        "taut serve, echo, stream",
        match outcome {
            Ok(listener) => Ok(format!("bound {}", listener.endpoint())),
            Err(error) => Err((error.to_string(), "the address family is off on this host: measure over the others")),
        },
    )
}

fn loopback_link() -> Result<(Link, Listener)> {
    let listener = Listener::bind(&"tcp://127.0.0.1:0".parse()?)?;
    let link = Link::connect(listener.endpoint(), Duration::from_secs(1))?;
    Ok((link, listener))
}

fn transmit_timestamps() -> CheckRow {
    let outcome = loopback_link().and_then(|(link, _listener)| stamp::TransmitStamps::start(&link, 1).map(drop));
    check(
        "transmit timestamps of TCP",
        "taut pace and the explainer: when a write left and was acknowledged",
        match outcome {
            Ok(()) => Ok("SCHED, SOFTWARE and ACK, keyed by byte".to_owned()),
            Err(error) => {
                Err((error.to_string(), "Linux 6.2 or newer; without it only the program's own times are known"))
            }
        },
    )
}

fn option(option: SocketOption) -> CheckRow {
    let outcome = loopback_link().and_then(|(link, _listener)| option.apply(&link));
    let (needed_for, remedy) = match option {
        SocketOption::DelackMaxUs(_) => ("taut pace --peer-ack us=N, taut tune", "Linux 6.15 or newer"),
        _ => ("taut tune", "CAP_NET_ADMIN: run as root, or setcap cap_net_admin+ep on taut"),
    };
    check(
        &format!("socket option {}", option.name()),
        needed_for,
        match outcome {
            Ok(()) => Ok(format!("{option} taken")),
            Err(error) => Err((error.to_string(), remedy)),
        },
    )
}

/// What it costs to watch the writes; figures that are compared are of rounds without it.
fn observer() -> CheckRow {
    let signed = |ns: i64| format!("{:.1} µs", ns as f64 / 1e3);
    let outcome = match echo::observer_cost(&Interrupt::default()) {
        Ok(Some(cost)) => {
            let interval = cost.p50_ci.map(|(low, high)| format!(" ({} to {})", signed(low), signed(high)));
            let longer =
                if cost.p50_ns > 0 { format!("{} longer", signed(cost.p50_ns)) } else { "no longer".to_owned() };
            Ok(format!("a round trip over loopback takes {longer}{}", interval.unwrap_or_default()))
        }
        Ok(None) => Err(("nothing came back".to_owned(), "look at what filters the loopback interface")),
        Err(error) => Err((error.to_string(), "bring the loopback interface up")),
    };
    check("observer of writes", "taut pace, taut echo --perfetto, the explainer", outcome)
}

fn foreign_peer() -> CheckRow {
    check(
        "network namespace and TUN device",
        "taut pace --foreign-peer",
        match ForeignHost::start(AckTimer::after(Duration::from_millis(40))) {
            Ok(_) => Ok("a peer could be started and stopped".to_owned()),
            Err(error) => {
                Err((error.to_string(), "run as root, or allow user namespaces and open /dev/net/tun to the user"))
            }
        },
    )
}

/// The traps that this kernel's L2CAP sets, where it has any Bluetooth.
fn bluetooth() -> Vec<CheckRow> {
    let needed_for = "programs with sockets of L2CAP";
    let Ok(blocks) = bluetooth::receiving_blocks_others() else { return Vec::new() };
    let receiving = if blocks {
        Err((
            "a thread that waits in recv() of SOCK_SEQPACKET keeps the socket locked, and nothing arrives in it"
                .to_owned(),
            "wait with poll() and receive with MSG_DONTWAIT, or use SOCK_STREAM as taut does; a newer kernel has it mended",
        ))
    } else {
        Ok("a thread that waits in recv() leaves the socket to others".to_owned())
    };
    let sending = match bluetooth::sending_waits_all_the_same() {
        Some(true) => Err((
            "by its release this kernel has send() wait for the peer's credits, for up to 40 s, with MSG_DONTWAIT or O_NONBLOCK as well; what \
             arrives meanwhile is not read, and thrown away when the receive buffer is full"
                .to_owned(),
            "pass MSG_CONFIRM too, whose bit it looks at, or write only when poll() says so, as taut pipe and taut web do; Linux 5.18 has it \
             mended",
        )),
        Some(false) => Ok("returns EAGAIN while the peer gives no credit".to_owned()),
        None => Err(("the kernel's release is no number".to_owned(), "have a send() that has no credit timed")),
    };
    let credits = match CreditRule::of_this_kernel() {
        Some(CreditRule::Sdu) => Err((
            "for one SDU at a time: an SDU takes two connection intervals".to_owned(),
            "receive with a larger MTU (BT_RCVMTU) over shorter connection intervals, or run Linux 6.10 or newer; `taut tune`",
        )),
        Some(CreditRule::ReceiveBuffer) => Ok("for what fits into the receive buffer".to_owned()),
        None => Err(("/proc/kallsyms does not tell".to_owned(), "look at the grants: `taut stream` over the link")),
    };
    let mut rows = vec![
        check("blocking recv() of L2CAP", needed_for, receiving),
        check("non-blocking send() of L2CAP", "programs that send over l2cap:// from an event loop", sending),
        check("credits of L2CAP over LE", "streams over l2cap://", credits),
    ];
    rows.extend(bluetooth::adapters().unwrap_or_default().into_iter().map(interval_limits));
    rows
}

/// Whether an adapter's connections still have the interval that kernels ask for by themselves.
fn interval_limits(adapter: u16) -> CheckRow {
    let outcome = match IntervalLimits::read(adapter) {
        Ok(IntervalLimits::DEFAULT) => Err((
            "30 to 50 ms, as the kernel has it".to_owned(),
            "every exchange waits for the next interval: on both machines [LE] MinConnectionInterval=6, MaxConnectionInterval=6 in \
             /etc/bluetooth/main.conf (7.5 ms)",
        )),
        Ok(IntervalLimits { min, max }) if min > max => Err((format!("{min} to {max}"), "set them anew")),
        Ok(IntervalLimits { min, max }) => Ok(format!("{} to {}", interval_in_words(min), interval_in_words(max))),
        Err(error) => Err((error.to_string(), "run as root, with debugfs mounted")),
    };
    check(&format!("connection interval of hci{adapter}"), "round trips and streams over l2cap://", outcome)
}

fn fifo() -> CheckRow {
    let outcome = thread::spawn(clock::set_fifo_scheduling).join();
    check(
        "SCHED_FIFO",
        "--fifo: sleeps that end on time on a busy machine",
        match outcome {
            Ok(Ok(())) => Ok("granted".to_owned()),
            Ok(Err(error)) => Err((error.to_string(), "CAP_SYS_NICE, or `ulimit -r 1` (RLIMIT_RTPRIO)")),
            Err(_) => Err(("the trial failed".to_owned(), "report this: it is a bug of taut")),
        },
    )
}

fn descriptors() -> CheckRow {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    let outcome = if current >= 1024 {
        Ok(format!(
            "{current} (at most {})",
            limit.maximum.map_or_else(|| "any number".to_owned(), |max| max.to_string())
        ))
    } else {
        Err((format!("{current}"), "ulimit -n 4096"))
    };
    check("open files", "many clients or connections at once", outcome)
}
