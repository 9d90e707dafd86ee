//! Programs at random: those that the module has to take, those that it has to refuse, and any
//! instructions at all. What it takes is run in the interrupt.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::bpf::{ARRAY, Code, HASH, Load, PER_CPU_ARRAY, PROGRAM_ARRAY, XDP, code, load, map, map_of};
use crate::faults::number;
use crate::programs::{CPUMAP, DEVICE, DEVMAP, FRAGMENTS, PASS, call, open, start_on, stats};
use crate::soonest;
use crate::support::Random;

/// Maps that are no arrays: `PERCPU_HASH`, `LRU_HASH`, `DEVMAP`, `CPUMAP` and others (linux/bpf.h).
const OTHERS: [u32; 7] = [HASH, PROGRAM_ARRAY, PER_CPU_ARRAY, 5, 9, 14, 16];

/// What has to become of a program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    Taken,
    Refused(i32),
    /// Some kernels put the instructions of a helper in its place.
    TakenOr(i32),
    /// Its instructions are any.
    Any,
}

/// Most of them have something that is not for the module. `TAUT_MODULE_PROGRAMS`: how many; `TAUT_MODULE_SEED`: which.
pub(crate) fn random_programs_are_taken_or_refused_by_the_rules() {
    let set = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (count, seed) = (set("TAUT_MODULE_PROGRAMS", 5_000), set("TAUT_MODULE_SEED", 0x5eed_0014));
    // An address is had of an array of one value only.
    let (array, others) = (map_of(ARRAY, 1), OTHERS.map(map));
    let mut random = Random(seed);
    println!("seed {seed}, {count} programs");
    let (mut offered, mut taken, mut not_loaded, mut longest) = (0_u64, 0_u64, 0_u64, 0);
    let begin = Instant::now();
    // As long as it holds no route, a descriptor takes the next request.
    let mut unused = None;
    while offered < count {
        let (wanted, fate) = random_program(&mut random, &array, &others);
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
        let device = unused.take().unwrap_or_else(open);
        let answer = start_on(&device, &program, 0);
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
            longest = run(&device, code).max(longest);
        } else {
            unused = Some(device);
        }
        // So that a run that is ended early has told what it did.
        if offered.is_multiple_of(5_000) || offered == count {
            let seconds = begin.elapsed().as_secs_f64();
            let counts = format!("{offered} programs offered, {taken} taken; {not_loaded} more not loaded");
            println!("{counts}; a run takes {longest} ns at most; {seconds:.0} s");
        }
    }
    assert!(taken > offered / 100 && taken < offered / 2, "most are to be refused, and some taken");
}

/// Runs a program that was taken at two edges, and 64 times in a row: ns of one, about.
fn run(device: &File, code: &[Code]) -> u64 {
    // Without their stamps (`Simulation::run`), which nobody asks for.
    fs::write("/sys/kernel/debug/taut_gpio_sim/run", "3 2 20000").unwrap();
    let begin = Instant::now();
    // Where a thread handles them, both may be one.
    let handled = loop {
        let stats = stats(device);
        let handled: u64 = [1, 2, 3, 7].iter().map(|word| stats[*word]).sum();
        assert_eq!(stats[9], 0, "stopped: {code:x?}");
        if handled > 0 || begin.elapsed() > Duration::from_secs(10) {
            break handled;
        }
        thread::sleep(Duration::from_millis(1));
    };
    if soonest() != "hardirq" {
        assert!(handled > 0, "{code:x?}");
        return 0;
    }
    assert_eq!(handled, 2, "{code:x?}");
    // struct taut_path_loop. A host that takes the processor away does not do so ten times in a row.
    let once = || {
        let mut bytes = [0_u8; 16];
        bytes[..4].copy_from_slice(&64_u32.to_ne_bytes());
        call(device, number(3, 3, 16), &mut bytes).unwrap();
        u64::from_ne_bytes(*bytes.last_chunk().unwrap()) / 64
    };
    let most = longest_run();
    let ns = (0..10).map(|_| once()).find(|ns| *ns < most);
    ns.unwrap_or_else(|| panic!("takes more than {most} ns: {code:x?}"))
}

/// What a run may take, in ns: what the module allows a program. A kernel with lockdep checks each
/// access and each lock, ours among them, and executes several times as many instructions.
fn longest_run() -> u64 {
    if Path::new("/proc/lockdep_stats").exists() { 1_000_000 } else { 100_000 }
}

