//! Routes in the kernel module `taut_path`: GPIO lines and input devices as sources, GPIO lines, LEDs and UDP as sinks.
//!
//! The module takes the condition as a program over event records ([`RecordProgram`]), the same that
//! the tests run against the interpreter. A route lives as long as the descriptor that made it.

pub(crate) mod abi;
mod led;

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::bpf::{BpfError, LogRecord, RecordProgram};
use crate::condition::Program;
use led::LedClaim;

const DEVICE: &str = "/dev/taut_path";

/// Where the module runs a route.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ModulePlace {
    /// In the interrupt itself.
    HardIrq,
    /// In a SCHED_FIFO kernel thread behind a ring.
    Thread,
}

/// What decides whether an event passes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Condition {
    /// The route's own, as a program.
    Program,
    /// `value == 0` in C, for comparison.
    IsZero,
}

/// Why the module did not take a route.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// It is not there, or not for this user.
    #[error("{0}")]
    Missing(String),
    /// The program could not be loaded.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// It refused a part of the route.
    #[error("{what}: {error}{hint}")]
    Refused {
        /// Which part.
        what: String,
        /// The kernel's answer.
        error: io::Error,
        /// What that means.
        hint: &'static str,
    },
}

/// A route as the module runs it.
pub(crate) struct ModuleSpec {
    /// For the module, but for the program and the place.
    pub(crate) request: abi::Request,
    /// The source as written.
    pub(crate) source: String,
    /// The sinks as written.
    pub(crate) sinks: Vec<String>,
    /// The LEDs among them, by their index.
    pub(crate) leds: Vec<(usize, String)>,
}

/// A route at work in the module, until this is dropped or the process ends in whatever way.
#[derive(Debug)]
pub struct ModuleRoute {
    // LEDs are given back before their triggers are gone.
    _leds: Vec<LedClaim>,
    device: File,
    program: Option<RecordProgram>,
    place: ModulePlace,
    has_log: bool,
}

/// Counters of a route in the module.
#[derive(Clone, Debug)]
pub struct ModuleCounters {
    /// Events taken.
    pub events: u64,
    /// Of those, that passed.
    pub passed: u64,
    /// That did not.
    pub dropped: u64,
    /// That were too short.
    pub short: u64,
    /// Events for which there was no room, and sinks that could not be set.
    pub lost: u64,
    /// Times that the source was masked for a while, since too many came.
    pub masked: u64,
    /// Records of the log that had no room.
    pub log_lost: u64,
    /// Whether the program took too long, and the route takes no events any more.
    pub stopped: bool,
    /// From taking an event to its last sink: the n-th counts times from 2^n ns.
    pub histogram: Vec<u64>,
}

impl ModulePlace {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HardIrq => "hardirq",
            Self::Thread => "kthread",
        }
    }

    const fn number(place: Option<Self>) -> u32 {
        match place {
            None => abi::AUTO,
            Some(Self::HardIrq) => abi::HARDIRQ,
            Some(Self::Thread) => abi::THREAD,
        }
    }
}

/// Opens the module's device and sees whether it speaks our language.
fn open() -> Result<File, ModuleError> {
    let missing = |text: &str| ModuleError::Missing(text.to_owned());
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let device = options.open(DEVICE).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            missing("the kernel module (modprobe taut_path; kernel/taut_path/README.md has how to build it)")
        }
        io::ErrorKind::PermissionDenied => missing("the right to use /dev/taut_path (root, CAP_SYS_ADMIN and CAP_BPF)"),
        _ => ModuleError::Missing(format!("{DEVICE}: {error}")),
    })?;
    let version = abi::version(&device);
    let version = version.map_err(|error| ModuleError::Missing(format!("{DEVICE} does not answer: {error}")))?;
    speaks(version).map(|()| device)
}

/// Whether a module of that ABI is one for this program; else what to do.
fn speaks(version: u32) -> Result<(), ModuleError> {
    let ours = abi::ABI;
    let remedy = match version.cmp(&ours) {
        std::cmp::Ordering::Equal => return Ok(()),
        std::cmp::Ordering::Less => "the module is older: rmmod taut_path, then build and load the one of this program",
        std::cmp::Ordering::Greater => "this program is older: use the one that the module came with",
    };
    let text = format!("a module of the same version: the loaded taut_path speaks ABI {version}, this program {ours}");
    Err(ModuleError::Missing(format!("{text} ({remedy}; kernel/taut_path/README.md)")))
}

