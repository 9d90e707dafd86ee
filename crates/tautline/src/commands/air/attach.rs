use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::Context;
use serde_json::json;
use taut_air::{AirEvent, Observer, Role};
use taut_link::{Endpoint, Error, Listener, bluetooth};
use taut_measure::air::{HostNotice, HostPlace, LiveController, LiveError, LiveFigures, LiveRadio, Scenario, prepare};
use taut_record::stats::Quantile;
use taut_report::capture::{AirCapture, HostCapture};
use taut_time::Duration;

use super::files;
use crate::exit::Code;
use crate::{input, output, run, scenario};

/// Give this kernel virtual Bluetooth LE adapters on one simulated radio
///
/// The controllers are those of the model, in real time: connection events, air time, buffers and losses
/// as the scenario has them; the hosts are this kernel's own. So programs with real L2CAP sockets run
/// over a known radio, without hardware. One adapter is made as the scenario's central and one for each
/// of its links as the peripheral; who connects to whom is for the programs to say. Connections between
/// them get the interval, latency and timeout of the scenario (by debugfs, on both sides), and its PHY.
///
/// With `--h4` a controller's host is another kernel: whoever connects to that socket and speaks HCI's UART
/// transport (H4), as the serial port of a virtual machine does, in which `taut air host` or `btattach -P
/// h4` gives it to the kernel. When it hangs up, the controller is off until the next one comes. Whoever
/// may connect may use the controller: a socket file has its directory's rights, TCP belongs on loopback.
///
/// Adapters of this kernel need root and /dev/vhci. Prints the controllers when they are ready, and
/// ends at Ctrl-C; they are gone then. `cargo xtask lab pair` does all of it in a virtual machine.
#[derive(Debug, clap::Args)]
pub(crate) struct AttachArgs {
    /// A scenario in TOML, or the name of one that is built in: paper-000, saturate, two-nodes
    #[arg(value_name = "FILE", default_value = scenario::DEFAULT)]
    file: String,
    /// Give a parameter another value; `taut air parameters` lists them. What concerns hosts is this kernel's own here
    #[arg(long, value_name = "NAME=VALUE", value_parser = input::setting)]
    set: Vec<(String, String)>,
    /// Take the host of a controller on a stream socket: central=unix:/run/central.sock,
    /// peripheral=tcp://127.0.0.1:7000, peripheral2=… of several. Those not named become adapters of this kernel
    #[arg(long, value_name = "CONTROLLER=ENDPOINT", value_parser = stream)]
    h4: Vec<(usize, Endpoint)>,
    /// Where chance begins
    #[arg(long, value_name = "N", default_value = "7")]
    seed: u64,
    /// Write every PDU on the air, for Wireshark
    #[arg(long, value_name = "FILE", value_parser = output::out_file())]
    pcapng: Option<PathBuf>,
    /// Write the HCI packets of both sides to central.btsnoop and peripheral.btsnoop there, for Wireshark and btmon
    #[arg(long, value_name = "DIR", value_parser = output::out_directory())]
    btsnoop: Option<PathBuf>,
    /// Switch the adapters on, for programs that don't do it (l2test, l2cat): peripherals also
    /// advertise and can be connected to
    #[arg(long)]
    on: bool,
    /// Print the adapters, and at the end what the radio has done, as JSON lines
    #[arg(long)]
    json: bool,
}

pub(super) fn attach(args: &AttachArgs) -> anyhow::Result<Code> {
    let plan = scenario::plan(&args.file, &args.set, Duration::ZERO, args.seed)?;
    let interrupt = run::interrupt_on_signals()?;
    let mut captures = Captures::create(args)?;
    let streams = listen(&args.h4)?;
    let mut radio = LiveRadio::start(&plan.scenario, plan.seed, streams).map_err(|error| told(&plan.file, error))?;
    let controllers = radio.controllers();
    let ready = {
        let (scenario, interrupt) = (plan.scenario.clone(), interrupt.clone());
        let (on, json) = (args.on, args.json);
        // The kernel sets the adapters up by talking to the controllers, which are at work meanwhile.
        thread::spawn(move || -> anyhow::Result<()> {
            let adapters: Vec<u16> = controllers.iter().filter_map(adapter).collect();
            let prepared = prepare(&adapters, Some(&scenario), &interrupt).map_err(anyhow::Error::from);
            let on = prepared.and_then(|()| if on { switch_on(&controllers) } else { Ok(()) });
            let done = on.and_then(|()| tell(&controllers, &scenario, json));
            if done.is_err() {
                interrupt.flag().store(true, std::sync::atomic::Ordering::Relaxed);
            }
            done
        })
    };
    let names: Vec<String> = (0..radio.controllers().len()).map(name).collect();
    let mut notice = |HostNotice { number, what }: HostNotice| anstream::eprintln!("taut: {}: {what}", names[number]);
    let ended = radio.run(&interrupt, &mut captures, &mut notice);
    interrupt.flag().store(true, std::sync::atomic::Ordering::Relaxed);
    let prepared = ready.join().map_err(|_| anyhow::anyhow!("the thread that prepares adapters panicked"))?;
    let figures = radio.figures();
    drop(radio);
    captures.finish(args)?;
    prepared?;
    ended?;
    conclude(&figures, args.json)
}

fn switch_on(controllers: &[LiveController]) -> anyhow::Result<()> {
    let adapters = controllers.iter().filter_map(|controller| Some((adapter(controller)?, controller.side)));
    adapters.into_iter().try_for_each(|(index, side)| Ok(bluetooth::switch_on(index, side == Role::Peripheral)?))
}

fn told(file: &str, error: LiveError) -> anyhow::Error {
    match error {
        LiveError::Scenario(error) => scenario::wrong(file, &error),
        LiveError::Link(error) => error.into(),
    }
}

