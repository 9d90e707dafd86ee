//! A server of SSH of a test's own on loopback addresses: OpenSSH, with keys and settings of its own.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{children, free_port, has, is_root, skip, wait_for_tcp};

/// It starts itself anew for each connection, by its whole path.
pub(crate) const SERVER: &str = "/usr/sbin/sshd";

/// Keys and settings of a server, which is started by who needs it, and how a client gets in.
pub(crate) struct Keys {
    directory: tempfile::TempDir,
    pub(crate) port: u16,
}

impl Keys {
    /// For a server at these addresses. `None`, and the test counted as skipped, where there can be none.
    pub(crate) fn new(test: &str, addresses: &[&str]) -> Option<Self> {
        if let Some(missing) = ["ssh", "ssh-keygen", "sshd"].into_iter().find(|program| !has(program)) {
            skip(test, &format!("{missing} is not installed"));
            return None;
        }
        if !is_root() {
            skip(test, "a server of SSH lets others in only for root");
            return None;
        }
        let keys = Self { directory: tempfile::tempdir().unwrap(), port: free_port() };
        for key in ["host", "user"] {
            let mut make = Command::new("ssh-keygen");
            make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(keys.file(key));
            assert!(make.stdin(Stdio::null()).status().unwrap().success(), "no key");
        }
        fs::copy(keys.file("user.pub"), keys.file("allowed")).unwrap();
        // So a client checks the host's key as everywhere.
        let port = keys.port;
        let names: Vec<String> = addresses.iter().map(|address| format!("[{address}]:{port}")).collect();
        let public = fs::read_to_string(keys.file("host.pub")).unwrap();
        fs::write(keys.file("known"), format!("{} {public}", names.join(","))).unwrap();
        let listens: String = addresses.iter().map(|address| format!("ListenAddress {address}\n")).collect();
        let settings = format!(
            "Port {port}\n{listens}HostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\n\
             PermitRootLogin prohibit-password\n",
            keys.path("host"),
            keys.path("allowed")
        );
        fs::write(keys.file("settings"), settings).unwrap();
        // Debian's makes it when the service starts.
        fs::create_dir_all("/run/sshd").unwrap();
        Some(keys)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn path(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    /// What the server is started with.
    pub(crate) fn arguments(&self) -> [String; 3] {
        ["-D".to_owned(), "-f".to_owned(), self.path("settings")]
    }

    /// What a client is started with before the host's name. Settings of the user who runs the test are none of ours.
    pub(crate) fn options(&self) -> Vec<String> {
        let (known, key) = (format!("UserKnownHostsFile={}", self.path("known")), self.path("user"));
        let port = self.port.to_string();
        let words = ["-F", "none", "-o", "BatchMode=yes", "-o", &known, "-i", &key, "-p", &port, "-l", "root"];
        words.map(str::to_owned).to_vec()
    }

    /// Another name of a program, of which a shell over there makes one word.
    pub(crate) fn plain(&self, program: &str) -> String {
        symlink(program, self.file("program")).unwrap();
        self.path("program")
    }
}

/// A server that listens, ended when dropped with the connections that it has.
pub(crate) struct Ssh {
    pub(crate) keys: Keys,
    child: Child,
}

impl Ssh {
    /// At these addresses; `None` as above.
    pub(crate) fn start(test: &str, addresses: &[&str]) -> Option<Self> {
        let keys = Keys::new(test, addresses)?;
        let mut command = Command::new(SERVER);
        command.args(keys.arguments()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self { child: command.spawn().unwrap(), keys };
        for address in addresses {
            wait_for_tcp(SocketAddr::new(address.parse::<IpAddr>().unwrap(), server.keys.port));
        }
        Some(server)
    }

    /// What clients have started over there and still runs, by its process number and its words.
    pub(crate) fn started(&self) -> Vec<(i32, String)> {
        let ending = format!(" {}", self.keys.port);
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let found = processes.filter_map(|process| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            // The server tells it from where to where the connection is (ssh(1), ENVIRONMENT).
            let environment = String::from_utf8_lossy(&fs::read(process.path().join("environ")).ok()?).into_owned();
            let connection = environment.split('\0').find_map(|entry| entry.strip_prefix("SSH_CONNECTION="))?;
            let words = String::from_utf8_lossy(&fs::read(process.path().join("cmdline")).ok()?).replace('\0', " ");
            connection.ends_with(&ending).then_some((pid, words))
        });
        found.collect()
    }

    /// SIGKILL for what serves its connections: they end as where a host fails, but at once.
    pub(crate) fn cut(&self) {
        for pid in children(self.child.id()) {
            let _ = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL);
        }
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        self.cut();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
