//! Descriptors, their limits, and what happens to them outside std's sight.
#![expect(unsafe_code, reason = "std hides descriptor numbers, on purpose")]

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use libc::c_int;

use super::aio::{PATIENCE, errno};
use super::threads::pause;

/// A number nobody has opened.
pub(crate) struct Unopened(pub(crate) RawFd);

impl AsRawFd for Unopened {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

/// `close` by the C library's name.
pub(crate) fn close(fd: RawFd) -> Result<(), i32> {
    // SAFETY: the tests give a descriptor that they own.
    answer(unsafe { libc::close(fd) }).map(|_| ())
}

/// `close` behind everybody's back.
pub(crate) fn close_by_system_call(fd: RawFd) {
    // SAFETY: as above.
    assert_eq!(unsafe { libc::syscall(libc::SYS_close, fd) }, 0);
}

pub(crate) fn dup2(old: RawFd, new: RawFd) -> Result<c_int, i32> {
    // SAFETY: as above.
    answer(unsafe { libc::dup2(old, new) })
}

pub(crate) fn dup3(old: RawFd, new: RawFd) -> Result<c_int, i32> {
    // SAFETY: as above.
    answer(unsafe { libc::dup3(old, new, libc::O_CLOEXEC) })
}

pub(crate) fn dup3_with(old: RawFd, new: RawFd, flags: c_int) -> Result<c_int, i32> {
    // SAFETY: as above.
    answer(unsafe { libc::dup3(old, new, flags) })
}

pub(crate) fn close_range(first: RawFd, last: RawFd, flags: u32) -> Result<(), i32> {
    let (first, last) = (first.try_into().unwrap(), last.try_into().unwrap());
    // SAFETY: as above.
    answer(unsafe { libc::close_range(first, last, flags as c_int) }).map(|_| ())
}

/// `closefrom` of 1000.
pub(crate) fn closefrom_1000(_: RawFd) {
    unsafe extern "C" {
        fn closefrom(first: c_int);
    }
    // SAFETY: the tests have nothing of others' above that.
    unsafe { closefrom(1000) }
}

/// Gives an open file another number, which is free, without a name of the C library that might be watched.
pub(crate) fn move_to(fd: OwnedFd, number: RawFd) -> OwnedFd {
    if fd.as_raw_fd() == number {
        return fd;
    }
    // SAFETY: nobody has a file under that number.
    own(unsafe { libc::syscall(libc::SYS_dup3, fd.as_raw_fd(), number, libc::O_CLOEXEC) } as c_int)
}

/// A regular file in memory alone.
pub(crate) fn memory_file() -> c_int {
    // SAFETY: makes a descriptor.
    unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC) }
}

/// Takes over a number that a test has opened with C.
pub(crate) fn own(fd: c_int) -> OwnedFd {
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the caller has just opened it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

pub(crate) fn set_nonblocking(fd: &impl AsRawFd) {
    change_flags(fd, |flags| flags | libc::O_NONBLOCK);
}

pub(crate) fn set_blocking(fd: &impl AsRawFd) {
    change_flags(fd, |flags| flags & !libc::O_NONBLOCK);
}

fn change_flags(fd: &impl AsRawFd, change: impl FnOnce(c_int) -> c_int) {
    // SAFETY: the descriptor is open.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, change(flags)) }, 0);
}

pub(crate) fn eventfd() -> OwnedFd {
    // SAFETY: makes a descriptor.
    own(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) })
}

/// Whether there is something to read, at the latest after that time.
pub(crate) fn is_readable(fd: RawFd, timeout: Duration) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure.
    unsafe { libc::poll(&raw mut poll, 1, timeout.as_millis().try_into().unwrap()) == 1 }
}

/// Reads an eventfd that does not block.
pub(crate) fn drain_eventfd(fd: RawFd) {
    let mut count = 0u64;
    // SAFETY: eight bytes.
    let result = unsafe { libc::read(fd, (&raw mut count).cast(), 8) };
    assert!(result == 8 || errno() == libc::EAGAIN);
}

