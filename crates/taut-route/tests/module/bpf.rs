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

/// `union bpf_attr` as words of 32 bits.
fn call(command: i32, attribute: &mut [u32; 32]) -> io::Result<OwnedFd> {
    // SAFETY: the attribute is live and its size is told; addresses in it are those of live buffers.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attribute.as_mut_ptr(), size_of_val(attribute)) };
    // SAFETY: a result that is no error is a new descriptor, as both users of it ask for one.
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(result as i32) }) }
}

/// A map of four entries with keys and values of four bytes.
pub(crate) fn map(kind: u32) -> OwnedFd {
    let mut attribute = [0; 32];
    attribute[..4].copy_from_slice(&[kind, 4, 4, 4]);
    call(MAP_CREATE, &mut attribute).unwrap()
}

/// A program that returns 2 ("passes") after so many instructions, and names a map if there is one.
pub(crate) fn program(kind: u32, named: Option<&OwnedFd>, length: usize) -> OwnedFd {
    // r1 = map; r0 = 2, over and over; exit (RFC 9669).
    let mut code: Vec<[u32; 2]> = Vec::new();
    if let Some(map) = named {
        code.extend([[0x1118, map.as_raw_fd().cast_unsigned()], [0, 0]]);
    }
    code.resize(length - 1, [0x00b7, 2]);
    code.push([0x0095, 0]);
    let (code_at, license) = (code.as_ptr() as u64, c"GPL".as_ptr() as u64);
    let mut attribute = [0; 32];
    let words = [kind, length as u32, code_at as u32, (code_at >> 32) as u32, license as u32, (license >> 32) as u32];
    attribute[..6].copy_from_slice(&words);
    call(PROG_LOAD, &mut attribute).unwrap()
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
