//! Settings of the host that bear on its connections, judged by what these lost and by the kernel's counters.
//!
//! A setting is judged by what was seen at its limit, never by its value alone: a value that nothing runs into is
//! as good as any other.

use std::fs;

use taut_record::{SettingRow, SettingVerdict, WatchRow};

/// The kernel's counters of what was dropped or shrunk at a limit, since it was started.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Connections that found the accept queue of a listening socket full.
    listen_overflows: u64,
    /// Times that what a socket had received was thrown away or compacted for want of room.
    receive_pruned: u64,
    /// Packets that found a processor's queue for the network stack full.
    backlog_dropped: u64,
}

impl Counters {
    /// Reads them; what can't be read counts as none.
    pub fn read() -> Self {
        let tcp = fs::read_to_string("/proc/net/netstat").unwrap_or_default();
        let softnet = fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
        Self::parse(&tcp, &softnet)
    }

    /// `netstat` has a line of names and one of values for each group; `softnet_stat` a line for each processor, the
    /// second field of which are the packets dropped, in hexadecimal digits.
    fn parse(netstat: &str, softnet: &str) -> Self {
        let mut groups = netstat.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
        let (names, values) = (groups.next().unwrap_or_default(), groups.next().unwrap_or_default());
        let value = |wanted: &str| -> u64 {
            let of = names.split(' ').zip(values.split(' ')).find(|(name, _)| *name == wanted);
            of.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
        };
        let dropped = softnet.lines().filter_map(|line| u64::from_str_radix(line.split(' ').nth(1)?, 16).ok());
        Self {
            listen_overflows: value("ListenOverflows"),
            receive_pruned: value("PruneCalled").saturating_add(value("RcvPruned")),
            backlog_dropped: dropped.fold(0, u64::saturating_add),
        }
    }

    const fn since(self, before: Self) -> Self {
        Self {
            listen_overflows: self.listen_overflows.saturating_sub(before.listen_overflows),
            receive_pruned: self.receive_pruned.saturating_sub(before.receive_pruned),
            backlog_dropped: self.backlog_dropped.saturating_sub(before.backlog_dropped),
        }
    }
}

/// Judges the settings by what the connections lost and the counters gained in the same time. Settings that this kernel
/// does not have are left out.
pub fn judge(watched: &WatchRow, before: Counters, after: Counters) -> Vec<SettingRow> {
    judge_with(watched, after.since(before), |name| {
        let text = fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok()?;
        Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
    })
}

