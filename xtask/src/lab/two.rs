//! `cargo xtask lab pair --peer-kernel`: the two sides of a pair in two guests with kernels of their own. Their
//! controllers are those of one `taut air attach` on this machine, each at the other end of a guest's serial port.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;

use anyhow::{Context, Result, bail};

use super::guest::{GuestArgs, LAB_FAILED, Made, code, place_for_files};
use super::image;
use super::kernel::Series;
use super::machine::{self, Ending, Forward, Guest, LOOK_PERIOD, Plan, Sink};
use super::pair::{PairArgs, serving};
use crate::architecture::Architecture;

/// What a pair of two kernels has beyond one of one kernel.
#[derive(clap::Args)]
pub(super) struct TwoArgs {
    /// The peer is in a machine of its own, with a kernel of this series. In real time: two
    /// machines have no common virtual one.
    #[arg(long, value_name = "SERIES", conflicts_with = "icount")]
    pub(super) peer_kernel: Option<Series>,
    /// What runs in the peer's machine beside `taut serve`, as a shell takes it; its output goes to stderr.
    #[arg(long, value_name = "SHELL", requires = "peer_kernel")]
    beside: Option<String>,
    /// Has a TCP port of this machine's loopback lead to one of the command's machine.
    #[arg(long, value_name = "PORT:GUESTS_PORT", requires = "peer_kernel")]
    forward: Vec<Forward>,
}

/// A pair, and a command with it.
#[derive(clap::Args)]
pub(super) struct PairCommand {
    #[command(flatten)]
    pub(super) pair: PairArgs,
    #[command(flatten)]
    pub(super) two: TwoArgs,
    #[command(flatten)]
    pub(super) guest: GuestArgs,
    /// The command, with @peer where the endpoint of the other side belongs: taut stream @peer --json.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}

/// What the guests need of their kernels beyond what these load by themselves: the port at which a
/// controller is, and the network of ports that are led to a guest.
const MODULES: [&str; 3] = ["virtio_pci", "virtio_console", "virtio_net"];

/// Runs the command in one guest, with the peer in another.
pub(super) fn run(args: &PairCommand, peer_kernel: Series) -> Result<u8> {
    let command =
        script(&args.pair, include_str!("two-command.sh"), &[("{command}", &args.pair.connecting(&args.command)?)])?;
    let beside = args.two.beside.as_ref().map_or_else(String::new, |beside| format!("(\n{beside}\n) &"));
    let serving = serving(&[args.pair.listen("hci0")]);
    let peer = script(&args.pair, include_str!("two-peer.sh"), &[("{beside}", &beside), ("{serving}", &serving)])?;
    let mut guest = args.guest.clone();
    guest.files.extend(args.pair.files()?);
    guest.modules.extend(MODULES.map(str::to_owned));
    let peer_guest = GuestArgs { kernel: peer_kernel, ..guest.clone() };
    let (made, peer_made) = (Made::new(&guest, Some(&command))?, Made::new(&peer_guest, Some(&peer))?);
    let out = place_for_files(guest.out.as_ref())?;

    let interrupted = machine::interrupts()?;
    let directory = tempfile::Builder::new().prefix("taut-lab-two-").tempdir()?;
    let mut radio = Radio::start(args, directory.path(), &out)?;
    let sockets = SIDES.map(|side| directory.path().join(side));
    let peer_out = directory.path().join("out");
    fs::create_dir(&peer_out)?;
    let peer_plan = Plan { radio: Some(&sockets[1]), ..peer_made.plan(&peer_guest, &peer_out) };
    let plan = Plan { radio: Some(&sockets[0]), forward: &args.two.forward, ..made.plan(&guest, &out) };

    let mut peer = Guest::start(&peer_plan, Sink::Stderr)?;
    let mut own = None;
    let ending = loop {
        if let Some(ending) = peer.look()? {
            eprintln!("lab: the peer's machine ended before its time");
            radio.tell()?;
            // Its command has no end of its own.
            let failed = code(ending, &peer_made.kernel, guest.timeout);
            return Ok(if failed == 0 { LAB_FAILED } else { failed });
        }
        if peer.is_ready() && own.is_none() {
            own = Some(Guest::start(&plan, Sink::Stdout)?);
        }
        if let Some(ending) = own.as_mut().map(Guest::look).transpose()?.flatten() {
            break ending;
        }
        if interrupted.load(Ordering::Relaxed) {
            break Ending::Interrupted;
        }
        if radio.has_ended()? {
            radio.tell()?;
            bail!("the radio ended before its time");
        }
        if own.as_ref().unwrap_or(&peer).age() > guest.timeout {
            if own.is_none() {
                eprintln!("lab: the peer does not listen");
            }
            break Ending::TimedOut { began: own.as_ref().is_some_and(Guest::has_begun) };
        }
        thread::sleep(LOOK_PERIOD);
    };
    let is_over = matches!(ending, Ending::Exited(_));
    let code = code(ending, &made.kernel, guest.timeout);
    if !is_over || code != 0 {
        radio.tell()?;
    }
    if is_over {
        eprintln!("radio: {}", radio.finish()?);
    }
    Ok(code)
}

fn script(pair: &PairArgs, text: &str, parts: &[(&str, &str)]) -> Result<Vec<String>> {
    let host = include_str!("two-host.sh").replace("{radio}", image::words(&pair.radio()?).trim_start());
    let mut text = host + text;
    for (place, part) in parts {
        text = text.replace(place, part);
    }
    Ok(vec!["sh".to_owned(), "-c".to_owned(), text])
}

/// The controllers, by what they are called in `taut air attach --h4`; the command's machine has the first.
const SIDES: [&str; 2] = ["central", "peripheral"];

/// `taut air attach`, ended when dropped.
struct Radio<'a> {
    process: Child,
    stdout: BufReader<ChildStdout>,
    directory: &'a Path,
}

