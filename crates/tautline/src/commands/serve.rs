use serde_json::json;
use taut_link::{Endpoint, affinity, clock};
use taut_serve::{Faults, Limits, Server, ServerConfig, Stall};
use taut_time::Duration;

use super::crowd_host;
use crate::exit::Code;
use crate::{input, output, run};

/// The other side of every test: answers any number of clients on any mix of endpoints
///
/// Listens on loopback unless told otherwise. A client is bounded in number, message size, rate, time
/// and memory, and no address gets an answer longer than its question before it has shown that it gets
/// our answers. The protocol stands in docs/protocol.md. Ends at Ctrl-C and then says what it has done.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taut serve tcp://0.0.0.0:9100 udp://0.0.0.0:9100    for other machines
  taut serve 'mqtt://broker/taut?qos=1'               over a broker: it hears the topic and answers
  taut serve 'mqtts://broker/taut?ca=/etc/ca.pem'     the same over TLS; docs/brokers.md")]
pub(crate) struct Args {
    /// Where to listen
    #[arg(value_name = "ENDPOINT", default_values = ["tcp://127.0.0.1:9100", "udp://127.0.0.1:9100"])]
    endpoints: Vec<Endpoint>,
    /// Print what is listened on, and at the end what was served, as JSON lines
    #[arg(long)]
    json: bool,
    /// Stay on this processor
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// Clients at once, over all endpoints
    #[arg(long, value_name = "N", default_value = "256", value_parser = input::count, help_heading = "Limits")]
    max_clients: usize,
    /// Size of one message
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = input::size, help_heading = "Limits")]
    max_message: usize,
    /// Length of one session
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = input::positive_duration, help_heading = "Limits")]
    max_time: Duration,
    /// Messages (datagrams) or reads (streams) of one client in a second
    #[arg(long, value_name = "N", default_value_t = 1_000_000, help_heading = "Limits")]
    max_rate: u64,
    /// Silence after which a client is dropped
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = input::positive_duration, help_heading = "Limits")]
    idle: Duration,
    /// Connections of one `taut connections`, of which there is one at a time; 0 takes none
    #[arg(long, value_name = "N", default_value_t = 10_000, help_heading = "Limits")]
    max_crowd: usize,
    /// Don't let clients change how their Bluetooth LE links are received (MTU, buffer, the
    /// adapter's limits of the connection interval), as `taut tune` does for as long as it runs
    #[arg(long, help_heading = "Limits")]
    fixed: bool,
    /// Wait this long before each answer (to see whether a client measures it)
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = input::duration, help_heading = "Faults on purpose")]
    delay: Duration,
    /// Stand still for LENGTH at the end of each EVERY
    #[arg(long, value_name = "LENGTH/EVERY", value_parser = stall, help_heading = "Faults on purpose")]
    stall: Option<Stall>,
    /// End at the end of stdin (set by commands that start a server of their own)
    #[arg(long, hide = true)]
    while_stdin_open: bool,
}

/// How often it looks whether it is to end, or has something to tell.
const LOOK_PERIOD: Duration = Duration::from_millis(500);

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    if let Some(core) = args.cpu {
        affinity::stay_on_core(core)?;
    }
    let interrupt = run::interrupt_on_signals()?;
    let defaults = Limits::default();
    let limits = Limits {
        clients: args.max_clients,
        message_bytes: args.max_message,
        session: args.max_time,
        rate: args.max_rate,
        idle: args.idle,
        crowd: args.max_crowd,
        ..defaults
    };
    // Where it can't be found there is no crowd; everything else is served.
    let crowd_host = crowd_host::program().ok().filter(|_| limits.crowd > 0);
    let config =
        ServerConfig { limits, faults: Faults { delay: args.delay, stall: args.stall }, crowd_host, fixed: args.fixed };
    run::warn_of_open_logins(&args.endpoints);
    let server = Server::start(&args.endpoints, config)?;
    let listening: Vec<String> = server.endpoints().iter().map(Endpoint::to_string).collect();
    if args.json {
        output::print(&format!("{}\n", json!({ "listening": listening })))?;
    } else {
        output::print(&format!("listening on {}\n", listening.join(" ")))?;
    }
    if args.while_stdin_open {
        run::end_with_stdin(&interrupt);
    }
    let tell = || server.notices().iter().for_each(|notice| anstream::eprintln!("taut: {notice}"));
    while !interrupt.is_set() {
        tell();
        // A signal ends it.
        clock::sleep_until(clock::now() + LOOK_PERIOD);
    }
    tell();
    let served = server.served();
    drop(server);
    if args.json {
        output::print(&format!("{}\n", json!({ "served": served })))?;
    } else {
        output::print(&format!(
            "served {} clients ({} refused, {} broke the protocol), {} bytes in, {} datagrams dropped\n",
            served.clients, served.refused, served.misbehaved, served.bytes_in, served.datagrams_dropped
        ))?;
    }
    Ok(Code::Ok)
}

fn stall(text: &str) -> Result<Stall, String> {
    let (length, every) = text.split_once('/').ok_or_else(|| format!("`{text}`: write LENGTH/EVERY, 200ms/1s"))?;
    let stall = Stall { length: input::positive_duration(length)?, every: input::positive_duration(every)? };
    if stall.length >= stall.every {
        return Err(format!("`{text}`: it would always stand still"));
    }
    Ok(stall)
}
