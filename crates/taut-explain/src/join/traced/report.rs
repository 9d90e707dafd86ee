//! What a capture and a trace come to together.

use std::collections::{BTreeMap, HashMap};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_event::Holder;
use taut_time::Instant;

use super::super::report::ClockFit;
use super::super::sightings::{MOST_SIGHTINGS, Sightings};
use super::super::why::NotJoined;
use super::clock::HostClock;
use super::evidence::{Around, around};
use super::ledger::{Part, Stretch, episodes, merge, stretches};
use super::line::Line;
use super::log::{Mark, TraceLog, ends};
use super::pair::pair;
use super::rule::Told;
use crate::engine::{Breakdown, Episode, Held, Picture, held};
use crate::trace::{Traced, TracedDirection};
use crate::words;

/// Less of a direction's time is not told by itself.
const LEAST_SHARE: f64 = 0.01;

/// What a capture and a trace have of the same connections, on the clock of the capture.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct JoinedTrace {
    /// The capture, whose clock counts.
    pub reference: String,
    /// What `taut trace --events` wrote.
    pub trace: String,
    /// Connections of which both have segments.
    pub connections: u64,
    /// Events of the trace whose packet is in the capture, and by which the clocks were fitted.
    pub matched_packets: u64,
    /// The traced host's time of day against the capture's clock.
    pub clock: ClockFit,
    /// Too few packets tell that. The capture is taken to have been made with the traced host's time of day, which no
    /// packet contradicts; the error is then that of reading the clock.
    pub is_by_time_of_day: bool,
    /// From the begin of this timeline to the first packet of a connection in the capture.
    pub capture_begin_ns: u64,
    /// The directions that the capture reports and the trace has, in the order of the capture.
    pub directions: Vec<JoinedDirection>,
    /// What limits all that, a sentence each.
    pub remarks: Vec<String>,
}

/// One direction of a connection, by a capture and a trace together.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct JoinedDirection {
    /// Address and port of the sender.
    pub from: String,
    /// Address and port of the receiver.
    pub to: String,
    /// The traced program of the sender; absent if that end was not traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// The traced program of the receiver; absent if that end was not traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver: Option<String>,
    /// From the begin of the timeline to that of this direction's time.
    pub begin_ns: u64,
    /// From the first of what capture and trace have of it to the last. The parts of the breakdown add up to this.
    pub span_ns: u64,
    /// Time that the capture has of it.
    pub captured_ns: u64,
    /// Time that the trace has of it.
    pub traced_ns: u64,
    /// Who held the data, longest first.
    pub breakdown: Vec<Held>,
    /// Whose word that is. The parts add up to `span_ns`.
    pub told: ToldBy,
    /// Where both have it and do not say the same, the most time first.
    pub disagreements: Vec<Disagreement>,
    /// The longest stretch of each holder with 1 % of the time or more, among those between two packets of the capture
    /// if there are such, with what both have of it.
    pub longest: Vec<Witnessed>,
    /// What limits that, a sentence each.
    pub remarks: Vec<String>,
    /// Its time, stretch by stretch, from the begin of the timeline.
    #[serde(skip)]
    pub picture: Option<Picture>,
}

/// Whose word was taken, for how long.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct ToldBy {
    /// Capture and trace name the same holder.
    pub both_ns: u64,
    /// The trace's: what the kernel knows of its own socket, or what the capture does not know.
    pub trace_ns: u64,
    /// The capture's: what happened on the path or at the other end, or what the trace does not know.
    pub capture_ns: u64,
    /// Neither knows.
    pub nobody_ns: u64,
}

/// A time in which capture and trace do not say the same.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Disagreement {
    /// The holder by the capture.
    pub captured: String,
    /// The holder by the trace.
    pub traced: String,
    /// The one that was taken.
    pub holder: String,
    /// For how long.
    pub held_ns: u64,
}