/// What of the module is missing here.
pub(crate) fn missing() -> Option<String> {
    open().err().map(|error| error.to_string())
}

impl ModuleRoute {
    /// Hands a route to the module; `place` none leaves it the choice.
    ///
    /// # Errors
    /// The module is missing, or it refused the program, the source or a sink.
    pub(crate) fn start(
        mut spec: ModuleSpec,
        program: &Program,
        place: Option<ModulePlace>,
        condition: Condition,
    ) -> Result<Self, ModuleError> {
        let device = open()?;
        let program = match condition {
            Condition::Program => Some(RecordProgram::load_in_turn(program)?),
            Condition::IsZero => None,
        };
        let request = &mut spec.request;
        request.place = ModulePlace::number(place);
        match &program {
            Some(program) => request.program = program.fd().as_raw_fd(),
            None => request.condition = abi::IS_ZERO,
        }
        abi::start(&device, request).map_err(|error| refused(&spec, error))?;
        let mut leds = Vec::new();
        for (index, name) in &spec.leds {
            let trigger = format!("taut-path-{}-{index}", spec.request.id);
            let claim = LedClaim::take(name, &trigger).map_err(|error| ModuleError::Refused {
                what: format!("led:{name}"),
                error,
                hint: " (ls /sys/class/leds)",
            })?;
            leds.push(claim);
        }
        let place = if spec.request.place == abi::HARDIRQ { ModulePlace::HardIrq } else { ModulePlace::Thread };
        let has_log = spec.request.log != 0;
        Ok(Self { _leds: leds, device, program, place, has_log })
    }

    /// Where it runs.
    pub const fn place(&self) -> ModulePlace {
        self.place
    }

    /// The counters as they are now.
    ///
    /// # Errors
    /// The module did not answer.
    pub fn counters(&self) -> io::Result<ModuleCounters> {
        let stats = abi::stats(&self.device)?;
        Ok(ModuleCounters {
            events: stats.events,
            passed: stats.passed,
            dropped: stats.dropped + stats.bad,
            short: stats.short_events,
            lost: stats.lost + stats.failed,
            masked: stats.masked,
            log_lost: stats.log_lost,
            stopped: stats.stopped != 0,
            histogram: stats.histogram.to_vec(),
        })
    }

    /// Readable when something has been logged; `None` without a log.
    pub fn log_fd(&self) -> Option<BorrowedFd<'_>> {
        self.has_log.then(|| self.device.as_fd())
    }

    /// Hands over what has been logged since.
    ///
    /// # Errors
    /// The module did not answer.
    pub fn read_log(&self, mut record: impl FnMut(LogRecord)) -> io::Result<()> {
        const BATCH: usize = 512;
        if !self.has_log {
            return Ok(());
        }
        let mut buffer = vec![0; BATCH * abi::LOG_BYTES];
        // What comes meanwhile may wait.
        for _ in 0..=abi::LOG_RECORDS / BATCH {
            let bytes = abi::read_log(&self.device, &mut buffer)?;
            for bytes in buffer[..bytes].chunks_exact(abi::LOG_BYTES) {
                record(LogRecord::from_bytes(bytes));
            }
            if bytes < buffer.len() {
                break;
            }
        }
        Ok(())
    }

    /// The published experiment's loop: input read, condition evaluated, output set, so often; ns for all.
    ///
    /// # Errors
    /// The route is not one from a line to a line in hard irq.
    pub(crate) fn run_loop(&self, count: u32) -> io::Result<u64> {
        abi::run_loop(&self.device, count)
    }

    /// Its program, unless the condition is built in.
    pub fn program(&self) -> Option<BorrowedFd<'_>> {
        self.program.as_ref().map(RecordProgram::fd)
    }
}

