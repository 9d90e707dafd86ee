//! Which settings of a Bluetooth LE link raise its throughput? Step by step: everything that could help
//! is tried on top of what has helped so far, in turn with it and with the base, round by round, with
//! new channels each time; what stands out is measured again, and the best of it that helps then too is
//! taken, until nothing helps any more. What is changed is asked of both sides and put back at the end.

mod choice;
mod lasting;
mod plan;
mod trial;

use taut_link::bluetooth::interval_in_words;
use taut_link::{Error, Result};

use crate::interrupt::Interrupt;
use crate::rounds::turns;
use crate::verdict::{confirm, stands_out};
use choice::{Choice, InitialLink};
pub use plan::RadioPlan;
use taut_record::stats::{Ratio, median};
use taut_record::{Ended, TuneRow, Verdict};
use trial::{Bench, Trial};

/// What came of it.
#[derive(Debug)]
pub struct RadioOutcome {
    /// A row for each setting in each step; the base is the first, and what was settled on the last.
    pub rows: Vec<TuneRow>,
    /// Options and what was negotiated, of the base.
    pub base_options: Vec<String>,
    /// The same of a new connection at the end, where the interval was changed.
    pub lasting_options: Vec<String>,
    /// Throughput of the base and of what was settled on, in bits per second.
    pub gain_bps: Option<(f64, f64)>,
    /// How it ended.
    pub ended: Ended,
}

/// Steps at most: more things than that don't help one link.
const STEPS: usize = 6;
/// What helps less is not worth a setting, and may be noise.
const LEAST_GAIN: f64 = 1.02;

/// Tries what this link can have.
///
/// # Errors
/// [`Error::Input`] where the endpoint is none of Bluetooth LE; otherwise when the base itself can't be measured.
pub fn run(plan: &RadioPlan, interrupt: &Interrupt, progress: &mut dyn FnMut(usize, usize)) -> Result<RadioOutcome> {
    let mut bench = Bench::open(plan)?;
    let found = bench.found();
    let mut outcome = RadioOutcome {
        rows: Vec::new(),
        base_options: Vec::new(),
        lasting_options: Vec::new(),
        gain_bps: None,
        ended: Ended::Complete,
    };
    let mut settled = found.base();
    // What made it slower once is not tried again.
    let mut worse: Vec<String> = Vec::new();
    for step in 0..STEPS {
        let mut entries = entries(plan, &found, &settled, &worse);
        if entries.iter().all(|entry| entry.choice == settled || entry.choice == found.base()) {
            break;
        }
        let everyone: Vec<usize> = (0..entries.len()).collect();
        let part = &mut |done: usize, of: usize| progress(2 * step * of + done, 2 * STEPS * of);
        let mut ended = measure(plan, &mut bench, &mut entries, &everyone, interrupt, part)?;
        // The first entry is the base, the one that was settled on stands second.
        let on_top_of = usize::from(step > 0);
        worse.extend(slower(&entries, on_top_of).map(|entry| entry.choice.beyond(&settled, &found)));
        let by_screening: Vec<f64> = entries.iter().map(|entry| entry.bps().unwrap_or(0.0)).collect();
        let again = screen(&mut entries, on_top_of);
        if ended == Ended::Complete && !again.is_empty() {
            let part = &mut |done: usize, of: usize| progress((2 * step + 1) * of + done, 2 * STEPS * of);
            ended = measure(plan, &mut bench, &mut entries, &again, interrupt, part)?;
        }
        if step == 0 {
            let last = entries[0].trials.last();
            outcome.base_options = last.map(|trial| trial.options.clone()).unwrap_or_default();
        }
        let first_new = usize::from(step > 0) * 2;
        let others = entries.len() - 1;
        outcome.rows.extend(entries[first_new..].iter().map(|entry| entry.row(plan, &found, &entries[0], others)));
        outcome.ended = ended;
        if outcome.ended != Ended::Complete {
            break;
        }
        let before = &entries[on_top_of];
        // What was best in the screening, if it helps in the fresh rounds too; its gain is theirs.
        let gain = |entry: &Entry| Some(Ratio::across(&entry.times(), &before.times())?.interval);
        let helped = again.iter().filter(|&&index| index > on_top_of);
        let helped = helped.filter(|&&index| gain(&entries[index]).is_some_and(|(_, high)| high * LEAST_GAIN < 1.0));
        let best = helped.max_by(|&&a, &&b| by_screening[a].total_cmp(&by_screening[b])).map(|&index| &entries[index]);
        let Some(best) = best else {
            outcome.gain_bps = Some((entries[0].bps().unwrap_or(0.0), before.bps().unwrap_or(0.0)));
            break;
        };
        outcome.gain_bps = Some((entries[0].bps().unwrap_or(0.0), best.bps().unwrap_or(0.0)));
        settled = best.choice.clone();
    }
    if settled != found.base() {
        let row = outcome.rows.iter().rev().find(|row| row.setting == settled.name(&found)).cloned();
        outcome.rows.extend(row.map(|row| TuneRow {
            place: "all that helped".to_owned(),
            apply: settled.apply(plan, &found),
            ..row
        }));
    }
    if outcome.ended == Ended::Complete && settled.interval != found.interval {
        let lasting = lasting::check(plan, bench, &found, &settled, interrupt)?;
        outcome.lasting_options = lasting.options.clone();
        outcome.rows.push(lasting_row(plan, &settled, lasting));
    } else {
        bench.close(settled != found.base() && plan.keep)?;
    }
    Ok(outcome)
}

