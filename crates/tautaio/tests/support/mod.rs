//! What the tests of libtautaio share.
//!
//! A test's body runs in a process of its own into which the library was preloaded, once with each engine: see
//! [`both_engines!`] and [`process`]. The other modules give the bodies safe hands for requests, signals and
//! descriptors.
#![allow(dead_code, unused_imports, unused_macros, reason = "each test binary uses a part of it")]

pub(crate) mod aio;
pub(crate) mod descriptors;
pub(crate) mod fuse;
pub(crate) mod net;
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod restrict;
pub(crate) mod signals;
pub(crate) mod threads;
pub(crate) mod waiting;

use std::io::Write;
use std::path::{Path, PathBuf};

pub(crate) use process::{Library, Run};

/// Makes two tests of a function, `name::uring` and `name::epoll`. In each it runs in a process of its own into which
/// libtautaio was preloaded. `with [("NAME", "value")]` adds to its environment.
macro_rules! both_engines {
    ($body:ident) => {
        support::both_engines!($body with []);
    };
    ($body:ident with $environment:expr) => {
        mod $body {
            use super::{$body, support};

            #[test]
            fn uring() {
                let test = concat!(module_path!(), "::uring");
                support::Run::new(test, support::Library::Uring).environment(&$environment).body($body);
            }

            #[test]
            fn epoll() {
                let test = concat!(module_path!(), "::epoll");
                support::Run::new(test, support::Library::Epoll).environment(&$environment).body($body);
            }
        }
    };
}
pub(crate) use both_engines;

/// Makes a test of a function that tells of io_uring alone, else as [`both_engines!`].
macro_rules! only_uring {
    ($body:ident) => {
        mod $body {
            use super::{support, $body};

            #[test]
            fn uring() {
                support::Run::new(concat!(module_path!(), "::uring"), support::Library::Uring).body($body);
            }
        }
    };
}
pub(crate) use only_uring;

/// Makes a test of a function, which runs in a process of its own with the C library's implementation.
macro_rules! plain_libc {
    ($body:ident) => {
        mod $body {
            use super::{support, $body};

            #[test]
            fn libc() {
                support::Run::new(concat!(module_path!(), "::libc"), support::Library::System).body($body);
            }
        }
    };
}
pub(crate) use plain_libc;

/// libtautaio.so, which Cargo builds beside the test executables.
pub(crate) fn library() -> PathBuf {
    let path = std::env::current_exe().unwrap().with_file_name("libtautaio.so");
    assert!(path.is_file(), "{} is not there", path.display());
    path
}

/// The workspace's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::parent).unwrap()
}

/// Bytes of which no two long pieces are the same, made faster than one by one.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    const PIECE: usize = 64 << 10;
    let piece: Vec<u8> = (0u32..).flat_map(u32::to_le_bytes).take(PIECE).collect();
    let mut bytes = piece.repeat(length.div_ceil(PIECE));
    for (number, piece) in (0u32..).zip(bytes.chunks_mut(PIECE)) {
        piece[..4].copy_from_slice(&(!number).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Whether a program is there.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).any(|dir| dir.join(program).is_file())
}

/// Whether the long forms of tests are wanted (`cargo xtask test` without `--quick`).
pub(crate) fn long() -> bool {
    let is_long = std::env::var_os("TAUT_TEST_LONG").is_some();
    if !is_long && let Some(path) = std::env::var_os("TAUT_SHORT_LOG") {
        std::fs::write(path, "short\n").unwrap();
    }
    is_long
}

/// Notes loudly that a test can't run here.
pub(crate) fn skip(test: &str, reason: &str) {
    eprintln!("{} {test}: {reason}", process::SKIPPED);
    if let Some(path) = std::env::var_os("TAUT_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        log.write_all(format!("tautaio {test}: {reason}\n").as_bytes()).unwrap();
    }
}
