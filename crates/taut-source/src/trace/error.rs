use taut_bpf::{BpfError, BtfError};

/// Why nothing can be traced, or counted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel does not take the programs.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// The kernel does not tell its types.
    #[error(transparent)]
    Types(#[from] BtfError),
    /// A structure of the kernel is not as expected.
    #[error("this kernel's types have no {0}, which is needed")]
    Member(String),
    /// Processes have other numbers here than in the kernel, so none can be told by its number.
    #[error("this is a PID namespace, where processes have other numbers than the kernel's")]
    Namespace,
    /// Which network namespace this is can't be told, so others' connections could not be told from its own.
    #[error("/proc/self/ns/net, which tells the network namespace: {0}")]
    Network(std::io::Error),
    /// The kernel lets no program read its memory. Linux 5.10 lets it read zeroes.
    #[error("this kernel is locked down (`confidentiality` in /sys/kernel/security/lockdown)")]
    LockedDown,
    /// A tracepoint is not there, or has other arguments.
    #[error("this kernel's tracepoint {hook} is not there or not as known: {why}")]
    Hook {
        /// Its name.
        hook: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

impl Error {
    /// Whether a right is missing, and not something in the kernel.
    pub fn is_missing_right(&self) -> bool {
        match self {
            Self::Bpf(error) => error.is_missing_right(),
            Self::Types(BtfError::Io(error)) => error.kind() == std::io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }
}
