//! Routes in the kernel module on the simulated chip. For a machine on which both modules may be loaded and unloaded at will:
//! guests of the lab run it (`xtask/tests/lab_route.rs`), which set `TAUT_MODULE_TESTS`; elsewhere it is skipped.
#![expect(unsafe_code, reason = "ioctl(2) with anything, and devices made by uinput")]

mod support;

use std::ffi::c_ulong;
use std::fs::{self, File};
use std::io::Write;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use support::{Random, skip};
use taut_route::bench::gpio::Simulation;
use taut_route::route::{Route, parse_file};
use taut_route::run::{Counters, Engine, Status};

/// The chip has one run of edges at a time, and one test loads and unloads the module.
static TURN: Mutex<()> = Mutex::new(());

/// The chip, with the turn; or nothing, loudly.
macro_rules! chip {
    ($name:literal) => {{
        if std::env::var_os("TAUT_MODULE_TESTS").is_none() {
            return skip($name, "the modules are not to be loaded here (a guest of the lab does that)");
        }
        let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        (Simulation::find().unwrap(), turn)
    }};
}

fn start(from: &str, when: &str, to: &[&str], place: &str) -> taut_link::Result<Engine> {
    let file = format!("[[route]]\nname = 'r'\nfrom = '{from}'\nwhen = '{when}'\nto = {to:?}\nplace = '{place}'\n");
    Engine::start(vec![Route::compile(&parse_file(&file).unwrap().remove(0)).unwrap()])
}

fn status(engine: &Engine) -> Status {
    engine.status().remove(0)
}

/// The counters when so many events have been handled; those in the thread's ring have to be waited for.
fn counters(engine: &Engine, handled: u64) -> Counters {
    for _ in 0..1000 {
        let now = status(engine).counters;
        if now.passed + now.dropped + now.short + now.lost >= handled {
            return now;
        }
        thread::sleep(Duration::from_millis(1));
    }
    status(engine).counters
}

const PERIOD: Duration = Duration::from_micros(200);

#[test]
fn edges_reach_the_output_in_hard_irq_and_in_a_thread() {
    let (chip, _turn) = chip!("edges_reach_the_output_in_hard_irq_and_in_a_thread");
    for (place, runs) in [("auto", "hardirq"), ("kthread", "kthread"), ("kernel", "hardirq")] {
        let engine =
            start("gpio:taut-gpio-sim/3", "value == 0 && count > 2", &["gpio:taut-gpio-sim/5"], place).unwrap();
        assert_eq!(status(&engine).runs, runs);
        let stamps = chip.run(3, 10, PERIOD).unwrap();
        let counters = counters(&engine, 10);
        assert_eq!([counters.events, counters.passed, counters.dropped, counters.lost], [10, 4, 6, 0], "{runs}");
        let set: Vec<bool> = stamps.iter().map(|stamp| stamp.output_ns.is_some()).collect();
        assert_eq!(set, [false, false, true, false, true, false, true, false, true, false], "{runs}");
        assert_eq!(counters.latency.at_least_ns.iter().map(|(_, count)| count).sum::<u64>(), 4);
        drop(engine);
        // Nobody takes them any more.
        assert!(chip.run(3, 4, PERIOD).unwrap().iter().all(|stamp| stamp.output_ns.is_none()));
    }
}

#[test]
fn only_the_edges_asked_for_are_events() {
    let (chip, _turn) = chip!("only_the_edges_asked_for_are_events");
    for (edge, passed) in [("rising", 3), ("rising&active=low", 4), ("falling", 0)] {
        let from = format!("gpio:taut-gpio-sim/3?edge={edge}");
        let engine = start(&from, "value == 1", &["gpio:taut-gpio-sim/5"], "kernel").unwrap();
        chip.run(3, 7, PERIOD).unwrap();
        assert_eq!(counters(&engine, passed).passed, passed, "{edge}");
    }
}

#[test]
fn a_chip_that_sleeps_and_udp_take_the_thread() {
    let (chip, _turn) = chip!("a_chip_that_sleeps_and_udp_take_the_thread");
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let to = format!("udp://{}", receiver.local_addr().unwrap());
    let sinks = ["gpio:taut-gpio-sim-slow/1", &to, "led:taut-sim", "gpio:taut-gpio-sim/6"];
    let engine = start("gpio:taut-gpio-sim/3", "value == 1", &sinks, "auto").unwrap();
    assert_eq!(status(&engine).runs, "kthread");
    chip.run(3, 6, PERIOD).unwrap();
    for _ in 0..3 {
        let mut datagram = [0; 16];
        assert_eq!(receiver.recv(&mut datagram).unwrap(), 8);
        assert_eq!(datagram[..8], 1_i64.to_be_bytes());
    }
    let counters = counters(&engine, 6);
    assert_eq!([counters.passed, counters.lost], [3, 0]);
    let refused = start("gpio:taut-gpio-sim/4", "true", &["gpio:taut-gpio-sim-slow/2"], "hardirq").unwrap_err();
    assert!(refused.to_string().contains("can sleep"), "{refused}");
}