/// `central`, `peripheral` or `peripheral1`, `peripheral2`, …, and where its host connects.
fn stream(text: &str) -> Result<(usize, Endpoint), String> {
    let hint = "write central=unix:PATH, peripheral=tcp://HOST:PORT, peripheral2=…";
    let (controller, endpoint) = text.split_once('=').ok_or_else(|| format!("`{text}`: {hint}"))?;
    let number = match controller {
        "central" => 0,
        "peripheral" => 1,
        _ => {
            let digits = controller.strip_prefix("peripheral").unwrap_or_default();
            digits.parse().ok().filter(|number| *number > 0).ok_or_else(|| format!("`{controller}`: {hint}"))?
        }
    };
    // A host alone would be at the port of `taut serve`, where nobody means an HCI.
    if !endpoint.contains(':') {
        return Err(format!("`{endpoint}`: {hint}"));
    }
    let endpoint: Endpoint = endpoint.parse().map_err(|error: Error| error.to_string())?;
    match endpoint {
        Endpoint::Unix(_) | Endpoint::Tcp(_) => Ok((number, endpoint)),
        _ => Err(format!("{endpoint}: a host connects by unix:PATH or tcp://HOST:PORT")),
    }
}

fn listen(streams: &[(usize, Endpoint)]) -> anyhow::Result<Vec<(usize, Listener)>> {
    let mut listeners: Vec<(usize, Listener)> = Vec::new();
    for (number, endpoint) in streams {
        if listeners.iter().any(|(other, _)| other == number) {
            return Err(Error::Input(format!("--h4: {} has two hosts", name(*number))).into());
        }
        listeners.push((*number, Listener::bind(endpoint)?));
    }
    Ok(listeners)
}

fn name(number: usize) -> String {
    match number {
        0 => "central".to_owned(),
        _ => format!("peripheral{number}"),
    }
}

const fn adapter(controller: &LiveController) -> Option<u16> {
    match controller.place {
        HostPlace::Adapter(index) => Some(index),
        HostPlace::Stream(_) => None,
    }
}

fn tell(controllers: &[LiveController], scenario: &Scenario, json: bool) -> anyhow::Result<()> {
    if json {
        let list: Vec<_> = controllers
            .iter()
            .map(|controller| {
                let (kind, place) = match &controller.place {
                    HostPlace::Adapter(index) => ("adapter", format!("hci{index}")),
                    HostPlace::Stream(endpoint) => ("h4", endpoint.to_string()),
                };
                json!({ kind: place, "address": controller.address.to_string(), "side": controller.side.name() })
            })
            .collect();
        return output::print(&format!("{}\n", json!({ "adapters": list, "ci_ns": scenario.ci })));
    }
    let lines: String = controllers
        .iter()
        .map(|LiveController { place, address, side }| match place {
            HostPlace::Adapter(index) => format!("hci{index} {address} {}\n", side.name()),
            HostPlace::Stream(endpoint) => format!("{endpoint} {address} {}\n", side.name()),
        })
        .collect();
    output::print(&lines)
}

fn conclude(figures: &LiveFigures, json: bool) -> anyhow::Result<Code> {
    let LiveFigures { lateness, to_hosts, from_hosts, lost, overflowed } = figures;
    let at = |q: f64| lateness.quantile(q).and_then(Quantile::time).unwrap_or(0);
    if json {
        let late =
            json!({ "p50": at(0.5), "p99": at(0.99), "p999": at(0.999), "max": at(1.0), "count": lateness.count() });
        let line = json!({ "packets_to_hosts": to_hosts, "packets_from_hosts": from_hosts, "packets_lost": lost, "packets_overflowed": overflowed,
                           "lateness_ns": late });
        output::print(&format!("{line}\n"))?;
    } else {
        output::print(&format!(
            "{from_hosts} packets from hosts, {to_hosts} to them, {lost} to adapters that were down or hosts that were not there, {overflowed} for which a \
             controller had no buffer; hosts served late by \
             {} us (p50), {} us (p99), {} us at most\n",
            at(0.5) / 1000,
            at(0.99) / 1000,
            at(1.0) / 1000
        ))?;
    }
    Ok(Code::Ok)
}

/// The files that are written while the radio is at work.
struct Captures {
    pcapng: Option<AirCapture<BufWriter<File>>>,
    btsnoop: Vec<HostCapture<BufWriter<File>>>,
}

impl Captures {
    fn create(args: &AttachArgs) -> anyhow::Result<Self> {
        let begin =
            |path: &Path| AirCapture::begin(files::create(path)?).with_context(|| format!("write {}", path.display()));
        let pcapng = args.pcapng.as_deref().map(begin).transpose()?;
        let mut btsnoop = Vec::new();
        for (side, path) in args.btsnoop.as_deref().into_iter().flat_map(files::sides) {
            let capture = HostCapture::begin(files::create(&path)?, side);
            btsnoop.push(capture.with_context(|| format!("write {}", path.display()))?);
        }
        Ok(Self { pcapng, btsnoop })
    }

    fn finish(self, args: &AttachArgs) -> anyhow::Result<()> {
        if let (Some(capture), Some(path)) = (self.pcapng, &args.pcapng) {
            capture.finish().with_context(|| format!("write {}", path.display()))?;
        }
        for (capture, (_, path)) in
            self.btsnoop.into_iter().zip(args.btsnoop.as_deref().into_iter().flat_map(files::sides))
        {
            capture.finish().with_context(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }
}

impl Observer for Captures {
    fn event(&mut self, event: &AirEvent<'_>) {
        if let Some(capture) = &mut self.pcapng {
            capture.event(event);
        }
        self.btsnoop.iter_mut().for_each(|capture| capture.event(event));
    }
}
