//! PostgreSQL with libtautaio preloaded: a server of many processes that fork, close and
//! synchronise files. It calls nothing of `<aio.h>` itself, so a second library has each of its
//! processes do so, and the hooks are in use everywhere.

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use support::process::{describe, run_limited};
use support::program::build;
use support::{Library, has, skip};

const LIMIT: Duration = Duration::from_secs(120);

/// It refuses to run as root.
const NOBODY: u32 = 65534;

/// Clients, and transactions of each; each transaction has a connection of its own, which is a process of the server.
const CLIENTS: usize = 4;
const TRANSACTIONS: usize = 10;

mod accounts_add_up_also_after_a_crash {
    use super::*;

    #[test]
    fn uring() {
        accounts_add_up(concat!(module_path!(), "::uring"), Library::Uring);
    }

    #[test]
    fn epoll() {
        accounts_add_up(concat!(module_path!(), "::epoll"), Library::Epoll);
    }
}

fn accounts_add_up(test: &str, library: Library) {
    let Some(programs) = programs() else { return skip(test, "PostgreSQL is not installed") };
    let refused = library.refused().or_else(|| (!has("cc")).then(|| "there is no C compiler (cc)".to_owned()));
    if let Some(reason) = refused {
        return skip(test, &reason);
    }
    let server = Server::new(programs, library);
    server.start();
    server.client("pgbench", &["--initialize", "--quiet"]);
    let transactions = TRANSACTIONS.to_string();
    let many = ["--no-vacuum", "--connect", "--client", "4", "--transactions", &transactions];
    let output = server.client("pgbench", &many);
    assert!(output.contains(&format!("{0}/{0}", CLIENTS * TRANSACTIONS)), "{output}");
    server.check();
    server.control(&["stop", "--mode", "immediate"]);
    server.start();
    server.check();
    server.client("pgbench", &many);
    server.check();
    server.control(&["stop", "--mode", "fast"]);

    let log = fs::read_to_string(server.at("log")).unwrap();
    let engine = if library == Library::Uring { "tautaio: engine io_uring" } else { "tautaio: engine epoll" };
    let processes = log.matches(engine).count();
    assert!(processes > 2 * CLIENTS * TRANSACTIONS, "{processes} processes use the library\n{log}");
    assert!(!log.contains("PANIC") && !log.contains("terminated by signal"), "{log}");
}

/// A server with its files in a directory of its own.
struct Server {
    programs: PathBuf,
    library: Library,
    directory: tempfile::TempDir,
}

impl Server {
    fn new(programs: PathBuf, library: Library) -> Self {
        // A socket's path is short, and other users may not look into the build's.
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let server = Self { programs, library, directory };
        fs::copy(support::library(), server.at("libtautaio.so")).unwrap();
        build("starts.c", &["-shared", "-fPIC"], &server.at("starts.so"));
        fs::create_dir(server.at("data")).unwrap();
        fs::set_permissions(server.at("data"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(server.at("log"), "").unwrap();
        if is_root() {
            for path in [server.at("data"), server.at("log"), server.directory.path().to_owned()] {
                chown(path, Some(NOBODY), None).unwrap();
            }
        }
        let mut command = server.command("initdb");
        command.args(["--no-sync", "--auth=trust", "--username=owner", "--locale=C", "-D"]).arg(server.at("data"));
        server.run(command);
        server
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir(self.directory.path()).env("HOME", self.directory.path()).env("PGUSER", "owner");
        command.env("PGHOST", self.directory.path()).env("PGDATABASE", "postgres");
        if is_root() {
            command.uid(NOBODY);
        }
        command
    }

    fn run(&self, mut command: Command) -> String {
        let (status, output) = run_limited(&mut command, LIMIT);
        let log = || fs::read_to_string(self.at("log")).unwrap();
        assert!(status.success(), "{command:?}: {}\n{output}\n{}", describe(status), log());
        output
    }

    fn start(&self) {
        let settings = "-c listen_addresses= -c shared_buffers=16MB -c max_connections=20 -k ";
        self.control(&["start", "--options", &format!("{settings}{}", self.directory.path().display())]);
    }

    /// With the library, which the server inherits.
    fn control(&self, arguments: &[&str]) {
        let mut command = self.command("pg_ctl");
        self.library.preload(&mut command);
        command.env("LD_PRELOAD", format!("{}:{}", self.at("starts.so").display(), self.at("libtautaio.so").display()));
        command
            .args(["--wait", "--timeout=110", "-D"])
            .arg(self.at("data"))
            .arg("--log")
            .arg(self.at("log"))
            .args(arguments);
        self.run(command);
    }

    fn client(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = self.command(program);
        command.args(arguments);
        self.run(command)
    }

    /// Each account has what its history says.
    fn check(&self) {
        let sums = "select (select coalesce(sum(abalance), 0) from pgbench_accounts) = (select coalesce(sum(delta), 0) \
                    from pgbench_history) and (select sum(bbalance) from pgbench_branches) = (select sum(tbalance) from \
                    pgbench_tellers), count(*) from pgbench_accounts";
        let output = self.client("psql", &["--no-align", "--tuples-only", "--command", sums]);
        assert_eq!(output.trim(), "t|100000");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Also after a test that failed: it is no child of this process.
        let mut command = self.command("pg_ctl");
        command.args(["stop", "--mode", "immediate", "-D"]).arg(self.at("data"));
        run_limited(&mut command, LIMIT);
    }
}

/// Debian has them out of the way, a directory for each version.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let programs = versions.flatten().map(|version| version.path().join("bin"));
    programs.filter(|programs| ["initdb", "pgbench", "pg_ctl"].iter().all(|name| programs.join(name).is_file())).max()
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata) == 0)
}