/// A stretch of time, with what capture and trace have of it.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Witnessed {
    /// Who had the data.
    pub holder: String,
    /// From the begin of the timeline.
    pub begin_ns: u64,
    /// How long.
    pub held_ns: u64,
    /// The packet before it and the one that ended it, by their numbers in the capture; 0: none.
    pub frames: [u64; 2],
    /// What the traced programs did then; empty if the trace does not tell.
    pub seen: String,
}

impl TraceLog<'_> {
    /// The trace on the timeline of the capture. It lasted until `end`; `clock` is what it recorded of its host's
    /// clocks, and `programs` names the programs of threads.
    ///
    /// # Errors
    ///
    /// When they have no connection in common, when nothing tells which event is which packet, and when no clock that
    /// runs evenly explains both.
    pub fn join(
        self,
        end: Instant,
        clock: Option<&HostClock>,
        programs: &HashMap<u32, String>,
    ) -> Result<JoinedTrace, NotJoined> {
        let (sightings, explanation, beyond) = (self.sightings, self.explanation, self.beyond);
        if self.marks.is_empty() {
            return Err(NotJoined::NothingInCommon);
        }
        let clock = clock.ok_or(NotJoined::OldRecording)?;
        let (traced, mut marks) = self.finish(end);
        let placed = pair(sightings, &marks, clock.begin.time_of_day_ahead_ns);
        if placed.is_empty() {
            return Err(NotJoined::OtherSegments);
        }
        if explanation.clock_steps > 0 {
            return Err(NotJoined::ClockWasSet);
        }
        let line = Line::through(&placed, clock, sightings.resolution_ns.max(1) + 1)?;
        marks.iter_mut().for_each(|mark| mark.at = line.to_capture(mark.at));
        let around = around(sightings, &marks, &placed);
        let program = |thread: u32| match programs.get(&thread) {
            // A program's first thread has its number.
            Some(program) if program.ends_with(&format!("({thread})")) => program.clone(),
            Some(program) => format!("{program}, thread {thread},"),
            None => format!("thread {thread}"),
        };
        let captured_from = explanation.start.map_or(0, Instant::as_nanos);
        let mut ledgers = Vec::new();
        for ends in pairs_of_ends(explanation.worst.iter().map(|direction| (&direction.from, &direction.to))) {
            let all = explanation.worst.iter();
            let of_ends = all.filter(|direction| (direction.from.as_str(), direction.to.as_str()) == ends);
            let pictures = of_ends.clone().filter_map(|direction| direction.picture.as_ref());
            let captured: Vec<Stretch> =
                pictures.flat_map(|picture| stretches(picture, captured_from, |at| at)).collect();
            let round_trip_ns = of_ends.map(|direction| direction.min_rtt_ns).filter(|&ns| ns > 0).min();
            ledgers.extend(Ledger::of(ends, (captured, round_trip_ns), &traced, &line));
        }
        let origin =
            ledgers.iter().map(|ledger| ledger.parts[0].from).min().unwrap_or(captured_from).min(captured_from);
        let nothing = Around::default();
        let directions = ledgers.iter().map(|ledger| {
            let flow = ends(ledger.ends.0, ledger.ends.1).and_then(|ends| sightings.flow_between(&ends));
            let around = flow.and_then(|flow| around.get(&flow)).unwrap_or(&nothing);
            ledger.report(origin, around, programs, &program)
        });
        Ok(JoinedTrace {
            connections: connections(&marks, &placed.iter().map(|placed| placed.found.other).collect::<Vec<_>>()),
            matched_packets: placed.len() as u64,
            is_by_time_of_day: line.is_by_time_of_day,
            capture_begin_ns: captured_from - origin,
            directions: directions.collect(),
            remarks: remarks(&line, clock, sightings, beyond),
            clock: line.clock,
            ..JoinedTrace::default()
        })
    }
}

/// Each once, in their order.
fn pairs_of_ends<'t>(all: impl Iterator<Item = (&'t String, &'t String)>) -> Vec<(&'t str, &'t str)> {
    let mut known = Vec::new();
    for (from, to) in all {
        if !known.contains(&(from.as_str(), to.as_str())) {
            known.push((from.as_str(), to.as_str()));
        }
    }
    known
}

