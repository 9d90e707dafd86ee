//! The generator of eBPF for routes, and what it keeps in the kernel. Instructions and bpf(2) are those of `taut-bpf`.

mod acceptable;
mod checksum;
mod frame;
mod generate;
mod header;
mod incoming;
mod network;
mod object;
mod outgoing;
mod parts;
mod record;
mod route;

pub(crate) use checksum::LONGEST_SUMMED;
pub use frame::memory_bytes;
pub use header::{Hop, Own};
pub use object::{KernelCounters, MemoryMap, RecordProgram};
pub(crate) use outgoing::FIRST_PORT;
pub use record::{RECORD_HEADER, RESULTS, RecordTarget, generate as generate_record};
pub use route::{AttachPoint, Attachment, KernelRoute, KernelSpec, KernelTarget, LogRecord};
pub use taut_bpf::{BpfError, Instruction};
