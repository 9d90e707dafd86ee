//! Real programs that use POSIX AIO, with libtautaio preloaded. Each must say in the log that the library is in use.

mod support;

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use support::process::{describe, run_limited};
use support::program::build;
use support::{Library, has, skip};

/// They run for a few seconds; the machine may be busy.
const LIMIT: Duration = Duration::from_secs(120);

/// Makes two tests of a function that takes a test's name and a library.
macro_rules! both_libraries {
    ($check:ident) => {
        mod $check {
            #[test]
            fn uring() {
                super::$check(concat!(module_path!(), "::uring"), super::Library::Uring);
            }

            #[test]
            fn epoll() {
                super::$check(concat!(module_path!(), "::epoll"), super::Library::Epoll);
            }
        }
    };
}

both_libraries!(fio_verifies_what_it_wrote);
fn fio_verifies_what_it_wrote(test: &str, library: Library) {
    if can_run(test, library, "fio") {
        fio(library, false);
    }
}

both_libraries!(fio_verifies_what_it_wrote_directly);
fn fio_verifies_what_it_wrote_directly(test: &str, library: Library) {
    let directory = tempfile::tempdir().unwrap();
    if !takes_direct_io(directory.path()) {
        skip(test, "the temporary directory's file system takes no direct I/O");
    } else if can_run(test, library, "fio") {
        fio(library, true);
    }
}

fn fio(library: Library, direct: bool) {
    const MIB: u64 = 16;
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report.json");
    let mut command = Command::new("fio");
    command
        .args([
            "--name=verify",
            "--ioengine=posixaio",
            "--rw=randrw",
            "--bs=4k",
            "--iodepth=16",
            "--verify=crc32c",
            "--verify_state_save=0",
        ])
        .arg(format!("--size={MIB}m"))
        .arg(format!("--direct={}", u8::from(direct)))
        .arg(format!("--directory={}", directory.path().display()))
        .arg("--output-format=json")
        .arg(format!("--output={}", report.display()));
    run(command, library);
    let report: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    let job = &report["jobs"][0];
    assert_eq!(job["error"], 0, "{job:#}");
    let bytes = |kind: &str| job[kind]["io_bytes"].as_u64().unwrap();
    // Half of the accesses write. Every block is read, in the mix or to verify it.
    assert!(bytes("write") > 0, "{job:#}");
    assert_eq!(bytes("read"), MIB << 20, "{job:#}");
}

both_libraries!(stress_ng_finds_no_fault);
fn stress_ng_finds_no_fault(test: &str, library: Library) {
    if !can_run(test, library, "stress-ng") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new("stress-ng");
    command.args(["--aio", "2", "--aio-requests", "16", "--aio-ops", "20000", "--verify", "--temp-path"]);
    command.arg(directory.path());
    let output = run(command, library);
    assert!(output.contains("successful run completed"), "{output}");
}

both_libraries!(perf_records_what_it_can_read);
fn perf_records_what_it_can_read(test: &str, library: Library) {
    if !can_run(test, library, "perf") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("perf.data");
    // A virtual machine may have no counters of its processor; this clock is always there.
    let record = || {
        let mut command = Command::new("perf");
        command.args(["record", "--event=cpu-clock", "--freq=2000", "--output"]).arg(&data);
        command
    };
    let work = ["--", "sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"];
    let (status, output) = run_limited(record().args(["--", "true"]), LIMIT);
    if !status.success() {
        return skip(test, &format!("perf can't record here: {}", output.lines().next().unwrap_or_default()));
    }
    let mut command = record();
    command.arg("--aio=4").args(work);
    run(command, library);
    let (status, script) =
        run_limited(Command::new("perf").args(["script", "--fields=event", "--input"]).arg(&data), LIMIT);
    assert!(status.success(), "perf script: {}\n{script}", describe(status));
    let samples = script.lines().filter(|line| line.contains("cpu-clock")).count();
    assert!(samples > 10, "{samples} samples\n{script}");
}

both_libraries!(mpi_reads_back_what_two_ranks_wrote);
/// ROMIO, which MPICH does its files with, reads and writes by `<aio.h>` when it need not wait.
fn mpi_reads_back_what_two_ranks_wrote(test: &str, library: Library) {
    if !can_run(test, library, "mpiexec.hydra") {
        return;
    }
    if !has("cc") {
        return skip(test, "there is no C compiler (cc)");
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = directory.path().join("program");
    build("mpi_io.c", &["-l:libmpich.so.12"], &program);
    let mut command = Command::new("mpiexec.hydra");
    command.args(["-launcher", "fork", "-n", "2"]).arg(program).arg(directory.path().join("file"));
    let output = run(command, library);
    assert!(output.contains("all read back"), "{output}");
    assert_eq!(output.matches("tautaio: engine").count(), 2, "each rank uses it\n{output}");
}

/// Whether the program and the engine are there; a test that can't run says so.
fn can_run(test: &str, library: Library, program: &str) -> bool {
    let refused = library.refused().or_else(|| (!has(program)).then(|| format!("{program} is not installed")));
    if let Some(reason) = &refused {
        skip(test, reason);
    }
    refused.is_none()
}

/// Runs a program with the library, whose line in the log must be there; gives its output.
fn run(mut command: Command, library: Library) -> String {
    library.preload(&mut command);
    let (status, output) = run_limited(&mut command, LIMIT);
    assert!(status.success(), "{command:?}: {}\n{output}", describe(status));
    let engine = match library {
        Library::Epoll => "tautaio: engine epoll",
        _ => "tautaio: engine io_uring",
    };
    assert!(output.contains(engine), "{command:?} does not use the library\n{output}");
    output
}

/// Whether files here can be opened with `O_DIRECT`.
fn takes_direct_io(directory: &Path) -> bool {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).custom_flags(libc::O_DIRECT);
    options.open(directory.join("direct")).is_ok()
}
