//! Brokers of a test's own, which it may kill and start again at the same port.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{free_port, has, skip, wait_for_tcp};

/// A broker on a loopback port; ended when dropped.
pub(crate) struct Broker {
    command: Box<dyn Fn() -> Command + Send>,
    child: Option<Child>,
    pub(crate) port: u16,
    _directory: tempfile::TempDir,
}

impl Broker {
    /// A Mosquitto with the lines that `lines` makes for its directory; `None`, and the test counted as skipped, where
    /// there is none.
    pub(crate) fn mosquitto(test: &str, lines: impl Fn(&Path) -> String) -> Option<Self> {
        Self::start(test, "mosquitto", |port, directory| {
            let path = directory.join("mosquitto.conf");
            // Root becomes the user `mosquitto` unless told otherwise, and could not read the directory then.
            let lines = format!("listener {port} 127.0.0.1\nallow_anonymous true\nuser root\n{}\n", lines(directory));
            std::fs::write(&path, lines).unwrap();
            vec!["-c".to_owned(), path.display().to_string()]
        })
    }

    /// A nats-server with these lines in its configuration.
    pub(crate) fn nats(test: &str, lines: &str) -> Option<Self> {
        Self::start(test, "nats-server", |port, directory| {
            let path = directory.join("nats.conf");
            std::fs::write(&path, format!("host: 127.0.0.1\nport: {port}\n{lines}\n")).unwrap();
            vec!["-c".to_owned(), path.display().to_string()]
        })
    }

    fn start(test: &str, program: &'static str, arguments: impl Fn(u16, &Path) -> Vec<String>) -> Option<Self> {
        if !has(program) {
            skip(test, &format!("{program} is not installed"));
            return None;
        }
        let (port, directory) = (free_port(), tempfile::tempdir().unwrap());
        let arguments = arguments(port, directory.path());
        let command = move || {
            let mut command = Command::new(program);
            command.env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()));
            command.args(&arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let mut broker = Self { command: Box::new(command), child: None, port, _directory: directory };
        broker.start_again();
        Some(broker)
    }

    /// Starts it once more, at the same port and with the same directory.
    pub(crate) fn start_again(&mut self) {
        self.child = Some((self.command)().spawn().unwrap());
        wait_for_tcp(([127, 0, 0, 1], self.port).into());
    }

    /// SIGTERM: it may save what it has.
    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
                .unwrap();
            child.wait().unwrap();
        }
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
