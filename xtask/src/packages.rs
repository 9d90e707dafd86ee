//! Debian packages that tests and benches need: installed when missing.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::shell;

/// A Debian package and the command that it is needed for.
pub(crate) struct Package {
    /// Name of the package.
    pub(crate) name: &'static str,
    /// The command that it brings.
    pub(crate) command: &'static str,
}

/// Joins endpoints of all kinds; the tests' independent peer.
pub(crate) const SOCAT: Package = Package { name: "socat", command: "socat" };
/// The browser in which reports are tested.
pub(crate) const CHROMIUM: Package = Package { name: "chromium", command: "chromium" };
/// Drives that browser.
pub(crate) const CHROMIUM_DRIVER: Package = Package { name: "chromium-driver", command: "chromedriver" };
/// Sets up interfaces and routes.
pub(crate) const IPROUTE: Package = Package { name: "iproute2", command: "ip" };
/// Checks manual pages.
pub(crate) const MANDOC: Package = Package { name: "mandoc", command: "mandoc" };
/// Pins programs to cores.
pub(crate) const UTIL_LINUX: Package = Package { name: "util-linux", command: "taskset" };
/// The peer of `taut echo`.
pub(crate) const SOCKPERF: Package = Package { name: "sockperf", command: "sockperf" };
/// Real programs on POSIX AIO: reads, writes and verifies files.
pub(crate) const FIO: Package = Package { name: "fio", command: "fio" };
/// The same, with signals.
pub(crate) const STRESS_NG: Package = Package { name: "stress-ng", command: "stress-ng" };
/// The same, with `perf record --aio`.
pub(crate) const PERF: Package = Package { name: "linux-perf", command: "perf" };
/// The same, with MPI-IO. Its library alone is linked with: the development files bring a compiler for Fortran.
pub(crate) const MPICH: Package = Package { name: "mpich", command: "mpiexec.hydra" };
/// A server of many processes that runs under libtautaio.
pub(crate) const POSTGRESQL: Package = Package { name: "postgresql", command: "pg_ctlcluster" };
/// Reads captures of a simulated radio.
pub(crate) const TSHARK: Package = Package { name: "tshark", command: "tshark" };
/// The peer of `taut explain`.
pub(crate) const TCPTRACE: Package = Package { name: "tcptrace", command: "tcptrace" };
/// The peer of `taut stream`.
pub(crate) const IPERF: Package = Package { name: "iperf3", command: "iperf3" };
/// A broker of MQTT, the far side of `mqtt://`.
pub(crate) const MOSQUITTO: Package = Package { name: "mosquitto", command: "mosquitto" };
/// Its clients, peers of ours.
pub(crate) const MOSQUITTO_CLIENTS: Package = Package { name: "mosquitto-clients", command: "mosquitto_sub" };
/// A broker of its own protocol, the far side of `nats://`.
pub(crate) const NATS_SERVER: Package = Package { name: "nats-server", command: "nats-server" };
/// Scrapes our figures, and checks the rules for it (`promtool`).
pub(crate) const PROMETHEUS: Package = Package { name: "prometheus", command: "prometheus" };
/// Makes a place for a package of Python's, such as the DuckDB that reads our lines.
pub(crate) const PYTHON_VENV: Package = Package { name: "python3-venv", command: "python3" };
/// Programs that are traced at work: a store, a web server, a shell over the network, a compiler of static ones.
pub(crate) const REDIS: Package = Package { name: "redis-server", command: "redis-server" };
/// The same.
pub(crate) const NGINX: Package = Package { name: "nginx-light", command: "nginx" };
/// The same.
pub(crate) const OPENSSH_SERVER: Package = Package { name: "openssh-server", command: "sshd" };
/// The same.
pub(crate) const MUSL: Package = Package { name: "musl-tools", command: "musl-gcc" };
/// The stock client of HTTP.
pub(crate) const CURL: Package = Package { name: "curl", command: "curl" };
/// Passes sockets as a service manager does, and checks units.
pub(crate) const SYSTEMD: Package = Package { name: "systemd", command: "systemd-socket-activate" };
/// The lab's machine.
pub(crate) const QEMU: Package = Package { name: "qemu-system-x86", command: "qemu-system-x86_64" };
/// The lab's machine for aarch64.
pub(crate) const QEMU_ARM: Package = Package { name: "qemu-system-arm", command: "qemu-system-aarch64" };
/// The guests' shell and tools.
pub(crate) const BUSYBOX: Package = Package { name: "busybox-static", command: "busybox" };
/// Knows which kernel module needs which.
pub(crate) const KMOD: Package = Package { name: "kmod", command: "depmod" };
/// Debian's compression of kernels and modules up to 6.1.
pub(crate) const XZ: Package = Package { name: "xz-utils", command: "xz" };
/// Reads and copies container images.
pub(crate) const SKOPEO: Package = Package { name: "skopeo", command: "skopeo" };
/// Unpacks them.
pub(crate) const UMOCI: Package = Package { name: "umoci", command: "umoci" };
/// A compiler for aarch64.
pub(crate) const GCC_AARCH64: Package = Package { name: "gcc-aarch64-linux-gnu", command: "aarch64-linux-gnu-gcc" };
/// Its C library.
pub(crate) const LIBC_AARCH64: Package = Package { name: "libc6-dev-arm64-cross", command: "aarch64-linux-gnu-gcc" };
/// Runs programs of other machines.
pub(crate) const QEMU_USER: Package = Package { name: "qemu-user-static", command: "qemu-aarch64-static" };
/// Says what a compiler has to be told of a library.
pub(crate) const PKGCONF: Package = Package { name: "pkgconf", command: "pkg-config" };
/// Makes bare roots of Debian.
pub(crate) const DEBOOTSTRAP: Package = Package { name: "debootstrap", command: "debootstrap" };
/// Checks Debian packages.
pub(crate) const LINTIAN: Package = Package { name: "lintian", command: "lintian" };
/// Debian's compression of kernels from 6.12 on.
pub(crate) const ZSTD: Package = Package { name: "zstd", command: "zstd" };