fn connections(marks: &[Mark], matched: &[u32]) -> u64 {
    let mut flows: Vec<u32> = matched.iter().map(|&mark| marks[mark as usize].flow).collect();
    flows.sort_unstable();
    flows.dedup();
    flows.len() as u64
}

fn remarks(line: &Line, clock: &HostClock, sightings: &Sightings, beyond: u64) -> Vec<String> {
    let mut remarks = Vec::new();
    if line.is_by_time_of_day {
        remarks.push(
            "Too few packets tell the offset of the clocks. The capture is taken to have the time of day of the traced \
             host, as one made there has; no packet contradicts that."
                .to_owned(),
        );
    }
    let set = clock.was_set_by();
    if set != 0 {
        let by = words::time(set.unsigned_abs());
        remarks.push(format!("The traced host's time of day was set by {by} meanwhile; the packets tell no step."));
    }
    if line.strays > 0 {
        remarks.push(format!("{} packets fit no clock that runs evenly; they were left out.", line.strays));
    }
    if beyond > 0 || sightings.beyond > 0 {
        remarks.push(format!(
            "Of each file only the first {MOST_SIGHTINGS} packets or events are held against each other."
        ));
    }
    remarks
}

/// A direction's time, part by part.
struct Ledger<'t> {
    ends: (&'t str, &'t str),
    parts: Vec<Part>,
    /// As the sender's trace has it, and the receiver's.
    traced: [Vec<&'t TracedDirection>; 2],
    captured_ns: u64,
    traced_ns: u64,
}

impl<'t> Ledger<'t> {
    /// Nothing where the trace has none of it.
    fn of(
        ends: (&'t str, &'t str),
        (mut captured, round_trip_ns): (Vec<Stretch>, Option<u64>),
        all: &'t Traced,
        line: &Line,
    ) -> Option<Self> {
        let start = all.start.map_or(0, Instant::as_nanos);
        let of = |is_outgoing: bool| {
            let is_it = move |one: &&TracedDirection| {
                one.is_outgoing == is_outgoing && (one.from.as_str(), one.to.as_str()) == ends && one.transport == "tcp"
            };
            all.worst.iter().filter(is_it).collect::<Vec<_>>()
        };
        let traced = [of(true), of(false)];
        let mut sources = traced.each_ref().map(|directions| {
            let pictures = directions.iter().filter_map(|direction| direction.picture.as_ref());
            pictures.flat_map(|picture| stretches(picture, start, |at| line.to_capture(at))).collect::<Vec<_>>()
        });
        // The same ends may have several connections, one after another.
        captured.sort_by_key(|stretch| stretch.from);
        sources.iter_mut().for_each(|all| all.sort_by_key(|stretch| stretch.from));
        let [sender, receiver] = &sources;
        if sender.is_empty() && receiver.is_empty() || captured.is_empty() {
            return None;
        }
        let parts = merge(&captured, sender, receiver, round_trip_ns);
        // A file that was made up may have them over one another.
        let length = |all: &[Stretch]| all.iter().fold(0_u64, |sum, one| sum.saturating_add(one.to - one.from));
        let (captured_ns, traced_ns) = (length(&captured), length(sender).max(length(receiver)));
        (!parts.is_empty()).then_some(Self { ends, parts, traced, captured_ns, traced_ns })
    }

