use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_record::Ended;

use crate::explained_file::holder_alone;
use crate::lines::{WIDTH, line_to, wrap};
use crate::units;

/// Sockets of a host with what holds their data: the one JSON object of `taut sockets`.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct SocketsDocument {
    /// Version of this form.
    pub format_version: u32,
    /// `sockets`.
    pub command: String,
    /// The command line, ready to be pasted.
    pub command_line: String,
    /// How it ended.
    pub ended: Ended,
    /// How long was looked.
    pub span_ns: u64,
    /// How often.
    pub looks: u32,
    /// What could not be seen, a sentence each.
    pub remarks: Vec<String>,
    /// Whether there were enough looks to tell which connections lose time.
    pub is_enough: bool,
    /// Those that lose time first, then those that had something to send for the longest time. Of listening
    /// sockets only those whose accept queue was full.
    pub sockets: Vec<SocketRow>,
}

/// One TCP socket.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct SocketRow {
    /// Address of this end.
    pub local: String,
    /// Address of the other end.
    pub peer: String,
    /// State of the connection, as ss(8) has it.
    pub state: String,
    /// Whether a program has it. None has a connection that is not accepted yet, or that was closed and still
    /// has data to send.
    pub is_held: bool,
    /// Process that has it; `null` when it may not be looked at, or none has.
    pub pid: Option<i32>,
    /// Name of that process.
    pub program: Option<String>,
    /// Its number for the socket.
    pub fd: Option<i32>,
    /// Processes besides that have it open as well.
    pub other_processes: u32,
    /// Name and number of the program at the other end, if that is on this host.
    pub peer_program: Option<String>,
    /// `TCP_NODELAY` is set, so Nagle's algorithm is off; `null` where it may not be looked at.
    pub nodelay: Option<bool>,
    /// `TCP_CORK` is set.
    pub cork: Option<bool>,
    /// `TCP_QUICKACK` as it was last. `false`: acknowledgements are delayed. `true`: the first ones of a connection are
    /// prompt.
    pub quickack: Option<bool>,
    /// Of a listening socket, open connections that wait to be accepted; `null` for any other.
    pub accept_queue: Option<u32>,
    /// Of a listening socket, its backlog.
    pub backlog: Option<u32>,
    /// Written and not yet sent for the first time.
    pub unsent_bytes: u32,
    /// Sent and not yet acknowledged.
    pub in_flight_bytes: u32,
    /// Received and not yet read.
    pub unread_bytes: u32,
    /// Smoothed round-trip time, as the kernel has it; 0: not known, as nothing was acknowledged.
    pub rtt_ns: u64,
    /// Who held what was to be sent at the last look; `null` when nothing was.
    pub holder: Option<String>,
    /// From the first look at it to the last.
    pub span_ns: u64,
    /// How often it was looked at.
    pub samples: u32,
    /// Time without anything to send.
    pub idle_ns: u64,
    /// Time by holder, the longest first; with `idle_ns` it adds up to `span_ns`.
    pub held: Vec<HeldTime>,
    /// Samples in which bytes waited to be read.
    pub unread_samples: u32,
    /// Bytes acknowledged meanwhile.
    pub acknowledged_bytes: u64,
    /// Bytes received meanwhile.
    pub received_bytes: u64,
    /// Segments sent again meanwhile.
    pub retransmitted_segments: u32,
    /// Time in which the peer's receive window was the limit, as the kernel counts it (in steps of a timer tick).
    pub receive_window_limited_ns: u64,
    /// Time in which the send buffer was the limit, likewise.
    pub send_buffer_limited_ns: u64,
    /// What is suspicious, the longest time first.
    pub suspicions: Vec<Suspicion>,
}

/// Time of one holder.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct HeldTime {
    /// Who: `nagle`, `receive_window`, …
    pub holder: String,
    /// How long.
    pub held_ns: u64,
}

/// Something that takes time.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Suspicion {
    /// Short name, as `taut explain` has it.
    pub cause: String,
    /// What is the matter.
    pub summary: String,
    /// What to change.
    pub remedy: String,
    /// The time that it takes.
    pub time_ns: u64,
}

/// Others than the suspicious ones that are shown unless all are wanted.
const SHOWN: usize = 20;

impl SocketsDocument {
    /// The document as one JSON object, indented, with a newline at the end.
    pub fn to_json(&self) -> String {
        // Keys are strings and nothing else can fail, so an error would be a bug of ours.
        let mut json = serde_json::to_string_pretty(self).expect("a document is always JSON");
        json.push('\n');
        json
    }

    /// Those that lose time in full, then the others, a line each.
    pub fn to_text(&self, all: bool) -> String {
        let mut text = String::new();
        if self.ended == Ended::Interrupted {
            text.push_str("PARTIAL: interrupted\n");
        }
        let (suspicious, others): (Vec<_>, Vec<_>) = self.sockets.iter().partition(|row| !row.suspicions.is_empty());
        let lose = match suspicious.len() {
            _ if !self.is_enough => "too few looks to tell who loses time".to_owned(),
            0 => "none loses time that a look can see".to_owned(),
            1 => "1 loses time".to_owned(),
            many => format!("{} lose time", units::count(many as u64)),
        };
        let looks = units::count(self.looks.into());
        let span = units::time(self.span_ns);
        let all_sockets = units::count(self.sockets.len() as u64);
        let looks = if self.looks == 1 { "once".to_owned() } else { format!("{looks} times in {span}") };
        wrap("", &format!("TCP sockets: {all_sockets}, looked at {looks}; {lose}."))
            .iter()
            .for_each(|line| line_to(&mut text, line));
        for row in suspicious {
            text.push('\n');
            detail(row).iter().for_each(|line| line_to(&mut text, line));
        }
        if !others.is_empty() {
            text.push('\n');
            line_to(&mut text, HEAD);
        }
        let shown = if all { others.len() } else { others.len().min(SHOWN) };
        for row in &others[..shown] {
            brief(row).iter().for_each(|line| line_to(&mut text, line));
        }
        if shown < others.len() {
            line_to(&mut text, &format!("{} more; --all shows them.", units::count((others.len() - shown) as u64)));
        }
        self.remarks.iter().flat_map(|remark| wrap("", remark)).for_each(|line| line_to(&mut text, &line));
        text
    }
}

