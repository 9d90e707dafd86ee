//! What a capture and a trace come to together.

use std::collections::{BTreeMap, HashMap};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_event::Holder;
use taut_time::Instant;

use super::super::report::{ClockFit, strays};
use super::super::sightings::{MOST_SIGHTINGS, Sightings};
use super::super::why::NotJoined;
use super::clock::HostClock;
use super::evidence::{Around, around};
use super::ledger::{Part, Stretch, episodes, extent, merge, overlap, stretches, without_idle_end};
use super::line::Line;
use super::log::{TraceLog, ends};
use super::pair::pair;
use super::rule::Told;
use crate::engine::{Breakdown, Direction, Episode, Held, Picture, held};
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
        let (sightings, explanation, beyond, drawn) = (self.sightings, self.explanation, self.beyond, self.drawn);
        if self.marks.is_empty() {
            return Err(NotJoined::NoTcpInCommon);
        }
        let clock = clock.ok_or(NotJoined::OldRecording)?;
        let (traced, mut marks) = self.finish(end);
        let pairs = pair(sightings, &marks, clock.begin.time_of_day_ahead_ns);
        if pairs.events.is_empty() {
            return Err(NotJoined::OtherSegments);
        }
        if explanation.clock_steps > 0 {
            return Err(NotJoined::ClockWasSet);
        }
        let line = Line::through(&pairs, clock, sightings.resolution_ns.max(1) + 1)?;
        marks.iter_mut().for_each(|mark| mark.at = line.to_capture(mark.at));
        let around = around(sightings, &marks, &pairs.events);
        let program = |thread: u32| match programs.get(&thread) {
            // A program's first thread has its number.
            Some(program) if program.ends_with(&format!("({thread})")) => program.clone(),
            Some(program) => format!("{program}, thread {thread},"),
            None => format!("thread {thread}"),
        };
        let captured_from = explanation.start.map_or(0, Instant::as_nanos);
        let ledgers = ledgers(&explanation.worst, captured_from, &traced, &line);
        let origin =
            ledgers.iter().map(|ledger| ledger.parts[0].from).min().unwrap_or(captured_from).min(captured_from);
        let nothing = Around::default();
        let directions = ledgers.iter().map(|ledger| {
            let flow = ends(ledger.ends.0, ledger.ends.1).and_then(|ends| sightings.flow_between(&ends));
            let around = flow.and_then(|flow| around.get(&flow)).unwrap_or(&nothing);
            ledger.report((origin, drawn / ledgers.len()), around, programs, &program)
        });
        Ok(JoinedTrace {
            connections: pairs.connections,
            matched_packets: pairs.events.len() as u64,
            is_by_time_of_day: line.is_by_time_of_day,
            capture_begin_ns: captured_from - origin,
            directions: directions.collect(),
            remarks: [remarks(&line, clock, sightings, beyond), not_kept(&traced)].concat(),
            clock: line.clock,
            ..JoinedTrace::default()
        })
    }
}

/// One for each direction of the capture that the trace has as well. Of several connections between the same ends,
/// each has what the trace has of its own time.
fn ledgers<'t>(captured: &'t [Direction], start: u64, all: &'t Traced, line: &Line) -> Vec<Ledger<'t>> {
    let traced_from = all.start.map_or(0, Instant::as_nanos);
    let of_picture = |picture: &Option<Picture>, start: u64, map: &dyn Fn(u64) -> u64| {
        picture.as_ref().map_or_else(Vec::new, |picture| stretches(picture, start, map))
    };
    let mut by_ends: HashMap<(&str, &str), Vec<usize>> = HashMap::new();
    let mut ledgers: Vec<Ledger<'_>> = Vec::with_capacity(captured.len());
    for (number, direction) in captured.iter().enumerate() {
        by_ends.entry((&direction.from, &direction.to)).or_default().push(number);
        ledgers.push(Ledger {
            ends: (&direction.from, &direction.to),
            captured: of_picture(&direction.picture, start, &|at| at),
            not_captured: direction.picture.as_ref().map_or(0, |picture| picture.left_out),
            round_trip_ns: Some(direction.min_rtt_ns).filter(|&ns| ns > 0),
            ..Ledger::default()
        });
    }
    for direction in all.worst.iter().filter(|direction| direction.transport == "tcp") {
        let Some(numbers) = by_ends.get(&(direction.from.as_str(), direction.to.as_str())) else { continue };
        let stretches = of_picture(&direction.picture, traced_from, &|at| line.to_capture(at));
        let Some(extent_of_it) = extent(&stretches) else { continue };
        let common = |number: usize| extent(&ledgers[number].captured).map_or(0, |own| overlap(own, extent_of_it));
        let most = numbers.iter().copied().map(|number| (common(number), number)).max_by_key(|&(common, _)| common);
        let Some((1.., number)) = most else { continue };
        let side = usize::from(!direction.is_outgoing);
        ledgers[number].traced[side].push(direction);
        ledgers[number].sources[side].extend(stretches);
    }
    ledgers.into_iter().filter_map(Ledger::merged).collect()
}

