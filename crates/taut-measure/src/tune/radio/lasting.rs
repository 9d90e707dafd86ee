//! Does an interval last? A connection made anew with the adapters' own limits shows it, and shows
//! the trap: set on the central alone, the peripheral asks its own interval back.

use taut_link::bluetooth::{IntervalLimits, LinkChoice};
use taut_link::wire::Shape;
use taut_link::{Link, Result, Shaper, clock};
use taut_time::Duration;

use super::choice::{Choice, InitialLink};
use super::plan::RadioPlan;
use super::trial::{Bench, PATIENCE, measure};
use crate::interrupt::Interrupt;
use taut_record::fact;

/// What came of it.
pub(super) struct Lasting {
    /// Whose limits were set.
    pub(super) limits_of: &'static str,
    pub(super) bps: Option<f64>,
    pub(super) options: Vec<String>,
    pub(super) why_not: Option<String>,
}

/// The kernel ends a connection without channels after 2 s (`HCI_DISCONN_TIMEOUT`).
const DISCONNECTING: Duration = Duration::from_millis(3_000);

/// Sets the adapters' limits on both sides, or on this one where the peer doesn't let us, and connects anew.
pub(super) fn check(
    plan: &RadioPlan,
    bench: Bench<'_>,
    found: &InitialLink,
    settled: &Choice,
    interrupt: &Interrupt,
) -> Result<Lasting> {
    let units = settled.interval.unwrap_or(plan.least_interval);
    let limits = IntervalLimits { min: units, max: units };
    let adapter = Link::adapter_of(&plan.endpoint)?;
    let here = match IntervalLimits::read(adapter).and_then(|before| limits.write(adapter).map(|()| before)) {
        Ok(before) => Here { adapter, before: Some(before).filter(|_| !plan.keep) },
        Err(error) => return Ok(not_tried(error.to_string())),
    };
    let peer_before = bench.peer_intervals();
    let there = bench.ask(Shape { intervals: Some(limits), keep: true, ..settled.there(plan) });
    drop(bench);
    clock::sleep(DISCONNECTING);
    // The interval is left to the adapters now.
    let unasked = Choice { interval: None, ..settled.clone() };
    let measured = settle(plan, found, &unasked, interrupt);
    drop(here);
    if !(plan.plain || plan.keep) {
        let shaper = Shaper::open(&plan.endpoint, PATIENCE)?;
        shaper.shape(Shape { intervals: peer_before, keep: true, ..Shape::default() })?;
    }
    let limits_of = if there { "limits of both adapters" } else { "limits of this adapter alone" };
    match measured {
        Ok((bps, options)) => {
            let interval_us = fact(&options, "connection_interval_us").and_then(|us| us.parse::<u32>().ok());
            let lasts = interval_us == Some(u32::from(units) * 1250);
            let why_not = (!lasts).then(|| put_back(interval_us, there));
            Ok(Lasting { limits_of, bps: Some(bps), options, why_not })
        }
        Err(error) => Ok(Lasting { limits_of, bps: None, options: Vec::new(), why_not: Some(error.to_string()) }),
    }
}

/// Connects, gives the peer the time to ask for another interval, and measures on that connection.
fn settle(plan: &RadioPlan, found: &InitialLink, choice: &Choice, interrupt: &Interrupt) -> Result<(f64, Vec<String>)> {
    let endpoint = LinkChoice::default().on(&plan.endpoint).unwrap_or_else(|| plan.endpoint.clone());
    let _connection = Link::connect(&endpoint, PATIENCE)?;
    clock::sleep(Duration::from_secs(1));
    let trial = measure(plan, found, choice, interrupt)?;
    Ok((trial.bps, trial.options))
}

fn put_back(interval_us: Option<u32>, both: bool) -> String {
    let now = interval_us.map_or_else(|| "another one".to_owned(), |us| format!("{} ms", f64::from(us) / 1000.0));
    let whose = if both { "although both adapters were told" } else { "which was not told: it asked its own back" };
    format!("the peer put the interval back to {now}, {whose}")
}

const fn not_tried(why: String) -> Lasting {
    Lasting { limits_of: "limits of both adapters", bps: None, options: Vec::new(), why_not: Some(why) }
}

/// This adapter's limits as they were before; put back when dropped.
struct Here {
    adapter: u16,
    before: Option<IntervalLimits>,
}

impl Drop for Here {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // The adapter may be gone by now, and its limits with it.
            let _ = before.write(self.adapter);
        }
    }
}