const HEAD: &str = "OPTIONS                   UNSENT  IN FLIGHT     UNREAD       RTT  HELD BY";

/// The connection, what is set, what waits, and each suspicion with its remedy.
fn detail(row: &SocketRow) -> Vec<String> {
    let mut lines = wrap("", &title(row));
    let facts = match (row.accept_queue, row.backlog) {
        (Some(waiting), Some(backlog)) => {
            format!("{} to be accepted, backlog {}", units::count(waiting.into()), units::count(backlog.into()))
        }
        _ => facts(row),
    };
    lines.extend(wrap("  ", &facts));
    for suspicion in &row.suspicions {
        let share = units::share(suspicion.time_ns as f64 / row.span_ns.max(1) as f64);
        let time = units::time(suspicion.time_ns);
        let text =
            format!("{}: {} ({time}, {share}). CHANGE {}.", suspicion.cause, suspicion.summary, suspicion.remedy);
        lines.extend(wrap("  ", &text));
    }
    lines
}

fn facts(row: &SocketRow) -> String {
    format!(
        "{}; {} unsent, {} in flight, {} unread; RTT {}",
        options(row, ", "),
        units::size(row.unsent_bytes.into()),
        units::size(row.in_flight_bytes.into()),
        units::size(row.unread_bytes.into()),
        rtt(row).unwrap_or_else(|| "not known".to_owned())
    )
}

/// The kernel has none as long as nothing was acknowledged, such as a SYN.
fn rtt(row: &SocketRow) -> Option<String> {
    (row.rtt_ns > 0).then(|| units::time(row.rtt_ns))
}

fn title(row: &SocketRow) -> String {
    let is_left = matches!(row.state.as_str(), "established" | "close-wait" | "listen");
    let program = program(row).unwrap_or_else(|| match row.is_held {
        true => "a program that may not be looked at".to_owned(),
        false if is_left => "no program has accepted it".to_owned(),
        false => format!("no program has it any more ({})", row.state),
    });
    let peer = row.peer_program.as_deref().map_or_else(String::new, |peer| format!(", to {peer}"));
    let ends =
        if row.state == "listen" { format!("{} listens", row.local) } else { format!("{} > {}", row.local, row.peer) };
    format!("{ends}  {program}{peer}")
}

fn program(row: &SocketRow) -> Option<String> {
    let others = match row.other_processes {
        0 => String::new(),
        1 => " and 1 other".to_owned(),
        many => format!(" and {} others", units::count(many.into())),
    };
    Some(format!("{} ({}){others}", row.program.as_deref()?, row.pid?))
}

/// What ss(8) can't say; a question mark where it may not be looked at.
fn options(row: &SocketRow, between: &str) -> String {
    if row.state == "listen" || !row.is_held && row.nodelay.is_none() {
        return "-".to_owned();
    }
    let (Some(nodelay), Some(cork), Some(quickack)) = (row.nodelay, row.cork, row.quickack) else {
        return "options ?".to_owned();
    };
    let mut options = vec![if nodelay { "nodelay" } else { "nagle" }];
    if cork {
        options.push("cork");
    }
    options.push(if quickack { "quickack" } else { "delayed ACK" });
    options.join(between)
}

/// One line, or two where the addresses are long.
fn brief(row: &SocketRow) -> Vec<String> {
    let holder = row.holder.as_deref().map_or_else(|| "-".to_owned(), holder_alone);
    let first = format!(
        "{:<22} {:>9}  {:>9}  {:>9}  {:>8}  {holder}",
        options(row, " "),
        units::size(row.unsent_bytes.into()),
        units::size(row.in_flight_bytes.into()),
        units::size(row.unread_bytes.into()),
        rtt(row).unwrap_or_else(|| "-".to_owned())
    );
    let program = program(row).map_or_else(String::new, |program| format!("  {program}"));
    let second = format!("    {} > {}{program}", row.local, row.peer);
    debug_assert!(WIDTH >= HEAD.len());
    vec![first, second]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_that_is_not_known_is_no_time() {
        let row = |rtt_ns: u64| -> SocketRow {
            serde_json::from_value(serde_json::json!({
                "local": "10.0.0.1:4000", "peer": "10.0.0.2:80", "state": "syn-sent", "is_held": true, "pid": 7,
                "program": "nc", "fd": 3, "other_processes": 0, "peer_program": null, "nodelay": false, "cork": false,
                "quickack": true, "accept_queue": null, "backlog": null, "unsent_bytes": 0, "in_flight_bytes": 0,
                "unread_bytes": 0, "rtt_ns": rtt_ns, "holder": null, "span_ns": 1, "samples": 1, "idle_ns": 0,
                "held": [], "unread_samples": 0, "acknowledged_bytes": 0, "received_bytes": 0,
                "retransmitted_segments": 0, "receive_window_limited_ns": 0, "send_buffer_limited_ns": 0,
                "suspicions": []
            }))
            .expect("it is a row")
        };
        assert!(facts(&row(0)).ends_with("RTT not known"), "{}", facts(&row(0)));
        assert!(
            !brief(&row(0))[0].contains("0 ns") && brief(&row(1000))[0].contains("1.00 µs"),
            "{:?}",
            brief(&row(0))
        );
    }
}
