use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_record::{Ended, WatchRow, WatchedCount, WatchedLoss, WatchedPlace};

use crate::lines::{WIDTH, cut, cut_to, line_to, wrap};
use crate::units;

/// What the connections of a host lost in one interval: an object a line of `taut watch --json`.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct WatchDocument {
    /// Version of this form.
    pub format_version: u32,
    /// `watch`.
    pub command: String,
    /// 1: by looks alone. 2: the kernel also counted what fell between two looks. 1 in what was written before this.
    #[serde(default = "looks_alone")]
    pub grade: u8,
    /// End of the interval, in ms since 1970-01-01 UTC.
    pub at_unix_ms: u64,
    /// Length of the interval.
    pub span_ns: u64,
    /// Connections at its end, listening sockets left out.
    pub connections: u64,
    /// Looks at all sockets.
    pub looks: u32,
    /// Looks at those alone in which something waited.
    pub suspect_looks: u32,
    /// From one look at all sockets to the next one, at last. It may be longer than the interval.
    pub look_period_ns: u64,
    /// Processor time of all this, in the interval.
    pub work_ns: u64,
    /// What loses time, the longest time in this interval first.
    pub losses: Vec<WatchedLoss>,
    /// What lost time before, and has not for some seconds.
    pub ended: Vec<EndedLoss>,
    /// What the kernel counted, event by event, with an event in the interval or the last minute; the longest time
    /// lost first. Empty with grade 1. A loss that a look met as well is in both lists.
    #[serde(default)]
    pub counted: Vec<WatchedCount>,
    /// What could not be seen, a sentence each.
    pub remarks: Vec<String>,
}

/// A loss that is over, or the sum of several of one place.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct EndedLoss {
    /// Who lost, and to what.
    #[serde(flatten)]
    pub place: WatchedPlace,
    /// How long it stood.
    pub stood_ns: u64,
    /// Time lost.
    pub lost_ns: u64,
    /// How often it began.
    pub episodes: u64,
}

const fn looks_alone() -> u8 {
    1
}

/// Losses that a screen or a summary shows, whatever its height.
const SHOWN: usize = 20;
const HEAD: &str = "STANDS      LOST  WORST  CAUSE               PROGRAM";
const COUNTED_HEAD: &str = " FIRST   LAST   EVENTS      LOST  LONGEST  COUNTED             PROGRAM";
/// Of what was counted, so much is shown where a terminal has an end.
const FEW: usize = 5;

impl WatchDocument {
    /// One JSON object in one line.
    pub fn to_json(&self) -> String {
        // Keys are strings and nothing else can fail, so an error would be a bug of ours.
        let mut json = serde_json::to_string(self).expect("a document is always JSON");
        json.push('\n');
        json
    }

    /// The interval as a table; of at most so many columns and lines, which a terminal has.
    pub fn to_table(&self, size: Option<[u16; 2]>) -> String {
        let mut text = String::new();
        let date = units::date(self.at_unix_ms / 1000);
        let lose = match self.losses.len() {
            0 => "nothing loses time that a look can see".to_owned(),
            1 => "1 loss".to_owned(),
            many => format!("{} losses", units::count(many as u64)),
        };
        let connections = connections(self.connections);
        line_to(&mut text, &cut(&format!("taut watch  {date}  {connections}; {lose}")));
        let work = units::share(self.work_ns as f64 / self.span_ns.max(1) as f64);
        let suspects = units::count(self.suspect_looks.into());
        let (span, period) = (units::time(self.span_ns), units::time(self.look_period_ns));
        let looked = format!(
            "{span}: all looked at every {period}, the suspicious {suspects} times; {work} of a processor; grade {}",
            self.grade
        );
        line_to(&mut text, &cut(&looked));
        let remarks: Vec<String> = self.remarks.iter().flat_map(|remark| wrap("", remark)).collect();
        if !self.losses.is_empty() {
            text.push('\n');
            line_to(&mut text, HEAD);
        }
        // Two lines of head, an empty one, the columns, and one for what is left out.
        let room = size.map_or(SHOWN, |[_, height]| {
            let few = self.counted.len().min(FEW);
            let counted = if few > 0 { few + 3 } else { 0 };
            let used = 6 + counted + if remarks.is_empty() { 0 } else { remarks.len() + 1 };
            (usize::from(height).saturating_sub(used) / 2).clamp(1, SHOWN)
        });
        for loss in self.losses.iter().take(room) {
            rows_of(loss, size.map(|[columns, _]| columns.into())).iter().for_each(|line| line_to(&mut text, line));
        }
        if self.losses.len() > room {
            line_to(&mut text, &format!("{} more", units::count((self.losses.len() - room) as u64)));
        }
        counted_to(&mut text, &self.counted, if size.is_some() { FEW } else { SHOWN });
        if !remarks.is_empty() {
            text.push('\n');
            remarks.iter().for_each(|line| line_to(&mut text, line));
        }
        text
    }

