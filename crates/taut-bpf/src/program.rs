//! Loading programs, and why the kernel did not take one.

use std::io;
use std::os::fd::OwnedFd;

use crate::instruction::Instruction;
use crate::sys::{self, LogLevel, ProgramKind, Purpose};

/// Why the kernel did not take something.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// The right is missing, or the kernel was built without it.
    #[error(
        "{what}: {error} (bpf(2) takes root, or CAP_BPF with CAP_NET_ADMIN for networks or CAP_PERFMON for tracing)"
    )]
    Denied {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
    /// The verifier refused the program: our own mistake.
    #[error("the kernel refused the generated program: {error}: {reason}")]
    Refused {
        /// The kernel's answer.
        error: io::Error,
        /// The last lines of the verifier's log.
        reason: String,
    },
    /// Anything else.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
}

impl BpfError {
    /// Tells a missing right from anything else; `what` names what was tried.
    pub fn of(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| match error.raw_os_error() {
            Some(libc::EPERM | libc::ENOSYS) => Self::Denied { what, error },
            _ => Self::Io { what, error },
        }
    }

    /// Whether a right is missing.
    pub const fn is_missing_right(&self) -> bool {
        matches!(self, Self::Denied { .. })
    }
}

/// Loads a program; when it is refused, once more for the reasons.
///
/// # Errors
/// The right is missing, or the verifier refused it.
pub fn load(
    kind: ProgramKind,
    code: &[Instruction],
    purpose: impl Into<Purpose>,
    name: &str,
) -> Result<OwnedFd, BpfError> {
    let purpose = purpose.into();
    let error = match sys::load(kind, code, purpose, name, None) {
        Ok(fd) => return Ok(fd),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            return Err(BpfError::Denied { what: "load a program", error });
        }
        Err(error) => error,
    };
    let mut log = vec![0; 1 << 20];
    // What it says about the second one goes for the first one.
    let _ = sys::load(kind, code, purpose, name, Some((LogLevel::Reasons, &mut log)));
    let text = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = text.trim_end_matches('\0').lines().collect();
    Err(BpfError::Refused { error, reason: lines[lines.len().saturating_sub(6)..].join(" / ") })
}

/// How many instructions the verifier looked at until it took a program: for tests.
///
/// # Errors
/// As [`load`], or the kernel does not say.
pub fn verified(kind: ProgramKind, code: &[Instruction], purpose: impl Into<Purpose>) -> io::Result<usize> {
    let mut log = vec![0; 1 << 12];
    sys::load(kind, code, purpose.into(), "taut_verified", Some((LogLevel::Statistics, &mut log)))?;
    let text = String::from_utf8_lossy(&log);
    let count = text.split_once("processed ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    count.ok_or_else(|| io::Error::other(format!("no count in {text}")))
}
