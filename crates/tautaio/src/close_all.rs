//! closefrom(3) where close_range(2) is refused: by a kernel before 5.9, or by the filter of a container.
//!
//! It runs in children of threaded programs, between fork and exec: no allocation, no lock.

use std::ffi::{CStr, c_int, c_uint};

use taut_aio::posix;

const DIRECTORY: &CStr = c"/proc/self/fd";

/// Offset of `d_reclen` and `d_name` in `struct linux_dirent64` (getdents(2)).
const LENGTH_AT: usize = 16;
const NAME_AT: usize = 19;

#[repr(C, align(8))]
struct Entries([u8; 1024]);

/// Closes what is open from `first` on but the library's own. False when the system does not tell what is open: then
/// nothing can be said of what is left.
pub(crate) fn close_listed(first: c_uint) -> bool {
    let Some(directory) = open_directory(first) else { return false };
    let complete = close_entries(directory, first);
    close_one(directory);
    complete
}

fn open_directory(first: c_uint) -> Option<c_int> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the path is a string.
    let open = || unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, DIRECTORY.as_ptr(), flags) as c_int };
    let mut directory = open();
    // There may be no number left to open it with: then one that is to be closed anyway makes room.
    let mut spare = first;
    while directory == -1 && errno() == libc::EMFILE && spare < first.saturating_add(1 << 20) {
        if let Ok(fd) = c_int::try_from(spare)
            && !posix::is_own_descriptor(fd)
        {
            posix::before_close(fd);
            close_one(fd);
            directory = open();
        }
        spare += 1;
    }
    (directory >= 0).then_some(directory)
}

fn close_entries(directory: c_int, first: c_uint) -> bool {
    let mut entries = Entries([0; 1024]);
    loop {
        let mut closed = false;
        loop {
            // SAFETY: there is room for as many bytes as are named.
            let got =
                unsafe { libc::syscall(libc::SYS_getdents64, directory, entries.0.as_mut_ptr(), entries.0.len()) };
            let Ok(got) = usize::try_from(got) else { return false };
            if got == 0 {
                break;
            }
            let mut rest = &entries.0[..got];
            while let Some((number, next)) = first_entry(rest) {
                rest = next;
                let Some(fd) = number.filter(|&fd| fd != directory && fd.unsigned_abs() >= first) else { continue };
                if !posix::is_own_descriptor(fd) {
                    posix::before_close(fd);
                    close_one(fd);
                    closed = true;
                }
            }
        }
        if !closed {
            return true;
        }
        // Entries may be passed over when others vanish meanwhile: until a whole round finds nothing.
        // SAFETY: no memory is passed.
        if unsafe { libc::lseek(directory, 0, libc::SEEK_SET) } == -1 {
            return false;
        }
    }
}

/// The descriptor that the first of these entries names, and the entries behind it. `.` and `..` name none.
fn first_entry(entries: &[u8]) -> Option<(Option<c_int>, &[u8])> {
    let length = u16::from_ne_bytes(entries.get(LENGTH_AT..LENGTH_AT + 2)?.try_into().ok()?);
    let entry = entries.get(..length.into())?;
    let name = CStr::from_bytes_until_nul(entry.get(NAME_AT..)?).ok()?;
    let number = name.to_str().ok().and_then(|name| name.parse().ok());
    Some((number, &entries[length.into()..]))
}

fn close_one(fd: c_int) {
    // SAFETY: the caller of closefrom(3) gives it up, or it is ours.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

fn errno() -> c_int {
    // SAFETY: the C library gives a valid address for each thread.
    unsafe { *libc::__errno_location() }
}
