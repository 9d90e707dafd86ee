//! The generator of eBPF, and loading by bpf(2) as it is: no compiler, no loader library, no object files.

mod acceptable;
mod checksum;
mod frame;
mod generate;
mod header;
mod helper;
mod incoming;
mod instruction;
mod network;
mod object;
mod outgoing;
mod record;
mod ring;
mod route;
mod sys;

pub(crate) use checksum::LONGEST_SUMMED;
pub use frame::memory_bytes;
pub use header::{Hop, Own};
pub use instruction::Instruction;
pub use object::{BpfError, KernelCounters, MemoryMap, RecordProgram};
pub(crate) use outgoing::FIRST_PORT;
pub use record::{RECORD_HEADER, RESULTS, RecordTarget, generate as generate_record};
pub use route::{Attachment, KernelRoute, KernelSpec, KernelTarget, LogRecord, Place};
