//! GPIO lines: how long a turn of read, decide and write takes, and how long it is from an edge to the output.
//!
//! The edges are made by the simulated chip of `kernel/taut_gpio_sim`, in an interrupt handler, which
//! also notes the times of the edge and of the next output; so nothing of the measuring is in a figure.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::thread::{CpuSet, sched_setaffinity};
use taut_link::{Error, Result};

use super::WHEN;
use super::gpio_chip::failed;
pub use super::gpio_chip::{CHIP, GpioMeasured, GpioPlan, IN, OUT, Simulation, Stamp, TURNS, line};
use super::gpio_kernel::KernelPath;
use crate::condition::{Layout, Memory, Program, Verdict};
use crate::route::{Declaration, GpioLine, Route, SinkDeclaration, Source, Wish};
use crate::run::gpio::{CdevLine, SysfsLine, described, find};
use crate::run::{Engine, set_fifo};

/// What is timed of a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Figure {
    /// A turn of read, decide and write, as the published experiment has it.
    Loop,
    /// From an edge to the output, with all that is in between.
    EdgeToEdge,
}

/// A way from the input to the output in user space.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum GpioPath {
    /// Files of `/sys/class/gpio` opened and closed for each event.
    Naive,
    /// The same files kept open.
    KeptOpen,
    /// The character device, kept open.
    Cdev,
    /// What a route takes by itself.
    User,
    /// The kernel module.
    Kernel(KernelPath),
}

impl GpioPath {
    /// Its name: that of the published experiment, or of the interface.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::KeptOpen => "kept-open",
            Self::Cdev => "cdev",
            Self::User => "user",
            Self::Kernel(path) => path.name(),
        }
    }

    /// The paths of a figure. What a route takes by itself is a mixture for edges, and the character device in a loop.
    ///
    /// Those of the kernel come last: nothing is known here of whether the module is loaded.
    pub const fn all(figure: Figure) -> &'static [Self] {
        match figure {
            Figure::Loop => &[
                Self::Naive,
                Self::KeptOpen,
                Self::Cdev,
                Self::Kernel(KernelPath::HARDIRQ),
                Self::Kernel(KernelPath::HARDIRQ_C),
            ],
            Figure::EdgeToEdge => &[
                Self::Naive,
                Self::KeptOpen,
                Self::Cdev,
                Self::User,
                Self::Kernel(KernelPath::KTHREAD),
                Self::Kernel(KernelPath::KTHREAD_C),
                Self::Kernel(KernelPath::HARDIRQ),
                Self::Kernel(KernelPath::HARDIRQ_C),
            ],
        }
    }
}

impl Simulation {
    /// Measures a path from edge to edge.
    ///
    /// # Errors
    /// The path can't be set up here.
    pub fn edge_to_edge(&self, path: GpioPath, plan: &GpioPlan) -> Result<GpioMeasured> {
        match path {
            GpioPath::Naive => self.naive(plan),
            GpioPath::KeptOpen => self.route("by=sysfs", plan),
            GpioPath::Cdev => self.route("by=cdev", plan),
            GpioPath::User => self.route("by=auto", plan),
            GpioPath::Kernel(path) => path.edge_to_edge(self, plan),
        }
    }

    /// A route as `taut route run` has it.
    fn route(&self, by: &str, plan: &GpioPlan) -> Result<GpioMeasured> {
        let sink = SinkDeclaration { sink: format!("gpio:{CHIP}/{OUT}?{by}"), send: None };
        let declaration = Declaration {
            name: "bench".to_owned(),
            from: format!("gpio:{CHIP}/{IN}?edge=both&{by}"),
            when: WHEN.to_owned(),
            to: vec![sink],
            fields: std::collections::BTreeMap::new(),
            place: Wish::User,
            log: None,
            cpu: plan.core,
            fifo: plan.fifo,
            replies: None,
        };
        let engine = Engine::start(vec![Route::compile(&declaration)?])?;
        let mut measured = self.measure(plan)?;
        // The counters are those of all edges.
        measured.reported_lost = engine.end().last.first().map(|status| status.counters.lost);
        Ok(measured)
    }

    fn naive(&self, plan: &GpioPlan) -> Result<GpioMeasured> {
        let lines = Exported::both(&line(IN), &line(OUT))?;
        fs::write(lines.input.with_file_name("edge"), "both").map_err(failed("ask for edges"))?;
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let (ready, began) = sync_channel(1);
            let (lines, stop) = (&lines, &stop);
            let worker = scope.spawn(move || {
                place(plan)?;
                naive_edges(lines, stop, &ready).map_err(failed("run the naive path"))
            });
            // An end without a beginning is an error, which the worker returns.
            let measured = began.recv().ok().map(|()| self.measure(plan));
            stop.store(true, Ordering::Relaxed);
            worker.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))?;
            measured.unwrap_or_else(|| Ok(GpioMeasured::default()))
        })
    }
}

