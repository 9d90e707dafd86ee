use std::fmt::Write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use taut_explain::join::{Joined, JoinedTrace};
use taut_explain::{ChannelFacts, Direction, Unanswered, Verdict};
use taut_record::Ended;

use crate::difference::Difference;
use crate::explained_air;
use crate::explained_datagrams;
use crate::explained_file::{ExplainedFile, held_by};
use crate::explained_gatt;
use crate::explained_joined;
use crate::explained_model;
use crate::explained_over_all;
use crate::explained_recorded::ExplainedTrace;
use crate::explained_timeline;
use crate::explained_times;
use crate::found::{breakdown, finding};
use crate::lines::{WIDTH, cut, fold, line_to, width, wrap};
use crate::units;

/// What `taut explain` found out about captures: its one JSON object.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct ExplainDocument {
    /// Version of this form.
    pub format_version: u32,
    /// `explain`.
    pub command: String,
    /// The command line, ready to be pasted.
    pub command_line: String,
    /// How it ended.
    pub ended: Ended,
    /// One entry for each capture, in the order in which they were named.
    pub files: Vec<ExplainedFile>,
    /// One for each file that `taut trace --events` wrote, likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traces: Vec<ExplainedTrace>,
    /// The other files on the timeline of the first one, where they hold the same connections.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joined: Vec<Joined>,
    /// Traces on the timeline of the first capture, where they hold the same connections.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joined_traces: Vec<JoinedTrace>,
    /// What changed from the first file to the second, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
}

/// Longest verdict on one file, in lines.
const LINES: usize = 15;

impl ExplainDocument {
    /// The document as one JSON object, indented, with a newline at the end.
    pub fn to_json(&self) -> String {
        // Keys are strings and nothing else can fail, so an error would be a bug of ours.
        let mut json = serde_json::to_string_pretty(self).expect("a document is always JSON");
        json.push('\n');
        json
    }

    /// JSON Schema of the document.
    pub fn schema() -> Value {
        schemars::schema_for!(Self).to_value()
    }

    /// The difference, if there is one, and without it, or if all details are wanted, the verdict
    /// on each file in at most 15 lines of at most 100 columns; below it the details, if wanted.
    pub fn to_text(&self, is_full: bool) -> String {
        let mut text = String::new();
        if self.ended == Ended::Interrupted {
            text.push_str("PARTIAL: interrupted\n");
        }
        if let Some(difference) = &self.difference {
            difference.to_lines().iter().for_each(|line| line_to(&mut text, line));
        }
        let verdicts = if is_full || self.difference.is_none() { &self.files[..] } else { &[] };
        for (index, file) in verdicts.iter().enumerate() {
            if index > 0 || self.difference.is_some() {
                text.push('\n');
            }
            verdict(file).iter().for_each(|line| line_to(&mut text, line));
            explained_model::lines(&file.explanation).iter().for_each(|line| line_to(&mut text, line));
            if is_full {
                details(file).iter().for_each(|line| line_to(&mut text, line));
            }
        }
        for (index, traced) in self.traces.iter().enumerate() {
            if index + self.files.len() > 0 {
                text.push('\n');
            }
            text += &traced.to_text(is_full);
        }
        for joined in &self.joined {
            text.push('\n');
            explained_joined::lines(joined, is_full).iter().for_each(|line| line_to(&mut text, line));
        }
        for joined in &self.joined_traces {
            text.push('\n');
            explained_timeline::lines(joined, is_full).iter().for_each(|line| line_to(&mut text, line));
        }
        text
    }
}

/// [`LINES`], and more in a narrow terminal: as much is said there.
fn most_lines() -> usize {
    (LINES * WIDTH).div_ceil(width())
}

/// That connections never came to be, where that is so.
fn unanswered(unanswered: &Unanswered) -> Option<String> {
    let Unanswered { connections, longest_ns, frame } = *unanswered;
    let what = match connections {
        0 => return None,
        1 => "1 connection was".to_owned(),
        count => format!("{} connections were", units::count(count)),
    };
    Some(format!(
        "{what} asked for and never answered: SYN was sent again for up to {} (from packet {frame} on). Is the host \
         there, does a program listen at the port, and does a firewall let it by?",
        units::time(longest_ns)
    ))
}

