//! `cargo xtask lab pair`: a command in a guest with two virtual Bluetooth adapters and a server on one of them.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use super::image::{Passed, words};

/// The pair.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct PairArgs {
    /// The radio: a scenario of `taut air`, a file or the name of one that is built in. Hosts are the kernel's own, whatever
    /// the scenario says of them.
    #[arg(long, value_name = "FILE", default_value = "two-nodes")]
    pub(super) scenario: String,
    /// Connection interval, a multiple of 1.25ms from 7.5ms to 4s [default: the scenario's].
    #[arg(long, value_name = "TIME")]
    pub(super) ci: Option<String>,
    /// Gives a parameter of the scenario another value.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(super) set: Vec<String>,
    /// Options of the peer's endpoint: mtu=2048&rcvbuf=65536.
    #[arg(long, value_name = "NAME=VALUE&…")]
    pub(super) peer: Option<String>,
    /// Writes every PDU on the air to air.pcapng, and the HCI packets of both sides to central.btsnoop and
    /// peripheral.btsnoop, with the command's own files.
    #[arg(long)]
    pub(super) capture: bool,
}

/// What a pair needs of the kernel beyond what it loads by itself.
pub(super) const MODULES: [&str; 1] = ["hci_vhci"];

/// The peer's endpoint, as it listens and as one connects to it. The addresses are those of the scenario's central and first
/// peripheral, in the order in which their adapters are made.
const LISTEN: &str = "l2cap://00:AA:01:01:00:00/129?adapter=hci1";
const CONNECT: &str = "l2cap://00:AA:01:01:00:00/129?adapter=hci0";

impl PairArgs {
    /// The scenario's file, for the guest.
    pub(super) fn files(&self) -> Result<Vec<Passed>> {
        self.file().map(|path| path.display().to_string().parse().map_err(anyhow::Error::msg)).into_iter().collect()
    }

    fn file(&self) -> Option<PathBuf> {
        Some(PathBuf::from(&self.scenario)).filter(|path| path.is_file())
    }

    /// The guest's command: `command` with the peer's endpoint for every `@peer` in it, and all that it needs around it.
    pub(super) fn command(&self, command: &[String]) -> Result<Vec<String>> {
        let script = self.script(command, self.capture.then_some("/out"))?;
        Ok(vec!["sh".to_owned(), "-c".to_owned(), script])
    }

    /// The same as a shell's text, which exits with the command's code. With `out`, captures go to that directory of the guest.
    pub(super) fn script(&self, command: &[String], out: Option<&str>) -> Result<String> {
        if !command.iter().any(|word| word.contains("@peer")) {
            bail!("the command names no @peer, which stands for the endpoint of the other side");
        }
        let scenario = match self.file() {
            Some(path) => path.file_name().context("the scenario's file has no name")?.to_string_lossy().into_owned(),
            None => self.scenario.clone(),
        };
        let mut attach = vec![scenario];
        let settings = self.ci.iter().map(|ci| format!("ci={ci}")).chain(self.set.iter().cloned());
        attach.extend(settings.flat_map(|setting| ["--set".to_owned(), setting]));
        if let Some(out) = out {
            attach.extend(["--pcapng", &format!("{out}/air.pcapng"), "--btsnoop", out].map(str::to_owned));
        }
        let listen = match &self.peer {
            Some(options) => format!("{LISTEN}&{options}"),
            None => LISTEN.to_owned(),
        };
        let command: Vec<String> = command.iter().map(|word| word.replace("@peer", CONNECT)).collect();
        Ok(include_str!("pair.sh")
            .replace("{attach}", words(&attach).trim_start())
            .replace("{serve}", words(&[listen]).trim_start())
            .replace("{command}", words(&command).trim_start()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(ci: Option<&str>) -> PairArgs {
        let (scenario, peer) = ("saturate".to_owned(), Some("mtu=2048".to_owned()));
        PairArgs { scenario, ci: ci.map(str::to_owned), set: vec!["phy=2m".to_owned()], peer, capture: false }
    }

    #[test]
    fn the_peer_is_an_endpoint_and_the_radio_as_asked() {
        let command = pair(Some("15ms")).command(&["taut".to_owned(), "echo".to_owned(), "@peer&rcvbuf=9".to_owned()]);
        let script = command.unwrap().pop().unwrap();
        assert!(script.contains("attach 'saturate' '--set' 'ci=15ms' '--set' 'phy=2m' --json"), "{script}");
        assert!(script.contains("serve 'l2cap://00:AA:01:01:00:00/129?adapter=hci1&mtu=2048' >"), "{script}");
        assert!(script.contains("'echo' 'l2cap://00:AA:01:01:00:00/129?adapter=hci0&rcvbuf=9' ||"), "{script}");
        assert!(
            !script.contains("{attach}") && !script.contains("{serve}") && !script.contains("{command}"),
            "{script}"
        );
    }

    #[test]
    fn a_command_without_a_peer_is_refused() {
        let error = pair(None).command(&["true".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("@peer"), "{error}");
    }
}
