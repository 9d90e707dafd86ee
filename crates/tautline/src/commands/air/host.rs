use std::path::PathBuf;

use serde_json::json;
use taut_link::Error;
use taut_link::bluetooth::{self, SerialAdapter};
use taut_measure::air::prepare;
use taut_time::Duration;

use crate::exit::Code;
use crate::{input, output, run, scenario};

/// Make this kernel the host of a Bluetooth controller on a serial line
///
/// The line is given to the kernel's Bluetooth with HCI's UART transport (H4), as `btattach -P h4`
/// does, and is an adapter until Ctrl-C. At its other end may be a module with a radio, or a controller
/// of `taut air attach --h4` on another machine, as by the serial port of a virtual one: then two
/// kernels talk over one simulated radio. `cargo xtask lab pair --peer-kernel` does all of it.
///
/// Needs root and the kernel's driver hci_uart.
#[derive(Debug, clap::Args)]
pub(crate) struct HostArgs {
    /// The serial line: /dev/ttyUSB0, /dev/hvc0
    #[arg(value_name = "LINE")]
    line: PathBuf,
    /// Bits per second [default: as the line has it]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    baud: Option<u32>,
    /// Give the links that this kernel makes interval, latency and timeout of a scenario, as `taut
    /// air attach` does with adapters of its own kernel
    #[arg(long, value_name = "FILE")]
    scenario: Option<String>,
    /// Give a parameter of the scenario another value
    #[arg(long, value_name = "NAME=VALUE", value_parser = input::setting, requires = "scenario")]
    set: Vec<(String, String)>,
    /// Print the adapter as a JSON line
    #[arg(long)]
    json: bool,
}

/// Ctrl-C is seen after so long at the latest.
const LOOK_PERIOD: Duration = Duration::from_millis(200);

pub(super) fn host(args: &HostArgs) -> anyhow::Result<Code> {
    let read = |file: &String| scenario::plan(file, &args.set, Duration::ZERO, scenario::SEED);
    let plan = args.scenario.as_ref().map(read).transpose()?;
    let interrupt = run::interrupt_on_signals()?;
    let adapter = SerialAdapter::create(&args.line, args.baud)?;
    prepare(&[adapter.index()], plan.as_ref().map(|plan| &plan.scenario), &interrupt)?;
    if interrupt.is_set() {
        return Ok(Code::Ok);
    }
    let (name, address) = (format!("hci{}", adapter.index()), bluetooth::address_of(adapter.index())?.to_string());
    output::print(&match args.json {
        true => format!("{}\n", json!({ "adapter": name, "address": address })),
        false => format!("{name} {address}\n"),
    })?;
    while !interrupt.is_set() {
        if adapter.hangs_up_within(LOOK_PERIOD)? {
            return Err(
                Error::Closed { endpoint: args.line.display().to_string(), when: "while the kernel had it" }.into()
            );
        }
    }
    Ok(Code::Ok)
}
