//! Takes away from this process what others are not given.
#![expect(unsafe_code, reason = "seccomp(2) and capset(2) have no safe form")]

use libc::c_ulong;

use super::descriptors::set_limit;

/// Has io_uring_setup(2) fail with this from now on.
pub(crate) fn forbid_io_uring(errno: i32) {
    let [load, fail, allow] = [load(NUMBER), fail(errno), allow()];
    filter(&mut [load, unless(libc::SYS_io_uring_setup, 1), fail, allow]);
}

/// Has statx(2) fail with this from now on.
pub(crate) fn forbid_statx(errno: i32) {
    let [load, fail, allow] = [load(NUMBER), fail(errno), allow()];
    filter(&mut [load, unless(libc::SYS_statx, 1), fail, allow]);
}

/// Has name_to_handle_at(2) fail with this from now on, in this thread.
pub(crate) fn forbid_handles(errno: i32) {
    let [load, fail, allow] = [load(NUMBER), fail(errno), allow()];
    filter(&mut [load, unless(libc::SYS_name_to_handle_at, 1), fail, allow]);
}

/// Has io_uring_enter(2) fail with this from now on, where it waits for completions or only where it doesn't.
pub(crate) fn fail_io_uring_enter(errno: i32, waiting: bool) {
    /// Its third argument, the number of completions that it waits for (struct seccomp_data).
    const WANTED: u32 = 16 + 2 * 8;
    let [number, wanted, fail, allow] = [load(NUMBER), load(WANTED), fail(errno), allow()];
    filter(&mut [number, unless(libc::SYS_io_uring_enter, 3), wanted, unless(waiting.into(), 1), fail, allow]);
}

/// Where struct seccomp_data has the number of the system call.
const NUMBER: u32 = 0;

fn statement(code: u32, jump_false: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).unwrap(), jt: 0, jf: jump_false, k }
}

fn load(offset: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, offset)
}

/// Leaves statements out unless what was loaded is this.
fn unless(value: libc::c_long, left_out: u8) -> libc::sock_filter {
    statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, left_out, u32::try_from(value).unwrap())
}

fn fail(errno: i32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | errno.cast_unsigned())
}

fn allow() -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW)
}

fn filter(statements: &mut [libc::sock_filter]) {
    let program = libc::sock_fprog { len: u16::try_from(statements.len()).unwrap(), filter: statements.as_mut_ptr() };
    // SAFETY: the program is the caller's, and is copied by the kernel.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = c_ulong::from(libc::SECCOMP_MODE_FILTER);
        let result = libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program);
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }
}

/// Lets this process lock no memory: without CAP_IPC_LOCK, which root has, and with a limit of nothing.
pub(crate) fn forbid_locked_memory() {
    set_limit(libc::RLIMIT_MEMLOCK, 0);
    /// `_LINUX_CAPABILITY_VERSION_3` (linux/capability.h).
    const VERSION: u32 = 0x2008_0522;
    let header = [VERSION, 0];
    // Three sets of 64, in two halves, all empty.
    let none = [0u32; 6];
    // SAFETY: two words are read of the one and six of the other.
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// From here on this process gets no thread more, nor does the kernel for its sake (`RLIMIT_NPROC`, which does not bind
/// root). False where that can't be.
pub(crate) fn forbid_threads() -> bool {
    const NOBODY: libc::uid_t = 65534;
    // SAFETY: no pointers. The C library has all threads take the user on.
    let is_other = unsafe { libc::geteuid() != 0 || libc::setuid(NOBODY) == 0 };
    set_limit(libc::RLIMIT_NPROC, 0);
    is_other && std::thread::Builder::new().spawn(|| {}).is_err()
}
