//! bpf(2), which no crate wraps without bringing a loader of its own. The only place that calls it.
#![expect(unsafe_code, reason = "bpf(2) has no safe wrapper")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::instruction::Instruction;

// enum bpf_cmd (linux/bpf.h).
const MAP_CREATE: i32 = 0;
const MAP_LOOKUP_ELEM: i32 = 1;
const MAP_UPDATE_ELEM: i32 = 2;
const MAP_DELETE_ELEM: i32 = 3;
const PROG_LOAD: i32 = 5;
const PROG_TEST_RUN: i32 = 10;
const OBJ_GET_INFO_BY_FD: i32 = 15;
const RAW_TRACEPOINT_OPEN: i32 = 17;
const BTF_LOAD: i32 = 18;
const MAP_LOOKUP_BATCH: i32 = 24;
const LINK_CREATE: i32 = 28;
/// `BPF_F_MMAPABLE`.
const MAPPABLE: u32 = 1 << 10;

/// Kinds of map (`enum bpf_map_type`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
#[expect(missing_docs, reason = "they are the names of linux/bpf.h")]
pub enum MapKind {
    Hash = 1,
    Array = 2,
    ProgramArray = 3,
    PerCpuArray = 6,
    LruHash = 9,
    RingBuffer = 27,
}

/// Kinds of program (`enum bpf_prog_type`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum ProgramKind {
    /// `BPF_PROG_TYPE_SCHED_CLS`
    Classifier = 3,
    /// `BPF_PROG_TYPE_XDP`
    Xdp = 6,
    /// `BPF_PROG_TYPE_RAW_TRACEPOINT`
    RawTracepoint = 17,
    /// `BPF_PROG_TYPE_TRACING`
    Tracing = 26,
}

/// What a program is for, where its kind alone does not tell.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Purpose {
    /// `expected_attach_type`
    attach_type: u32,
    /// `attach_btf_id`
    type_id: u32,
}

impl Purpose {
    /// A tracepoint whose arguments have their types, so that members are loaded without a call (`BPF_TRACE_RAW_TP`,
    /// since Linux 5.5); its number is that of [`Btf::tracepoint_id`](crate::Btf::tracepoint_id).
    pub const fn typed_tracepoint(type_id: u32) -> Self {
        Self { attach_type: 23, type_id }
    }
}

impl From<u32> for Purpose {
    fn from(attach_type: u32) -> Self {
        Self { attach_type, type_id: 0 }
    }
}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    name: [u8; 16],
    ifindex: u32,
    btf_fd: u32,
    btf_key_type_id: u32,
    btf_value_type_id: u32,
}

#[repr(C)]
#[derive(Default)]
struct MapElement {
    fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct MapBatch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    fd: u32,
    element_flags: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    ifindex: u32,
    expected_attach_type: u32,
    types: u32,
    function_info_size: u32,
    function_info: u64,
    function_info_count: u32,
    line_info_size: u32,
    line_info: u64,
    line_info_count: u32,
    attach_type_id: u32,
}

#[repr(C)]
#[derive(Default)]
struct TestRun {
    fd: u32,
    result: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_size_in: u32,
    context_size_out: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    padding: u32,
}

#[repr(C)]
#[derive(Default)]
struct BtfLoad {
    btf: u64,
    log: u64,
    size: u32,
    log_size: u32,
    log_level: u32,
    padding: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
    relative: u32,
    padding: u32,
    expected_revision: u64,
}

#[repr(C)]
#[derive(Default)]
struct RawTracepoint {
    name: u64,
    program: u32,
    padding: u32,
}

#[repr(C)]
#[derive(Default)]
struct GetInfo {
    fd: u32,
    length: u32,
    info: u64,
}

