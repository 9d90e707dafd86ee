//! Our own side of the benches: `taut`, as a user runs it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::process::{self, Cores, Server, Transport, capture};

/// A built `taut`.
pub(crate) struct Taut {
    file: PathBuf,
    cores: Cores,
}

/// A running `taut serve`.
pub(crate) struct Serving {
    endpoints: Vec<String>,
    _server: Server,
}

impl Taut {
    pub(crate) const fn new(file: PathBuf, cores: Cores) -> Self {
        Self { file, cores }
    }

    /// The program.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// What `taut --version` says.
    pub(crate) fn version(&self) -> Result<String> {
        Ok(capture(Command::new(&self.file).arg("--version"), Duration::from_secs(10))?.trim().to_owned())
    }

    /// Starts `taut serve` on a TCP and a UDP port of this machine.
    pub(crate) fn serve(&self) -> Result<Serving> {
        self.serve_on(&["tcp://127.0.0.1:0", "udp://127.0.0.1:0"])
    }

    /// Starts `taut serve` with these arguments.
    pub(crate) fn serve_on(&self, arguments: &[&str]) -> Result<Serving> {
        let mut command = process::pinned(self.cores.server, &self.file);
        command.args(["serve", "--json"]).args(arguments);
        let (server, line) = Server::start_with_line(&mut command)?;
        Ok(Serving { endpoints: listening(&line)?, _server: server })
    }

    /// Starts a `taut pipe` that leads any number of clients to this endpoint, and gives the endpoint where it listens.
    pub(crate) fn pipe_to(&self, to: &str) -> Result<(Server, String)> {
        let port = Transport::Tcp.free_port()?;
        let endpoint = format!("tcp://127.0.0.1:{port}");
        let mut command = process::pinned(self.cores.server, &self.file);
        command.args(["pipe", &format!("listen:{endpoint}"), to]);
        Ok((Server::start(&mut command, Transport::Tcp, port)?, endpoint))
    }

    /// Runs one of the commands as a client and gives its object.
    pub(crate) fn run(&self, arguments: &[&str], limit: Duration) -> Result<Value> {
        Self::object_of(process::pinned(self.cores.client, &self.file), arguments, limit)
    }

    /// Runs a command that places itself and the servers that it starts on cores of its choice.
    pub(crate) fn run_anywhere(&self, arguments: &[&str], limit: Duration) -> Result<Value> {
        Self::object_of(Command::new(&self.file), arguments, limit)
    }

    fn object_of(mut command: Command, arguments: &[&str], limit: Duration) -> Result<Value> {
        let text = capture(command.args(arguments).arg("--json"), limit)?;
        serde_json::from_str(&text).with_context(|| format!("`taut {}` printed no JSON", arguments.join(" ")))
    }
}

impl Serving {
    /// The endpoint of this transport.
    pub(crate) fn endpoint(&self, transport: Transport) -> Result<&str> {
        self.endpoint_of(&format!("{}://", transport.name()))
    }

    /// The first endpoint that begins so.
    pub(crate) fn endpoint_of(&self, prefix: &str) -> Result<&str> {
        let endpoint = self.endpoints.iter().find(|endpoint| endpoint.starts_with(prefix));
        endpoint.map(String::as_str).with_context(|| format!("taut serve does not listen on {prefix}"))
    }
}

/// The endpoints in the line that `taut serve --json` prints.
fn listening(line: &str) -> Result<Vec<String>> {
    let object: Value = serde_json::from_str(line).with_context(|| format!("taut serve printed no JSON: {line}"))?;
    let endpoints = object["listening"].as_array().context("taut serve names no endpoints")?;
    Ok(endpoints.iter().filter_map(|endpoint| endpoint.as_str().map(str::to_owned)).collect())
}

/// A number in an object, by its path (`/results/0/rtt_ns/p50`).
pub(crate) fn number(object: &Value, path: &str) -> Result<f64> {
    object.pointer(path).and_then(Value::as_f64).with_context(|| format!("there is no number {path} in taut's JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_serve_names_the_endpoints() {
        let line = r#"{"listening": ["tcp://127.0.0.1:43210", "udp://127.0.0.1:43211"]}"#;
        assert_eq!(listening(line).unwrap(), ["tcp://127.0.0.1:43210", "udp://127.0.0.1:43211"]);
        assert!(listening("listening").is_err());
    }
}
