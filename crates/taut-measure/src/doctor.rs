//! What of Tautline works on this host, and what is missing and why.

mod bluetooth;
mod row;

use std::thread;

use rustix::process::{Resource, getrlimit};
use taut_link::foreign::{AckTimer, ForeignHost};
use taut_link::{Endpoint, Link, Listener, Result, SocketOption, affinity, clock, stamp};
use taut_time::Duration;

pub use bluetooth::{Ble, ble};
use row::check;
use taut_record::CheckRow;

use crate::echo;
use crate::interrupt::Interrupt;

/// Tries everything, without leaving anything behind.
pub fn checks() -> Vec<CheckRow> {
    let mut rows = vec![cores()];
    rows.extend(["tcp://127.0.0.1:0", "tcp://[::1]:0", "udp://127.0.0.1:0", "udp://[::1]:0"].map(bind));
    rows.extend([transmit_timestamps(), option(SocketOption::DelackMaxUs(8000)), option(SocketOption::BusyPoll(50))]);
    rows.extend([foreign_peer(), fifo(), descriptors(), observer()]);
    rows.extend(bluetooth::traps());
    rows
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
        "taut pace --emulate-delack",
        match ForeignHost::start(AckTimer::after(Duration::from_millis(40))) {
            Ok(_) => Ok("a peer could be started and stopped".to_owned()),
            Err(error) => {
                Err((error.to_string(), "run as root, or allow user namespaces and open /dev/net/tun to the user"))
            }
        },
    )
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