    /// What began and what ended in this interval, with the time; empty when nothing did.
    pub fn to_log(&self) -> String {
        let mut text = String::new();
        let date = units::date(self.at_unix_ms / 1000);
        for loss in self.losses.iter().filter(|loss| loss.is_new) {
            let share = units::share(loss.worst_share);
            let (place, name) = (&loss.place, loss.place.name());
            let (of, period) = (connections(loss.connections), units::time(loss.worst_look_period_ns));
            let cause = &place.cause;
            let head =
                format!("{date}  begins: {cause} at {name}, {of}, up to {share} of the time, by a look every {period}");
            wrap("", &head).iter().for_each(|line| line_to(&mut text, line));
            advice(loss).iter().for_each(|line| line_to(&mut text, line));
        }
        for count in self.counted.iter().filter(|count| count.is_new) {
            let (cause, name) = (&count.place.cause, count.place.name());
            let (events, lost) = (times(count.events), units::time(count.lost_ns));
            let took = if count.lost_ns > 0 { format!("; it took {lost}") } else { String::new() };
            let head = format!("{date}  counted: {cause} at {name}, {events}{took}");
            wrap("", &head).iter().for_each(|line| line_to(&mut text, line));
            let ends = format!("{} > {}", count.last_local, count.last_peer);
            let advice = format!("{}. The last is {ends}. CHANGE {}.", count.summary, count.remedy);
            wrap("  ", &advice).iter().for_each(|line| line_to(&mut text, line));
        }
        for loss in &self.ended {
            let (stood, lost) = (units::time(loss.stood_ns), units::time(loss.lost_ns));
            let (cause, name) = (&loss.place.cause, loss.place.name());
            wrap("", &format!("{date}  ended: {cause} at {name}, after {stood}; it took {lost}"))
                .iter()
                .for_each(|line| line_to(&mut text, line));
        }
        text
    }
}

/// Two lines of so many columns where that is all the room there is, the cure first; else all of it.
fn rows_of(loss: &WatchedLoss, columns: Option<usize>) -> Vec<String> {
    let first = format!(
        "{:>6}  {:>8}  {:>5}  {:<18}  {:<22}",
        units::apart(loss.stands_ns / 1_000_000_000),
        units::time(loss.total_lost_ns),
        format!("{:.0} %", loss.worst_share * 100.0),
        loss.place.cause,
        loss.place.program_name(),
    );
    debug_assert!(WIDTH >= HEAD.len());
    let (part, of) = (loss.place.part(), connections(loss.connections));
    match columns {
        None => {
            let mut lines = vec![cut(&format!("{first}  {part}"))];
            lines.extend(wrap(&" ".repeat(25), &format!("{of}. {}. CHANGE {}.", loss.summary, loss.remedy)));
            lines
        }
        Some(columns) if columns < WIDTH => {
            let second = format!("        {part}: CHANGE {}. {}. {of}.", loss.remedy, loss.summary);
            [first, second].iter().map(|line| cut_to(line, columns)).collect()
        }
        Some(_) => {
            let second = format!("{:25}CHANGE {}. {}. {of}.", "", loss.remedy, loss.summary);
            vec![cut(&format!("{first}  {part}")), cut(&second)]
        }
    }
}

/// What was counted, a line each, below an empty one and its columns; nothing where there is none.
fn counted_to(text: &mut String, counted: &[WatchedCount], room: usize) {
    if counted.is_empty() {
        return;
    }
    text.push('\n');
    line_to(text, &cut(COUNTED_HEAD));
    for count in counted.iter().take(room) {
        let time = |nanos| if nanos > 0 { units::time(nanos) } else { "-".to_owned() };
        let line = format!(
            "{:>6} {:>6} {:>8}  {:>8} {:>8}  {:<18}  {:<22}  {}",
            units::apart(count.first_ago_ns / 1_000_000_000),
            units::apart(count.last_ago_ns / 1_000_000_000),
            units::count(count.total_events),
            time(count.total_lost_ns),
            time(count.longest_ns),
            count.place.cause,
            count.place.program_name(),
            count.place.part(),
        );
        line_to(text, &cut(&line));
    }
    if counted.len() > room {
        line_to(text, &format!("{} more", units::count((counted.len() - room) as u64)));
    }
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{} times", units::count(count)) }
}

