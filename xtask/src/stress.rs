//! `cargo xtask stress aio`: random use of libtautaio against a model, as long as one likes, also under the sanitizers.
//!
//! The program is `crates/tautaio/examples/stress.rs`. It gets the optimised `libtautaio.so` preloaded; for a sanitizer
//! the library is linked in, and both are instrumented.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::shell;

/// How long, with what.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What is put under stress.
    #[arg(value_enum, default_value = "aio")]
    what: Subject,
    /// Time for each engine, as 30m. An hour's worth at 10,000 operations a second is `--operations 36000000`.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration, conflicts_with = "operations")]
    time: Duration,
    /// Operations for each engine, instead of a time.
    #[arg(long, value_name = "N")]
    operations: Option<u64>,
    /// Repeats what a failure printed as TAUT_SEED, as far as the scheduler allows.
    #[arg(long, value_name = "S")]
    seed: Option<String>,
    /// Only this engine.
    #[arg(long, value_enum)]
    engine: Option<Engine>,
    /// Only this kind of episode: stream, file, append, messages, race, crowd, lost. More than one: by commas.
    #[arg(long, value_name = "KIND")]
    only: Option<String>,
    /// Instrumented by this.
    #[arg(long, value_enum)]
    sanitizer: Option<Sanitizer>,
}

/// What can be put under stress.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Subject {
    /// libtautaio.
    Aio,
}

/// What carries the operations out (`TAUTAIO_ENGINE`).
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Engine {
    Uring,
    Epoll,
}

/// The compiler's sanitizers that are of use here.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Sanitizer {
    Thread,
    Address,
}

/// The engines, in the order in which they are tried.
pub(crate) const ENGINES: [Engine; 2] = [Engine::Uring, Engine::Epoll];
/// The sanitizers that belong to the tests.
pub(crate) const SANITIZERS: [Sanitizer; 2] = [Sanitizer::Thread, Sanitizer::Address];

/// Runs the stress on each engine in turn, also after one failed.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let Subject::Aio = args.what;
    let program = match args.sanitizer {
        Some(sanitizer) => Program::sanitized(sanitizer)?,
        None => Program::optimised()?,
    };
    let mut failed = Vec::new();
    for engine in ENGINES.into_iter().filter(|engine| args.engine.is_none_or(|only| only == *engine)) {
        println!("==> {}", engine.name());
        let mut command = program.command(engine);
        match args.operations {
            Some(operations) => command.env("TAUT_STRESS_OPERATIONS", operations.to_string()),
            None => command.env("TAUT_STRESS_SECONDS", args.time.as_secs().max(1).to_string()),
        };
        if let Some(seed) = &args.seed {
            command.env("TAUT_SEED", seed);
        }
        if let Some(only) = &args.only {
            command.env("TAUT_STRESS_ONLY", only);
        }
        let status = command.status().with_context(|| format!("cannot run `{}`", shell::line(&command)))?;
        if status.code() == Some(NOT_HERE) {
            println!("SKIPPED: the engine {} can't be had here", engine.name());
        } else if !status.success() {
            eprintln!("{}: {status}", engine.name());
            failed.push(engine.name());
        }
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("FAILED: {}", failed.join(", "));
    Ok(ExitCode::FAILURE)
}

/// Exit code of a program whose engine the host refuses.
pub(crate) const NOT_HERE: i32 = 77;

impl Engine {
    /// The value of `TAUTAIO_ENGINE`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::Epoll => "epoll",
        }
    }
}