/// What was seen at a limit, and what to change; or that nothing was.
type Judgement = (SettingVerdict, String, Option<&'static str>);

fn judge_with(watched: &WatchRow, gained: Counters, value: impl Fn(&str) -> Option<String>) -> Vec<SettingRow> {
    let idle = (SettingVerdict::Unknown, "no connection was active".to_owned(), Some("run it while the host works"));
    let at_limit = |is_met: bool, met: String, clear: &str, remedy| -> Judgement {
        match (is_met, watched.active) {
            (true, _) => (SettingVerdict::Costs, met, Some(remedy)),
            (false, 0) => idle.clone(),
            (false, _) => (SettingVerdict::Clear, clear.to_owned(), None),
        }
    };
    let loses = |cause: &str| watched.losses.iter().any(|loss| loss.place.cause == cause);
    // The buffer is the receiver's: only where that is a program of this host is it a setting of this host.
    let local_window =
        |loss: &taut_record::WatchedLoss| loss.place.cause == "receive_window" && loss.worst_peer_program.is_some();
    let Counters { listen_overflows, receive_pruned, backlog_dropped } = gained;
    let times = |count: u64| if count == 1 { "once".to_owned() } else { format!("{count} times") };
    let judged = [
        (
            "net.core.somaxconn",
            at_limit(
                listen_overflows > 0 || loses("accept_queue"),
                format!("an accept queue was full {}", times(listen_overflows.max(1))),
                "no accept queue was full",
                "raise it and the backlog that the program gives to listen(2), or accept sooner",
            ),
        ),
        (
            "net.core.netdev_max_backlog",
            at_limit(
                backlog_dropped > 0,
                format!("{backlog_dropped} packets found a processor's queue full"),
                "no packet found a processor's queue full",
                "raise it, or spread the work over more processors (RPS, IRQ affinity)",
            ),
        ),
        (
            "net.ipv4.tcp_rmem",
            at_limit(
                receive_pruned > 0 || watched.losses.iter().any(local_window),
                match receive_pruned {
                    0 => "a receive window was full, and the receiving program runs here".to_owned(),
                    pruned => format!("a receive buffer was short of memory {}", times(pruned)),
                },
                "no receive buffer of this host was the limit",
                "leave SO_RCVBUF unset in the program, or raise the last value to the rate wanted times the round trip",
            ),
        ),
        (
            "net.ipv4.tcp_wmem",
            at_limit(
                loses("send_buffer"),
                "a send buffer was the limit".to_owned(),
                "no send buffer was the limit",
                "leave SO_SNDBUF unset in the program, or raise the last value to the rate wanted times the round trip",
            ),
        ),
    ];
    let mut rows: Vec<SettingRow> = judged
        .into_iter()
        .filter_map(|(name, (verdict, found, remedy))| {
            Some(SettingRow {
                name: name.to_owned(),
                value: value(name)?,
                verdict,
                found,
                remedy: remedy.map(ToOwned::to_owned),
            })
        })
        .collect();
    const AFTER_IDLE: &str = "net.ipv4.tcp_slow_start_after_idle";
    rows.extend(value(AFTER_IDLE).map(|value| {
        let is_off = value == "0";
        let (verdict, found, remedy) = if is_off {
            (SettingVerdict::Clear, "the congestion window outlasts pauses", None)
        } else {
            let remedy = "`taut trace --pid PID` shows slow_start_after_idle where pauses cost something";
            (SettingVerdict::Unknown, "the congestion window shrinks in pauses, which looks do not show", Some(remedy))
        };
        SettingRow {
            name: AFTER_IDLE.to_owned(),
            value,
            verdict,
            found: found.to_owned(),
            remedy: remedy.map(ToOwned::to_owned),
        }
    }));
    rows
}

#[cfg(test)]
mod tests {
    use taut_record::{WatchedLoss, WatchedPlace};

    use super::*;

    fn watched(active: u64, causes: &[(&str, Option<&str>)]) -> WatchRow {
        let loss = |&(cause, peer): &(&str, Option<&str>)| WatchedLoss {
            place: WatchedPlace {
                cause: cause.to_owned(),
                program: None,
                pid: None,
                side: "client".to_owned(),
                service: "192.0.2.1:80".to_owned(),
            },
            summary: String::new(),
            remedy: String::new(),
            connections: 1,
            worst_local: String::new(),
            worst_peer: String::new(),
            worst_peer_program: peer.map(ToOwned::to_owned),
            worst_share: 0.5,
            worst_look_period_ns: 20_000_000,
            lost_ns: 1,
            total_lost_ns: 1,
            stands_ns: 1,
            is_new: true,
        };
        WatchRow {
            command: "taut watch".to_owned(),
            span_ns: 5_000_000_000,
            connections: 9,
            active,
            looks: 250,
            suspect_looks: 0,
            look_period_ns: 20_000_000,
            work_ns: 1,
            is_enough: true,
            losses: causes.iter().map(loss).collect(),
            remarks: Vec::new(),
        }
    }

    /// Verdicts in the order of the list, with slow start after idle at the end.
    fn verdicts(watched: &WatchRow, gained: Counters) -> Vec<SettingVerdict> {
        judge_with(watched, gained, |_| Some("1".to_owned())).iter().map(|row| row.verdict).collect()
    }

    #[test]
    fn a_setting_costs_where_its_limit_was_met_and_only_there() {
        use SettingVerdict::{Clear, Costs, Unknown};
        let none = Counters::default();
        assert_eq!(verdicts(&watched(3, &[]), none), [Clear, Clear, Clear, Clear, Unknown]);
        assert_eq!(verdicts(&watched(0, &[]), none), [Unknown; 5]);
        let lost = watched(3, &[("nagle_delayed_ack", None), ("accept_queue", None), ("send_buffer", None)]);
        assert_eq!(verdicts(&lost, none), [Costs, Clear, Clear, Costs, Unknown]);
        // A receive window is a setting of the host that receives.
        assert_eq!(verdicts(&watched(3, &[("receive_window", None)]), none)[2], Clear);
        assert_eq!(verdicts(&watched(3, &[("receive_window", Some("cat (7)"))]), none)[2], Costs);
        let gained = Counters { listen_overflows: 2, receive_pruned: 1, backlog_dropped: 7 };
        assert_eq!(verdicts(&watched(0, &[]), gained), [Costs, Costs, Costs, Unknown, Unknown]);
        let found = judge_with(&watched(0, &[]), gained, |_| Some("128".to_owned()));
        assert_eq!(found[0].found, "an accept queue was full 2 times");
        assert!(found.iter().all(|row| row.verdict == Clear || row.remedy.is_some()));
    }

    #[test]
    fn what_this_kernel_does_not_have_is_left_out() {
        let rows = judge_with(&watched(3, &[]), Counters::default(), |name| {
            name.ends_with("after_idle").then(|| "0".to_owned())
        });
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].verdict, rows[0].remedy.as_deref()), (SettingVerdict::Clear, None));
    }

    #[test]
    fn counters_are_found_by_their_names_and_bad_text_counts_as_none() {
        let netstat =
            "TcpExt: SyncookiesSent ListenOverflows PruneCalled RcvPruned\nTcpExt: 1 2 3 4\nIpExt: A\nIpExt: 9\n";
        let softnet = "000000ff 0000000a 00000001\n00000001 00000010 0\n";
        let expected = Counters { listen_overflows: 2, receive_pruned: 7, backlog_dropped: 26 };
        assert_eq!(Counters::parse(netstat, softnet), expected);
        assert_eq!(Counters::parse("TcpExt: ListenOverflows\nTcpExt: x\n", "\nzz zz\n1"), Counters::default());
        assert_eq!(Counters::parse("", ""), Counters::default());
    }
}
