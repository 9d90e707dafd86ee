//! The log of a route: what passes is in it, what has no room is counted, and who waits for it is in nobody's way.
#![expect(unsafe_code, reason = "ioctl(2) with anything")]

use std::ffi::c_ulong;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use taut_route::run::Engine;

use crate::faults::{ABI, ROUTE, number, route};
use crate::memory::lost_by;
use crate::{PERIOD, chip, counters, soonest, start, start_with, status};

/// Set for a process of this program that only reads a log.
pub(crate) const READER: &str = "TAUT_MODULE_READER";
const DEVICE: &str = "/dev/taut_path";
/// Bytes of a record, and how many wait at most (`taut_path.h`).
const RECORD: usize = 24;
const RECORDS: u64 = 8192;

/// Number and value of each line, which has to be later than the one before.
fn lines(log: &Path) -> Vec<(u64, i64)> {
    let text = fs::read_to_string(log).unwrap();
    let mut before = 0;
    let line = |line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["at_ns"].as_u64().unwrap() > before && line["route"] == "r", "{line}");
        before = line["at_ns"].as_u64().unwrap();
        (line["count"].as_u64().unwrap(), line["value"].as_i64().unwrap())
    };
    text.lines().map(line).collect()
}

fn turn(engine: &mut Engine) {
    // Always readable, so that it does not wait.
    engine.turn(File::open("/dev/zero").unwrap().as_fd());
}

pub(crate) fn what_passes_is_logged_as_in_user_space() {
    let chip = chip();
    let directory = tempfile::tempdir().unwrap();
    for (place, runs) in [("kernel", soonest()), ("kthread", "kthread"), ("user", "user")] {
        let log = directory.path().join(runs);
        let more = format!("log = {log:?}");
        let (from, to) = ("gpio:taut-gpio-sim/3", ["gpio:taut-gpio-sim/5"]);
        let mut engine = start_with(from, "value == 0 && count > 2", &to, place, &more).unwrap();
        let told = status(&engine);
        assert_eq!(told.runs, runs);
        assert!(place == "user" || told.why.join("; ").contains("log of 8192 records"), "{:?}", told.why);
        chip.run(3, 10, PERIOD).unwrap();
        assert_eq!(counters(&engine, 10).passed, 4);
        turn(&mut engine);
        assert_eq!(lines(&log), [(3, 0), (5, 0), (7, 0), (9, 0)], "{runs}");
        // What has not been read yet is written at the end.
        chip.run(3, 4, PERIOD).unwrap();
        assert_eq!(counters(&engine, 14).log_lost, 0);
        let ended = engine.stop("r").unwrap();
        assert_eq!((ended.counters.passed, lines(&log).len()), (6, 6), "{runs}");
    }
    // One that can't be written is refused, wherever the route would run.
    let refused =
        start_with("gpio:taut-gpio-sim/3", "true", &["led:taut-sim"], "kernel", "log = '/none/log'").unwrap_err();
    assert!(refused.to_string().contains("log to /none/log"), "{refused}");
}

pub(crate) fn records_without_room_are_counted() {
    let chip = chip();
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let more = format!("log = {log:?}");
    let mut engine = start_with("gpio:taut-gpio-sim/3", "true", &[], soonest(), &more).unwrap();
    chip.run(3, 9000, Duration::from_micros(10)).unwrap();
    let full = counters(&engine, 9000);
    assert_eq!((full.passed, full.lost, full.log_lost), (9000, 0, 9000 - RECORDS));
    turn(&mut engine);
    assert!(lines(&log).iter().map(|line| line.0).eq(1..=RECORDS));
    // There is room again.
    chip.run(3, 10, PERIOD).unwrap();
    assert_eq!(counters(&engine, 9010).log_lost, 9000 - RECORDS);
    turn(&mut engine);
    assert!(lines(&log)[RECORDS as usize..].iter().map(|line| line.0).eq(9001..=9010));
}

fn open(flags: i32) -> File {
    File::options().read(true).write(true).custom_flags(flags).open(DEVICE).unwrap()
}