impl Sanitizer {
    /// As the compiler calls it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Address => "address",
        }
    }

    /// Where the compiler keeps its run-time library: none for some targets.
    pub(crate) fn is_there(self) -> bool {
        let name = match self {
            Self::Thread => "_rt.tsan.a",
            Self::Address => "_rt.asan.a",
        };
        let Ok(sysroot) = shell::output(Command::new("rustc").args(["--print", "sysroot"])) else { return false };
        let directory = PathBuf::from(sysroot.trim()).join("lib/rustlib").join(TARGET).join("lib");
        let Ok(entries) = std::fs::read_dir(directory) else { return false };
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().ends_with(name))
    }

    /// What a sanitizer's run must leave out, and what is known of it.
    fn settle(self, command: &mut Command) {
        match self {
            // It puts a handler's run off until the thread calls a function of the C library that it knows, which a
            // thread that sleeps in the library's own system call doesn't; it knows no threads in a forked child; and
            // with the first report, also one that is suppressed, it starts a symbolizer, whose pipes look like a leak.
            Self::Thread => {
                let suppressions = shell::root().join("crates/tautaio/tests/model/thread.suppressions");
                command.env("TAUT_STRESS_WITHOUT", "forks,handlers,cancellation,memory,descriptors");
                command.env("TSAN_OPTIONS", format!("suppressions={} history_size=4", suppressions.display()));
            }
            // It keeps freed memory for a while, which is what it is for. A stack of its own making would have the C
            // library overlook, by their addresses, what is to be cleaned up when a handler jumps out of a wait.
            Self::Address => {
                let options = "detect_leaks=1:detect_stack_use_after_return=0";
                command.env("TAUT_STRESS_WITHOUT", "memory").env("ASAN_OPTIONS", options);
            }
        }
    }
}

/// Sanitizers want to be built for a target, so that build scripts are left alone.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The built program.
pub(crate) struct Program {
    file: PathBuf,
    library: Option<PathBuf>,
    sanitizer: Option<Sanitizer>,
}

impl Program {
    /// With the library as it is shipped.
    fn optimised() -> Result<Self> {
        eprintln!("building libtautaio and the stress");
        let arguments = ["build", "--release", "--locked", "--package", "tautaio", "--lib", "--example", "stress"];
        shell::run(shell::cargo().args(arguments))?;
        let directory = shell::target_dir()?.join("release");
        let (file, library) = (directory.join("examples/stress"), directory.join("libtautaio.so"));
        Ok(Self { file, library: Some(library), sanitizer: None })
    }

    /// With the library linked in, all of it instrumented.
    pub(crate) fn sanitized(sanitizer: Sanitizer) -> Result<Self> {
        if !sanitizer.is_there() {
            bail!("this Rust has no {} sanitizer for {TARGET}", sanitizer.name());
        }
        let directory = shell::target_dir()?.join(format!("sanitizer-{}", sanitizer.name()));
        eprintln!("building the stress for the {} sanitizer", sanitizer.name());
        let flags = format!(
            "-Zsanitizer={} -Cunsafe-allow-abi-mismatch=sanitizer --cfg taut_linked -Cdebuginfo=line-tables-only",
            sanitizer.name()
        );
        let mut build = shell::cargo();
        build.args(["build", "--locked", "--package", "tautaio", "--example", "stress", "--target", TARGET]);
        // The sanitizers are unstable options of the stable compiler.
        build.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", flags).env("CARGO_TARGET_DIR", &directory);
        // In CI, which builds without, cargo would strip what the flags ask for; by it suppressions find their places.
        build.env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only");
        shell::run(&mut build)?;
        let file = directory.join(TARGET).join("debug/examples/stress");
        Ok(Self { file, library: None, sanitizer: Some(sanitizer) })
    }

    /// Ready to run on an engine.
    pub(crate) fn command(&self, engine: Engine) -> Command {
        let mut command = Command::new(&self.file);
        command.env("TAUTAIO_ENGINE", engine.name()).env("TAUTAIO_LOG", "info").stdin(Stdio::null());
        command.env_remove("LD_PRELOAD").env_remove("TAUTAIO_CANCEL");
        if let Some(library) = &self.library {
            command.env("LD_PRELOAD", library);
        }
        if let Some(sanitizer) = self.sanitizer {
            sanitizer.settle(&mut command);
        }
        command
    }
}