#[test]
fn an_led_follows_and_is_given_back() {
    let (chip, _turn) = chip!("an_led_follows_and_is_given_back");
    let trigger = "/sys/class/leds/taut-sim/trigger";
    let all = fs::read_to_string(trigger).unwrap();
    let before = all.split_whitespace().find(|name| name.starts_with("kbd-")).unwrap();
    fs::write(trigger, before).unwrap();
    let engine = start("gpio:taut-gpio-sim/3", "true", &["led:taut-sim"], "kernel").unwrap();
    assert_eq!(status(&engine).runs, "hardirq");
    assert!(fs::read_to_string(trigger).unwrap().contains("[taut-path-"));
    chip.run(3, 8, PERIOD).unwrap();
    assert_eq!(counters(&engine, 8).passed, 8);
    let counts = fs::read_to_string("/sys/kernel/debug/taut_gpio_sim/counts").unwrap();
    assert!(counts.contains("led 8\n"), "{counts}");
    drop(engine);
    assert!(fs::read_to_string(trigger).unwrap().contains(&format!("[{before}]")));
    // The LED goes away under the route, which goes on.
    let engine = start("gpio:taut-gpio-sim/3", "true", &["led:taut-sim"], "kernel").unwrap();
    fs::write("/sys/kernel/debug/taut_gpio_sim/led", "0").unwrap();
    chip.run(3, 8, PERIOD).unwrap();
    assert_eq!(counters(&engine, 8).passed, 8);
    fs::write("/sys/kernel/debug/taut_gpio_sim/led", "1").unwrap();
    let again = start("gpio:taut-gpio-sim/4", "true", &["led:taut-sim"], "kernel").unwrap();
    drop((engine, again));
    assert!(fs::read_to_string(trigger).unwrap().contains("[none]"));
}

#[test]
fn a_storm_masks_the_line_for_a_while() {
    let (chip, _turn) = chip!("a_storm_masks_the_line_for_a_while");
    let engine = start("gpio:taut-gpio-sim/3", "true", &["gpio:taut-gpio-sim/5"], "kernel").unwrap();
    chip.run(3, 50_000, Duration::from_micros(1)).unwrap();
    let stormy = status(&engine).counters;
    assert!(stormy.masked >= 1 && stormy.events < 50_000, "{stormy:?}");
    thread::sleep(Duration::from_millis(100));
    let before = status(&engine).counters.events;
    chip.run(3, 10, PERIOD).unwrap();
    assert_eq!(counters(&engine, before + 10).events, before + 10);
}

#[test]
fn what_is_refused_is_told() {
    let (_chip, _turn) = chip!("what_is_refused_is_told");
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

#[test]
fn a_chip_that_goes_away_takes_nothing_with_it() {
    let (_chip, _turn) = chip!("a_chip_that_goes_away_takes_nothing_with_it");
    let engine = start("gpio:taut-gpio-sim/3", "true", &["gpio:taut-gpio-sim-slow/1"], "kernel").unwrap();
    let driver = "/sys/bus/platform/drivers/taut_gpio_sim";
    fs::write(format!("{driver}/unbind"), "taut_gpio_sim.1").unwrap();
    Simulation::find().unwrap().run(3, 4, PERIOD).unwrap();
    assert_eq!(counters(&engine, 4).events, 4);
    drop(engine);
    fs::write(format!("{driver}/bind"), "taut_gpio_sim.1").unwrap();
    start("gpio:taut-gpio-sim/3", "true", &["gpio:taut-gpio-sim-slow/1"], "kernel").unwrap();
}

#[test]
fn a_key_reaches_the_output() {
    let (_chip, _turn) = chip!("a_key_reaches_the_output");
    let keys = Keyboard::new("taut keys");
    let engine = start("input:taut keys/key/30", "changed(value)", &["gpio:taut-gpio-sim/5"], "kernel").unwrap();
    assert_eq!(status(&engine).runs, "hardirq");
    for (code, value) in [(30, 1), (30, 0), (31, 1), (31, 0), (30, 1), (30, 0)] {
        keys.press(code, value);
    }
    let counters = counters(&engine, 4);
    assert_eq!([counters.events, counters.passed], [4, 4]);
    // Unplugged and plugged in again.
    drop(keys);
    let keys = Keyboard::new("taut keys");
    keys.press(30, 1);
    assert_eq!(self::counters(&engine, 5).events, 5);
}

#[test]
fn it_is_unloaded_a_hundred_times_under_load() {
    let (chip, _turn) = chip!("it_is_unloaded_a_hundred_times_under_load");
    let program = |name: &str| Command::new(name).arg("taut_path").output().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                chip.run(3, 200, Duration::from_micros(50)).unwrap();
            }
        });
        let kernel_objects = || -> i64 {
            let slabs = fs::read_to_string("/proc/slabinfo").unwrap();
            let large = slabs.lines().filter(|line| line.starts_with("kmalloc-8k") || line.starts_with("kmalloc-4k"));
            large.map(|line| line.split_whitespace().nth(1).unwrap().parse::<i64>().unwrap()).sum()
        };
        let mut before = 0;
        for turn in 0..100 {
            let place = if turn % 2 == 0 { "hardirq" } else { "kthread" };
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
            if turn == 9 {
                before = kernel_objects();
            }
        }
        // A route that stayed would be one each turn.
        let grown = kernel_objects() - before;
        assert!(grown < 45, "{grown} objects of the size of a route have stayed");
        stop.store(true, Ordering::Relaxed);
    });
    let interrupts = fs::read_to_string("/proc/interrupts").unwrap();
    assert!(!interrupts.contains("taut_path"), "{interrupts}");
    let devices = fs::read_dir("/sys/bus/platform/devices").unwrap().flatten();
    assert_eq!(devices.filter(|entry| entry.file_name().to_string_lossy().starts_with("taut_path")).count(), 0);
}

