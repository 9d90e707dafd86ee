//! `cargo xtask lab pair`: a command in a guest with two virtual Bluetooth adapters and a server on one of them.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use super::image::{Passed, words};

/// The pair.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct PairArgs {
    /// The radio: a scenario of `taut air`, a file or the name of one that is built in. Hosts are
    /// the kernel's own, whatever the scenario says of them.
    #[arg(long, value_name = "FILE", default_value = "two-nodes")]
    pub(super) scenario: String,
    /// Connection interval, a multiple of 1.25ms from 7.5ms to 4s [default: the scenario's].
    #[arg(long, value_name = "TIME")]
    pub(super) ci: Option<String>,
    /// Gives a parameter of the scenario another value.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(super) set: Vec<String>,
    /// What the peer listens on: l2cap (LE), l2cap-bredr or rfcomm (both over BR/EDR).
    #[arg(long = "type", value_name = "KIND", default_value = "l2cap")]
    pub(super) kind: Kind,
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

/// A kind of link between the two.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum Kind {
    /// A credit-based channel over LE.
    L2cap,
    /// A channel over BR/EDR.
    L2capBredr,
    /// A serial port over BR/EDR.
    Rfcomm,
}

impl Kind {
    /// The peer's endpoint, as it listens (`hci1`) or as one connects to it (`hci0`). The address is that
    /// of the scenario's first peripheral; adapters are made in the order of the scenario's machines.
    pub(super) fn endpoint(self, adapter: &str) -> String {
        let (kind, port, options) = match self {
            Self::L2cap => ("l2cap", 129, ""),
            Self::L2capBredr => ("l2cap", 4097, "&type=bredr"),
            Self::Rfcomm => ("rfcomm", 3, ""),
        };
        format!("{kind}://00:AA:01:01:00:00/{port}?adapter={adapter}{options}")
    }
}

impl PairArgs {
    /// The scenario's file, for the guest.
    pub(super) fn files(&self) -> Result<Vec<Passed>> {
        self.file().map(|path| path.display().to_string().parse().map_err(anyhow::Error::msg)).into_iter().collect()
    }

    fn file(&self) -> Option<PathBuf> {
        Some(PathBuf::from(&self.scenario)).filter(|path| path.is_file())
    }

    /// The guest's command: `command` with the peer's endpoint for every `@peer` in it, and all
    /// that it needs around it.
    pub(super) fn command(&self, command: &[String]) -> Result<Vec<String>> {
        let script = self.script(command, self.capture.then_some("/out"))?;
        Ok(vec!["sh".to_owned(), "-c".to_owned(), script])
    }

    /// The same as a shell's text, which exits with the command's code. With `out`, captures go to
    /// that directory of the guest.
    pub(super) fn script(&self, command: &[String], out: Option<&str>) -> Result<String> {
        let command = self.connecting(command)?;
        self.around(&[self.listen("hci1")], &command, out)
    }

    /// The peer's endpoint, on that adapter of its kernel.
    pub(super) fn listen(&self, adapter: &str) -> String {
        match &self.peer {
            Some(options) => format!("{}&{options}", self.kind.endpoint(adapter)),
            None => self.kind.endpoint(adapter),
        }
    }

    /// The command as a shell's text, with the peer's endpoint in it.
    pub(super) fn connecting(&self, command: &[String]) -> Result<String> {
        if !command.iter().any(|word| word.contains("@peer")) {
            bail!("the command names no @peer, which stands for the endpoint of the other side");
        }
        let connect = self.kind.endpoint("hci0");
        let command: Vec<String> = command.iter().map(|word| word.replace("@peer", &connect)).collect();
        Ok(words(&command).trim_start().to_owned())
    }

    /// The scenario, as the guest has it, and what is set in it.
    pub(super) fn radio(&self) -> Result<Vec<String>> {
        let scenario = match self.file() {
            Some(path) => path.file_name().context("the scenario's file has no name")?.to_string_lossy().into_owned(),
            None => self.scenario.clone(),
        };
        let mut radio = vec![scenario];
        let bredr = (self.kind != Kind::L2cap).then(|| "bredr.on=true".to_owned());
        let settings =
            bredr.into_iter().chain(self.ci.iter().map(|ci| format!("ci={ci}"))).chain(self.set.iter().cloned());
        radio.extend(settings.flat_map(|setting| ["--set".to_owned(), setting]));
        Ok(radio)
    }

    /// A shell's text that has the radio, a server at `listen`, and `command`, itself a shell's, beside them.
    pub(super) fn around(&self, listen: &[String], command: &str, out: Option<&str>) -> Result<String> {
        let mut attach = self.radio()?;
        if let Some(out) = out {
            attach.extend(["--pcapng", &format!("{out}/air.pcapng"), "--btsnoop", out].map(str::to_owned));
        }
        Ok(include_str!("pair.sh")
            .replace("{attach}", words(&attach).trim_start())
            .replace("{serving}", &serving(listen))
            .replace("{command}", command))
    }
}

/// A shell's text that has a server listen, for scripts with a directory of `$pipes`.
pub(super) fn serving(listen: &[String]) -> String {
    include_str!("serving.sh").replace("{serve}", words(listen).trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(ci: Option<&str>) -> PairArgs {
        let (scenario, peer) = ("saturate".to_owned(), Some("mtu=2048".to_owned()));
        let kind = Kind::L2cap;
        PairArgs { kind, scenario, ci: ci.map(str::to_owned), set: vec!["phy=2m".to_owned()], peer, capture: false }
    }

    #[test]
    fn the_peer_is_an_endpoint_and_the_radio_as_asked() {
        let command = pair(Some("15ms")).command(&["taut".to_owned(), "echo".to_owned(), "@peer&rcvbuf=9".to_owned()]);
        let script = command.unwrap().pop().unwrap();
        assert!(script.contains("attach 'saturate' '--set' 'ci=15ms' '--set' 'phy=2m' --json"), "{script}");
        assert!(script.contains("serve 'l2cap://00:AA:01:01:00:00/129?adapter=hci1&mtu=2048' >"), "{script}");
        assert!(script.contains("'echo' 'l2cap://00:AA:01:01:00:00/129?adapter=hci0&rcvbuf=9' ||"), "{script}");
        assert!(
            ["{attach}", "{serving}", "{serve}", "{command}"].iter().all(|place| !script.contains(place)),
            "{script}"
        );
    }

    #[test]
    fn the_peer_may_be_over_bredr() {
        let script = |kind| PairArgs { kind, ..pair(None) }.script(&["@peer&rcvbuf=9".to_owned()], None).unwrap();
        let (l2cap, rfcomm) = (script(Kind::L2capBredr), script(Kind::Rfcomm));
        assert!(l2cap.contains("serve 'l2cap://00:AA:01:01:00:00/4097?adapter=hci1&type=bredr&mtu=2048' >"), "{l2cap}");
        assert!(rfcomm.contains("'rfcomm://00:AA:01:01:00:00/3?adapter=hci0&rcvbuf=9' ||"), "{rfcomm}");
    }

    #[test]
    fn a_command_without_a_peer_is_refused() {
        let error = pair(None).command(&["true".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("@peer"), "{error}");
    }
}
