//! What must not go wrong: storms, refusals, what goes away, unloading, and anything into the control device.
#![expect(unsafe_code, reason = "ioctl(2) with anything")]

use std::ffi::c_ulong;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use taut_route::bench::gpio::Simulation;

use crate::bpf;
use crate::memory::lost_by;
use crate::programs::{call, stats};
use crate::support::Random;
use crate::{Defer, PERIOD, chip, counters, once, start, status};

pub(crate) fn a_storm_masks_the_line_for_a_while() {
    let chip = chip();
    let engine = start("gpio:taut-gpio-sim/3", "true", &["gpio:taut-gpio-sim/5"], "kernel").unwrap();
    chip.run(3, 50_000, Duration::from_micros(1)).unwrap();
    let stormy = status(&engine).counters;
    assert!(stormy.masked >= 1 && stormy.events < 50_000, "{stormy:?}");
    thread::sleep(Duration::from_millis(100));
    let before = status(&engine).counters.events;
    chip.run(3, 10, PERIOD).unwrap();
    assert_eq!(counters(&engine, before + 10).events, before + 10);
}

/// While a line is masked the kernel keeps one edge for later. Later is when its route listens
/// again, and not when the next one does.
pub(crate) fn an_edge_of_the_route_before_is_no_event() {
    let chip = chip();
    let masking = |edges: u32, mask_ms: u32| {
        let device = File::options().read(true).write(true).open("/dev/taut_path").unwrap();
        let mut bytes = vec![0_u8; ROUTE];
        route(&mut bytes);
        // The source's edges and line; the sink's line. More than one event in 10 ms, and the source is masked.
        for (at, word) in [(44, edges), (48, 3), (128, 5), (16, 100), (20, mask_ms)] {
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        call(&device, number(3, 1, ROUTE), &mut bytes).unwrap();
        device
    };
    // Rising ones, falling ones, or both, which PREEMPT_RT takes in another way.
    for edges in 1..=3 {
        let first = masking(edges, 60_000);
        chip.run(3, 12, PERIOD).unwrap();
        let [masked, events] = [6, 0].map(|word| stats(&first)[word]);
        drop(first);
        let edge = ["rising", "falling", "both"][edges as usize - 1];
        let from = format!("gpio:taut-gpio-sim/3?edge={edge}");
        let engine = start(&from, "true", &["gpio:taut-gpio-sim/5"], "kernel").unwrap();
        thread::sleep(Duration::from_millis(100));
        assert_eq!(status(&engine).counters.events, 0, "{edge}: of {events} before, masked {masked} times");
        drop(engine);
        // On a busy machine the edges are too far apart for a mask.
        println!("{edge}: masked {masked} times after {events} events");
    }
    let device = masking(2, 20);
    chip.run(3, 12, PERIOD).unwrap();
    let before = stats(&device);
    if before[6] == 1 && before[0] < 6 {
        let kept = (0..1000).any(|_| {
            thread::sleep(Duration::from_millis(1));
            stats(&device)[0] > before[0]
        });
        assert!(kept, "what came while it was masked: {before:?}");
    }
}

pub(crate) fn what_is_refused_is_told() {
    let cases = [
        ("gpio:none/3", "gpio:taut-gpio-sim/5", "gpio:none/3?edge=both: ", "no GPIO chip has that label"),
        ("gpio:taut-gpio-sim/99", "led:taut-sim", "gpio:taut-gpio-sim/99", "no such line"),
        ("gpio:taut-gpio-sim/3", "led:none", "led:none: ", "ls /sys/class/leds"),
        ("gpio:taut-gpio-sim-slow/3", "led:taut-sim", "gpio:taut-gpio-sim-slow/3", "makes no interrupts"),
        ("input:none/key/30", "led:taut-sim", "input:none/key/30: ", "no input device has that name"),
    ];
    for (from, to, part, hint) in cases {
        let error = start(from, "true", &[to], "kernel").unwrap_err().to_string();
        assert!(error.contains(part) && error.contains(hint), "{error}");
    }
    let first = start("gpio:taut-gpio-sim/3", "true", &["gpio:taut-gpio-sim/5"], "kernel").unwrap();
    let error = start("gpio:taut-gpio-sim/4", "true", &["gpio:taut-gpio-sim/5"], "kernel").unwrap_err().to_string();
    assert!(error.contains("gpio:taut-gpio-sim/5: ") && error.contains("somebody else uses the line"), "{error}");
    drop(first);
    start("gpio:taut-gpio-sim/4", "true", &["gpio:taut-gpio-sim/5"], "kernel").unwrap();
}

/// Requests that name what is no program for the module: each answer says so, and nothing of them stays.
pub(crate) fn a_program_that_is_refused_leaves_nothing() {
    let maps = [bpf::HASH, bpf::PROGRAM_ARRAY, bpf::PER_CPU_ARRAY].map(bpf::map);
    let (array, null) = (bpf::map(bpf::ARRAY), File::open("/dev/null").unwrap());
    // Offered many times, but loaded once: that takes the kernel as long as all the rest.
    let other = bpf::program(bpf::SOCKET_FILTER, None, 2);
    let long = bpf::program(bpf::XDP, None, 65_537);
    let with_maps = maps.each_ref().map(|map| bpf::program(bpf::XDP, Some(map), 4));
    let good = bpf::program(bpf::XDP, Some(&array), 4);
    let mut cases = vec![(array.as_raw_fd(), libc::EINVAL), (null.as_raw_fd(), libc::EINVAL), (-1, libc::EBADF)];
    cases.extend([(other.as_raw_fd(), libc::EINVAL), (long.as_raw_fd(), libc::E2BIG)]);
    cases.extend(with_maps.iter().map(|program| (program.as_raw_fd(), libc::EACCES)));
    let mut programs = None;
    let lost = lost_by(25, || {
        // What tests before this one left has gone by now.
        programs.get_or_insert_with(bpf::counts);
        for turn in 0..100 {
            for (program, error) in &cases {
                // 1: the program is at fault.
                assert_eq!(start_program(*program), Err((*error, 1)), "{program}");
            }
            // The request was a good one: only the program was not.
            if turn % 2 == 0 {
                assert_eq!(start_program(good.as_raw_fd()), Ok(()));
            }
        }
    });
    assert!(lost.is_empty(), "{lost:?}");
    // The module holds none of them.
    let [mut programs, maps_then] = programs.unwrap();
    programs -= 3 + with_maps.len();
    drop((other, long, with_maps, good));
    let [after, maps_now] = once(bpf::counts, |now| *now == [programs, maps_then]);
    assert_eq!([programs, maps_then], [after, maps_now], "programs and maps before and after");
    assert_eq!(fs::read_to_string("/sys/module/taut_path/refcnt").unwrap(), "0\n");
    start("gpio:taut-gpio-sim/3", "true", &["gpio:taut-gpio-sim/5"], "kernel").unwrap();
}

/// Asks for a route with a program; after an error also whose fault it was.
pub(crate) fn start_program(program: i32) -> Result<(), (i32, u32)> {
    let device = File::options().read(true).write(true).open("/dev/taut_path").unwrap();
    let mut bytes = vec![0_u8; ROUTE];
    route(&mut bytes);
    bytes[8..12].copy_from_slice(&program.to_ne_bytes());
    bytes[12..16].fill(0);
    let request = number(3, 1, ROUTE);
    // SAFETY: the buffer is as long as the number of the request says.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), c_ulong::from(request) as _, bytes.as_mut_ptr()) };
    let at_fault = u32::from_ne_bytes([bytes[32], bytes[33], bytes[34], bytes[35]]);
    let error = std::io::Error::last_os_error().raw_os_error().unwrap_or_default();
    if result == 0 { Ok(()) } else { Err((error, at_fault)) }
}

pub(crate) fn a_chip_that_goes_away_takes_nothing_with_it() {
    let engine = start("gpio:taut-gpio-sim/3", "true", &["gpio:taut-gpio-sim-slow/1"], "kernel").unwrap();
    let driver = "/sys/bus/platform/drivers/taut_gpio_sim";
    fs::write(format!("{driver}/unbind"), "taut_gpio_sim.1").unwrap();
    Simulation::find().unwrap().run(3, 4, PERIOD).unwrap();
    assert_eq!(counters(&engine, 4).events, 4);
    drop(engine);
    fs::write(format!("{driver}/bind"), "taut_gpio_sim.1").unwrap();
    start("gpio:taut-gpio-sim/3", "true", &["gpio:taut-gpio-sim-slow/1"], "kernel").unwrap();
}

pub(crate) fn it_is_unloaded_a_hundred_times_under_load() {
    let chip = chip();
    let program = |name: &str| Command::new(name).arg("taut_path").output().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // Also when a turn fails.
        let _end = Defer(|| stop.store(true, Ordering::Relaxed));
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                chip.run(3, 200, Duration::from_micros(50)).unwrap();
            }
        });
        let mut turn = |turn: usize| {
            let place = if turn.is_multiple_of(2) { crate::soonest() } else { "kthread" };
            let engine = start("gpio:taut-gpio-sim/3", "true", &["gpio:taut-gpio-sim/5", "led:taut-sim"], place);
            let engine = engine.unwrap_or_else(|error| panic!("turn {turn}: {error}"));
            while status(&engine).counters.passed == 0 {
                thread::sleep(Duration::from_micros(100));
            }
            assert!(!program("rmmod").status.success(), "it is in use");
            drop(engine);
            let output = program("rmmod");
            assert!(output.status.success(), "turn {turn}: {}", String::from_utf8_lossy(&output.stderr));
            assert!(program("modprobe").status.success());
        };
        (0..10).for_each(&mut turn);
        let mut counts = None;
        // Of what stayed there would be one more each turn, of ninety.
        let lost = lost_by(45, || {
            counts.get_or_insert_with(bpf::counts);
            (0..90).for_each(&mut turn);
        });
        assert!(lost.is_empty(), "{lost:?}");
        let counts = counts.unwrap();
        assert_eq!(counts, once(bpf::counts, |now| *now == counts), "programs and maps before and after");
    });
    // A thread that was stopped goes some time after that (kthread_stop, kernel/kthread.c).
    let threads = once(threads, Vec::is_empty);
    assert!(threads.is_empty(), "{threads:?}");
    let interrupts = fs::read_to_string("/proc/interrupts").unwrap();
    assert!(!interrupts.contains("taut_path"), "{interrupts}");
    let devices = fs::read_dir("/sys/bus/platform/devices").unwrap().flatten();
    assert_eq!(devices.filter(|entry| entry.file_name().to_string_lossy().starts_with("taut_path")).count(), 0);
}