fn verdict(file: &ExplainedFile) -> Vec<String> {
    let explanation = &file.explanation;
    let mut lines = vec![headline(file)];
    let unanswered = unanswered(&explanation.unanswered);
    lines.extend(unanswered.iter().flat_map(|line| wrap("", line)));
    let Some(worst) = explanation.worst.first() else {
        let why = if unanswered.is_some() { "." } else { ", so there is nothing to explain." };
        lines.extend(wrap("", &format!("No data over TCP, UDP or Bluetooth LE is in it{why}")));
        lines.extend(file.remarks.iter().flat_map(|remark| wrap("  ", remark)));
        lines.truncate(most_lines());
        return lines;
    };
    lines.extend(fold(&title(worst)));
    lines.extend(breakdown(&worst.breakdown, worst.span_ns, 4));
    let mut findings: Vec<Vec<String>> = Vec::new();
    let found = worst.verdicts.iter().filter_map(|on| match &on.verdict {
        Verdict::Found(found) => Some((on.cause.as_str(), found)),
        _ => None,
    });
    match found.clone().next() {
        Some((cause, found)) => {
            findings.push(dark(worst).filter(|_| found.cost.share < 0.5).map_or_else(Vec::new, |line| wrapped(&line)));
            findings.push(finding(cause, found, 2));
        }
        None => findings.push(wrapped(&nothing_found(worst))),
    }
    let also: Vec<String> =
        found.skip(1).map(|(cause, found)| format!("{cause} {}", units::share(found.cost.share))).collect();
    let tell = worst.verdicts.iter().find_map(|on| match &on.verdict {
        Verdict::Unknown { missing, ask } => Some(format!("CAN'T TELL {}: {missing}. To know, {ask}.", on.cause)),
        _ => None,
    });
    findings.push(tell.map_or_else(Vec::new, |tell| wrap("  ", &tell)));
    let remarks = worst.remarks.iter().chain(&file.remarks);
    let of_remarks = remarks.clone().count();
    findings.push(remarks.take(2).flat_map(|remark| wrap("  ", remark)).collect());
    let mut last = Vec::new();
    if !also.is_empty() {
        last.push(cut(&format!("Also: {}.", also.join(", "))));
    }
    last.extend(explained_over_all::short(explanation).iter().map(|line| cut(line)));
    let more = explanation.directions.saturating_sub(1);
    if more > 0 {
        let are = if more == 1 {
            "1 more direction has".to_owned()
        } else {
            format!("{} more directions have", units::count(more))
        };
        last.push(format!("{are} data; --full shows the worst of them."));
    }
    let all = lines.len() + findings.iter().map(Vec::len).sum::<usize>() + last.len();
    if of_remarks > 2 || of_remarks > 0 && all > most_lines() {
        last.push("--full has all remarks on what the capture lacks.".to_owned());
    }
    // What does not fit goes from the end of each part, least needed first.
    let room = most_lines().saturating_sub(last.len());
    for part in findings {
        lines.extend(part.into_iter().take(room.saturating_sub(lines.len())));
    }
    lines.extend(last);
    lines
}

/// The share of time of which nobody knows who held the data.
fn dark_share(direction: &Direction) -> f64 {
    let not_known = taut_event::Holder::NotKnown.name();
    direction.breakdown.iter().find(|held| held.holder == not_known).map_or(0.0, |held| held.share)
}

/// Before what was found: that it is not the half of it.
pub(crate) fn dark(direction: &Direction) -> Option<String> {
    let share = dark_share(direction);
    (share >= 0.5)
        .then(|| format!("CAN'T TELL what holds the data back for {} of the time; of the rest:", units::share(share)))
}