/// Anything into the control device: it answers with errors, and goes on working.
#[test]
fn the_control_device_takes_anything() {
    let (chip, _turn) = chip!("the_control_device_takes_anything");
    let mut random = Random(0x5eed_0003);
    let call = |direction: u32, number: u32, size: usize| direction << 30 | (size as u32) << 16 | 0xE7 << 8 | number;
    // struct taut_path_route, as the header has it.
    const ROUTE: usize = 40 + 17 * 80;
    let (mut answers, mut started) = (0, 0);
    for turn in 0..20_000 {
        let device = File::options().read(true).write(true).open("/dev/taut_path").unwrap();
        for _ in 0..=random.below(3) {
            let mut bytes: Vec<u8> =
                (0..4096).map(|_| if random.below(4) == 0 { random.next() as u8 } else { 0 }).collect();
            if turn % 2 == 0 {
                near_a_route(&mut bytes, &mut random);
            }
            let request = match random.below(5) {
                0 => call(2, 0, 8),
                1 => call(2, 2, 8 * 72),
                2 => call(3, 3, 16),
                3 => random.next() as u32,
                _ => call(3, 1, ROUTE),
            };
            if request == call(3, 3, 16) {
                // Not so many turns.
                bytes[2..4].fill(0);
            }
            // Now and then an address that is nobody's.
            let address =
                if random.below(20) == 0 { 1 << 63 | random.below(1 << 40) } else { bytes.as_mut_ptr() as usize };
            // SAFETY: what the module writes at `bytes` is no more than a page; at the other addresses nothing can be written.
            let result = unsafe { libc::ioctl(device.as_raw_fd(), c_ulong::from(request) as _, address) };
            answers += 1;
            started += i32::from(result == 0 && request == call(3, 1, ROUTE));
        }
    }
    println!("{answers} calls, {started} routes");
    assert!(started > 0, "none was near enough to a route");
    let engine = start("gpio:taut-gpio-sim/3", "true", &["gpio:taut-gpio-sim/5"], "kernel").unwrap();
    chip.run(3, 4, PERIOD).unwrap();
    assert_eq!(counters(&engine, 4).passed, 4);
}

/// Most of what a route with the condition in C needs, with something else here and there.
fn near_a_route(bytes: &mut [u8], random: &mut Random) {
    bytes[..40 + 2 * 80].fill(0);
    // abi, condition, sinks; then source and sink: kind, edges, line.
    let mut words = vec![(0, 1), (12, 1), (24, 1)];
    for at in [40, 120] {
        bytes[at + 16..at + 29].copy_from_slice(b"taut-gpio-sim");
        words.extend([(at, 1), (at + 4, 3), (at + 8, (at / 40) as u32)]);
    }
    for (at, value) in words {
        bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    for _ in 0..random.below(3) {
        let at = random.below(200);
        bytes[at] = random.next() as u8;
    }
}

/// An input device made by uinput (Documentation/input/uinput.rst).
struct Keyboard(File);

impl Keyboard {
    fn new(name: &str) -> Self {
        let device = File::options().write(true).open("/dev/uinput").unwrap();
        let call = |request: u32, argument: usize| {
            // SAFETY: the requests take numbers, or the address of a live structure of the length in the request.
            let result = unsafe { libc::ioctl(device.as_raw_fd(), c_ulong::from(request) as _, argument) };
            assert_eq!(result, 0, "{request:x}: {}", std::io::Error::last_os_error());
        };
        // UI_SET_EVBIT EV_KEY, UI_SET_KEYBIT KEY_A and KEY_S, UI_DEV_SETUP, UI_DEV_CREATE.
        call(0x4004_5564, 1);
        call(0x4004_5565, 30);
        call(0x4004_5565, 31);
        let mut setup = [0_u8; 92];
        setup[8..8 + name.len()].copy_from_slice(name.as_bytes());
        call(0x405c_5503, setup.as_ptr() as usize);
        call(0x5501, 0);
        Self(device)
    }

    fn press(&self, code: u16, value: i32) {
        for (kind, code, value) in [(1_u16, code, value), (0, 0, 0)] {
            let mut event = [0; 24];
            event[16..18].copy_from_slice(&kind.to_ne_bytes());
            event[18..20].copy_from_slice(&code.to_ne_bytes());
            event[20..].copy_from_slice(&value.to_ne_bytes());
            (&self.0).write_all(&event).unwrap();
        }
    }
}
