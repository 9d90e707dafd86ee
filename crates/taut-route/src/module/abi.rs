//! `/dev/taut_path` as `kernel/taut_path/taut_path.h` has it. The only place of this crate that calls it.
#![expect(unsafe_code, reason = "ioctl(2) has no safe wrapper")]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;

pub(crate) const ABI: u32 = 3;
pub(crate) const NAME_BYTES: usize = 64;
pub(crate) const MOST_SINKS: usize = 16;
pub(crate) const BUCKETS: usize = 64;
pub(crate) const LOG_RECORDS: usize = 8192;

pub(crate) const GPIO: u32 = 1;
pub(crate) const INPUT: u32 = 2;
pub(crate) const LED: u32 = 3;
pub(crate) const UDP: u32 = 4;

pub(crate) const RISING: u32 = 1;
pub(crate) const FALLING: u32 = 2;
pub(crate) const ACTIVE_LOW: u32 = 4;
pub(crate) const PULL_UP: u32 = 8;
pub(crate) const PULL_DOWN: u32 = 16;
pub(crate) const PULL_OFF: u32 = 32;

pub(crate) const AUTO: u32 = 0;
pub(crate) const HARDIRQ: u32 = 1;
pub(crate) const THREAD: u32 = 2;

pub(crate) const PROGRAM: u32 = 0;
pub(crate) const IS_ZERO: u32 = 1;

pub(crate) const FAULT_PROGRAM: u32 = 1;
pub(crate) const FAULT_SOURCE: u32 = 2;
pub(crate) const FAULT_SINK: u32 = 16;

/// `struct taut_path_end`; `name` is also the address of UDP.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct End {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) number: u32,
    pub(crate) output: u32,
    pub(crate) name: [u8; NAME_BYTES],
}

/// `struct taut_path_route`
#[repr(C)]
pub(crate) struct Request {
    pub(crate) abi: u32,
    pub(crate) place: u32,
    pub(crate) program: i32,
    pub(crate) condition: u32,
    pub(crate) most_per_second: u32,
    pub(crate) mask_ms: u32,
    pub(crate) sinks: u32,
    pub(crate) id: u32,
    pub(crate) at_fault: u32,
    pub(crate) log: u32,
    pub(crate) source: End,
    pub(crate) sink: [End; MOST_SINKS],
}

/// `struct taut_path_stats`
#[repr(C)]
pub(crate) struct Stats {
    pub(crate) events: u64,
    pub(crate) passed: u64,
    pub(crate) dropped: u64,
    pub(crate) short_events: u64,
    pub(crate) lost: u64,
    pub(crate) failed: u64,
    pub(crate) masked: u64,
    pub(crate) bad: u64,
    pub(crate) log_lost: u64,
    pub(crate) stopped: u64,
    pub(crate) histogram: [u64; BUCKETS],
}

/// `struct taut_path_loop`
#[derive(Default)]
#[repr(C)]
struct Loop {
    count: u32,
    reserved: u32,
    ns: u64,
}

#[derive(Default)]
#[repr(C)]
struct Info {
    abi: u32,
    routes: u32,
}

// The header's structures have these sizes too (`_IOC` puts them into the numbers of the calls, so
// a difference is ENOTTY).
const _: () = assert!(size_of::<End>() == 80 && size_of::<Request>() == 40 + 17 * 80 && size_of::<Stats>() == 8 * 74);
const _: () = assert!(size_of::<Loop>() == 16 && size_of::<Info>() == 8);

const READ: u32 = 2;
const WRITE: u32 = 1;

/// `_IOC` (asm-generic/ioctl.h) with the module's letter.
const fn number<T>(direction: u32, call: u32) -> libc::Ioctl {
    (direction << 30 | (size_of::<T>() as u32) << 16 | 0xE7 << 8 | call) as libc::Ioctl
}

fn call<T>(device: &File, direction: u32, what: u32, argument: &mut T) -> io::Result<()> {
    // SAFETY: the number tells the module the size of the structure, and it reads and writes no more than that; all
    // structures here are plain numbers, valid with any bytes.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), number::<T>(direction, what), std::ptr::from_mut(argument)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl End {
    pub(crate) const fn new(kind: u32) -> Self {
        Self { kind, flags: 0, number: 0, output: 0, name: [0; NAME_BYTES] }
    }
}

/// The ABI that the module speaks.
pub(crate) fn version(device: &File) -> io::Result<u32> {
    let mut info = Info::default();
    call(device, READ, 0, &mut info).map(|()| info.abi)
}

/// Makes the descriptor's route. After an error, `at_fault` tells whose fault it was.
pub(crate) fn start(device: &File, request: &mut Request) -> io::Result<()> {
    call(device, READ | WRITE, 1, request)
}

pub(crate) fn stats(device: &File) -> io::Result<Stats> {
    let mut stats = Stats {
        events: 0,
        passed: 0,
        dropped: 0,
        short_events: 0,
        lost: 0,
        failed: 0,
        masked: 0,
        bad: 0,
        log_lost: 0,
        stopped: 0,
        histogram: [0; BUCKETS],
    };
    call(device, READ, 2, &mut stats).map(|()| stats)
}

/// Bytes of `struct taut_path_log`: time, number and value of an event, 8 each.
pub(crate) const LOG_BYTES: usize = 24;

/// Reads records of the log; their bytes in all, 0 when none is there (the descriptor must not block).
pub(crate) fn read_log(mut device: &File, records: &mut [u8]) -> io::Result<usize> {
    match device.read(records) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}

/// Runs the route's loop so often; the time for all, in ns.
pub(crate) fn run_loop(device: &File, count: u32) -> io::Result<u64> {
    let mut turns = Loop { count, ..Loop::default() };
    call(device, READ | WRITE, 3, &mut turns).map(|()| turns.ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_the_module_has_the_same_numbers() {
        // Not read from the tree: these tests also run in guests, which have none.
        let header = include_str!("../../../../kernel/taut_path/taut_path.h");
        let defined = |name: &str| {
            let line =
                header.lines().find_map(|line| line.strip_prefix("#define ")?.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok())
                .unwrap_or_else(|| panic!("{name}"))
        };
        let numbers = [
            ("TAUT_PATH_ABI", ABI as usize),
            ("TAUT_PATH_LOG_RECORDS", LOG_RECORDS),
            ("TAUT_PATH_MOST_SINKS", MOST_SINKS),
            ("TAUT_PATH_NAME_BYTES", NAME_BYTES),
            ("TAUT_PATH_BUCKETS", BUCKETS),
        ];
        for (name, number) in numbers {
            assert_eq!(defined(name), number, "{name}");
        }
    }
}
