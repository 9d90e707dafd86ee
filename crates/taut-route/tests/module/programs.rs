//! Programs that the verifier takes, for a place that is not the module's; and programs of all sorts.
#![expect(unsafe_code, reason = "ioctl(2) on a route's descriptor")]

use std::ffi::c_ulong;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::bpf::{ARRAY, Code, HASH, Load, XDP, code, load, map};
use crate::faults::{ROUTE, STATS, number, route, start_program};
use crate::support::Random;
use crate::{PERIOD, chip};

/// Kinds of places for programs of type XDP (linux/bpf.h): entries of device maps and CPU maps, and devices.
const DEVMAP: u32 = 33;
const CPUMAP: u32 = 35;
const DEVICE: u32 = 37;
/// `BPF_F_XDP_HAS_FRAGS`, `BPF_F_XDP_DEV_BOUND_ONLY`
const FRAGMENTS: u32 = 1 << 5;
const BOUND: u32 = 1 << 6;

/// `r0 = 2; exit`
const PASS: [Code; 2] = [[0x00b7, 2], [0x0095, 0]];

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
fn start(program: &OwnedFd, place: u32) -> Result<File, i32> {
    let device = File::options().read(true).write(true).open("/dev/taut_path").unwrap();
    let mut bytes = vec![0_u8; ROUTE];
    route(&mut bytes);
    for (at, word) in [(4, place), (8, program.as_raw_fd().cast_unsigned()), (12, 0), (48, 3), (128, 5)] {
        bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    call(&device, number(3, 1, ROUTE), &mut bytes).map(|()| device)
}

fn call(device: &File, request: u32, bytes: &mut [u8]) -> Result<(), i32> {
    // SAFETY: the buffers are as long as the numbers of the requests say.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), c_ulong::from(request) as _, bytes.as_mut_ptr()) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().raw_os_error().unwrap_or_default()) }
}

/// Words of `struct taut_path_stats`.
fn stats(device: &File) -> Vec<u64> {
    let mut bytes = vec![0; STATS];
    call(device, number(2, 2, STATS), &mut bytes).unwrap();
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
}

/// In both places: eight long runs in a row, and the route takes no events any more, but its descriptor is as good as ever.
pub(crate) fn what_takes_too_long_is_stopped() {
    let chip = chip();
    // r0 = 2; r0 /= 1, over and over: about ten instructions of the processor's each.
    let mut slow = vec![PASS[0]];
    slow.resize(60_000, code(0x37, 0, 0, 1));
    slow.push(PASS[1]);
    let slow = load(&Load { kind: XDP, code: &slow, ..Load::default() }).unwrap();
    for place in [0, 2] {
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
        let log = Command::new("dmesg").output().unwrap();
        assert!(String::from_utf8_lossy(&log.stdout).contains("is stopped: its program took more than 100000 ns"));
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

/// What has to become of a random program that the verifier takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    Taken,
    Refused(i32),
    /// Some kernels put the instructions of a helper in its place.
    TakenOr(i32),
    /// Its instructions are any.
    Any,
}

/// Programs at random, most of them with something that is not for the module. `TAUT_MODULE_PROGRAMS`: how many.
pub(crate) fn random_programs_are_taken_or_refused_by_the_rules() {
    let count = std::env::var("TAUT_MODULE_PROGRAMS").map_or(5_000, |count| count.parse().unwrap());
    let maps = [map(ARRAY), map(HASH)];
    let chip = chip();
    let mut random = Random(0x5eed_0014);
    let (mut offered, mut taken, mut not_loaded) = (0_u64, 0_u64, 0_u64);
    let begin = Instant::now();
    while offered < count {
        let (wanted, fate) = random_program(&mut random, &maps);
        let code = &wanted.code;
        let asked = Load { kind: XDP, code, attach: wanted.attach, flags: wanted.flags, ..Load::default() };
        let program = match load(&asked) {
            Ok(program) => program,
            Err(error) => {
                assert_eq!(fate, Fate::Any, "{error}: {code:x?}");
                not_loaded += 1;
                continue;
            }
        };
        offered += 1;
        let answer = start(&program, 0);
        match fate {
            Fate::Taken => assert!(answer.is_ok(), "{answer:?}: {code:x?}"),
            Fate::Refused(with) => assert_eq!(answer.as_ref().err(), Some(&with), "{code:x?}"),
            Fate::TakenOr(with) => {
                assert!(answer.as_ref().err().is_none_or(|error| *error == with), "{answer:?}: {code:x?}")
            }
            Fate::Any => {}
        }
        if answer.is_ok() {
            taken += 1;
            if taken % 16 == 0 {
                chip.run(3, 2, Duration::from_micros(20)).unwrap();
            }
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("{offered} programs offered, {taken} taken; {not_loaded} more not loaded; {seconds:.0} s");
    assert!(taken > offered / 100 && taken < offered / 2, "most are to be refused, and some taken");
}

struct RandomProgram {
    code: Vec<Code>,
    attach: u32,
    flags: u32,
}

fn random_program(random: &mut Random, maps: &[OwnedFd; 2]) -> (RandomProgram, Fate) {
    let mut made = RandomProgram { code: Vec::new(), attach: 0, flags: 0 };
    // r6..r9 have something in them, and so has the stack.
    for register in 6..=9 {
        made.code.push(code(0xb7, register, 0, random.next() as i32));
    }
    made.code.push(code(0x7b, 0x6a, -8, 0));
    let poison = random.below(12);
    let (before, after) = (random.below(20), random.below(20));
    straight(&mut made.code, random, before);
    let fate = match poison {
        0 => Fate::Taken,
        1 => {
            made.attach = [DEVMAP, CPUMAP][random.below(2)];
            Fate::Refused(libc::EOPNOTSUPP)
        }
        2 => {
            made.flags = FRAGMENTS;
            Fate::Refused(libc::EOPNOTSUPP)
        }
        3 | 4 => {
            // An array's is no reason, another's is one.
            let which = random.below(8).min(1);
            made.code.extend([code(0x18, 0x11, 0, maps[which].as_raw_fd()), [0, 0]]);
            if which == 0 { Fate::Taken } else { Fate::Refused(libc::EACCES) }
        }
        5 | 6 => {
            // bpf_ktime_get_ns, get_prandom_u32, ktime_get_boot_ns, ktime_get_coarse_ns
            made.code.push(code(0x85, 0, 0, [5, 7, 125, 160][random.below(4)]));
            Fate::Refused(libc::ENOEXEC)
        }
        7 => {
            // bpf_get_smp_processor_id, bpf_jiffies64
            made.code.push(code(0x85, 0, 0, [8, 118][random.below(2)]));
            Fate::TakenOr(libc::ENOEXEC)
        }
        8 | 9 => {
            // r1 = 0; …; r1 += 1; if r1 < n goto …
            let inside = random.below(4);
            made.code.push(code(0xb7, 1, 0, 0));
            straight(&mut made.code, random, inside);
            let begin = made.code.len() as i16;
            straight(&mut made.code, random, inside);
            made.code.push(code(0x07, 1, 0, 1));
            let back = begin - made.code.len() as i16 - 1;
            made.code.push(code(0xa5, 1, back, 2 + random.below(50) as i32));
            Fate::Refused(libc::ENOEXEC)
        }
        10 => {
            // A function of its own, behind the end.
            made.code.push(code(0x85, 0x10, 0, after as i32 + 2));
            Fate::Refused(libc::ENOEXEC)
        }
        _ => {
            // Anything, which the verifier seldom takes.
            for _ in 0..=random.below(3) {
                made.code.push([random.next() as u32, random.next() as u32 >> random.below(32)]);
            }
            Fate::Any
        }
    };
    for _ in 0..after {
        made.code.push(arithmetic(random));
    }
    made.code.extend([code(0xb7, 0, 0, random.below(4) as i32), PASS[1]]);
    if poison == 10 {
        made.code.extend(PASS);
    }
    (made, fate)
}

/// So many instructions, some of which jump forward among them.
fn straight(all: &mut Vec<Code>, random: &mut Random, count: usize) {
    for left in (0..count).rev() {
        all.push(match random.below(5) {
            0 => {
                let jump = [0x15, 0x25, 0x55, 0xa5, 0xb5, 0x65, 0x1e, 0x2e][random.below(8)];
                let registers = (6 + random.below(4) as u8) | if jump & 8 == 0 { 0 } else { 0x70 };
                let immediate = if jump & 8 == 0 { random.next() as i32 } else { 0 };
                code(jump, registers, random.below(left + 1) as i16, immediate)
            }
            1 => code(0x7b, 0x0a | (6 + random.below(4) as u8) << 4, -8, 0),
            2 => code(0x79, 0xa0 | (6 + random.below(4) as u8), -8, 0),
            _ => arithmetic(random),
        });
    }
}

/// On registers that have numbers in them.
fn arithmetic(random: &mut Random) -> Code {
    let operation = [0x07, 0x17, 0x27, 0x47, 0x57, 0xa7, 0xb7, 0x04, 0x24, 0x44][random.below(10)];
    let destination = 6 + random.below(4) as u8;
    if random.below(2) == 0 {
        code(operation, destination, 0, random.next() as i32)
    } else {
        code(operation | 8, destination | (6 + random.below(4) as u8) << 4, 0, 0)
    }
}
