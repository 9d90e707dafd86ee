//! The tests of another client, crate nix, which Cargo has with its tests: they know nothing of the library.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;
use support::process::{describe, run_limited};
use support::{Library, skip};

// Named, so that nobody takes the dependency for unused: its source is what is wanted.
use nix as _;

/// A build of a few crates on a busy machine.
const BUILD_LIMIT: Duration = Duration::from_secs(600);
const RUN_LIMIT: Duration = Duration::from_secs(120);

/// Files of tests in crate nix, and how many tests each has at least for Linux.
const FILES: [(&str, usize); 2] = [("test_aio", 14), ("test_aio_drop", 1)];

mod nix_tests {
    use super::*;

    #[test]
    fn uring() {
        check(concat!(module_path!(), "::uring"), Library::Uring);
    }

    #[test]
    fn epoll() {
        check(concat!(module_path!(), "::epoll"), Library::Epoll);
    }
}

fn check(test: &str, library: Library) {
    if let Some(reason) = library.refused() {
        return skip(test, &reason);
    }
    static BUILT: OnceLock<Vec<(String, PathBuf)>> = OnceLock::new();
    let executables = BUILT.get_or_init(build);
    assert_eq!(executables.len(), FILES.len());
    for (name, executable) in executables {
        let mut command = Command::new(executable);
        library.preload(&mut command);
        let (status, output) = run_limited(&mut command, RUN_LIMIT);
        assert!(status.success(), "{name} with {library:?}: {}\n{output}", describe(status));
        let passed = output.split_once("test result: ok. ").and_then(|(_, rest)| rest.split_once(" passed")).unwrap().0;
        let (_, least) = FILES.iter().find(|(file, _)| file == name).unwrap();
        assert!(passed.parse::<usize>().unwrap() >= *least, "{name}\n{output}");
        let engine = if library == Library::Uring { "tautaio: engine io_uring" } else { "tautaio: engine epoll" };
        assert!(output.contains(engine), "{name}: the library was not in use\n{output}");
    }
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The package that the tests are built in: it needs nix and what nix's tests use, and nothing else of this repository.
///
/// Its dependencies are those of this very test, so they are at hand wherever it was built. What else the workspace
/// names need not be: packages of other systems are fetched by nobody.
fn manifest() -> String {
    "[workspace]\n[package]\nname = \"nix-suite\"\nversion = \"0.0.0\"\nedition = \"2021\"\nautotests = false\n\
     [dev-dependencies]\nnix = { version = \"*\", features = [\"aio\", \"signal\", \"time\"] }\n\
     libc = \"*\"\ntempfile = \"*\"\n[lib]\npath = \"lib.rs\"\n"
        .to_owned()
}

/// Where Cargo has nix's source. The lock file says which version it is.
fn source_of_nix(package: &Path) -> PathBuf {
    let version = cargo().arg("-vV").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("cargo says for what it is");
    let mut metadata = cargo();
    metadata.args(["metadata", "--format-version", "1", "--offline", "--filter-platform", host]).current_dir(package);
    let output = metadata.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let nix = metadata["packages"].as_array().unwrap().iter().find(|package| package["name"] == "nix").unwrap();
    Path::new(nix["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned()
}

/// Builds the tests in a package of their own; gives each file's executable.
fn build() -> Vec<(String, PathBuf)> {
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nix-suite");
    std::fs::create_dir_all(&package).unwrap();
    // The two tests may be two processes.
    let lock = std::fs::File::create(package.join("lock")).unwrap();
    lock.lock().unwrap();
    let mut manifest = manifest();
    std::fs::write(package.join("Cargo.toml"), &manifest).unwrap();
    std::fs::write(package.join("lib.rs"), "").unwrap();
    // The same versions as ours, which are at hand.
    std::fs::copy(support::root().join("Cargo.lock"), package.join("Cargo.lock")).unwrap();
    let source = source_of_nix(&package);
    for (name, _) in FILES {
        let file = source.join("test/sys").join(name).with_extension("rs");
        assert!(file.is_file(), "{} is not there", file.display());
        manifest += &format!("[[test]]\nname = \"{name}\"\npath = \"{name}.rs\"\n");
        // What the crate's own root has for them.
        let root = format!(
            "pub static SIGNAL_MTX: std::sync::Mutex<()> = std::sync::Mutex::new(());\n#[path = {file:?}]\nmod tests;\n"
        );
        std::fs::write(package.join(name).with_extension("rs"), root).unwrap();
    }
    std::fs::write(package.join("Cargo.toml"), manifest).unwrap();

    let mut command = cargo();
    command.args(["test", "--no-run", "--offline", "--quiet", "--message-format", "json-render-diagnostics"]);
    command.arg("--target-dir").arg(package.join("target")).current_dir(&package).env_remove("RUSTFLAGS");
    let (status, output) = run_limited(&mut command, BUILD_LIMIT);
    assert!(status.success(), "nix's tests don't build: {}\n{output}", describe(status));
    let messages = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages
        .filter_map(|message| {
            let executable = message["executable"].as_str()?;
            let name = message["target"]["name"].as_str()?;
            (name != "nix_suite").then(|| (name.to_owned(), executable.into()))
        })
        .collect()
}
