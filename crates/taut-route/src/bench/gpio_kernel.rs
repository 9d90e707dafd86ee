//! The kernel's ways from a GPIO line to another, on the simulated chip: in hard irq, and in the published design's thread behind
//! a ring; each with the condition as a program and in C.

use std::time::Duration;

use taut_link::{Error, Result};

use super::sim::{self, CHIP, INPUT, OUTPUT, Sim};
use super::{Measured, WHEN};
use crate::module::{Condition, ModuleError, ModulePlace, ModuleRoute};
use crate::route::{Declaration, Route, SinkDeclaration, module_spec};

/// A way of the kernel module.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KernelPath {
    place: ModulePlace,
    condition: Condition,
}

impl KernelPath {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self { place: ModulePlace::HardIrq, condition: Condition::Program },
        Self { place: ModulePlace::HardIrq, condition: Condition::IsZero },
        Self { place: ModulePlace::Thread, condition: Condition::Program },
        Self { place: ModulePlace::Thread, condition: Condition::IsZero },
    ];

    /// Its name; with `-c` the condition is in C.
    pub const fn name(self) -> &'static str {
        match (self.place, self.condition) {
            (ModulePlace::HardIrq, Condition::Program) => "hardirq",
            (ModulePlace::HardIrq, Condition::IsZero) => "hardirq-c",
            (ModulePlace::Thread, Condition::Program) => "kthread",
            (ModulePlace::Thread, Condition::IsZero) => "kthread-c",
        }
    }

    fn start(self) -> Result<ModuleRoute> {
        let unavailable = |error: ModuleError| Error::Unavailable(format!("{}: {error}", self.name()));
        let route = route()?;
        let spec = module_spec(&route).map_err(|lacks| Error::Unavailable(lacks.join("; ")))?;
        ModuleRoute::start(spec, &route.program, Some(self.place), self.condition).map_err(unavailable)
    }

    /// Has edges made, one each period, and times those that pass: every other one.
    ///
    /// # Errors
    /// Module or simulated chip are missing.
    pub fn edges(self, edges: usize, period: Duration) -> Result<Measured> {
        let chip = Sim::find()?;
        let route = self.start()?;
        chip.make_edges(edges, period)?;
        let (edge_to_edge_ns, sent) = sim::from_falling_edges(&chip.stamps()?);
        let outputs = chip.count("outputs")?;
        let host = |error| Error::Host { what: "read the counters of taut_path".to_owned(), error };
        let counters = route.counters().map_err(host)?;
        // An edge of either kind that it has not seen is lost, even when nothing would have passed.
        let lost = sent.saturating_sub(outputs).max((edges as u64).saturating_sub(counters.events));
        Ok(Measured { edge_to_edge_ns, sent, lost })
    }

    /// The published loop, so many turns; ns of one. Hard irq only: it is the thread of the caller that turns.
    ///
    /// # Errors
    /// Module or simulated chip are missing.
    pub fn loop_ns(self, turns: u32) -> Result<f64> {
        let host = |error| Error::Host { what: "run the loop of taut_path".to_owned(), error };
        let ns = self.start()?.run_loop(turns).map_err(host)?;
        Ok(ns as f64 / f64::from(turns.max(1)))
    }
}

/// The published experiment's route on the simulated chip.
fn route() -> Result<Route> {
    Route::compile(&Declaration {
        name: "bench".to_owned(),
        from: format!("gpio:{CHIP}/{INPUT}"),
        when: WHEN.to_owned(),
        to: vec![SinkDeclaration { sink: format!("gpio:{CHIP}/{OUTPUT}"), send: None }],
        ..Declaration::default()
    })
}