    fn report(
        &self,
        origin: u64,
        around: &Around,
        programs: &HashMap<u32, String>,
        program: &impl Fn(u32) -> String,
    ) -> JoinedDirection {
        let (from, to) = (self.parts[0].from, self.parts[self.parts.len() - 1].to);
        let mut breakdown = Breakdown::default();
        breakdown.keep_trail(usize::MAX);
        let mut longest: BTreeMap<Holder, (bool, Stretch)> = BTreeMap::new();
        for stretch in episodes(&self.parts) {
            let [before, after] = around.frames(stretch.from, stretch.to);
            let episode = Episode { from: stretch.from, to: stretch.to, places: (before, after) };
            breakdown.book(stretch.holder, episode);
            // One that the capture has begin and end of tells more.
            let is_between_packets = before > 0 && after > 0;
            let known = longest.entry(stretch.holder).or_insert((is_between_packets, stretch));
            if (is_between_packets, stretch.to - stretch.from) > (known.0, known.1.to - known.1.from) {
                *known = (is_between_packets, stretch);
            }
        }
        breakdown.close();
        let rows = held(&breakdown, origin);
        let sender_is_first = ends(self.ends.0, self.ends.1).is_none_or(|(first, ..)| first.to_string() == self.ends.0);
        let witnessed = |row: &Held| {
            let (_, stretch) = longest.values().find(|(_, stretch)| stretch.holder.name() == row.holder)?;
            Some(Witnessed {
                holder: row.holder.clone(),
                begin_ns: stretch.from - origin,
                held_ns: stretch.to - stretch.from,
                frames: around.frames(stretch.from, stretch.to),
                seen: around.told(stretch.to, sender_is_first, program),
            })
        };
        let named = |directions: &[&TracedDirection]| {
            let thread = directions.first()?.thread;
            let name = |thread: u32| programs.get(&thread).cloned().unwrap_or_else(|| format!("thread {thread}"));
            Some(thread.map_or_else(|| "a program".to_owned(), name))
        };
        JoinedDirection {
            from: self.ends.0.to_owned(),
            to: self.ends.1.to_owned(),
            sender: named(&self.traced[0]),
            receiver: named(&self.traced[1]),
            begin_ns: from - origin,
            span_ns: to - from,
            captured_ns: self.captured_ns,
            traced_ns: self.traced_ns,
            longest: rows.iter().filter(|row| row.share >= LEAST_SHARE).filter_map(witnessed).collect(),
            breakdown: rows,
            told: told(&self.parts),
            disagreements: disagreements(&self.parts),
            remarks: self.remarks(),
            picture: breakdown.picture(origin, usize::MAX),
        }
    }

    fn remarks(&self) -> Vec<String> {
        let traced = self.traced.iter().flatten();
        let mut remarks: Vec<String> = traced.clone().flat_map(|direction| direction.remarks.iter().cloned()).collect();
        if !remarks.is_empty() {
            remarks.push("What the trace does not know the capture tells here, as far as it does.".to_owned());
        }
        let cut =
            traced.filter_map(|direction| direction.picture.as_ref()).map(|picture| picture.left_out).sum::<u64>();
        if cut > 0 {
            remarks.push(format!("{cut} short stretches of the trace were not kept; there the capture is believed."));
        }
        remarks
    }
}

fn told(parts: &[Part]) -> ToldBy {
    let mut by = ToldBy::default();
    for part in parts {
        let sum = match part.told {
            Told::Both => &mut by.both_ns,
            Told::Trace => &mut by.trace_ns,
            Told::Capture => &mut by.capture_ns,
            Told::Nobody => &mut by.nobody_ns,
        };
        *sum += part.to - part.from;
    }
    by
}

fn disagreements(parts: &[Part]) -> Vec<Disagreement> {
    let mut sums: BTreeMap<(Holder, Holder, Holder), u64> = BTreeMap::new();
    for part in parts {
        let (Some(captured), Some(traced)) = (part.captured, part.traced) else { continue };
        if captured != traced {
            *sums.entry((captured, traced, part.holder)).or_default() += part.to - part.from;
        }
    }
    let one = |((captured, traced, holder), held_ns): ((Holder, Holder, Holder), u64)| Disagreement {
        captured: captured.name().to_owned(),
        traced: traced.name().to_owned(),
        holder: holder.name().to_owned(),
        held_ns,
    };
    let mut all: Vec<Disagreement> = sums.into_iter().map(one).collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.held_ns));
    all
}
