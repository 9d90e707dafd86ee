use std::net::IpAddr;

use taut_link::Endpoint;
use taut_serve::crowd::{self, CrowdEngine, HostOrder, HostProgram};

use crate::exit::Code;
use crate::input;

/// The server under test of `taut connections`, a process of its own; started by it and `taut serve`
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    #[arg(long, value_name = "ENGINE")]
    engine: CrowdEngine,
    #[arg(long, value_name = "N", value_parser = input::count)]
    connections: usize,
    #[arg(long, value_name = "ENDPOINT")]
    listen: Endpoint,
    #[arg(long, value_name = "IP")]
    from: Option<IpAddr>,
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
}

/// How this program is made a crowd host.
pub(crate) fn program() -> std::io::Result<HostProgram> {
    Ok(HostProgram { program: std::env::current_exe()?, arguments: vec!["crowd-host".into()] })
}

pub(crate) fn run(args: Args) -> Code {
    let Args { engine, connections, listen, from, cpu } = args;
    // What goes wrong has been told on stdout, where the one who started us listens.
    match crowd::run(&HostOrder { engine, connections, listen, from, core: cpu }) {
        Ok(()) => Code::Ok,
        Err(_) => Code::Failed,
    }
}