fn advice(loss: &WatchedLoss) -> Vec<String> {
    let peer = loss.worst_peer_program.as_ref().map_or_else(String::new, |peer| format!(" ({peer})"));
    let ends = format!("The worst is {}{peer}.", loss.worst_ends());
    wrap("  ", &format!("{}. {ends} CHANGE {}.", loss.summary, loss.remedy))
}

pub(crate) fn connections(count: u64) -> String {
    if count == 1 { "1 connection".to_owned() } else { format!("{} connections", units::count(count)) }
}

/// What looks at the host's connections came to, in a sentence.
pub(crate) fn sentence(row: &WatchRow) -> String {
    let (span, all, active) = (units::time(row.span_ns), connections(row.connections), units::count(row.active));
    let of = format!("{active} of {all} active in {span}");
    match row.losses.len() {
        _ if !row.is_enough => "Too few looks to tell which connections lose time.".to_owned(),
        _ if row.connections == 0 => format!("This host had no TCP connection in {span}."),
        _ if row.active == 0 => format!("Idle: nothing was sent, received or waiting in {all} in {span}."),
        0 => format!("{of}: none loses time that a look can see."),
        1 => format!("{of}: 1 loss."),
        losses => format!("{of}: {} losses.", units::count(losses as u64)),
    }
}

/// What a whole watch came to, the longest time lost first, in at most 25 lines; then what the kernel counted, in at
/// most 23; and what could not be seen, as the last interval had it: a log has said nothing of that.
pub fn summary(
    ended: Ended,
    watched_ns: u64,
    totals: &[EndedLoss],
    counted: &[WatchedCount],
    remarks: &[String],
) -> String {
    let mut text = losses_in_all(ended, watched_ns, totals);
    counted_to(&mut text, counted, SHOWN);
    if !remarks.is_empty() {
        text.push('\n');
        remarks.iter().flat_map(|remark| wrap("", remark)).for_each(|line| line_to(&mut text, &line));
    }
    text
}