/// `TAUT_PATH_ABI`
pub(crate) const ABI: u32 = 3;
/// struct taut_path_stats.
pub(crate) const STATS: usize = 8 * 74;
/// struct taut_path_route, as the header has it.
pub(crate) const ROUTE: usize = 40 + 17 * 80;

/// `_IOC` (asm-generic/ioctl.h) with the module's letter.
pub(crate) const fn number(direction: u32, call: u32, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | 0xE7 << 8 | call
}

/// Kernel threads of routes.
fn threads() -> Vec<String> {
    let names = fs::read_dir("/proc").unwrap().flatten().map(|entry| fs::read_to_string(entry.path().join("comm")));
    names.filter_map(Result::ok).filter(|name| name.starts_with("taut_path/")).collect()
}

/// Anything into the control device: it answers with errors, and goes on working. `TAUT_MODULE_DESCRIPTORS`: how many
/// are opened.
pub(crate) fn the_control_device_takes_anything() {
    let chip = chip();
    let mut random = Random(0x5eed_0003);
    let (mut answers, mut started, mut logged) = (0, 0, 0);
    let count = std::env::var("TAUT_MODULE_DESCRIPTORS").map_or(8_000, |text| text.parse().unwrap());
    for turn in 0..count {
        let device =
            File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/taut_path").unwrap();
        for _ in 0..=random.below(3) {
            let mut bytes = sparse(4096, &mut random);
            if turn % 2 == 0 {
                near_a_route(&mut bytes, &mut random);
            }
            let request = match random.below(5) {
                0 => number(2, 0, 8),
                1 => number(2, 2, STATS),
                2 => number(3, 3, 16),
                3 => random.next() as u32,
                _ => number(3, 1, ROUTE),
            };
            if request == number(3, 3, 16) {
                // Not so many turns.
                bytes[2..4].fill(0);
            }
            // Now and then an address that is nobody's.
            let address =
                if random.below(20) == 0 { 1 << 63 | random.below(1 << 40) } else { bytes.as_mut_ptr() as usize };
            // SAFETY: what the module writes at `bytes` is no more than a page; at the other
            // addresses nothing can be written.
            let result = unsafe { libc::ioctl(device.as_raw_fd(), c_ulong::from(request) as _, address) };
            answers += 1;
            // Reading and waiting, with any length.
            let length = random.below(bytes.len());
            // SAFETY: the module writes no more than that many bytes; at the other addresses nothing can be written.
            let result_of_read = unsafe { libc::read(device.as_raw_fd(), address as *mut libc::c_void, length) };
            assert!(result_of_read <= 0, "no edge was made, and {result_of_read} bytes were read");
            let mut waits = libc::pollfd { fd: device.as_raw_fd(), events: random.next() as i16, revents: 0 };
            // SAFETY: one live structure.
            unsafe { libc::poll(&raw mut waits, 1, 0) };
            started += i32::from(result == 0 && request == number(3, 1, ROUTE));
            logged += i32::from(result == 0 && request == number(3, 1, ROUTE) && bytes[36] == 1);
        }
    }
    println!("{answers} calls, {started} routes, {logged} with a log");
    assert!(started > 0 && logged > 0, "none was near enough to a route");
    let engine = start("gpio:taut-gpio-sim/3?edge=falling", "true", &["gpio:taut-gpio-sim/5"], "kernel").unwrap();
    chip.run(3, 8, PERIOD).unwrap();
    let counted = counters(&engine, 4);
    assert_eq!(counted.passed, 4, "{counted:?}");
}