fn remarks(line: &Line, clock: &HostClock, sightings: &Sightings, beyond: u64) -> Vec<String> {
    let mut remarks = Vec::new();
    if line.is_by_time_of_day {
        let why = if line.is_one_way {
            "Packets of one direction only tell the offset of the clocks, and that leaves one side of it open."
        } else {
            "Too few packets tell the offset of the clocks."
        };
        remarks.push(format!(
            "{why} The capture is taken to have the time of day of the traced \
             host, as one made there has; no packet contradicts that."
        ));
    }
    let set = clock.was_set_by();
    if set != 0 {
        let by = words::time(set.unsigned_abs());
        remarks.push(format!("The traced host's time of day was set by {by} meanwhile; the packets tell no step."));
    }
    if line.strays > 0 {
        remarks.push(strays(line.strays, "packet"));
    }
    if beyond > 0 || sightings.beyond > 0 {
        remarks.push(format!(
            "Of each file only the first {MOST_SIGHTINGS} packets or events are held against each other."
        ));
    }
    remarks
}

/// What is said of connections of the trace that are between the ends of others.
fn not_kept(traced: &Traced) -> Vec<String> {
    let (all, kept) = (traced.directions, traced.worst.len() as u64);
    let text = format!(
        "Between these ends the trace has {all} directions with data; {kept} of them were kept, whose data was held \
         longest. Where others belong, the capture tells alone."
    );
    (kept < all).then_some(text).into_iter().collect()
}

/// A direction's time, part by part.
#[derive(Default)]
struct Ledger<'t> {
    ends: (&'t str, &'t str),
    captured: Vec<Stretch>,
    /// Stretches of the capture that were not kept.
    not_captured: u64,
    round_trip_ns: Option<u64>,
    parts: Vec<Part>,
    /// As the sender's trace has it, and the receiver's.
    traced: [Vec<&'t TracedDirection>; 2],
    sources: [Vec<Stretch>; 2],
    captured_ns: u64,
    traced_ns: u64,
}

impl Ledger<'_> {
    /// Nothing where the trace has none of it.
    fn merged(mut self) -> Option<Self> {
        self.captured.sort_by_key(|stretch| stretch.from);
        self.sources.iter_mut().for_each(|all| all.sort_by_key(|stretch| stretch.from));
        let [sender, receiver] = &self.sources;
        if sender.is_empty() && receiver.is_empty() || self.captured.is_empty() {
            return None;
        }
        let parts = merge(&self.captured, sender, receiver, self.round_trip_ns);
        let parts = without_idle_end(parts, &self.captured, sender);
        // A file that was made up may have them over one another.
        let length = |all: &[Stretch]| all.iter().fold(0_u64, |sum, one| sum.saturating_add(one.to - one.from));
        let (captured_ns, traced_ns) = (length(&self.captured), length(sender).max(length(receiver)));
        (!parts.is_empty()).then_some(Self { parts, captured_ns, traced_ns, ..self })
    }

    fn report(
        &self,
        (origin, drawn): (u64, usize),
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
            picture: breakdown.picture(origin, drawn),
        }
    }

    fn remarks(&self) -> Vec<String> {
        let traced = self.traced.iter().flatten();
        let mut remarks: Vec<String> = traced.clone().flat_map(|direction| direction.remarks.iter().cloned()).collect();
        if !remarks.is_empty() {
            remarks.push("What the trace does not know the capture tells here, as far as it does.".to_owned());
        }
        let left_out = |direction: &TracedDirection| direction.picture.as_ref().map_or(0, |picture| picture.left_out);
        let not_traced: u64 = traced.map(|direction| left_out(direction)).sum();
        remarks.extend(match (self.not_captured, not_traced) {
            (0, 0) => None,
            (0, cut) => {
                Some(format!("{cut} short stretches of the trace were not kept; there the capture is believed."))
            }
            (cut, 0) => {
                Some(format!("{cut} short stretches of the capture were not kept; there the trace is believed."))
            }
            (captured, traced) => Some(format!(
                "{captured} short stretches of the capture and {traced} of the trace were not kept. There the other \
                 one is believed, and where neither has one it is not known here: each file's own breakdown has all."
            )),
        });
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
