//! Programs that the verifier takes, for a place that is not the module's.
#![expect(unsafe_code, reason = "ioctl(2) on a route's descriptor")]

use std::ffi::c_ulong;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::bpf::{Code, Load, XDP, code, load};
use crate::faults::{ROUTE, STATS, number, route, start_program};
use crate::{PERIOD, chip};

/// Kinds of places for programs of type XDP (linux/bpf.h): entries of device maps and CPU maps, and devices.
pub(crate) const DEVMAP: u32 = 33;
pub(crate) const CPUMAP: u32 = 35;
pub(crate) const DEVICE: u32 = 37;
/// `BPF_F_XDP_HAS_FRAGS`, `BPF_F_XDP_DEV_BOUND_ONLY`
pub(crate) const FRAGMENTS: u32 = 1 << 5;
const BOUND: u32 = 1 << 6;

/// `r0 = 2; exit`
pub(crate) const PASS: [Code; 2] = [[0x00b7, 2], [0x0095, 0]];

fn answer(program: &OwnedFd) -> Result<(), i32> {
    start_program(program.as_raw_fd()).map_err(|(error, at_fault)| {
        assert_eq!(at_fault, 1, "the program is at fault");
        error
    })
}

/// A helper's call: `r1..r5 = 0; call; r0 = 2; exit`, for those that take numbers.
fn calling(helper: i32) -> Vec<Code> {
    let mut all: Vec<Code> = (1..=5).map(|register| code(0xb7, register, 0, 0)).collect();
    all.push(code(0x85, 0, 0, helper));
    all.extend(PASS);
    all
}

/// `bpf_loop` of 2^23 turns, each with one of 2^23: 70 days, in few instructions.
fn looping() -> (Vec<Code>, [u32; 3]) {
    let of_function = |register: u8, ahead: i32| [code(0x18, 0x40 | register, 0, ahead), [0, 0]];
    let turns = |ahead: i32| {
        let begin = [code(0xb7, 1, 0, 1 << 23), of_function(2, ahead)[0], [0, 0]];
        let rest = [code(0xb7, 3, 0, 0), code(0xb7, 4, 0, 0), code(0x85, 0, 0, 181)];
        begin.into_iter().chain(rest)
    };
    let mut all: Vec<Code> = turns(6).collect();
    all.extend(PASS);
    // The outer function, of eight instructions from here on: at 8; the inner one at 16.
    all.extend(turns(6));
    all.extend([code(0xb7, 0, 0, 0), code(0x95, 0, 0, 0)]);
    all.extend([code(0xb7, 0, 0, 0), code(0x95, 0, 0, 0)]);
    (all, [0, 8, 16])
}

pub(crate) fn what_is_valid_elsewhere_only_is_refused() {
    let loaded = |wanted: Load<'_>| load(&Load { kind: XDP, ..wanted }).map_err(|error| error.to_string());
    let plain = |code: &[Code]| loaded(Load { code, ..Load::default() }).unwrap();
    // Reads `egress_ifindex`, which is a device's that is none here.
    let egress = [code(0x61, 0x12, 20, 0), PASS[0], PASS[1]];
    for (attach, code) in [(DEVMAP, &egress[..]), (CPUMAP, &PASS)] {
        let program = loaded(Load { code, attach, ..Load::default() }).unwrap();
        assert_eq!(answer(&program), Err(libc::EOPNOTSUPP), "{attach}");
    }
    let program = loaded(Load { code: &PASS, flags: FRAGMENTS, ..Load::default() }).unwrap();
    assert_eq!(answer(&program), Err(libc::EOPNOTSUPP), "packets in pieces");
    // A device's own programs are there since 6.3; loopback can have none.
    let ip = |arguments: &str| assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success());
    ip("link add taut-veth type veth");
    let device = fs::read_to_string("/sys/class/net/taut-veth/ifindex").unwrap().trim().parse().unwrap();
    match loaded(Load { code: &PASS, flags: BOUND, device, ..Load::default() }) {
        Ok(program) => assert_eq!(answer(&program), Err(libc::EOPNOTSUPP), "a device's own"),
        Err(why) => assert!(rustix::system::uname().release().to_bytes().starts_with(b"6.1."), "{why}"),
    }
    ip("link del taut-veth");
    let program = loaded(Load { code: &PASS, functions: &[0], ..Load::default() }).unwrap();
    assert_eq!(answer(&program), Err(libc::EOPNOTSUPP), "with types, it could be another one some time");
    let (turns, functions) = looping();
    let program = loaded(Load { code: &turns, functions: &functions, ..Load::default() }).unwrap();
    assert_eq!(answer(&program), Err(libc::EOPNOTSUPP), "bpf_loop");

    // bpf_ktime_get_ns, bpf_get_prandom_u32
    for helper in [5, 7] {
        assert_eq!(answer(&plain(&calling(helper))), Err(libc::ENOEXEC), "helper {helper}");
    }
    // A thousand turns: r1 = 0; r1 += 1; if r1 < 1000 goto -2.
    let back = [code(0xb7, 1, 0, 0), code(0x07, 1, 0, 1), code(0xa5, 1, -2, 1000), PASS[0], PASS[1]];
    assert_eq!(answer(&plain(&back)), Err(libc::ENOEXEC), "a loop");
    let own = [code(0x85, 0x10, 0, 1), PASS[1], PASS[0], PASS[1]];
    assert_eq!(answer(&plain(&own)), Err(libc::ENOEXEC), "a function of its own");

    // For a device, or for anything; forward jumps; both halves of a constant.
    for attach in [0, DEVICE] {
        let program = loaded(Load { code: &PASS, attach, ..Load::default() }).unwrap();
        assert_eq!(answer(&program), Ok(()), "{attach}");
    }
    let wide = [code(0x18, 3, 0, 0x85), [0, 0x85], code(0x55, 3, 0, 1), PASS[0], PASS[1]];
    assert_eq!(answer(&plain(&wide)), Ok(()));
}

