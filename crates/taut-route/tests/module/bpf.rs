//! bpf(2) as far as these tests need it: programs of all sorts, and how many of what there are.
#![expect(unsafe_code, reason = "bpf(2) has no safe wrapper")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Kinds of maps and programs (linux/bpf.h).
pub(crate) const HASH: u32 = 1;
pub(crate) const ARRAY: u32 = 2;
pub(crate) const PROGRAM_ARRAY: u32 = 3;
pub(crate) const PER_CPU_ARRAY: u32 = 6;
pub(crate) const SOCKET_FILTER: u32 = 1;
pub(crate) const XDP: u32 = 6;

const MAP_CREATE: i32 = 0;
const PROG_LOAD: i32 = 5;
const PROG_GET_NEXT_ID: i32 = 11;
const MAP_GET_NEXT_ID: i32 = 12;
const BTF_LOAD: i32 = 18;

/// `union bpf_attr` as words of 32 bits.
fn call(command: i32, attribute: &mut [u32; 32]) -> io::Result<OwnedFd> {
    // SAFETY: the attribute is live and its size is told; addresses in it are those of live buffers.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attribute.as_mut_ptr(), size_of_val(attribute)) };
    // SAFETY: a result that is no error is a new descriptor, as both users of it ask for one.
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(result as i32) }) }
}

/// A map of four entries with keys and values of four bytes.
pub(crate) fn map(kind: u32) -> OwnedFd {
    map_of(kind, 4)
}

/// The same of so many entries.
pub(crate) fn map_of(kind: u32, entries: u32) -> OwnedFd {
    let mut attribute = [0; 32];
    attribute[..4].copy_from_slice(&[kind, 4, 4, entries]);
    call(MAP_CREATE, &mut attribute).unwrap()
}

/// An instruction as two words (RFC 9669): code, registers and offset; the immediate value.
pub(crate) type Code = [u32; 2];

/// An instruction of its parts; registers as `source << 4 | destination`.
pub(crate) fn code(opcode: u8, registers: u8, offset: i16, immediate: i32) -> Code {
    let low = u32::from(opcode) | u32::from(registers) << 8 | u32::from(offset.cast_unsigned()) << 16;
    [low, immediate.cast_unsigned()]
}

/// A program to be loaded.
#[derive(Default)]
pub(crate) struct Load<'a> {
    pub(crate) kind: u32,
    pub(crate) code: &'a [Code],
    /// `expected_attach_type`
    pub(crate) attach: u32,
    /// `prog_flags`
    pub(crate) flags: u32,
    /// `prog_ifindex`
    pub(crate) device: u32,
    /// With types of the program's, whose functions begin there.
    pub(crate) functions: &'a [u32],
}

/// Loads a program.
pub(crate) fn load(wanted: &Load<'_>) -> io::Result<OwnedFd> {
    let address = |at: u64| [at as u32, (at >> 32) as u32];
    let mut attribute = [0; 32];
    let [low, high] = address(wanted.code.as_ptr() as u64);
    attribute[..4].copy_from_slice(&[wanted.kind, wanted.code.len() as u32, low, high]);
    attribute[4..6].copy_from_slice(&address(c"GPL".as_ptr() as u64));
    attribute[11] = wanted.flags;
    attribute[16] = wanted.device;
    attribute[17] = wanted.attach;
    // Function and its type, as `types` has them.
    let functions: Vec<[u32; 2]> = wanted.functions.iter().map(|at| [*at, 3]).collect();
    let types = if functions.is_empty() { None } else { Some(types()?) };
    if let Some(types) = &types {
        let [low, high] = address(functions.as_ptr() as u64);
        attribute[18..23].copy_from_slice(&[types.as_raw_fd().cast_unsigned(), 8, low, high, functions.len() as u32]);
    }
    call(PROG_LOAD, &mut attribute)
}

/// Types (BTF): 1: `int`, 2: `int (int)`, 3: a static function of that type.
fn types() -> io::Result<OwnedFd> {
    let strings = b"\0int\0f\0a\0\0\0";
    let kind = |kind: u32, more: u32| kind << 24 | more;
    let types =
        [[1, kind(1, 0), 4].as_slice(), &[1 << 24 | 32], &[0, kind(13, 1), 1, 7, 1], &[5, kind(12, 0), 2]].concat();
    let length = types.len() as u32 * 4;
    // Magic and version, length of the header; offsets and lengths of types and strings.
    let header = [0x0001_eb9f, 24, 0, length, length, strings.len() as u32];
    let mut bytes: Vec<u8> = header.iter().chain(&types).flat_map(|word: &u32| word.to_ne_bytes()).collect();
    bytes.extend(strings);
    let at = bytes.as_ptr() as u64;
    let mut attribute = [0; 32];
    attribute[..2].copy_from_slice(&[at as u32, (at >> 32) as u32]);
    attribute[4] = bytes.len() as u32;
    call(BTF_LOAD, &mut attribute)
}

/// A program that returns 2 ("passes") after so many instructions, and names a map if there is one.
pub(crate) fn program(kind: u32, named: Option<&OwnedFd>, length: usize) -> OwnedFd {
    // r1 = map; r0 = 2, over and over; exit.
    let mut instructions: Vec<Code> = Vec::new();
    if let Some(map) = named {
        instructions.extend([code(0x18, 0x11, 0, map.as_raw_fd()), [0, 0]]);
    }
    instructions.resize(length - 1, code(0xb7, 0, 0, 2));
    instructions.push(code(0x95, 0, 0, 0));
    load(&Load { kind, code: &instructions, ..Load::default() }).unwrap()
}

/// How many programs and maps there are in the kernel.
pub(crate) fn counts() -> [usize; 2] {
    [PROG_GET_NEXT_ID, MAP_GET_NEXT_ID].map(|command| {
        let (mut attribute, mut count) = ([0_u32; 32], 0);
        loop {
            // SAFETY: as in `call`; the attribute holds no address.
            let result =
                unsafe { libc::syscall(libc::SYS_bpf, command, attribute.as_mut_ptr(), size_of_val(&attribute)) };
            if result < 0 {
                return count;
            }
            count += 1;
            // next_id becomes start_id.
            attribute[0] = attribute[1];
        }
    })
}
