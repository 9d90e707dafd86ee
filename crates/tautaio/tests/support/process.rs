//! Runs a test's body in a process of its own, with one implementation of `<aio.h>`.
//!
//! The test executable starts itself again for this one test. Nothing of an earlier test is in that process, it may
//! fork, take signals and limits as it likes, and a body that hangs is ended.
#![expect(unsafe_code, reason = "dladdr, kill and prctl have no safe form")]

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::{library, skip};

/// Holds the test's name in the process that runs its body.
const IN_CHILD: &str = "TAUTAIO_TEST";

/// What [`skip`] begins its line with.
pub(crate) const SKIPPED: &str = "SKIPPED:";

/// A body may take this long on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Whose `<aio.h>`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Library {
    /// libtautaio over io_uring.
    Uring,
    /// libtautaio over epoll.
    Epoll,
    /// libtautaio with the engine it chooses itself.
    Auto,
    /// The C library.
    System,
}

impl Library {
    /// The value of `TAUTAIO_ENGINE`.
    pub(crate) fn engine(self) -> Option<&'static str> {
        match self {
            Self::Uring => Some("uring"),
            Self::Epoll => Some("epoll"),
            Self::Auto | Self::System => None,
        }
    }

    /// Its name in the log.
    fn engine_in_log(self) -> Option<&'static str> {
        match self {
            Self::Uring => Some("io_uring"),
            Self::Epoll => Some("epoll"),
            Self::Auto | Self::System => None,
        }
    }

    /// Preloads it into a command.
    pub(crate) fn preload(self, command: &mut Command) {
        command
            .env_remove("TAUTAIO_ENGINE")
            .env_remove("TAUTAIO_CANCEL")
            .env_remove("TAUTAIO_SCHED")
            .env_remove("LD_PRELOAD");
        if self != Self::System {
            command.env("LD_PRELOAD", library()).env("TAUTAIO_LOG", "info");
        }
        if let Some(engine) = self.engine() {
            command.env("TAUTAIO_ENGINE", engine);
        }
    }

    /// Why this one can't be had here.
    pub(crate) fn refused(self) -> Option<String> {
        let error = uring_refused().filter(|_| self == Self::Uring)?;
        Some(format!("io_uring is refused here ({error})"))
    }
}

/// One test's body in a process of its own.
pub(crate) struct Run {
    test: &'static str,
    library: Library,
    environment: &'static [(&'static str, &'static str)],
}

impl Run {
    /// For the test whose full path, crate and all, is given.
    pub(crate) fn new(test: &'static str, library: Library) -> Self {
        Self { test, library, environment: &[] }
    }

    /// Adds to the body's environment.
    pub(crate) fn environment(mut self, environment: &'static [(&'static str, &'static str)]) -> Self {
        self.environment = environment;
        self
    }

    /// Runs the body in its process and returns what that one wrote. None in that process itself, and where it is
    /// skipped.
    pub(crate) fn body(self, body: fn()) -> Option<String> {
        if std::env::var_os(IN_CHILD).is_some() {
            die_with_parent();
            assert_in_use(self.library);
            let status = in_fork(body);
            assert!(status.success(), "the body's process: {}", describe(status));
            return None;
        }
        if let Some(reason) = self.library.refused() {
            skip(self.test, &reason);
            return None;
        }
        let (_, name) = self.test.split_once("::").expect("a test's path has its crate in front");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .env(IN_CHILD, self.test)
            .env("RUST_BACKTRACE", "0");
        self.library.preload(&mut command);
        command.envs(self.environment.iter().copied());
        let (status, output) = run_limited(&mut command, LIMIT);
        assert!(status.success(), "{}: {}\n{output}", self.test, describe(status));
        if let Some(skipped) = output.lines().find(|line| line.starts_with(SKIPPED)) {
            eprintln!("{skipped}");
            return None;
        }
        assert!(output.contains("1 passed"), "{}: its body did not run\n{output}", self.test);
        if let Some(engine) = self.library.engine_in_log() {
            // Each process of the body says it. The harness's own words may stand before it on the line.
            let mut said = output.split("tautaio: engine ").skip(1).peekable();
            let right = said.peek().is_some() && said.all(|line| line.starts_with(engine));
            assert!(right, "{}: not the engine wanted\n{output}", self.test);
        }
        Some(output)
    }
}

