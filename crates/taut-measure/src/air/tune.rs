//! The way to a link's limit: changes tried one at a time, the best kept, until 95 % of what the
//! channel allows is reached.

mod change;

use taut_air::Phy;

use super::{AirPlan, ScenarioError, run};
use crate::Interrupt;
use change::{Change, Reach, changes};
use taut_record::{AirChangeRow, AirRow, Ended, Row};

/// Near enough to the limit.
const GOAL: f64 = 0.95;
/// A change that gives less is not kept.
const LEAST_GAIN: f64 = 1.002;
/// Changes kept at most: each gains, so this only bounds a crawl.
const MOST_CHANGES: usize = 20;

/// What tuning gave.
#[derive(Debug)]
pub struct AirTuneOutcome {
    /// The link as it was; the changes tried, with those kept; the link as it became. Where LE 2M
    /// followed, the same again.
    pub rows: Vec<Row>,
    /// How it ended.
    pub ended: Ended,
}

/// Tunes the plan's scenario. Parameters named in `keep`, with or without their side, stay as they are. When
/// the limit of its PHY is reached and LE 2M was not in force, goes on with that, unless `phy` is kept.
///
/// # Errors
///
/// When the scenario's parameters do not fit each other.
pub fn tune(plan: &AirPlan, keep: &[String], interrupt: &Interrupt) -> Result<AirTuneOutcome, ScenarioError> {
    let mut tuning = Tuning { plan: plan.clone(), keep, interrupt, rows: Vec::new() };
    let base = tuning.run_and_keep_row()?;
    let reached = tuning.climb(base)?;
    if reached && tuning.plan.scenario.phy != Phy::Le2M && !tuning.is_kept("phy") && !interrupt.is_set() {
        tuning.go_to_2m()?;
    }
    let ended = if interrupt.is_set() { Ended::Interrupted } else { Ended::Complete };
    Ok(AirTuneOutcome { rows: tuning.rows, ended })
}

struct Tuning<'a> {
    /// The link as far as it is tuned.
    plan: AirPlan,
    keep: &'a [String],
    interrupt: &'a Interrupt,
    rows: Vec<Row>,
}

/// A change with what it gave.
struct Tried {
    change: Change,
    plan: AirPlan,
    row: AirRow,
}

impl Tuning<'_> {
    fn is_kept(&self, name: &str) -> bool {
        let bare = name.rsplit('.').next();
        self.keep.iter().any(|kept| kept == name || Some(kept.as_str()) == bare)
    }

    fn run_and_keep_row(&mut self) -> Result<AirRow, ScenarioError> {
        let row = run(&self.plan, self.interrupt, &mut ())?.row;
        self.rows.push(Row::Air(Box::new(row.clone())));
        Ok(row)
    }

    /// Keeps the best change again and again; whether the goal is reached.
    fn climb(&mut self, base: AirRow) -> Result<bool, ScenarioError> {
        let mut now = base;
        let mut kept = 0;
        while !is_reached(&now) && kept < MOST_CHANGES && !self.interrupt.is_set() {
            let mut next = None;
            for reach in [Reach::Host, Reach::Hardware] {
                next = self.best_of(&now, changes(&self.plan.scenario, reach), true);
                if next.is_none() {
                    next = self.best_of(&now, pairs(&changes(&self.plan.scenario, reach)), false);
                }
                if next.is_some() {
                    break;
                }
            }
            let Some(next) = next else { break };
            now = next;
            kept += 1;
        }
        let reached = is_reached(&now);
        if kept > 0 {
            self.rows.push(Row::Air(Box::new(now)));
        }
        Ok(reached)
    }

    /// Tries changes on the link as it is and keeps the one that gives most, if any gives enough.
    /// Those that were not kept are told of too, if wanted.
    fn best_of(&mut self, now: &AirRow, changes: Vec<Change>, tell_others: bool) -> Option<AirRow> {
        let mut tried = Vec::new();
        for change in changes {
            if change.set.iter().any(|set| self.is_kept(&set.name)) || self.interrupt.is_set() {
                continue;
            }
            // What does not fit the other parameters is no way to go.
            let Ok(plan) = self.plan.with(&change.set) else { continue };
            let Ok(outcome) = run(&plan, self.interrupt, &mut ()) else { continue };
            tried.push(Tried { change, plan, row: outcome.row });
        }
        let mut best: Option<usize> = None;
        for (i, one) in tried.iter().enumerate() {
            // Of changes that give the same, the first, which asks least.
            let to_beat = best.map_or(now.throughput_bps, |best: usize| tried[best].row.throughput_bps);
            if one.row.throughput_bps > to_beat * LEAST_GAIN {
                best = Some(i);
            }
        }
        let mut kept = None;
        for (i, one) in tried.into_iter().enumerate() {
            let is_best = best == Some(i);
            if is_best || tell_others && best.is_some() {
                self.tell(now, &one, is_best);
            }
            if is_best {
                kept = Some(one);
            }
        }
        let kept = kept?;
        self.plan = kept.plan;
        Some(kept.row)
    }

    fn tell(&mut self, before: &AirRow, tried: &Tried, kept: bool) {
        self.rows.push(Row::AirChange(Box::new(AirChangeRow {
            scenario: tried.plan.file.clone(),
            command: tried.plan.command(),
            set: tried.change.set.clone(),
            place: tried.change.place.to_owned(),
            before_bps: before.throughput_bps,
            throughput_bps: tried.row.throughput_bps,
            limit_bps: tried.row.limit_bps,
            held_by: longest_idle(before),
            kept,
            apply: tried.change.apply.clone(),
        })));
    }

    /// The tuned link on LE 2M, and from there to the limit of that.
    fn go_to_2m(&mut self) -> Result<(), ScenarioError> {
        let before = run(&self.plan, self.interrupt, &mut ())?.row;
        let Some(faster) = self.best_of(&before, vec![Change::phy_2m()], false) else { return Ok(()) };
        let is_done = is_reached(&faster);
        if is_done {
            self.rows.push(Row::Air(Box::new(faster)));
            return Ok(());
        }
        self.climb(faster).map(|_| ())
    }
}

fn is_reached(row: &AirRow) -> bool {
    row.throughput_bps >= GOAL * row.limit_bps
}

fn pairs(changes: &[Change]) -> Vec<Change> {
    let mut pairs = Vec::new();
    for (i, one) in changes.iter().enumerate() {
        pairs.extend(changes[i + 1..].iter().filter_map(|other| one.and(other)));
    }
    pairs
}

/// The idle line of the ledger with most time.
fn longest_idle(row: &AirRow) -> String {
    let idle = taut_air::Category::ALL.into_iter().filter(|category| category.is_idle());
    let longest = idle.max_by_key(|category| row.ledger_ns.get(category.name()).copied().unwrap_or_default());
    longest.map_or_else(String::new, |category| category.name().to_owned())
}