/// One choice, with what it gave.
struct Entry {
    choice: Choice,
    /// Those of the screening, until there are fresh ones.
    trials: Vec<Trial>,
    /// Against the base, in the screening.
    screening: Option<Ratio>,
    is_fresh: bool,
    why_not: Option<String>,
}

/// What costs more than it brings on top of the entry `before`.
fn slower(entries: &[Entry], before: usize) -> impl Iterator<Item = &Entry> {
    let base = entries[before].times();
    let gain =
        move |entry: &&Entry| Ratio::across(&entry.times(), &base).is_some_and(|gain| gain.interval.0 > LEAST_GAIN);
    entries.iter().filter(gain)
}

/// Ends the screening: which entries stand out and are measured again, with the base and the entry `before`. None where
/// nothing does.
fn screen(entries: &mut [Entry], before: usize) -> Vec<usize> {
    let (base, others) = (entries[0].times(), entries.len() - 1);
    for entry in entries.iter_mut() {
        entry.screening = Ratio::of_two_stages(&entry.times(), &base, others);
    }
    let is_open = |index: &usize| entries[*index].why_not.is_none() && stands_out(entries[*index].screening);
    let found: Vec<usize> = (before + 1..entries.len()).filter(is_open).collect();
    if found.is_empty() {
        return found;
    }
    let again: Vec<usize> = (0..=before).chain(found).collect();
    for &index in &again {
        entries[index].trials.clear();
        entries[index].is_fresh = true;
    }
    again
}

/// The base, what was settled on, and everything that could help on top of it.
fn entries(plan: &RadioPlan, found: &InitialLink, settled: &Choice, worse: &[String]) -> Vec<Entry> {
    let base = found.base();
    let mut choices = vec![base.clone()];
    choices.extend((*settled != base).then(|| settled.clone()));
    choices.extend(
        settled.steps(plan, found).into_iter().filter(|choice| !worse.contains(&choice.beyond(settled, found))),
    );
    let entry = |choice| Entry { choice, trials: Vec::new(), screening: None, is_fresh: false, why_not: None };
    choices.into_iter().map(entry).collect()
}