/// That no cause was found, and of how many that can be said.
pub(crate) fn nothing_found(direction: &Direction) -> String {
    let all = direction.verdicts.len();
    let unknown = direction.verdicts.iter().filter(|on| matches!(on.verdict, Verdict::Unknown { .. })).count();
    let dark = dark_share(direction);
    let dark_share = units::share(dark);
    if 2 * unknown >= all.max(1) || dark >= 0.5 {
        let causes = match unknown {
            0 => String::new(),
            _ => format!("{unknown} of {all} causes can't be told, and "),
        };
        return format!("CAN'T TELL what holds the data back: {causes}{dark_share} of the time is not known.");
    }
    match (unknown, dark >= 0.05) {
        (0, false) => "FOUND nothing that holds the data back.".to_owned(),
        (0, true) => format!("FOUND nothing that holds the data back, but {dark_share} of the time is not known."),
        _ => format!("FOUND nothing among {} of {all} causes; the others can't be told.", all - unknown),
    }
}

fn wrapped(line: &str) -> Vec<String> {
    wrap("  ", line).into_iter().map(|line| line.trim_start().to_owned()).collect()
}

pub(crate) fn headline(file: &ExplainedFile) -> String {
    let explanation = &file.explanation;
    let plural = |count: u64, one: &str| format!("{} {one}{}", units::count(count), if count == 1 { "" } else { "s" });
    let counts = format!(
        "{} in {}, {}, {} with data",
        plural(file.packets, "packet"),
        units::time(explanation.span_ns),
        plural(explanation.flows, file.kind_of_flow()),
        plural(explanation.directions, "direction")
    );
    let room = width().saturating_sub(counts.chars().count() + 2);
    format!("{}: {counts}", tail(&file.file, room))
}

/// The end of a path tells more than its beginning.
fn tail(path: &str, room: usize) -> String {
    let length = path.chars().count();
    if length <= room {
        return path.to_owned();
    }
    let end: String = path.chars().skip(length - room.saturating_sub(1)).collect();
    format!("…{end}")
}

/// `LE 1M, interval 7.50 ms, 251 B`, the last of which a data PDU carries.
fn link(channel: &ChannelFacts) -> String {
    if matches!(channel.kind.as_str(), "basic" | "rfcomm" | "media") {
        return "BR/EDR".to_owned();
    }
    let mut facts = Vec::new();
    facts.extend(channel.phy.as_ref().map(|phy| format!("LE {phy}")));
    facts.extend(channel.interval_ns.map(|interval| format!("interval {}", units::time(interval))));
    facts.extend(channel.length_bytes.map(|length| format!("{length} B")));
    if facts.is_empty() { "link not known".to_owned() } else { facts.join(", ") }
}

pub(crate) fn title(direction: &Direction) -> String {
    if let Some(facts) = &direction.datagrams {
        return explained_datagrams::title(direction, facts);
    }
    if let Some(air) = &direction.air {
        return explained_air::title(direction, air);
    }
    if let Some(channel) = &direction.channel {
        let (bytes, span) = (units::size(direction.bytes), units::time(direction.span_ns));
        return format!("{} > {}: {bytes} in {span}, {}", direction.from, direction.to, link(channel));
    }
    let (bytes, span) = (units::size(direction.bytes), units::time(direction.span_ns));
    let Some(vantage) = direction.vantage.filter(|_| direction.min_rtt_ns > 0) else {
        return format!(
            "{} > {}: {bytes} in {span}, where it was seen and RTT not known",
            direction.from, direction.to
        );
    };
    let place = match vantage {
        _ if direction.min_rtt_ns < 500_000 => "seen near both ends".to_owned(),
        near if near <= 0.25 => "seen at the sender".to_owned(),
        far if far >= 0.75 => "seen at the receiver".to_owned(),
        between => format!("seen {:.0} % of the way from the sender", between * 100.0),
    };
    let rtt = units::time(direction.min_rtt_ns);
    format!("{} > {}: {bytes} in {span}, {place}, RTT {rtt}", direction.from, direction.to)
}

fn segment_facts(direction: &Direction) -> String {
    let mut facts = format!(
        "{} segments of at most {} bytes, {} sent again; at most {} in flight",
        units::count(direction.segments),
        direction.mss_bytes,
        units::count(direction.repeated_segments),
        units::size(direction.peak_flight_bytes)
    );
    if let Some(window) = direction.largest_window_bytes {
        let _ = write!(facts, "; window at most {}", units::size(window.into()));
    }
    if let Some(median) = direction.median_rtt_ns {
        let _ = write!(facts, "; median RTT {}", units::time(median));
    }
    facts + "."
}