struct RandomProgram {
    code: Vec<Code>,
    attach: u32,
    flags: u32,
}

fn random_program(random: &mut Random, array: &OwnedFd, others: &[OwnedFd]) -> (RandomProgram, Fate) {
    let mut made = RandomProgram { code: Vec::new(), attach: 0, flags: 0 };
    // r6..r9 have something in them, and so has the stack.
    for register in 6..=9 {
        made.code.push(code(0xb7, register, 0, random.next() as i32));
    }
    made.code.push(code(0x7b, 0x6a, -8, 0));
    let sort = random.below(16);
    let (before, after) = (random.below(20), random.below(20));
    straight(&mut made.code, random, before);
    let fate = match sort {
        0 => Fate::Taken,
        1 => {
            over_the_record(&mut made.code, random);
            Fate::Taken
        }
        2 => {
            in_the_array(&mut made.code, random, array);
            Fate::Taken
        }
        3 => {
            // bpf_map_lookup_elem, in whose place the verifier puts its instructions, for an array.
            let key = [code(0x62, 0x0a, -16, random.below(6) as i32), code(0xbf, 0xa2, 0, 0), code(0x07, 2, 0, -16)];
            made.code.extend(key);
            made.code.extend([code(0x18, 0x11, 0, array.as_raw_fd()), [0, 0], code(0x85, 0, 0, 1)]);
            made.code.extend([code(0x15, 0, 1, 0), code(0x61, 0x06, 0, 0)]);
            Fate::TakenOr(libc::ENOEXEC)
        }
        4 => {
            made.attach = [0, DEVICE, DEVMAP, CPUMAP][random.below(4)];
            if [0, DEVICE].contains(&made.attach) { Fate::Taken } else { Fate::Refused(libc::EOPNOTSUPP) }
        }
        5 => {
            made.flags = FRAGMENTS;
            Fate::Refused(libc::EOPNOTSUPP)
        }
        6 | 7 => {
            let other = &others[random.below(others.len())];
            made.code.extend([code(0x18, 0x11, 0, other.as_raw_fd()), [0, 0]]);
            Fate::Refused(libc::EACCES)
        }
        8 | 9 => {
            // bpf_ktime_get_ns, get_prandom_u32, ktime_get_boot_ns, ktime_get_coarse_ns
            made.code.push(code(0x85, 0, 0, [5, 7, 125, 160][random.below(4)]));
            Fate::Refused(libc::ENOEXEC)
        }
        10 => {
            // bpf_get_smp_processor_id, bpf_jiffies64
            made.code.push(code(0x85, 0, 0, [8, 118][random.below(2)]));
            Fate::TakenOr(libc::ENOEXEC)
        }
        11 | 12 => {
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
        13 => {
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
    if sort == 13 {
        made.code.extend(PASS);
    }
    (made, fate)
}

/// Reads and writes the record, of 80 bytes: r2 = data; if data + 80 > data_end, none of it.
fn over_the_record(all: &mut Vec<Code>, random: &mut Random) {
    let inside = 1 + random.below(12);
    all.extend([code(0x61, 0x12, 0, 0), code(0x61, 0x13, 4, 0), code(0xbf, 0x24, 0, 0), code(0x07, 4, 0, 80)]);
    all.push(code(0x2d, 0x34, inside as i16, 0));
    for _ in 0..inside {
        let register = 6 + random.below(4) as u8;
        // Of 8, 4, 2 or 1 bytes.
        let (size, bytes) = [(0x18, 8), (0x00, 4), (0x08, 2), (0x10, 1)][random.below(4)];
        let at = (random.below(80 / bytes) * bytes) as i16;
        all.push(match random.below(2) {
            0 => code(0x61 | size, 0x20 | register, at, 0),
            _ => code(0x63 | size, register << 4 | 2, at, 0),
        });
    }
}

/// Reads, writes and adds to the value of the array, of four bytes.
fn in_the_array(all: &mut Vec<Code>, random: &mut Random, array: &OwnedFd) {
    let register = 6 + random.below(4) as u8;
    // BPF_PSEUDO_MAP_VALUE: its address.
    all.extend([code(0x18, 0x21, 0, array.as_raw_fd()), [0, 0]]);
    all.push(match random.below(3) {
        0 => code(0x61, 0x10 | register, 0, 0),
        1 => code(0x63, register << 4 | 1, 0, 0),
        _ => code(0xc3, register << 4 | 1, 0, 0),
    });
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