/// Bytes of which three in four are 0. Eight at a time: in a guest they are most of what a test computes.
fn sparse(length: usize, random: &mut Random) -> Vec<u8> {
    let eight = |_| {
        // A bit in four of eight, each moved to the begin of a byte of its own, which it then fills.
        let chosen = random.next();
        let chosen = chosen & (chosen >> 8) & 0xff;
        let begins =
            (chosen.wrapping_mul(0x0101_0101_0101_0101) & 0x8040_2010_0804_0201).wrapping_add(0x7f7f_7f7f_7f7f_7f7f);
        let mask = ((begins >> 7) & 0x0101_0101_0101_0101).wrapping_mul(0xff);
        (random.next() & mask).to_ne_bytes()
    };
    (0..length / 8).flat_map(eight).collect()
}

/// A route with the condition in C, with something else here and there.
fn near_a_route(bytes: &mut [u8], random: &mut Random) {
    route(bytes);
    bytes[36] = random.below(3) as u8;
    for _ in 0..random.below(3) {
        let at = random.below(200);
        bytes[at] = random.next() as u8;
    }
}

/// A route from a line to another one, with the condition in C.
pub(crate) fn route(bytes: &mut [u8]) {
    bytes[..40 + 2 * 80].fill(0);
    // abi, condition, sinks; then source and sink: kind, edges, line.
    let mut words = vec![(0, ABI), (12, 1), (24, 1)];
    for at in [40, 120] {
        bytes[at + 16..at + 29].copy_from_slice(b"taut-gpio-sim");
        words.extend([(at, 1), (at + 4, 3), (at + 8, (at / 40) as u32)]);
    }
    for (at, value) in words {
        bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
}
