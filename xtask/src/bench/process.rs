//! Programs of the benches: pinned, awaited, and ended when no longer needed.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::shell;

/// How long a server may take until it listens.
const START: Duration = Duration::from_secs(10);

/// Where clients and servers run: two cores when there are two.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Cores {
    pub(crate) client: usize,
    pub(crate) server: usize,
}

impl Cores {
    /// The first two cores that this process may use.
    pub(crate) fn of_this_process() -> Result<Self> {
        let status = fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        Self::of_list(list.context("/proc/self/status lists no cores")?).context("/proc/self/status lists no cores")
    }

    fn of_list(list: &str) -> Option<Self> {
        let mut cores = list.trim().split(',').flat_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            match (first.parse(), last.parse()) {
                (Ok(first), Ok(last)) => first..=last,
                // An empty range.
                #[expect(clippy::reversed_empty_ranges, reason = "an empty range is what is meant")]
                _ => 1..=0,
            }
        });
        let client = cores.next()?;
        Some(Self { client, server: cores.next().unwrap_or(client) })
    }
}

/// A program that will run on one core only.
pub(crate) fn pinned(core: usize, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("taskset");
    command.arg("-c").arg(core.to_string()).arg(program).stdin(Stdio::null());
    command
}

/// A program in the background, ended when dropped.
pub(crate) struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// Its process; `taskset` has become the program by then.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Starts a server and waits until the kernel says that the port is taken.
    pub(crate) fn start(command: &mut Command, transport: Transport, port: u16) -> Result<Self> {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("cannot run `{}`", shell::line(command)))?;
        let mut server = Self(child);
        let begin = Instant::now();
        while !transport.is_taken(port) {
            if let Some(status) = server.0.try_wait()? {
                bail!("`{}` ended before it listened: {status}", shell::line(command));
            }
            if begin.elapsed() > START {
                bail!("`{}` does not listen after {} s", shell::line(command), START.as_secs());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Starts a server that prints one line once it listens, and gives that line.
    pub(crate) fn start_with_line(command: &mut Command) -> Result<(Self, String)> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot run `{}`", shell::line(command)))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut server = Self(child);
        let complaints = read_all(stderr.context("no stderr")?);
        let (sender, receiver) = mpsc::channel();
        let mut stdout = BufReader::new(stdout.context("no stdout")?);
        thread::spawn(move || {
            let mut line = String::new();
            let _ = stdout.read_line(&mut line);
            let _ = sender.send(line);
            // What follows is read too, so that the server never waits for us.
            let _ = std::io::copy(&mut stdout, &mut std::io::sink());
        });
        match receiver.recv_timeout(START) {
            Ok(line) if !line.trim().is_empty() => Ok((server, line)),
            _ => {
                let _ = server.0.kill();
                let stderr = complaints.recv_timeout(START).unwrap_or_default();
                bail!("`{}` does not say that it listens: {}", shell::line(command), stderr.trim())
            }
        }
    }
}

/// TCP or UDP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    /// As it stands in an endpoint's address.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    /// A port of 127.0.0.1 that nobody uses at the moment.
    pub(crate) fn free_port(self) -> Result<u16> {
        let address = match self {
            Self::Tcp => TcpListener::bind("127.0.0.1:0")?.local_addr()?,
            Self::Udp => UdpSocket::bind("127.0.0.1:0")?.local_addr()?,
        };
        Ok(address.port())
    }

    /// Looked up and not tried, since some servers serve one connection only.
    fn is_taken(self, port: u16) -> bool {
        let name = self.name();
        [format!("/proc/net/{name}"), format!("/proc/net/{name}6")]
            .iter()
            .filter_map(|file| fs::read_to_string(file).ok())
            .any(|sockets| listens(&sockets, port))
    }
}

/// Whether a table of sockets (proc_pid_net(5)) has one that waits on the port: TCP in state LISTEN (0A), UDP
/// unconnected (07).
fn listens(sockets: &str, port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    sockets.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().take(4).collect();
        matches!(fields[..], [_, local, _, state] if local.ends_with(&suffix) && matches!(state, "0A" | "07"))
    })
}

/// Runs a client to its end and gives what it printed.
pub(crate) fn capture(command: &mut Command, limit: Duration) -> Result<String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let line = shell::line(command);
    let mut child = command.spawn().with_context(|| format!("cannot run `{line}`"))?;
    let stdout = read_all(child.stdout.take().context("no stdout")?);
    let stderr = read_all(child.stderr.take().context("no stderr")?);
    // Blocks, as polling would take time from what is measured.
    let Ok(text) = stdout.recv_timeout(limit) else {
        child.kill()?;
        child.wait()?;
        bail!("`{line}` does not end after {} s", limit.as_secs());
    };
    let status = child.wait()?;
    if !status.success() {
        let stderr = stderr.recv_timeout(START).unwrap_or_default();
        let tail = |text: &str| text.trim().lines().rev().take(5).collect::<Vec<_>>().join(" / ");
        bail!("`{line}` failed: {status}: {} {}", tail(&stderr), tail(&text));
    }
    Ok(text)
}

fn read_all(mut from: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_two_cores_are_used() {
        assert_eq!(Cores::of_list("\t0-1"), Some(Cores { client: 0, server: 1 }));
        assert_eq!(Cores::of_list("2,5-7"), Some(Cores { client: 2, server: 5 }));
        assert_eq!(Cores::of_list("3"), Some(Cores { client: 3, server: 3 }));
        assert_eq!(Cores::of_list(""), None);
    }

    #[test]
    fn a_listening_socket_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(Transport::Tcp.is_taken(port));
        drop(listener);
        assert!(!Transport::Tcp.is_taken(port));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(Transport::Udp.is_taken(socket.local_addr().unwrap().port()));
    }

    #[test]
    fn a_client_that_hangs_or_fails_is_told_apart() {
        let hang = capture(Command::new("sleep").arg("20"), Duration::from_millis(50)).unwrap_err();
        assert!(hang.to_string().contains("does not end"), "{hang}");
        let fail = capture(Command::new("sh").args(["-c", "echo why >&2; exit 4"]), START).unwrap_err();
        assert!(fail.to_string().contains("exit status: 4: why"), "{fail}");
        assert_eq!(capture(Command::new("echo").arg("yes"), START).unwrap(), "yes\n");
    }

    #[test]
    fn a_server_says_its_line_or_why_not() {
        let mut command = Command::new("sh");
        let (_server, line) = Server::start_with_line(command.args(["-c", "echo ready; exec sleep 20"])).unwrap();
        assert_eq!(line, "ready\n");
        let mut command = Command::new("sh");
        let error = Server::start_with_line(command.args(["-c", "echo no port >&2; exit 1"])).err().unwrap();
        assert!(error.to_string().contains("no port"), "{error}");
    }
}
