//! The virtual machine: QEMU started, watched and ended.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tempfile::TempDir;

use super::qmp::Monitor;
use super::resume::{self, Start};
use crate::architecture::Architecture;

/// A machine to be.
#[derive(Clone, Copy)]
pub(super) struct Plan<'a> {
    pub(super) architecture: Architecture,
    /// The uncompressed kernel.
    pub(super) kernel: &'a Path,
    /// The archive of the guest's first file system.
    pub(super) image: &'a [u8],
    /// Memory in MiB.
    pub(super) memory: u32,
    /// Processors; one in virtual time.
    pub(super) cpus: u8,
    /// Virtual time: one instruction takes 2 to the power of this in ns, idle time passes at once.
    /// `None`: the host's time.
    pub(super) icount: Option<u8>,
    /// Longest life, in the time that the host has for it.
    pub(super) timeout: Duration,
    /// Where the guest's files go; it is there.
    pub(super) out: &'a Path,
    /// Shows the kernel's console on stderr.
    pub(super) show_console: bool,
    /// Where its controller listens, which it has at `/dev/hvc0`.
    pub(super) radio: Option<&'a Path>,
    /// TCP ports of this machine's loopback that lead to ports of the guest.
    pub(super) forward: &'a [Forward],
    /// Where its life begins.
    pub(super) boot: Boot<'a>,
}

/// Where a machine's life begins.
#[derive(Clone, Copy)]
pub(super) enum Boot<'a> {
    /// With the kernel; the command is in the image.
    Whole,
    /// With the kernel; there is no command, and the machine stops where others go on.
    UpToCommand,
    /// Where another machine stopped.
    From(Start<'a>),
}

/// A TCP port of this machine's loopback and the guest's port that it leads to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Forward {
    here: u16,
    guest: u16,
}

impl FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = |text: &str| text.parse().ok().filter(|port: &u16| *port > 0);
        let ports =
            text.split_once(':').and_then(|(here, guest)| Some(Self { here: port(here)?, guest: port(guest)? }));
        ports.ok_or_else(|| "write PORT:GUESTS_PORT, as 8080:80".to_owned())
    }
}

/// How a machine ended.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Ending {
    /// The command did, with this code; its files are back.
    Exited(u8),
    /// It was ended after its time.
    TimedOut {
        /// Whether the command had begun.
        began: bool,
    },
    /// We were told to end.
    Interrupted,
    /// It ended by itself, but not as it should.
    Died(String),
}

/// How often a machine's outputs are looked at.
pub(super) const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// Lines of the console that go with a bad end.
const CONSOLE_LINES: usize = 40;

/// Runs a machine to its end. The command's output goes to ours as it comes.
pub(super) fn run(plan: &Plan<'_>) -> Result<Ending> {
    let interrupted = interrupts()?;
    let mut guest = Guest::start(plan, Sink::Stdout)?;
    loop {
        if let Some(ending) = guest.look()? {
            return Ok(ending);
        }
        if interrupted.load(Ordering::Relaxed) {
            return Ok(Ending::Interrupted);
        }
        if guest.age() > plan.timeout {
            return Ok(Ending::TimedOut { began: guest.has_begun() });
        }
        thread::sleep(LOOK_PERIOD);
    }
}

/// Set when we are told to end, from now on.
pub(super) fn interrupts() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    Ok(interrupted)
}

/// A machine from its start on; it ends when dropped.
pub(super) struct Guest {
    // Before its directory.
    machine: Machine,
    directory: TempDir,
    outputs: [Tail; 3],
    /// While the machine lives, which would be told that nobody listens.
    monitor: Option<Monitor>,
    report: Report,
    age: Duration,
    last: Instant,
}

impl Guest {
    /// Starts it. What the command writes to its standard output goes to `stdout`.
    pub(super) fn start(plan: &Plan<'_>, stdout: Sink) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("taut-lab-").tempdir()?;
        let path = |name: &str| directory.path().join(name);
        fs::write(path("image"), plan.image)?;
        symlink(plan.out.canonicalize()?, path("share"))?;
        for output in OUTPUTS {
            File::create(path(output))?;
        }
        let console = if plan.show_console { Sink::Stderr } else { Sink::Hidden };
        let outputs = [
            Tail::of(&path("stdout"), stdout)?,
            Tail::of(&path("stderr"), Sink::Stderr)?,
            Tail::of(&path("console"), console)?,
        ];
        if let Boot::From(start) = plan.boot {
            fs::write(path(resume::COMMAND), start.command)?;
        }
        let machine = Machine::start(plan, directory.path())?;
        let (report, age, last) = (Report::default(), Duration::ZERO, Instant::now());
        let mut guest = Self { machine, directory, outputs, monitor: None, report, age, last };
        if let Boot::From(_) = plan.boot {
            guest.go_on()?;
        }
        Ok(guest)
    }