/// A pseudoterminal in raw mode: its two ends.
pub(crate) fn terminal() -> (OwnedFd, OwnedFd) {
    let (mut master, mut slave) = (-1, -1);
    let null = std::ptr::null_mut();
    // SAFETY: writes two descriptors.
    let result = unsafe { libc::openpty(&raw mut master, &raw mut slave, null, null.cast(), null.cast()) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: all-zero is a value of the structure, and the descriptor is a terminal.
    unsafe {
        let mut attributes: libc::termios = std::mem::zeroed();
        libc::tcgetattr(slave, &raw mut attributes);
        libc::cfmakeraw(&raw mut attributes);
        assert_eq!(libc::tcsetattr(slave, libc::TCSANOW, &raw const attributes), 0);
    }
    (own(master), own(slave))
}

/// Both ends of a FIFO that has a name no more.
pub(crate) fn fifo() -> (File, File) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fifo");
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let output = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
    let input = File::options().write(true).open(&path).unwrap();
    set_blocking(&output);
    (output, input)
}

/// Gives the calling thread a table of descriptors to itself.
pub(crate) fn unshare_descriptors() {
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
}

/// Raises the soft limit of descriptors to the hard one, which it returns.
pub(crate) fn raise_limit() -> usize {
    let limit = limit(libc::RLIMIT_NOFILE);
    set_limit(libc::RLIMIT_NOFILE, limit.rlim_max);
    usize::try_from(limit.rlim_max).unwrap()
}

fn limit(resource: libc::__rlimit_resource_t) -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes a local.
    assert_eq!(unsafe { libc::getrlimit(resource, &raw mut limit) }, 0);
    limit
}

/// Sets a soft limit.
pub(crate) fn set_limit(resource: libc::__rlimit_resource_t, soft: libc::rlim_t) {
    let mut limit = limit(resource);
    limit.rlim_cur = soft;
    // SAFETY: reads a local.
    assert_eq!(unsafe { libc::setrlimit(resource, &limit) }, 0, "{}", std::io::Error::last_os_error());
}

/// Descriptors of this process that a program it executes would inherit, from 3 on.
pub(crate) fn inheritable() -> Vec<RawFd> {
    open()
        .into_iter()
        .filter(|&fd| fd > 2)
        .filter(|&fd| {
            // SAFETY: asks for flags; a descriptor that went away meanwhile gives -1.
            let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
            flags >= 0 && flags & libc::FD_CLOEXEC == 0
        })
        .collect()
}

/// The number that the next descriptor gets.
pub(crate) fn lowest_unopened() -> u64 {
    // SAFETY: asks for flags.
    (0..).find(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0).unwrap().try_into().unwrap()
}

/// Descriptors of this process, the one that lists them included.
pub(crate) fn open() -> Vec<RawFd> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok()).collect()
}

/// Threads of this process: number and name. Kernel workers of io_uring (`iou-wrk-…`) are left out: no code of the
/// process runs in them.
pub(crate) fn threads() -> Vec<(libc::pid_t, String)> {
    let entries = std::fs::read_dir("/proc/self/task").unwrap();
    let of = |path: std::path::PathBuf| {
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        Some((path.file_name()?.to_str()?.parse().ok()?, name.trim().to_owned()))
    };
    entries.filter_map(|entry| of(entry.unwrap().path())).filter(|(_, name)| !name.starts_with("iou-")).collect()
}

/// Waits until something holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not after {PATIENCE:?}: {what}");
        pause(Duration::from_millis(1));
    }
}

/// The real user.
pub(crate) fn user() -> libc::uid_t {
    // SAFETY: asks for a number.
    unsafe { libc::getuid() }
}

pub(crate) fn is_root() -> bool {
    // SAFETY: asks for a number.
    unsafe { libc::geteuid() == 0 }
}

fn answer(result: c_int) -> Result<c_int, i32> {
    if result < 0 { Err(errno()) } else { Ok(result) }
}

/// The process is another user's from now on, in all its threads.
pub(crate) fn become_user(user: libc::uid_t) {
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::setuid(user) }, 0);
}
