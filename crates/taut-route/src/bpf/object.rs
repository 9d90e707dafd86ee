//! Maps and programs in the kernel.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use taut_bpf::sys::{self, Map, MapKind, MapShape, ProgramKind};
use taut_bpf::{BpfError, load};

use super::frame::{BUCKETS, COUNT, FAILED, HISTOGRAM, LOG_LOST, PASSED, SHORT, memory_bytes};
use super::record::{self, RECORD_HEADER, RecordTarget};
use crate::condition::{Program, Verdict};

/// The memory of a route in the kernel: an array map of one value that begins with a lock.
#[derive(Debug)]
pub struct MemoryMap(Map);

/// Counters of a route in the kernel.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KernelCounters {
    /// Events that were long enough.
    pub count: u64,
    /// Of those, that passed.
    pub passed: u64,
    /// Events too short.
    pub short: u64,
    /// Datagrams that could not be sent.
    pub failed: u64,
    /// Records of the log that had no room.
    pub log_lost: u64,
    /// Time in the program: the n-th word counts times from 2^n ns.
    pub histogram: Vec<u64>,
}

impl MemoryMap {
    /// Memory for the filters of a program, all zeroes.
    ///
    /// # Errors
    /// The right is missing.
    pub fn create(slots: u16) -> Result<Self, BpfError> {
        let bytes = memory_bytes(slots);
        let types = sys::load_types(&lock_types(bytes as u32)).map_err(BpfError::of("load the types of a map"))?;
        let shape = MapShape {
            kind: MapKind::Array,
            key_bytes: 4,
            value_bytes: bytes,
            entries: 1,
            name: "taut_memory",
            types: Some((types.as_fd(), 1, 3)),
        };
        Map::create(&shape).map(Self).map_err(BpfError::of("create a map"))
    }

    pub(super) fn number(&self) -> i32 {
        self.0.number()
    }

    /// The counters as they are now.
    ///
    /// # Errors
    /// The kernel refused to read the map.
    pub fn counters(&self) -> io::Result<KernelCounters> {
        let value = self.0.look_up(&0_u32.to_ne_bytes())?;
        let word = |at: usize| u64::from_ne_bytes(value[at..at + 8].try_into().unwrap_or_default());
        Ok(KernelCounters {
            count: word(COUNT),
            passed: word(PASSED),
            short: word(SHORT),
            failed: word(FAILED),
            log_lost: word(LOG_LOST),
            histogram: (0..BUCKETS).map(|bucket| word(HISTOGRAM + 8 * bucket)).collect(),
        })
    }
}

/// `struct memory { struct bpf_spin_lock lock; … }` in the BPF Type Format
/// (Documentation/bpf/btf.rst): the kernel finds the lock by its type. 1 is the key, 3 the value.
fn lock_types(value_bytes: u32) -> Vec<u8> {
    const STRINGS: &[u8] = b"\0u32\0bpf_spin_lock\0val\0memory\0lock\0";
    let [u32_name, spin_lock_name, val_name, memory_name, lock_name] = [1, 5, 19, 23, 30];
    let kind = |kind: u32, members: u32| kind << 24 | members;
    let types: [u32; 16] = [
        // 1: an integer of 32 bits.
        u32_name,
        kind(1, 0),
        4,
        32,
        // 2: struct bpf_spin_lock { u32 val; }
        spin_lock_name,
        kind(4, 1),
        4,
        val_name,
        1,
        0,
        // 3: struct memory { struct bpf_spin_lock lock; }, with room after it.
        memory_name,
        kind(4, 1),
        value_bytes,
        lock_name,
        2,
        0,
    ];
    // struct btf_header: magic, version, flags, its own length, then offset and length of types and strings.
    let mut bytes = Vec::new();
    bytes.extend(0xeb9f_u16.to_ne_bytes());
    bytes.extend([1, 0]);
    let types_bytes = size_of_val(&types) as u32;
    for word in [24, 0, types_bytes, types_bytes, STRINGS.len() as u32] {
        bytes.extend(word.to_ne_bytes());
    }
    types.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
    bytes.extend(STRINGS);
    bytes
}

/// A program over event records, in the kernel.
#[derive(Debug)]
pub struct RecordProgram {
    fd: OwnedFd,
    /// Its memory.
    pub memory: MemoryMap,
    outputs: usize,
}

impl RecordProgram {
    /// Generates and loads it.
    ///
    /// # Errors
    /// The right is missing.
    pub fn load(program: &Program) -> Result<Self, BpfError> {
        Self::load_for(program, |memory_fd| RecordTarget::Kernel { memory_fd })
    }

    /// The same without a lock of its own: for who hands over events one after another.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_in_turn(program: &Program) -> Result<Self, BpfError> {
        Self::load_for(program, |memory_fd| RecordTarget::InTurn { memory_fd })
    }

    fn load_for(program: &Program, target: impl Fn(i32) -> RecordTarget) -> Result<Self, BpfError> {
        let memory = MemoryMap::create(program.slots)?;
        let code = record::generate(program, target(memory.number()));
        let fd = load(ProgramKind::Xdp, &code, 0, "taut_record")?;
        Ok(Self { fd, memory, outputs: program.outputs.len() })
    }

    /// The program, for who runs it on events of its own.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Hands it one event (`BPF_PROG_TEST_RUN`), like [`Program::handle`].
    ///
    /// # Errors
    /// The kernel refused to run it.
    pub fn handle(&self, now_ns: i64, payload: &[u8], outputs: &mut Vec<i64>) -> io::Result<Verdict> {
        let mut event = vec![0; RECORD_HEADER];
        event[..8].copy_from_slice(&now_ns.to_ne_bytes());
        event.extend(payload);
        let (result, after) = sys::test_run(self.fd.as_fd(), &event)?;
        if result == 0 {
            return Ok(Verdict::Short);
        }
        outputs.clear();
        let words = after[8..].chunks_exact(8).take(self.outputs);
        outputs.extend(words.map(|word| i64::from_ne_bytes(word.try_into().unwrap_or_default())));
        Ok(if result == 1 { Verdict::Dropped } else { Verdict::Passed })
    }
}