fn channel_facts(direction: &Direction, channel: &ChannelFacts) -> String {
    let mut facts = format!(
        "{} SDUs in {} PDUs and {} ACL packets of at most {} bytes",
        units::count(channel.sdus),
        units::count(channel.pdus),
        units::count(direction.segments),
        direction.mss_bytes
    );
    if channel.most_packets_per_interval > 0 {
        let _ = write!(facts, ", at most {} of them within an interval", channel.most_packets_per_interval);
    }
    let told = [
        ("MTU", channel.mtu_bytes),
        ("MPS", channel.mps_bytes),
        ("credits at first", channel.initial_credits),
        ("latency", channel.latency),
        ("controller's buffers", channel.controller_buffers),
    ];
    for (what, value) in told {
        if let Some(value) = value {
            let _ = write!(facts, "; {what} {value}");
        }
    }
    if let Some(median) = channel.median_completion_ns {
        let _ = write!(facts, "; through after {} (median)", units::time(median));
        if let Some(most) = channel.max_completion_ns {
            let _ = write!(facts, ", {} at most", units::time(most));
        }
    }
    let _ = write!(facts, "; on the air {}", units::time(channel.on_air_ns));
    facts += if channel.is_encrypted { "; encrypted." } else { "." };
    if channel.pdus_of_unknown_sdus > 0 {
        let _ = write!(
            facts,
            " Behind packets that the log lacks it is not known where SDUs begin: those in {} of the PDUs are not counted.",
            units::count(channel.pdus_of_unknown_sdus)
        );
    }
    facts
}

fn details(file: &ExplainedFile) -> Vec<String> {
    let over_all = explained_over_all::full(&file.explanation);
    let times = explained_times::over_all(&file.explanation);
    let mut lines: Vec<String> = over_all.iter().chain(&times).flat_map(|line| wrapped(line)).collect();
    for (index, direction) in file.explanation.worst.iter().enumerate() {
        lines.push(String::new());
        lines.extend(fold(&format!("[{}] {}", index + 1, title(direction))));
        lines.extend(breakdown(&direction.breakdown, direction.span_ns, usize::MAX));
        let facts = match (&direction.channel, &direction.datagrams, &direction.air) {
            (Some(channel), ..) => vec![channel_facts(direction, channel)],
            (None, Some(datagrams), _) => explained_datagrams::facts(direction, datagrams),
            (None, None, Some(air)) => explained_air::facts(direction, air),
            (None, None, None) => vec![segment_facts(direction)],
        };
        let times = direction.times.iter().map(explained_times::line);
        lines.extend(facts.into_iter().chain(times).flat_map(|facts| wrap("  ", &facts)));
        let gatt = direction.channel.as_ref().and_then(|channel| channel.gatt.as_ref());
        lines.extend(gatt.into_iter().flat_map(explained_gatt::lines));
        let mut clear = Vec::new();
        for on in &direction.verdicts {
            match &on.verdict {
                Verdict::Found(found) => lines.extend(finding(&on.cause, found, usize::MAX)),
                Verdict::Unknown { missing, ask } => {
                    lines.extend(wrap("  ", &format!("CAN'T TELL {}: {missing}. To know, {ask}.", on.cause)));
                }
                Verdict::Clear => clear.push(on.cause.as_str()),
            }
        }
        if !clear.is_empty() {
            lines.extend(wrap("  ", &format!("Not there: {}.", clear.join(", "))));
        }
        for held in direction.breakdown.iter().filter(|held| !held.longest.is_empty()) {
            let stalls: Vec<String> = held
                .longest
                .iter()
                .map(|stall| {
                    format!("{} (frames {} to {})", units::time(stall.held_ns), stall.frames[0], stall.frames[1])
                })
                .collect();
            lines.extend(wrap("  ", &format!("Longest, {}: {}.", held_by(held), stalls.join(", "))));
        }
        lines.extend(direction.remarks.iter().flat_map(|remark| wrap("  ", remark)));
    }
    lines.extend(file.remarks.iter().flat_map(|remark| wrap("", remark)));
    lines
}
