//! Which programs a process has in the kernel.
#![expect(unsafe_code, reason = "rustix has no wrapper for bpf(2), which tells of programs that are loaded")]

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// `BPF_PROG_GET_NEXT_ID` (linux/bpf.h).
const GET_NEXT_ID: libc::c_int = 11;

/// The numbers of the programs in the kernel that a process has.
pub(crate) fn programs_of(process: u32) -> BTreeSet<u32> {
    let mut numbers = BTreeSet::new();
    for file in fs::read_dir(format!("/proc/{process}/fdinfo")).unwrap() {
        // It may close one meanwhile.
        let Ok(told) = fs::read_to_string(file.unwrap().path()) else { continue };
        numbers.extend(told.lines().filter_map(|line| line.strip_prefix("prog_id:")?.trim().parse::<u32>().ok()));
    }
    numbers
}

/// Whether a program with this number is in the kernel.
fn is_loaded(number: u32) -> bool {
    // The number before it, the next one that there is, and no flags.
    let mut attribute = [number - 1, 0, 0];
    let length = size_of_val(&attribute);
    // SAFETY: the attribute outlives the call, which is told its length and writes to no other memory.
    let result = unsafe { libc::syscall(libc::SYS_bpf, GET_NEXT_ID, attribute.as_mut_ptr(), length) };
    if result != 0 {
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOENT));
    }
    result == 0 && attribute[1] == number
}

pub(crate) fn are_loaded(programs: &BTreeSet<u32>) {
    assert!(programs.iter().all(|&number| is_loaded(number)), "{programs:?}");
}

/// The kernel takes its time to free one.
pub(crate) fn are_gone_soon(programs: &BTreeSet<u32>) {
    let until = Instant::now() + Duration::from_secs(10);
    while programs.iter().any(|&number| is_loaded(number)) {
        assert!(Instant::now() < until, "{programs:?}");
        sleep(Duration::from_millis(20));
    }
}