/// Asks for a route with the condition in C (`value == 0`), with other words here and there; with
/// an error, the first word of the answer.
fn request(device: &File, words: &[(usize, u32)]) -> Result<(), (i32, u32)> {
    let mut bytes = vec![0_u8; ROUTE];
    route(&mut bytes);
    // From line 3 to line 5.
    for (at, word) in [(48, 3), (128, 5)].iter().chain(words) {
        bytes[*at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    let call = number(3, 1, ROUTE);
    // SAFETY: the buffer is as long as the number of the request says.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), c_ulong::from(call) as _, bytes.as_mut_ptr()) };
    let error = std::io::Error::last_os_error().raw_os_error().unwrap_or_default();
    let abi = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    if result == 0 { Ok(()) } else { Err((error, abi)) }
}

pub(crate) fn what_reading_refuses_is_told() {
    let chip = chip();
    let error = |result: std::io::Result<usize>| result.unwrap_err().raw_os_error().unwrap();
    let mut records = [0_u8; 4 * RECORD];
    // Without a route, and with one without a log.
    let mut device = open(0);
    assert_eq!(error(device.read(&mut records)), libc::ENODATA);
    // Another version, and a word that means nothing.
    assert_eq!(request(&device, &[(0, ABI - 1)]), Err((libc::EPROTONOSUPPORT, ABI)));
    assert_eq!(error(device.read(&mut records)), libc::ENODATA);
    assert_eq!(request(&device, &[(36, 2)]), Err((libc::EINVAL, ABI)));
    assert_eq!(request(&device, &[]), Ok(()));
    assert_eq!(error(device.read(&mut records)), libc::ENODATA);
    drop(device);
    let mut device = open(libc::O_NONBLOCK);
    assert_eq!(request(&device, &[(36, 1)]), Ok(()));
    assert_eq!(error(device.read(&mut records[..RECORD - 1])), libc::EINVAL);
    assert_eq!(error(device.read(&mut records)), libc::EAGAIN);
    assert_eq!(error(device.read_at(&mut records, 0)), libc::ESPIPE);
    assert_eq!(error((&device).write(&records)), libc::EINVAL);
    chip.run(3, 5, PERIOD).unwrap();
    // SAFETY: nothing is at that address, and the kernel finds out.
    let result = unsafe { libc::read(device.as_raw_fd(), 8 as *mut libc::c_void, RECORD) };
    assert_eq!((result, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EFAULT)));
    // Whole records, as many as have room.
    let read = device.read(&mut records[..2 * RECORD - 1]).unwrap();
    assert_eq!(read, RECORD);
    let read = device.read(&mut records).unwrap();
    assert_eq!(read % RECORD, 0);
    assert_eq!(error(device.read(&mut records)), libc::EAGAIN);
    // Only root opens it, whatever the node's mode is.
    fs::set_permissions(DEVICE, Permissions::from_mode(0o666)).unwrap();
    let other = Command::new("cat").arg(DEVICE).uid(65_534).gid(65_534).output().unwrap();
    fs::set_permissions(DEVICE, Permissions::from_mode(0o600)).unwrap();
    let told = String::from_utf8_lossy(&other.stderr);
    assert!(!other.status.success() && told.contains("not permitted"), "{told}");
}

/// Tells each record's number, and waits for the next one.
pub(crate) fn read_for_ever() -> ! {
    let mut device = open(0);
    assert_eq!(request(&device, &[(36, 1)]), Ok(()));
    println!("ready");
    let mut record = [0; RECORD];
    loop {
        assert_eq!(device.read(&mut record).unwrap(), RECORD);
        println!("{}", u64::from_ne_bytes(*record[8..].first_chunk().unwrap()));
    }
}

pub(crate) fn it_is_unloaded_after_readers_that_wait() {
    let chip = chip();
    let program = |name: &str| Command::new(name).arg("taut_path").output().unwrap();
    let turn = || {
        let mut reader = Command::new("/proc/self/exe").env(READER, "1").stdout(Stdio::piped()).spawn().unwrap();
        let mut told = BufReader::new(reader.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(told.next().as_deref(), Some("ready"));
        chip.run(3, 6, PERIOD).unwrap();
        let numbers: Vec<String> = told.by_ref().take(3).collect();
        // From its level on, every second edge is one to 0.
        assert!(numbers == ["1", "3", "5"] || numbers == ["2", "4", "6"], "{numbers:?}");
        let syscall = format!("/proc/{}/syscall", reader.id());
        let waits = || fs::read_to_string(&syscall).unwrap().starts_with(&format!("{} ", libc::SYS_read));
        assert!(
            (0..1000).any(|_| waits() || {
                std::thread::sleep(Duration::from_millis(1));
                false
            }),
            "it does not wait"
        );
        assert!(!program("rmmod").status.success(), "it is in use");
        reader.kill().unwrap();
        reader.wait().unwrap();
        let output = program("rmmod");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(program("modprobe").status.success());
    };
    (0..10).for_each(|_| turn());
    // Of what stayed there would be one more each turn, of fifteen; what others take now and then is less.
    let lost = lost_by(8, || (0..15).for_each(|_| turn()));
    assert!(lost.is_empty(), "{lost:?}");
    start("gpio:taut-gpio-sim/3", "true", &["gpio:taut-gpio-sim/5"], "kernel").unwrap();
}