/// Labels, names and numbers of lines of the GPIO chips that may be used here.
pub fn chips() -> Vec<String> {
    described()
}

/// Two lines exported in sysfs.
struct Exported {
    input: PathBuf,
    output: PathBuf,
    lines: (SysfsLine, SysfsLine),
}

impl Exported {
    fn both(input: &GpioLine, output: &GpioLine) -> Result<Self> {
        let lines = (SysfsLine::input(&find(input)?, input)?, SysfsLine::output(&find(output)?, output)?);
        Ok(Self { input: lines.0.path(), output: lines.1.path(), lines })
    }
}

fn place(plan: &GpioPlan) -> Result<()> {
    if let Some(core) = plan.core.filter(|core| *core < CpuSet::MAX_CPU) {
        let mut set = CpuSet::new();
        set.set(core);
        sched_setaffinity(None, &set).map_err(|errno| failed("choose a processor")(errno.into()))?;
    }
    plan.fifo.map_or(Ok(()), |priority| set_fifo(priority).map_err(failed("take SCHED_FIFO")))
}

/// The condition with what it needs, over the level of a line.
struct Decision {
    program: Program,
    memory: Memory,
    outputs: Vec<i64>,
}

impl Decision {
    fn new() -> Result<Self> {
        let source = Source::Timer(Duration::from_secs(1));
        let layout: Layout = source.layout();
        let program = Program::parse(WHEN, &[], &layout).map_err(|error| Error::Input(error.to_string()))?;
        Ok(Self { memory: program.memory(), program, outputs: Vec::new() })
    }

    #[inline]
    fn passes(&mut self, level: bool) -> bool {
        let payload = i64::from(level).to_ne_bytes();
        self.program.handle(&mut self.memory, 0, &payload, &mut self.outputs) == Verdict::Passed
    }
}

fn read_level(file: &mut File) -> io::Result<bool> {
    let mut text = [0; 4];
    file.read(&mut text).map(|_| text[0] == b'1')
}

/// open, read, close, decide, open, write, close.
fn naive_turn(input: &Path, output: &Path, decision: &mut Decision) -> io::Result<()> {
    let level = read_level(&mut File::open(input)?)?;
    let passes = decision.passes(level);
    File::options().write(true).open(output)?.write_all(if passes { b"1" } else { b"0" })
}

/// The same with waiting for the edge: a file tells of edges from its first reading on.
fn naive_edges(lines: &Exported, stop: &AtomicBool, ready: &SyncSender<()>) -> io::Result<()> {
    let mut decision = Decision::new().map_err(io::Error::other)?;
    while !stop.load(Ordering::Relaxed) {
        let mut file = File::open(&lines.input)?;
        read_level(&mut file)?;
        let _ = ready.try_send(());
        let mut waiting = [PollFd::new(&file, PollFlags::PRI)];
        let look_up = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        match rustix::event::poll(&mut waiting, Some(&look_up)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        let level = read_level(&mut File::open(&lines.input)?)?;
        drop(file);
        if decision.passes(level) {
            File::options().write(true).open(&lines.output)?.write_all(b"0")?;
        }
    }
    Ok(())
}

/// Times a turn of read, decide and write on two lines.
///
/// # Errors
/// The lines can't be had.
pub fn turns(path: GpioPath, input: &GpioLine, output: &GpioLine, plan: &GpioPlan) -> Result<GpioMeasured> {
    let mut decision = Decision::new()?;
    let work = || -> Result<GpioMeasured> {
        place(plan)?;
        let run = failed("read and write the lines");
        match path {
            GpioPath::Naive => {
                let lines = Exported::both(input, output)?;
                timed(plan, || naive_turn(&lines.input, &lines.output, &mut decision)).map_err(run)
            }
            GpioPath::KeptOpen => {
                let Exported { lines: (from, to), .. } = Exported::both(input, output)?;
                timed(plan, || to.set(decision.passes(from.get()?))).map_err(run)
            }
            GpioPath::Cdev | GpioPath::User => {
                let from = CdevLine::input(&find(input)?, input)?;
                let to = CdevLine::output(&find(output)?, output)?;
                timed(plan, || to.set(decision.passes(from.get()?))).map_err(run)
            }
            GpioPath::Kernel(path) => path.turns(plan),
        }
    };
    // In a thread of its own, which takes the priority and the processor with it when it ends.
    thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(|cause| std::panic::resume_unwind(cause)))
}

fn timed(plan: &GpioPlan, mut turn: impl FnMut() -> io::Result<()>) -> io::Result<GpioMeasured> {
    let mut measured = GpioMeasured::default();
    let warm_up = plan.samples / 10;
    for sample in 0..warm_up + plan.samples {
        let began = Instant::now();
        for _ in 0..TURNS {
            black_box(turn()?);
        }
        let took = began.elapsed();
        if sample >= warm_up {
            measured.ns.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX) / TURNS as u64);
            measured.sent += TURNS as u64;
        }
    }
    Ok(measured)
}