fn refused(spec: &ModuleSpec, error: io::Error) -> ModuleError {
    let at_fault = spec.request.at_fault;
    let sink = at_fault.checked_sub(abi::FAULT_SINK).and_then(|index| spec.sinks.get(index as usize));
    let is_input = spec.request.source.kind == abi::INPUT;
    let what = match (at_fault, sink) {
        (_, Some(sink)) => sink.clone(),
        (abi::FAULT_SOURCE, _) => spec.source.clone(),
        (abi::FAULT_PROGRAM, _) => "the condition's program".to_owned(),
        _ => "taut_path".to_owned(),
    };
    let is_line = match at_fault.checked_sub(abi::FAULT_SINK) {
        Some(index) => spec.request.sink.get(index as usize).is_some_and(|sink| sink.kind == abi::GPIO),
        None => at_fault == abi::FAULT_SOURCE && !is_input,
    };
    let hint = match error.raw_os_error() {
        Some(libc::EACCES) if at_fault == abi::FAULT_PROGRAM => " (it uses maps that are no arrays)",
        Some(libc::E2BIG) if at_fault == abi::FAULT_PROGRAM => {
            " (it is too long for the module; shorten the condition)"
        }
        Some(libc::EINVAL) if at_fault == abi::FAULT_PROGRAM => " (it is no program of type XDP)",
        Some(libc::EOPNOTSUPP) if at_fault == abi::FAULT_PROGRAM => {
            " (it is for a map's entries, a device of its own or packets in pieces, or has types; load it as plain XDP)"
        }
        Some(libc::ENOEXEC) if at_fault == abi::FAULT_PROGRAM => {
            " (it calls a function or jumps backwards, so its time has no bound)"
        }
        Some(libc::EPERM) => " (it takes CAP_SYS_ADMIN and CAP_BPF to start a route)",
        Some(libc::ENODEV) if is_input && at_fault == abi::FAULT_SOURCE => {
            " (no input device has that name; see /proc/bus/input/devices)"
        }
        Some(libc::ENODEV) => " (no GPIO chip has that label; gpiodetect lists them)",
        Some(libc::EBUSY) => " (somebody else uses the line; gpioinfo tells who)",
        Some(libc::EINVAL) if is_line => " (the chip has no such line)",
        Some(libc::ENXIO) => " (the line makes no interrupts)",
        Some(libc::EPROTONOSUPPORT) => " (the module is of another version; kernel/taut_path/README.md)",
        Some(libc::EDEADLK) => " (something on the route can sleep, so it can't run in hard irq; write kthread)",
        _ => "",
    };
    ModuleError::Refused { what, error, hint }
}

/// The name of an input device by its node.
pub(crate) fn input_name(node: &Path) -> Option<String> {
    let event = node.file_name()?;
    let name = fs::read_to_string(Path::new("/sys/class/input").join(event).join("device/name")).ok()?;
    Some(name.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::{Route, module_spec, parse_file};

    #[test]
    fn another_version_is_told_with_what_to_do() {
        assert!(speaks(abi::ABI).is_ok());
        let old = speaks(abi::ABI - 1).unwrap_err().to_string();
        assert!(old.contains("speaks ABI 2, this program 3") && old.contains("rmmod taut_path"), "{old}");
        let new = speaks(abi::ABI + 1).unwrap_err().to_string();
        assert!(new.contains("speaks ABI 4, this program 3") && new.contains("this program is older"), "{new}");
    }

    #[test]
    fn what_the_module_refuses_is_named_with_what_to_do() {
        let file =
            "[[route]]\nname = 'r'\nfrom = 'gpio:chip/3'\nwhen = 'true'\nto = ['gpio:chip/5', 'udp://10.0.0.2:9']\n";
        let route = Route::compile(&parse_file(file).unwrap().remove(0)).unwrap();
        let refusal = |at_fault: u32, error: i32| {
            let mut spec = module_spec(&route).unwrap();
            spec.request.at_fault = at_fault;
            refused(&spec, io::Error::from_raw_os_error(error)).to_string()
        };
        let cases = [
            (abi::FAULT_PROGRAM, libc::EACCES, "the condition's program: ", "maps that are no arrays"),
            (abi::FAULT_PROGRAM, libc::E2BIG, "the condition's program: ", "shorten the condition"),
            (abi::FAULT_PROGRAM, libc::EINVAL, "the condition's program: ", "no program of type XDP"),
            (abi::FAULT_PROGRAM, libc::EOPNOTSUPP, "the condition's program: ", "load it as plain XDP"),
            (abi::FAULT_PROGRAM, libc::ENOEXEC, "the condition's program: ", "jumps backwards"),
            (0, libc::EPERM, "taut_path: ", "CAP_BPF"),
            (abi::FAULT_SOURCE, libc::EBUSY, "gpio:chip/3", "somebody else uses the line"),
            (abi::FAULT_SINK, libc::EINVAL, "gpio:chip/5: ", "no such line"),
            (abi::FAULT_SINK + 1, libc::EINVAL, "udp://10.0.0.2:9: ", ""),
            (0, libc::EDEADLK, "taut_path: ", "can sleep"),
        ];
        for (at_fault, error, what, hint) in cases {
            let text = refusal(at_fault, error);
            assert!(text.starts_with(what) && text.contains(hint), "{text}");
        }
    }
}