fn losses_in_all(ended: Ended, watched_ns: u64, totals: &[EndedLoss]) -> String {
    let mut text = String::new();
    if ended == Ended::Interrupted {
        text.push_str("PARTIAL: interrupted\n");
    }
    let watched = units::time(watched_ns);
    if totals.is_empty() {
        line_to(&mut text, &format!("Watched for {watched}: nothing lost time that a look can see."));
        return text;
    }
    line_to(&mut text, &format!("Watched for {watched}. The longest time lost comes first:"));
    line_to(&mut text, "    LOST     STOOD  TIMES  CAUSE AND PROGRAM");
    for total in totals.iter().take(SHOWN) {
        let (lost, stood) = (units::time(total.lost_ns), units::time(total.stood_ns));
        let (times, cause, name) = (units::count(total.episodes), &total.place.cause, total.place.name());
        line_to(&mut text, &cut(&format!("{lost:>8}  {stood:>8}  {times:>5}  {cause} at {name}")));
    }
    if totals.len() > SHOWN {
        line_to(&mut text, &format!("{} more", units::count((totals.len() - SHOWN) as u64)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn what_looks_came_to_is_a_sentence() {
        let document = synthetic::survey();
        let mut rows = document.recording.results.into_iter();
        let row = rows.find_map(|row| if let taut_record::Row::Watch(row) = row { Some(*row) } else { None }).unwrap();
        assert_eq!(sentence(&row), "56 of 1,234 connections active in 5.00 s: 1 loss.");
        let none = WatchRow { losses: Vec::new(), ..row };
        assert!(sentence(&none).ends_with(": none loses time that a look can see."));
        let idle = WatchRow { active: 0, connections: 1, ..none };
        assert_eq!(sentence(&idle), "Idle: nothing was sent, received or waiting in 1 connection in 5.00 s.");
        assert_eq!(
            sentence(&WatchRow { connections: 0, ..idle.clone() }),
            "This host had no TCP connection in 5.00 s."
        );
        assert!(sentence(&WatchRow { is_enough: false, ..idle }).starts_with("Too few looks"));
    }

    #[test]
    fn a_remedy_is_cut_only_where_a_terminal_has_no_room() {
        let document = synthetic::survey();
        let mut rows = document.recording.results.into_iter();
        let row = rows.find_map(|row| if let taut_record::Row::Watch(row) = row { Some(*row) } else { None }).unwrap();
        let mut loss = row.losses[0].clone();
        loss.remedy = format!("a longer queue {}end", "of what is to be accepted ".repeat(8));
        (loss.worst_local, loss.worst_peer) = ("127.0.0.1:7930".to_owned(), "0.0.0.0:0".to_owned());
        let words = |lines: Vec<String>| {
            assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:?}");
            lines.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert!(words(rows_of(&loss, None)).contains(&loss.remedy));
        // A narrow terminal shows what to change, and where.
        for columns in [80, 100, 120] {
            let lines = rows_of(&loss, Some(columns));
            assert!(lines.len() == 2 && lines.iter().all(|line| line.chars().count() <= columns), "{lines:?}");
            assert!(lines[1].contains("CHANGE a longer queue of what"), "{lines:?}");
            assert!(lines.concat().contains(&loss.place.part()), "{lines:?}");
        }
        assert!(words(advice(&loss)).contains("The worst is 127.0.0.1:7930, which listens"), "{:?}", advice(&loss));
    }

    #[test]
    fn what_was_counted_stands_below_the_losses_with_its_first_and_last_time() {
        let count = WatchedCount {
            place: WatchedPlace {
                cause: "loss".to_owned(),
                program: Some("app".to_owned()),
                pid: Some(7),
                side: "client".to_owned(),
                service: "10.0.0.1:80".to_owned(),
            },
            summary: "segments were lost and sent again".to_owned(),
            remedy: "find where the path drops packets".to_owned(),
            events: 2,
            lost_ns: 410_000_000,
            total_events: 1234,
            total_lost_ns: 9_000_000_000,
            longest_ns: 208_000_000,
            first_ago_ns: 7_300_000_000_000,
            last_ago_ns: 1_500_000_000,
            last_local: "10.0.0.2:4000".to_owned(),
            last_peer: "10.0.0.1:80".to_owned(),
            is_new: true,
        };
        let refused = WatchedPlace { cause: "refused".to_owned(), ..count.place.clone() };
        let none =
            WatchedCount { place: refused, total_lost_ns: 0, longest_ns: 0, lost_ns: 0, events: 1, ..count.clone() };
        let counted = vec![count, none];
        let unseen = ["3 counted events or places are left out: more than are kept.".to_owned()];
        let said = summary(Ended::Complete, 1_000_000_000, &[], &counted, &unseen);
        assert!(said.ends_with(&format!("\n\n{}\n", unseen[0])), "{said}");
        let text = summary(Ended::Complete, 1_000_000_000, &[], &counted, &[]);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        let expected = [
            " FIRST   LAST   EVENTS      LOST  LONGEST  COUNTED             PROGRAM",
            "   2 h    1 s    1,234    9.00 s   208 ms  loss                app (7)                 client of 10.0.0.1:80",
            "   2 h    1 s    1,234         -        -  refused             app (7)                 client of 10.0.0.1:80",
        ];
        let cut: Vec<String> = expected.iter().map(|line| cut(line)).collect();
        assert_eq!(lines, cut);
        let document = WatchDocument {
            format_version: 1,
            command: "watch".to_owned(),
            grade: 2,
            at_unix_ms: 0,
            span_ns: 2_000_000_000,
            connections: 7,
            looks: 10,
            suspect_looks: 5,
            look_period_ns: 20_000_000,
            work_ns: 20_000_000,
            losses: Vec::new(),
            ended: Vec::new(),
            counted,
            remarks: Vec::new(),
        };
        let log = document.to_log();
        let words = log.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("counted: loss at app (7), client of 10.0.0.1:80, 2 times; it took 410 ms"), "{log}");
        assert!(words.contains("counted: refused at app (7), client of 10.0.0.1:80, once segments were"), "{log}");
        // A low terminal shows few of them, and the head.
        let many = WatchDocument { counted: vec![document.counted[0].clone(); 9], ..document };
        let table = many.to_table(Some([100, 24]));
        assert!(table.contains("; grade 2\n") && table.contains("4 more") && table.lines().count() < 24, "{table}");
    }
}
