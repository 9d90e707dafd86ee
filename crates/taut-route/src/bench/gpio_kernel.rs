//! The kernel module's ways from a GPIO line to another: in hard irq, and in the published design's
//! thread behind a ring; each with the condition as a program and in C.

use std::io;
use std::time::Duration;

use taut_link::{Error, Result};

use super::WHEN;
use super::gpio_chip::{GpioMeasured, GpioPlan, IN, OUT, Simulation, TURNS, line};
use crate::module::{self, Condition, ModuleError, ModulePlace, ModuleRoute};
use crate::route::{Declaration, Route, SinkDeclaration, module_spec};

/// A way of the kernel module.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KernelPath {
    place: ModulePlace,
    condition: Condition,
}

impl KernelPath {
    /// In the interrupt.
    pub const HARDIRQ: Self = Self { place: ModulePlace::HardIrq, condition: Condition::Program };
    /// In the interrupt, the condition in C.
    pub const HARDIRQ_C: Self = Self { place: ModulePlace::HardIrq, condition: Condition::IsZero };
    /// In a thread.
    pub const KTHREAD: Self = Self { place: ModulePlace::Thread, condition: Condition::Program };
    /// In a thread, the condition in C.
    pub const KTHREAD_C: Self = Self { place: ModulePlace::Thread, condition: Condition::IsZero };

    /// Its name; with `-c` the condition is in C.
    pub const fn name(self) -> &'static str {
        match (self.place, self.condition) {
            (ModulePlace::HardIrq, Condition::Program) => "hardirq",
            (ModulePlace::HardIrq, Condition::IsZero) => "hardirq-c",
            (ModulePlace::Thread, Condition::Program) => "kthread",
            (ModulePlace::Thread, Condition::IsZero) => "kthread-c",
        }
    }

    /// What is missing here for these ways.
    pub fn missing() -> Option<String> {
        module::missing()
    }

    fn start(self) -> Result<ModuleRoute> {
        let unavailable = |error: ModuleError| Error::Unavailable(format!("{}: {error}", self.name()));
        let route = route()?;
        let spec = module_spec(&route).map_err(|lacks| Error::Unavailable(lacks.join("; ")))?;
        ModuleRoute::start(spec, &route.program, Some(self.place), self.condition).map_err(unavailable)
    }

    /// From edge to edge.
    ///
    /// # Errors
    /// The module is missing, or the chip is gone.
    pub fn edge_to_edge(self, chip: &Simulation, plan: &GpioPlan) -> Result<GpioMeasured> {
        let route = self.start()?;
        let mut measured = chip.measure(plan)?;
        let counters = route.counters().map_err(failed("read the counters of taut_path"))?;
        measured.reported_lost = Some(counters.lost);
        Ok(measured)
    }

    /// The published experiment's loop, with the input at 0, so that every turn sets the output.
    ///
    /// # Errors
    /// The module is missing, or the route is none of hard irq: the thread of the caller takes the turns.
    pub fn turns(self, plan: &GpioPlan) -> Result<GpioMeasured> {
        // One edge, to 0.
        Simulation::find()?.run(IN, 1, Duration::from_micros(1))?;
        let route = self.start()?;
        let mut measured = GpioMeasured::default();
        let warm_up = plan.samples / 10;
        for sample in 0..warm_up + plan.samples {
            let ns = route.run_loop(TURNS as u32).map_err(failed("run the loop of taut_path"))?;
            if sample >= warm_up {
                measured.ns.push(ns / TURNS as u64);
                measured.sent += TURNS as u64;
            }
        }
        Ok(measured)
    }
}

fn failed(what: &str) -> impl Fn(io::Error) -> Error {
    move |error| Error::Host { what: what.to_owned(), error }
}

/// The published experiment's route on the simulated chip.
fn route() -> Result<Route> {
    Route::compile(&Declaration {
        name: "bench".to_owned(),
        from: line(IN).to_string(),
        when: WHEN.to_owned(),
        to: vec![SinkDeclaration { sink: line(OUT).to_string(), send: None }],
        ..Declaration::default()
    })
}