    fn go_on(&mut self) -> Result<()> {
        let mut monitor = self.take_monitor()?;
        let gone_on = resume::go_on(&mut monitor);
        self.monitor = Some(monitor);
        gone_on.with_context(|| format!("cannot start from a saved machine{}", self.said()))
    }

    /// The monitor of a machine that is to be saved, or was.
    pub(super) fn take_monitor(&mut self) -> Result<Monitor> {
        let (input, output) = (self.machine.0.stdin.take(), self.machine.0.stdout.take());
        let (input, output) = input.zip(output).context("the machine has no monitor")?;
        Monitor::new(input, output, resume::TIME).with_context(|| format!("QEMU does not start{}", self.said()))
    }

    /// What QEMU and the guest's kernel said, to be added to an error.
    pub(super) fn said(&self) -> String {
        let read = |name| fs::read(self.directory.path().join(name)).unwrap_or_default();
        let said = [read("qemu"), read("console")].concat();
        if said.is_empty() { String::new() } else { format!(" ({})", String::from_utf8_lossy(&said).trim()) }
    }

    /// Passes on what it has written. How it ended, once it has.
    pub(super) fn look(&mut self) -> Result<Option<Ending>> {
        // Time in which we were stopped is not the guest's.
        self.age += self.last.elapsed().min(Duration::from_secs(1));
        self.last = Instant::now();
        // Looked at before the outputs, so that what was written last is seen.
        let ended = self.machine.has_ended()?;
        self.outputs.iter_mut().try_for_each(Tail::advance)?;
        let path = |name: &str| -> PathBuf { self.directory.path().join(name) };
        self.report = Report::parse(&fs::read_to_string(path("report"))?);
        Ok(if ended { Some(self.report.ending(&fs::read(path("console"))?, &fs::read(path("qemu"))?)) } else { None })
    }

    /// How long it has had.
    pub(super) const fn age(&self) -> Duration {
        self.age
    }

    /// Whether the command has begun.
    pub(super) const fn has_begun(&self) -> bool {
        self.report.began
    }

    /// Whether the command has said that others can rely on it, by a line `ready` on `/dev/ttyS3`.
    pub(super) const fn is_ready(&self) -> bool {
        self.report.ready
    }
}

/// The network of a guest with forwarded ports; `init.sh` gives its interface the address.
const NETWORK: &str = "10.0.2.0/24";
const GUEST_ADDRESS: &str = "10.0.2.15";

/// Files that the machine writes; the first four are its serial ports.
const OUTPUTS: [&str; 5] = ["console", "stdout", "stderr", "report", "qemu"];

/// A running QEMU, ended when dropped.
struct Machine(Child);

