//! System calls of the user path: its scheduling, and setting up input devices.
#![expect(unsafe_code, reason = "these have no safe wrapper in rustix")]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Puts the calling thread into SCHED_FIFO.
pub(crate) fn fifo(priority: u8) -> io::Result<()> {
    // SAFETY: all zeroes are a valid sched_param.
    let mut parameter: libc::sched_param = unsafe { mem::zeroed() };
    parameter.sched_priority = priority.into();
    // SAFETY: the pointer is to a live sched_param.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// `struct input_mask` (linux/input.h).
#[repr(C)]
struct InputMask {
    kind: u32,
    bytes: u32,
    codes: u64,
}

/// Has an input device hand over one type and code of events only, with times of `CLOCK_MONOTONIC`.
pub(super) fn only_events(fd: BorrowedFd<'_>, kind: u16, code: u16) -> io::Result<()> {
    const EVIOCSCLOCKID: u32 = 0x4004_45a0;
    const EVIOCSMASK: u32 = 0x4010_4593;
    let clock: libc::c_int = libc::CLOCK_MONOTONIC;
    // SAFETY: the ioctl takes a pointer to an int, which is live.
    if unsafe { libc::ioctl(fd.as_raw_fd(), EVIOCSCLOCKID as _, &raw const clock) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // Codes go up to KEY_MAX, 0x2ff. The mask of type 0 is one of types.
    for (of, only) in [(0, kind), (kind, code)] {
        let mut codes = [0_u8; 0x300 / 8];
        codes[usize::from(only / 8)] |= 1 << (only % 8);
        let mask = InputMask { kind: of.into(), bytes: codes.len() as u32, codes: codes.as_ptr() as u64 };
        // SAFETY: the ioctl takes a pointer to this struct, in which address and length of the live bitmap are told.
        if unsafe { libc::ioctl(fd.as_raw_fd(), EVIOCSMASK as _, &raw const mask) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