fn measure(
    plan: &RadioPlan,
    bench: &mut Bench<'_>,
    entries: &mut [Entry],
    who: &[usize],
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Ended> {
    let count = who.len();
    for round in 0..plan.rounds {
        for (step, turn) in turns(round, count).enumerate() {
            if interrupt.is_set() {
                return Ok(Ended::Interrupted);
            }
            progress(round * count + step, plan.rounds * count);
            let entry = &mut entries[who[turn]];
            if entry.why_not.is_some() {
                continue;
            }
            let is_first = entry.trials.is_empty() && !entry.is_fresh && entry.choice == bench.found().base();
            match bench.trial(&entry.choice, interrupt) {
                Ok(trial) => entry.trials.push(trial),
                Err(error) if is_first => return Err(error),
                Err(error) if error.is_peer_gone() && bench.has_lost_the_peer() => {
                    return Ok(Ended::PeerGone(error.to_string()));
                }
                // What a controller or the peer refuses is a result too.
                Err(error) => entry.why_not = Some(why_not(&error)),
            }
        }
    }
    Ok(Ended::Complete)
}

/// The reason alone, where the rest says again which endpoint it is.
fn why_not(error: &Error) -> String {
    match error {
        Error::Io { error, .. } if error.raw_os_error().is_none() => error.to_string(),
        error => error.to_string(),
    }
}

impl Entry {
    /// Time of 1 MiB, by round.
    fn times(&self) -> Vec<Option<u64>> {
        const MEBIBYTE_BITS: f64 = 8.0 * 1024.0 * 1024.0;
        let time = |trial: &Trial| (trial.bps > 0.0).then(|| (MEBIBYTE_BITS / trial.bps * 1e9) as u64);
        self.trials.iter().map(time).collect()
    }

    fn bps(&self) -> Option<f64> {
        median(&self.trials.iter().map(|trial| trial.bps).collect::<Vec<_>>())
    }

    fn row(&self, plan: &RadioPlan, found: &InitialLink, base: &Self, others: usize) -> TuneRow {
        let is_base = self.choice == base.choice;
        let times = self.times();
        let fresh = Ratio::of_two_stages(&times, &base.times(), others).filter(|_| self.is_fresh);
        let compared = self.screening.zip(fresh).map(|(screening, fresh)| confirm(screening, fresh, others));
        let ratio = fresh.or(self.screening);
        let times: Vec<f64> = times.into_iter().flatten().map(|ns| ns as f64).collect();
        TuneRow {
            endpoint: plan.endpoint.to_string(),
            command: plan.command.clone(),
            measured: format!("stream {}", plan.direction.name()),
            setting: self.choice.name(found),
            place: self.choice.place(plan, found),
            p50_ns: median(&times).map(|ns| ns as u64),
            p99_ns: None,
            lost_share: 0.0,
            p50_ratio: ratio.map(|ratio| ratio.middle),
            p50_ratio_ci: ratio.map(|ratio| ratio.interval),
            p50_ratio_level: ratio.map(|ratio| ratio.level),
            p99_ratio: None,
            screening_ratio: fresh.and(self.screening).map(|ratio| ratio.middle),
            base_p50_ns: None,
            verdict: match (&self.why_not, compared) {
                (Some(_), _) => Verdict::NotAvailable,
                (None, Some(compared)) if !is_base => compared.verdict,
                // It stood out, and nobody has looked again.
                (None, None) if !is_base && stands_out(self.screening) => Verdict::TooFewRounds,
                (None, _) => Verdict::CannotTellApart,
            },
            rounds_needed: compared.filter(|_| !is_base).and_then(|compared| compared.rounds_needed),
            why_not: self.why_not.clone(),
            apply: None,
            throughput_bps: self.bps(),
            options: self.trials.last().map(|trial| trial.options.clone()).unwrap_or_default(),
            placement: None,
        }
    }
}

/// Whether a new connection still has the interval, with the adapters' own limits set to it.
fn lasting_row(plan: &RadioPlan, settled: &Choice, lasting: lasting::Lasting) -> TuneRow {
    let interval = settled.interval.map(interval_in_words).unwrap_or_default();
    TuneRow {
        endpoint: plan.endpoint.to_string(),
        command: plan.command.clone(),
        measured: format!("stream {}", plan.direction.name()),
        setting: format!("a new connection with the {} set to {interval}", lasting.limits_of),
        place: lasting.limits_of.to_owned(),
        p50_ns: None,
        p99_ns: None,
        lost_share: 0.0,
        p50_ratio: None,
        p50_ratio_ci: None,
        p50_ratio_level: None,
        p99_ratio: None,
        screening_ratio: None,
        base_p50_ns: None,
        rounds_needed: None,
        verdict: if lasting.why_not.is_some() { Verdict::NotAvailable } else { Verdict::CannotTellApart },
        why_not: lasting.why_not,
        apply: None,
        throughput_bps: lasting.bps,
        options: lasting.options,
        placement: None,
    }
}