impl Machine {
    fn start(plan: &Plan<'_>, directory: &Path) -> Result<Self> {
        // The guest dies with us, however we die.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", plan.architecture.qemu()]);
        command.args(["-no-user-config", "-nodefaults", "-display", "none", "-no-reboot"]);
        // Several processors are to meet each other as they come, each in a thread of the host.
        let threads = if plan.cpus > 1 { "multi" } else { "single" };
        command.args(plan.architecture.machine()).args(["-accel", &format!("tcg,thread={threads}")]);
        command.arg("-smp").arg(plan.cpus.to_string());
        command.arg("-m").arg(plan.memory.to_string());
        command.arg("-kernel").arg(plan.kernel).args(["-initrd", "image", "-append", KERNEL_PARAMETERS]);
        if let Some(shift) = plan.icount {
            // Time, its begin and chance are the same in every run.
            command.arg("-icount").arg(format!("shift={shift},sleep=off"));
            command.args(["-rtc", "base=2026-01-01T00:00:00,clock=vm", "-seed", "1"]);
        }
        plan.architecture.serial_ports(&OUTPUTS[..4], &mut command);
        if let Some(radio) = plan.radio {
            command.args(["-device", "virtio-serial-pci", "-device", "virtconsole,chardev=radio", "-chardev"]);
            command.arg(format!("socket,id=radio,path={}", radio.display()));
        }
        if !plan.forward.is_empty() {
            // Nothing leads out of the guest's network.
            let mut network = format!("user,id=net,restrict=on,ipv6=off,net={NETWORK}");
            for Forward { here, guest } in plan.forward {
                network += &format!(",hostfwd=tcp:127.0.0.1:{here}-{GUEST_ADDRESS}:{guest}");
            }
            // Without a ROM to boot from, which comes in a package of its own.
            command.args(["-netdev", &network, "-device", "virtio-net-pci,netdev=net,romfile="]);
        }
        command.args(["-virtfs", "local,path=share,mount_tag=share,security_model=none"]);
        let log = File::options().append(true).open(directory.join("qemu"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir(directory);
        match plan.boot {
            Boot::Whole => {}
            Boot::UpToCommand => resume::devices(&mut command, None),
            Boot::From(start) => resume::devices(&mut command, Some(&start)),
        }
        // The terminal's Ctrl-C is for us, who end the guest.
        command.process_group(0);
        Ok(Self(command.spawn().context("cannot run setpriv (util-linux)")?))
    }

    fn has_ended(&mut self) -> Result<bool> {
        Ok(self.0.try_wait()?.is_some())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Both fail only when it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A kernel that finds itself in disorder is dead, and a dead one reboots, which ends QEMU. The
/// timer is there: a kernel that counts its ticks to see whether it is gives up where the host has
/// other work ("IO-APIC + timer doesn't work!"). Memory is given by the page: a huge one is cleared byte by byte
/// (`rep stosb`), and in virtual time each byte takes an instruction, so that nothing else runs for 2.1 ms. An emulated
/// processor speculates on nothing: what keeps others from it (a detour at each indirect call, 32 calls at each switch
/// of programs) costs time here and is of no use. Nor is memory cleared for those who did not ask for that, and
/// cryptography does not test itself.
const KERNEL_PARAMETERS: &str = "console=ttyS0 quiet panic=-1 oops=panic no_timer_check nokaslr random.trust_cpu=on \
                                 transparent_hugepage=never mitigations=off init_on_alloc=0 cryptomgr.notests";

/// What the guest's first process told.
#[derive(Default)]
struct Report {
    began: bool,
    ready: bool,
    code: Option<u8>,
    done: bool,
    failure: Option<String>,
}

impl Report {
    fn parse(text: &str) -> Self {
        let mut report = Self::default();
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            match line.split_once(' ').unwrap_or((line, "")) {
                ("begin", _) => report.began = true,
                ("ready", _) => report.ready = true,
                ("end", code) => report.code = code.parse().ok(),
                ("failed", what) => report.failure = Some(what.to_owned()),
                ("done", _) => report.done = true,
                _ => {}
            }
        }
        report
    }

    fn ending(&self, console: &[u8], qemu: &[u8]) -> Ending {
        if let (Some(code), true) = (self.code, self.done) {
            return Ending::Exited(code);
        }
        let console = String::from_utf8_lossy(console);
        let panic = console.lines().find_map(|line| Some(&line[line.find("Kernel panic")?..]));
        let when = match (self.began, self.code) {
            (false, _) => "before the command began",
            (true, None) => "while the command ran",
            (true, Some(_)) => "after the command",
        };
        let what = match (&self.failure, panic) {
            (Some(failure), _) => format!("the guest failed {when}: {failure}"),
            (None, Some(panic)) => format!("the guest's kernel gave up {when}: {panic}"),
            (None, None) => format!("the machine ended {when}"),
        };
        let lines: Vec<&str> = console.lines().collect();
        let last = lines[lines.len().saturating_sub(CONSOLE_LINES)..].join("\n");
        let qemu = String::from_utf8_lossy(qemu);
        let mut message = what;
        for (name, text) in [("QEMU says", qemu.trim()), ("the end of its console", last.trim())] {
            if !text.is_empty() {
                message += &format!("\n{name}:\n{text}");
            }
        }
        Ending::Died(message)
    }
}

/// Shows a file while it grows.
struct Tail {
    file: File,
    sink: Sink,
}

/// Where a machine's output goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sink {
    /// To our standard output.
    Stdout,
    /// To our standard error.
    Stderr,
    /// Nowhere.
    Hidden,
}

impl Tail {
    fn of(path: &Path, sink: Sink) -> Result<Self> {
        Ok(Self { file: File::open(path)?, sink })
    }

    fn advance(&mut self) -> Result<()> {
        let mut new = Vec::new();
        self.file.read_to_end(&mut new)?;
        if !new.is_empty() {
            self.sink.show(&new)?;
        }
        Ok(())
    }
}

impl Sink {
    fn show(self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()),
            Self::Stderr => io::stderr().write_all(bytes),
            Self::Hidden => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(report: &str, console: &str) -> Ending {
        Report::parse(report).ending(console.as_bytes(), b"")
    }

    #[test]
    fn a_command_has_ended_when_its_files_are_back() {
        assert_eq!(ending("begin\nend 7\ndone\n", ""), Ending::Exited(7));
        for report in ["begin\nend 7\n", "begin\nend 7\ndone", "begin\n", ""] {
            assert!(matches!(ending(report, ""), Ending::Died(_)), "{report:?}");
        }
    }

    #[test]
    fn ports_are_given_in_twos() {
        assert_eq!("8080:80".parse(), Ok(Forward { here: 8080, guest: 80 }));
        for wrong in ["8080", "0:80", "80:0", "80:65536", "a:b", "1:2:3"] {
            assert!(wrong.parse::<Forward>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_bad_end_is_told_with_its_cause() {
        let Ending::Died(message) = ending("begin\n", "x\n[ 1.0] Kernel panic - not syncing: sysrq\nlast\n") else {
            panic!("it died");
        };
        assert!(message.starts_with("the guest's kernel gave up while the command ran: Kernel panic - not syncing"));
        assert!(message.ends_with("last"), "{message}");
        let Ending::Died(message) = ending("failed modprobe x\n", "") else { panic!("it died") };
        assert_eq!(message, "the guest failed before the command began: modprobe x");
    }
}
