use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use taut_link::Endpoint;

/// A `taut serve` in a process of its own, for tests over loopback. Ends when it is dropped, or when we end.
#[derive(Debug)]
pub(crate) struct LocalServer {
    child: Child,
    pub(crate) endpoints: Vec<Endpoint>,
}

impl LocalServer {
    /// Starts a server on these endpoints and waits until it listens.
    pub(crate) fn start(endpoints: &[String]) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("find the program itself")?;
        let mut child = Command::new(program)
            .args(["serve", "--json", "--while-stdin-open"])
            .args(endpoints)
            // It ends at the end of its stdin: at our death too.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start a server")?;
        let stdout = child.stdout.take().context("the server's stdout")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("read what the server listens on")?;
        let mut server = Self { child, endpoints: Vec::new() };
        let value: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        let Some(listening) = value["listening"].as_array() else {
            bail!("the server did not start on {}", endpoints.join(" "));
        };
        server.endpoints = listening
            .iter()
            .filter_map(|endpoint| endpoint.as_str())
            .map(str::parse)
            .collect::<Result<_, taut_link::Error>>()?;
        Ok(server)
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // It may have gone by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