/// A member of `union bpf_attr`, or its beginning.
///
/// # Safety
/// Plain data in the layout of linux/bpf.h without padding of its own: the kernel reads all bytes of it, and may write
/// them.
unsafe trait Attribute {}
// SAFETY: `repr(C)`, of integers each of which ends where the next one may begin.
unsafe impl Attribute for MapCreate {}
// SAFETY: `repr(C)`, of integers each of which ends where the next one may begin.
unsafe impl Attribute for MapElement {}
// SAFETY: `repr(C)`, of integers each of which ends where the next one may begin.
unsafe impl Attribute for MapBatch {}
// SAFETY: `repr(C)`, of integers each of which ends where the next one may begin.
unsafe impl Attribute for ProgramLoad {}
// SAFETY: `repr(C)`, of integers each of which ends where the next one may begin.
unsafe impl Attribute for TestRun {}
// SAFETY: `repr(C)`, of integers each of which ends where the next one may begin.
unsafe impl Attribute for BtfLoad {}
// SAFETY: `repr(C)`, of integers each of which ends where the next one may begin.
unsafe impl Attribute for LinkCreate {}
// SAFETY: `repr(C)`, of integers each of which ends where the next one may begin.
unsafe impl Attribute for RawTracepoint {}
// SAFETY: `repr(C)`, of integers each of which ends where the next one may begin.
unsafe impl Attribute for GetInfo {}