impl<'a> Radio<'a> {
    /// Starts it, with its sockets in `directory`, and waits until it takes hosts there.
    fn start(args: &PairCommand, directory: &'a Path, out: &Path) -> Result<Self> {
        let mut settings = args.pair.radio()?;
        // Not by the name that it has in the guests.
        settings[0].clone_from(&args.pair.scenario);
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(image::taut(Architecture::Amd64)?)
            .args(["air", "attach"])
            .args(settings)
            .arg("--json");
        for side in SIDES {
            command.arg("--h4").arg(format!("{side}=unix:{}", directory.join(side).display()));
        }
        if args.pair.capture {
            command.arg("--pcapng").arg(out.join("air.pcapng")).arg("--btsnoop").arg(out);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(directory.join("radio"))?);
        // The terminal's Ctrl-C is for us.
        command.process_group(0);
        let mut process = command.spawn().context("cannot run setpriv (util-linux)")?;
        let stdout = BufReader::new(process.stdout.take().context("the radio has no standard output")?);
        let mut radio = Self { process, stdout, directory };
        let mut ready = String::new();
        if radio.stdout.read_line(&mut ready)? == 0 {
            radio.tell()?;
            bail!("the radio does not start");
        }
        Ok(radio)
    }

    fn has_ended(&mut self) -> Result<bool> {
        Ok(self.process.try_wait()?.is_some())
    }

    /// Says what it said of its hosts.
    fn tell(&self) -> Result<()> {
        let said = fs::read_to_string(self.directory.join("radio"))?;
        eprint!("{said}");
        Ok(())
    }

    /// Ends it. Its last words: what it has done, and how late it was.
    fn finish(&mut self) -> Result<String> {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.process), rustix::process::Signal::INT)?;
        let mut words = String::new();
        self.stdout.read_to_string(&mut words)?;
        self.process.wait()?;
        Ok(words.trim().to_owned())
    }
}

impl Drop for Radio<'_> {
    fn drop(&mut self) {
        // Both fail only when it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