/// Runs a body in a fork of this process. There it is the only thread, which the test harness doesn't let it be.
fn in_fork(body: fn()) -> ExitStatus {
    // SAFETY: the other thread of this process, the harness's, waits for this one and holds no lock the body needs.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        die_with_parent();
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            print(panic);
            // Also when another thread waits for the one that panics.
            // SAFETY: ends the process.
            unsafe { libc::_exit(101) }
        }));
        body();
        std::process::exit(0);
    }
    wait_for(child)
}

/// Forks, has the child do something and waits for its end. Not in the process of a test harness with its threads.
pub(crate) fn fork_and_wait(body: impl FnOnce()) -> ExitStatus {
    wait_for(fork_child(body))
}

/// Forks and has the child do something. A panic ends it with 101.
pub(crate) fn fork_child(body: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the C library puts its own locks right in the child, and the tests' other threads hold no others.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        die_with_parent();
        body();
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    child
}

/// Waits for a process that was forked.
pub(crate) fn wait_for(child: libc::pid_t) -> ExitStatus {
    let mut status = 0;
    // SAFETY: writes a local.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
        let error = std::io::Error::last_os_error();
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "{error}");
    }
    ExitStatus::from_raw(status)
}

/// Whether the body runs with the epoll engine, which can't do everything that io_uring can.
pub(crate) fn is_epoll() -> bool {
    std::env::var("TAUTAIO_ENGINE").is_ok_and(|engine| engine == "epoll")
}

/// How many threads the library starts with: its own, one that starts others, and with epoll one for files.
pub(crate) fn threads_at_first() -> usize {
    if is_epoll() { 3 } else { 2 }
}

/// Skips the test whose body is running.
pub(crate) fn skip_here(reason: &str) {
    skip(&std::env::var(IN_CHILD).expect("in the process of a body"), reason);
}

/// Runs a command to its end and returns what it wrote to stdout and stderr. One that takes longer than the limit is
/// killed with its whole process group.
pub(crate) fn run_limited(command: &mut Command, limit: Duration) -> (ExitStatus, String) {
    let mut output = tempfile::tempfile().unwrap();
    let child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output.try_clone().unwrap())
        .process_group(0)
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let status = wait_limited(child, limit);
    (status, read_all(&mut output))
}

fn wait_limited(mut child: Child, limit: Duration) -> ExitStatus {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            kill_group(&child);
            return child.wait().unwrap();
        }
        std::thread::sleep(Duration::from_millis(3));
    }
}

fn read_all(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Kills a process that leads its group, and the group.
pub(crate) fn kill_group(child: &Child) {
    let group = i32::try_from(child.id()).unwrap();
    // SAFETY: sends a signal to a group that this process made and whose leader it hasn't waited for.
    unsafe { libc::kill(-group, libc::SIGKILL) };
}

/// In words, and that SIGKILL stands for the time limit.
pub(crate) fn describe(status: ExitStatus) -> String {
    match status.signal() {
        Some(libc::SIGKILL) => "killed, as it took too long".to_owned(),
        Some(signal) => format!("killed by signal {signal}"),
        None => status.to_string(),
    }
}

/// The process of a body ends with the test that started it.
pub(crate) fn die_with_parent() {
    // SAFETY: sets an attribute of this process.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) }, 0);
}

/// Why io_uring_setup(2) fails here.
pub(crate) fn uring_refused() -> Option<std::io::Error> {
    // struct io_uring_params is 120 bytes and may be zero.
    let mut params = [0u64; 15];
    // SAFETY: the kernel writes into the 120 bytes only.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 2, params.as_mut_ptr()) };
    if fd < 0 {
        return Some(std::io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and nobody else has it.
    unsafe { libc::close(i32::try_from(fd).unwrap()) };
    None
}

/// The file whose code a call of `name` runs in this process.
pub(crate) fn provider_of(name: &CStr) -> Option<String> {
    // SAFETY: looks a name up.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    provider_at(address)
}

/// The file that holds an address of code.
pub(crate) fn provider_at(address: *const libc::c_void) -> Option<String> {
    if address.is_null() {
        return None;
    }
    // SAFETY: all-zero is a value of the structure.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for.
    if unsafe { libc::dladdr(address, &raw mut info) } == 0 {
        return None;
    }
    // SAFETY: after success it is a string that lives as long as the file is loaded.
    Some(unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned())
}

/// The calls the test makes must end up in the library it is a test of.
fn assert_in_use(library: Library) {
    // Not what dlsym finds but what this executable is bound to.
    let provider = provider_at(libc::aio_read as *const libc::c_void).expect("aio_read is bound");
    let ours = OsStr::new(&provider) == super::library().as_os_str();
    assert_eq!(ours, library != Library::System, "aio_read is that of {provider}");
}