/// Virtual Bluetooth controllers without air time.
pub(crate) const BLUEZ_TEST_TOOLS: Package = Package { name: "bluez-test-tools", command: "btvirt" };
/// The stock tools of the Bluetooth protocols, peers of ours.
pub(crate) const BLUEZ: Package = Package { name: "bluez", command: "l2test" };
/// The message bus of bluetoothd, and a command that asks over it.
pub(crate) const DBUS: Package = Package { name: "dbus", command: "dbus-daemon" };

/// What the tests use besides what the lab needs.
pub(crate) const TESTS: &[&Package] = &[
    &BLUEZ,
    &BLUEZ_TEST_TOOLS,
    &CHROMIUM,
    &CHROMIUM_DRIVER,
    &CURL,
    &DBUS,
    &FIO,
    &IPROUTE,
    &MANDOC,
    &MOSQUITTO,
    &MOSQUITTO_CLIENTS,
    &MPICH,
    &MUSL,
    &NATS_SERVER,
    &NGINX,
    &OPENSSH_SERVER,
    &PERF,
    &POSTGRESQL,
    &PROMETHEUS,
    &PYTHON_VENV,
    &REDIS,
    &SOCAT,
    &STRESS_NG,
    &SYSTEMD,
    &TSHARK,
];

/// Installs what is missing when it can (as root, on Debian) and says what to do when it can't.
/// Gives the names of what is still missing.
pub(crate) fn ensure(packages: &[&Package]) -> Vec<&'static str> {
    if shell::find("dpkg-query").is_none() || shell::find("apt-get").is_none() {
        return without_debian(packages);
    }
    let wanted = missing(packages);
    if wanted.is_empty() {
        return wanted;
    }
    let by_hand = format!("sudo apt-get install -y --no-install-recommends {}", wanted.join(" "));
    if !shell::is_root() {
        eprintln!("Debian packages are missing and only root can install them; run:\n  {by_hand}");
        return wanted;
    }
    eprintln!("installing Debian packages: {}", wanted.join(" "));
    if let Err(error) = install(&wanted) {
        eprintln!("{error:#}\ntry it by hand:\n  {by_hand}");
    }
    missing(packages)
}

fn without_debian(packages: &[&Package]) -> Vec<&'static str> {
    let missing: Vec<_> = packages.iter().filter(|package| shell::find(package.command).is_none()).collect();
    if !missing.is_empty() {
        let commands: Vec<_> = missing.iter().map(|package| package.command).collect();
        eprintln!("this is not Debian; install what brings these commands: {}", commands.join(", "));
    }
    missing.into_iter().map(|package| package.name).collect()
}

/// Names of those that are not installed.
fn missing(packages: &[&Package]) -> Vec<&'static str> {
    let mut query = Command::new("dpkg-query");
    query.args(["-W", "-f", r"${Package} ${Status}\n"]).args(packages.iter().map(|package| package.name));
    // It fails when it knows one of them not, and tells of the others all the same.
    let output = query.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let told = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    packages.iter().map(|package| package.name).filter(|name| !is_installed(name, &told)).collect()
}

/// Whether `dpkg-query` has told so.
fn is_installed(name: &str, told: &str) -> bool {
    let is_it = |line: &str| line.strip_prefix(name).is_some_and(|status| status.starts_with(' '));
    told.lines().any(|line| is_it(line) && line.ends_with("ok installed"))
}

fn install(names: &[&str]) -> Result<()> {
    let _no_daemons = NoDaemons::begin();
    let install = || shell::run(apt(&["install", "-y", "--no-install-recommends"]).args(names));
    if !has_package_lists() {
        shell::run(&mut apt(&["update"]))?;
        return install();
    }
    // Lists that are too old name files that are gone.
    install().or_else(|_| {
        shell::run(&mut apt(&["update"]))?;
        install()
    })
}

/// apt-get, with its chatter on stderr: stdout is for data.
fn apt(arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.args(["-q", "-o", "DPkg::Lock::Timeout=120"]).args(arguments);
    command.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).stdout(io::stderr());
    command
}

/// What packages ask before they start a daemon (Debian's policy-rc.d). The tests start their own, in directories of
/// their own; one that a package starts takes its port, and stays when they have ended.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// No package starts a daemon meanwhile. A policy of the machine's own stands.
struct NoDaemons {
    is_ours: bool,
}

impl NoDaemons {
    fn begin() -> Self {
        // 101: an action that is not allowed.
        let open = fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(POLICY);
        let is_ours = open.and_then(|mut file| file.write_all(b"#!/bin/sh\nexit 101\n")).is_ok();
        Self { is_ours }
    }
}

impl Drop for NoDaemons {
    fn drop(&mut self) {
        if self.is_ours {
            // Nothing else can be done about it.
            let _ = fs::remove_file(POLICY);
        }
    }
}

fn has_package_lists() -> bool {
    let Ok(lists) = fs::read_dir("/var/lib/apt/lists") else { return false };
    lists.flatten().any(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_is_told_by_its_whole_name() {
        let told = "socat install ok installed\nnginx-light deinstall ok config-files\n\
                    mosquitto-clients install ok installed\n";
        assert!(is_installed("socat", told) && is_installed("mosquitto-clients", told));
        for name in ["nginx-light", "mosquitto", "fio"] {
            assert!(!is_installed(name, told), "{name}");
        }
    }
}
