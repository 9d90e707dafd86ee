//! Test programs in C: what POSIX leaves to C, as the cancellation of threads, is tried from C.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use super::process::{describe, run_limited};
use super::{Library, has, root, skip};

/// A case may take this long on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// How they are built.
const FLAGS: [&str; 8] = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-rdynamic", "-pthread"];

/// Exit code of a case that the host does not allow.
pub(crate) const NOT_HERE: i32 = 77;

/// Builds a program of `tests/programs`, a file or a folder of them, once for all tests. None without a compiler.
pub(crate) fn built(source: &str) -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build_once = || {
        let name = format!("{}-{:016x}", source.trim_end_matches(".c"), fingerprint(source));
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        if !program.exists() {
            // Each test is a process of its own, and several may find none: the last to end replaces its like.
            let own = program.with_extension(std::process::id().to_string());
            build(source, &[], &own);
            std::fs::rename(own, &program).unwrap();
        }
        program
    };
    BUILT.get_or_init(|| has("cc").then(build_once)).as_deref()
}

/// Of all that a program is built from.
fn fingerprint(source: &str) -> u64 {
    let path = root().join("crates/tautaio/tests/programs").join(source);
    let mut files = if path.is_file() { vec![path] } else { files_in(&path) };
    files.sort();
    let mut hasher = DefaultHasher::new();
    FLAGS.hash(&mut hasher);
    for file in files {
        std::fs::read(file).unwrap().hash(&mut hasher);
    }
    hasher.finish()
}

fn files_in(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Builds a program of `tests/programs`, with the libraries or options that it needs beside the usual ones.
pub(crate) fn build(source: &str, options: &[&str], program: &Path) {
    let mut command = Command::new("cc");
    command.args(FLAGS).arg("-o").arg(program).args(sources(source)).args(["-ldl", "-lrt"]).args(options);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

fn sources(source: &str) -> Vec<PathBuf> {
    let path = root().join("crates/tautaio/tests/programs").join(source);
    if path.is_file() {
        return vec![path];
    }
    let mut sources: Vec<_> =
        files_in(&path).into_iter().filter(|file| file.extension().is_some_and(|extension| extension == "c")).collect();
    sources.sort();
    sources
}

/// Runs one case of a program with an implementation of `<aio.h>`; gives what it printed. None where that can't be.
pub(crate) fn run_case(source: &str, case: &str, library: Library) -> Option<String> {
    if let Some(reason) = library.refused() {
        skip(case, &reason);
        return None;
    }
    let Some(program) = built(source) else {
        skip(case, "there is no C compiler (cc)");
        return None;
    };
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut command = Command::new(program);
    command.arg(case).current_dir(directory.path());
    library.preload(&mut command);
    command.env_remove("TAUTAIO_LOG");
    let (status, output) = run_limited(&mut command, LIMIT);
    if status.code() == Some(NOT_HERE) {
        skip(case, "this host does not allow it");
        return None;
    }
    assert!(status.success(), "{case}, {library:?}: {}\n{output}", describe(status));
    Some(output)
}