/// A route on the chip's line 3, with a program, of a place.
pub(crate) fn start(program: &OwnedFd, place: u32) -> Result<File, i32> {
    let device = open();
    start_on(&device, program, place).map(|()| device)
}

pub(crate) fn open() -> File {
    File::options().read(true).write(true).open("/dev/taut_path").unwrap()
}

/// The same on a descriptor that holds none.
pub(crate) fn start_on(device: &File, program: &OwnedFd, place: u32) -> Result<(), i32> {
    let mut bytes = vec![0_u8; ROUTE];
    route(&mut bytes);
    for (at, word) in [(4, place), (8, program.as_raw_fd().cast_unsigned()), (12, 0), (48, 3), (128, 5)] {
        bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    call(device, number(3, 1, ROUTE), &mut bytes)
}

pub(crate) fn call(device: &File, request: u32, bytes: &mut [u8]) -> Result<(), i32> {
    // SAFETY: the buffers are as long as the numbers of the requests say.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), c_ulong::from(request) as _, bytes.as_mut_ptr()) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().raw_os_error().unwrap_or_default()) }
}

/// Words of `struct taut_path_stats`.
pub(crate) fn stats(device: &File) -> Vec<u64> {
    let mut bytes = vec![0; STATS];
    call(device, number(2, 2, STATS), &mut bytes).unwrap();
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
}

/// In both places: eight long runs in a row, and the route takes no events any more, but its
/// descriptor is as good as ever.
pub(crate) fn what_takes_too_long_is_stopped() {
    let chip = chip();
    // r0 = 2; r0 /= 1, over and over: about ten instructions of the processor's each.
    let mut slow = vec![PASS[0]];
    slow.resize(60_000, code(0x37, 0, 0, 1));
    slow.push(PASS[1]);
    let slow = load(&Load { kind: XDP, code: &slow, ..Load::default() }).unwrap();
    let told = || {
        let log = Command::new("dmesg").output().unwrap();
        let what = "is stopped: its program took more than 100000 ns";
        String::from_utf8_lossy(&log.stdout).matches(what).count()
    };
    for place in [0, 2] {
        let told_before = told();
        let device = start(&slow, place).unwrap();
        chip.run(3, 40, Duration::from_millis(10)).unwrap();
        let begin = Instant::now();
        while stats(&device)[9] == 0 {
            assert!(begin.elapsed() < Duration::from_secs(10), "place {place}: {:?}", stats(&device));
            thread::sleep(Duration::from_millis(1));
        }
        let handled = stats(&device)[1];
        assert!((8..40).contains(&handled), "place {place}: {:?}", stats(&device));
        chip.run(3, 10, PERIOD).unwrap();
        assert_eq!(stats(&device)[1], handled, "place {place}");
        // A work says so, when it has a processor.
        let begin = Instant::now();
        while told() == told_before {
            assert!(begin.elapsed() < Duration::from_secs(10), "place {place}: it is not told");
            thread::sleep(Duration::from_millis(1));
        }
        drop(device);
        // The line is free again, and works.
        let quick = load(&Load { kind: XDP, code: &PASS, ..Load::default() }).unwrap();
        let device = start(&quick, place).unwrap();
        chip.run(3, 4, PERIOD).unwrap();
        let begin = Instant::now();
        while stats(&device)[1] < 4 {
            assert!(begin.elapsed() < Duration::from_secs(10), "place {place}: {:?}", stats(&device));
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(stats(&device)[9], 0);
    }
}

/// Whoever is handed an open descriptor has to have the rights all the same.
pub(crate) fn a_descriptor_gives_no_rights() {
    let program = load(&Load { kind: XDP, code: &PASS, ..Load::default() }).unwrap();
    let without = |lost: CapabilitySet, act: &(dyn Fn() -> Result<(), i32> + Sync)| {
        thread::scope(|scope| {
            let acting = scope.spawn(|| {
                let CapabilitySets { effective, permitted, inheritable } = capabilities(None).unwrap();
                let sets = CapabilitySets { effective: effective - lost, permitted, inheritable };
                set_capabilities(None, sets).unwrap();
                act()
            });
            acting.join().unwrap()
        })
    };
    let open = || File::options().read(true).write(true).open("/dev/taut_path");
    let mut bytes = vec![0_u8; ROUTE];
    route(&mut bytes);
    for (at, word) in [(8, program.as_raw_fd().cast_unsigned()), (12, 0)] {
        bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    let device = open().unwrap();
    for lost in [CapabilitySet::SYS_ADMIN, CapabilitySet::BPF, CapabilitySet::SYS_ADMIN | CapabilitySet::BPF] {
        let refused = Err(libc::EPERM);
        let opened = || open().map(drop).map_err(|error| error.raw_os_error().unwrap_or_default());
        assert_eq!(without(lost, &opened), refused, "open without {lost:?}");
        assert_eq!(without(lost, &|| call(&device, number(3, 1, ROUTE), &mut bytes.clone())), refused, "{lost:?}");
        assert_eq!(without(lost, &|| call(&device, number(3, 3, 16), &mut [0; 16])), refused, "{lost:?}");
    }
    assert_eq!(without(CapabilitySet::NET_RAW, &|| call(&device, number(3, 1, ROUTE), &mut bytes.clone())), Ok(()));
}