/// Calls bpf(2). The addresses in the attribute must be good for what the command does with them.
unsafe fn bpf<A: Attribute>(command: i32, attribute: &mut A) -> io::Result<i32> {
    // SAFETY: the attribute is live and its size is told; the caller answers for the addresses in it.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attribute), size_of::<A>()) };
    // Results are descriptors or zero.
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

fn owned(fd: i32) -> OwnedFd {
    // SAFETY: bpf(2) has just made it, and nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn raw(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// Names are cut to what the kernel keeps, and to what it accepts.
fn name(text: &str) -> [u8; 16] {
    let mut name = [0; 16];
    for (to, from) in name[..15].iter_mut().zip(text.bytes()) {
        *to = if from.is_ascii_alphanumeric() || from == b'_' { from } else { b'_' };
    }
    name
}

/// Size and kind of a map.
pub struct MapShape<'a> {
    /// What it is.
    pub kind: MapKind,
    /// Length of a key.
    pub key_bytes: usize,
    /// Length of a value.
    pub value_bytes: usize,
    /// Most entries; of a ring its bytes.
    pub entries: usize,
    /// As bpftool(8) shows it, cut to 15 bytes.
    pub name: &'a str,
    /// Types of the map, and the numbers of those of key and value.
    pub types: Option<(BorrowedFd<'a>, u32, u32)>,
}

/// A map in the kernel. The kernel takes the lengths of keys and values from the map and not from the caller, so they
/// are checked here.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

impl Map {
    /// Makes one.
    pub fn create(shape: &MapShape<'_>) -> io::Result<Self> {
        Self::create_with(shape, 0)
    }

    /// Makes an array of one value of so many bytes, which can be mapped.
    pub(crate) fn create_mapped(bytes: usize, name: &str) -> io::Result<Self> {
        let shape = MapShape { kind: MapKind::Array, key_bytes: 4, value_bytes: bytes, entries: 1, name, types: None };
        Self::create_with(&shape, MAPPABLE)
    }

    fn create_with(shape: &MapShape<'_>, map_flags: u32) -> io::Result<Self> {
        let (btf_fd, btf_key_type_id, btf_value_type_id) =
            shape.types.map_or((0, 0, 0), |(fd, key, value)| (raw(fd), key, value));
        let mut attribute = MapCreate {
            kind: shape.kind as u32,
            key_size: shape.key_bytes as u32,
            value_size: shape.value_bytes as u32,
            max_entries: shape.entries as u32,
            map_flags,
            name: name(shape.name),
            btf_fd,
            btf_key_type_id,
            btf_value_type_id,
            ..MapCreate::default()
        };
        // SAFETY: the attribute holds no address.
        let fd = owned(unsafe { bpf(MAP_CREATE, &mut attribute) }?);
        Ok(Self { fd, key_bytes: shape.key_bytes, value_bytes: shape.value_bytes })
    }

    /// Reads a value.
    pub fn look_up(&self, key: &[u8]) -> io::Result<Vec<u8>> {
        let mut value = vec![0; self.value_bytes];
        let mut attribute = self.element(key, Some(value.as_mut_ptr() as u64))?;
        // SAFETY: the key was looked at, and the value has the length of the map's.
        unsafe { bpf(MAP_LOOKUP_ELEM, &mut attribute) }?;
        Ok(value)
    }

    /// Writes a value.
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        has_length(value, self.value_bytes)?;
        let mut attribute = self.element(key, Some(value.as_ptr() as u64))?;
        // SAFETY: both are live and have the lengths of the map's; the kernel only reads them.
        unsafe { bpf(MAP_UPDATE_ELEM, &mut attribute) }.map(drop)
    }

    /// Deletes a key.
    pub fn delete(&self, key: &[u8]) -> io::Result<()> {
        let mut attribute = self.element(key, None)?;
        // SAFETY: the key is live and has the length of the map's.
        unsafe { bpf(MAP_DELETE_ELEM, &mut attribute) }.map(drop)
    }

    /// Hands over each key of a hash table with its value, a few hundred by one call. What programs change meanwhile
    /// may come as it was, as it is, or twice.
    ///
    /// # Errors
    /// The map is no hash table, or the kernel older than Linux 5.6.
    pub fn each(&self, mut take: impl FnMut(&[u8], &[u8])) -> io::Result<()> {
        /// More keys than one bucket of any table has.
        const MOST: usize = 1 << 16;
        let mut room = 256;
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        // Where the next part begins, in the kernel's own numbers: as long as a key, and four bytes at least.
        let mut next = vec![0_u8; self.key_bytes.max(4)];
        let mut is_first = true;
        loop {
            keys.resize(room * self.key_bytes, 0_u8);
            values.resize(room * self.value_bytes, 0_u8);
            let mut attribute = MapBatch {
                in_batch: if is_first { 0 } else { next.as_ptr() as u64 },
                out_batch: next.as_mut_ptr() as u64,
                keys: keys.as_mut_ptr() as u64,
                values: values.as_mut_ptr() as u64,
                count: room as u32,
                fd: raw(self.fd.as_fd()),
                ..MapBatch::default()
            };
            // SAFETY: there is room for so many keys and values of the map's lengths, and for one number of a bucket.
            let result = unsafe { bpf(MAP_LOOKUP_BATCH, &mut attribute) };
            let is_last = match result {
                Ok(_) => false,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
                // One bucket has more than that.
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && room < MOST => {
                    room *= 2;
                    continue;
                }
                Err(error) => return Err(error),
            };
            is_first = false;
            let found = keys.chunks_exact(self.key_bytes).zip(values.chunks_exact(self.value_bytes));
            found.take(attribute.count as usize).for_each(|(key, value)| take(key, value));
            if is_last {
                return Ok(());
            }
        }
    }

    fn element(&self, key: &[u8], value: Option<u64>) -> io::Result<MapElement> {
        has_length(key, self.key_bytes)?;
        let (fd, key) = (raw(self.fd.as_fd()), key.as_ptr() as u64);
        Ok(MapElement { fd, key, value: value.unwrap_or(0), ..MapElement::default() })
    }

    /// Its number, for an instruction that names it.
    pub fn number(&self) -> RawFd {
        number(&self.fd)
    }

    /// Another descriptor of the same map.
    ///
    /// # Errors
    /// There is no room for a descriptor.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Its descriptor alone.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

/// What is shorter than the map says would be read or written past its end by the kernel.
fn has_length(bytes: &[u8], length: usize) -> io::Result<()> {
    if bytes.len() == length {
        return Ok(());
    }
    let text = format!("{} bytes for a map that has {length}", bytes.len());
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// What the verifier writes down (`BPF_LOG_LEVEL1`, `BPF_LOG_STATS` of linux/bpf_verifier.h).
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum LogLevel {
    /// Why it refuses.
    Reasons = 1,
    /// How much work it had.
    Statistics = 4,
}

/// Loads a program. With a `log` the verifier writes there; that costs it several times the time.
pub fn load(
    kind: ProgramKind,
    code: &[Instruction],
    purpose: Purpose,
    program_name: &str,
    log: Option<(LogLevel, &mut [u8])>,
) -> io::Result<OwnedFd> {
    let license = c"Dual MIT/GPL";
    let (log_level, log, log_size) =
        log.map_or((0, 0, 0), |(level, log)| (level as u32, log.as_mut_ptr() as u64, log.len() as u32));
    let mut attribute = ProgramLoad {
        kind: kind as u32,
        instruction_count: code.len() as u32,
        instructions: code.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level,
        log_size,
        log,
        name: name(program_name),
        expected_attach_type: purpose.attach_type,
        attach_type_id: purpose.type_id,
        ..ProgramLoad::default()
    };
    // SAFETY: instructions, licence and log are live, and the lengths of the first and last are told.
    unsafe { bpf(PROG_LOAD, &mut attribute) }.map(owned)
}

/// Runs a program once on data, which it may change; its result and what the data is then.
pub fn test_run(program: BorrowedFd<'_>, data: &[u8]) -> io::Result<(u32, Vec<u8>)> {
    let mut out = vec![0; data.len() + 256];
    let mut attribute = TestRun {
        fd: raw(program),
        data_size_in: data.len() as u32,
        data_size_out: out.len() as u32,
        data_in: data.as_ptr() as u64,
        data_out: out.as_mut_ptr() as u64,
        ..TestRun::default()
    };
    // SAFETY: both buffers are live and their lengths are told.
    unsafe { bpf(PROG_TEST_RUN, &mut attribute) }?;
    out.truncate(attribute.data_size_out as usize);
    Ok((attribute.result, out))
}

/// Loads types.
pub fn load_types(types: &[u8]) -> io::Result<OwnedFd> {
    let mut attribute = BtfLoad { btf: types.as_ptr() as u64, size: types.len() as u32, ..BtfLoad::default() };
    // SAFETY: the types are live and their length is told.
    unsafe { bpf(BTF_LOAD, &mut attribute) }.map(owned)
}

/// Attaches a program to a network device for as long as the link is open.
pub fn link(program: BorrowedFd<'_>, ifindex: u32, attach_type: u32, flags: u32) -> io::Result<OwnedFd> {
    let mut attribute =
        LinkCreate { program: raw(program), target_ifindex: ifindex, attach_type, flags, ..LinkCreate::default() };
    // SAFETY: the attribute holds no address.
    unsafe { bpf(LINK_CREATE, &mut attribute) }.map(owned)
}

/// Attaches a program to a tracepoint of the kernel for as long as the descriptor is open. One that was loaded for a
/// typed tracepoint needs no name.
///
/// # Errors
/// There is no such tracepoint, or the right is missing.
pub fn raw_tracepoint(program: BorrowedFd<'_>, name: Option<&CStr>) -> io::Result<OwnedFd> {
    let name = name.map_or(0, |name| name.as_ptr() as u64);
    let mut attribute = RawTracepoint { name, program: raw(program), padding: 0 };
    // SAFETY: the name is live and ends in a zero, or is not there.
    unsafe { bpf(RAW_TRACEPOINT_OPEN, &mut attribute) }.map(owned)
}

/// How often a program was not run because the same one was running on that processor (`recursion_misses` of
/// `struct bpf_prog_info`, linux/bpf.h; from Linux 5.12 on).
///
/// # Errors
/// The kernel does not tell.
pub fn recursion_misses(program: BorrowedFd<'_>) -> io::Result<u64> {
    /// Where it stands there, and the length of what is asked for: up to its end.
    const AT: usize = 208;
    let mut info = [0_u8; AT + 8];
    let mut attribute = GetInfo { fd: raw(program), length: info.len() as u32, info: info.as_mut_ptr() as u64 };
    // SAFETY: the buffer is live and its length is told.
    unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut attribute) }?;
    if (attribute.length as usize) < info.len() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(info[AT..].try_into().map_or(0, u64::from_ne_bytes))
}

/// The number of a descriptor, for an instruction that names it.
pub fn number(fd: &OwnedFd) -> RawFd {
    fd.as_raw_fd()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_never_ran_missed_nothing_and_a_map_does_not_tell() {
        const NAME: &str = "sys::a_program_that_never_ran_missed_nothing_and_a_map_does_not_tell";
        let mut code = crate::instruction::Assembler::default();
        code.constant(crate::instruction::R::R0, 0);
        code.exit();
        let loaded = load(ProgramKind::RawTracepoint, &code.finish(), Purpose::default(), "taut_test", None);
        let program = match loaded {
            Ok(program) => program,
            Err(error) => return crate::skip::note(NAME, &error.to_string()),
        };
        assert!(recursion_misses(program.as_fd()).is_ok_and(|misses| misses == 0));
        let shape =
            MapShape { kind: MapKind::Array, key_bytes: 4, value_bytes: 8, entries: 1, name: "taut_test", types: None };
        let map = Map::create(&shape).unwrap().into_fd();
        assert!(recursion_misses(map.as_fd()).is_err());
    }

    #[test]
    fn a_map_takes_keys_and_values_of_its_lengths_only() {
        let shape =
            MapShape { kind: MapKind::Hash, key_bytes: 8, value_bytes: 16, entries: 2, name: "taut_test", types: None };
        let map = match Map::create(&shape) {
            Ok(map) => map,
            Err(error) => {
                return crate::skip::note("sys::a_map_takes_keys_and_values_of_its_lengths_only", &error.to_string());
            }
        };
        map.update(&[1; 8], &[2; 16]).unwrap();
        assert_eq!(map.look_up(&[1; 8]).unwrap(), [2; 16]);
        let refused = [
            map.update(&[1; 8], &[2; 15]),
            map.update(&[1; 7], &[2; 16]),
            map.update(&[1; 8], &[2; 17]),
            map.look_up(&[1; 9]).map(drop),
            map.delete(&[]),
        ];
        for result in refused {
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        map.delete(&[1; 8]).unwrap();
        assert_eq!(map.look_up(&[1; 8]).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_table_hands_over_each_key_once_with_its_value_and_an_array_hands_over_none() {
        let shape =
            |kind| MapShape { kind, key_bytes: 4, value_bytes: 8, entries: 5000, name: "taut_test", types: None };
        let (table, array) = match (Map::create(&shape(MapKind::LruHash)), Map::create(&shape(MapKind::ProgramArray))) {
            (Ok(table), array) => (table, array),
            (Err(error), _) => {
                return crate::skip::note(
                    "sys::a_table_hands_over_each_key_once_with_its_value_and_an_array_hands_over_none",
                    &error.to_string(),
                );
            }
        };
        let all = |map: &Map| {
            let mut found = Vec::new();
            map.each(|key, value| {
                let (key, value) = (key.try_into().unwrap(), value.try_into().unwrap());
                found.push((u32::from_ne_bytes(key), u64::from_ne_bytes(value)));
            })
            .map(|()| found)
        };
        assert_eq!(all(&table).unwrap(), []);
        for key in 0..2000_u32 {
            table.update(&key.to_ne_bytes(), &(3 * u64::from(key)).to_ne_bytes()).unwrap();
        }
        let mut found = all(&table).unwrap();
        found.sort_unstable();
        assert_eq!(found, (0..2000).map(|key| (key, 3 * u64::from(key))).collect::<Vec<_>>());
        // Of a table of programs the values have four bytes.
        assert!(array.is_err() || all(&array.unwrap()).is_err());
    }
}
