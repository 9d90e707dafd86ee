//! Which file a descriptor means.
#![expect(unsafe_code, reason = "statx(2), fcntl(2), kcmp(2)")]

use std::ffi::c_int;
use std::mem;

use super::check;

/// What kind of file, as far as it matters how one is held.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FileKind {
    Socket,
    /// A pipe or FIFO.
    Pipe,
    /// eventfd(2) and its like, which all have one inode.
    Anonymous,
    /// A terminal or other character device.
    Character,
    /// A regular file, block device or directory.
    Plain,
}

impl FileKind {
    /// Whether a second descriptor of it may be opened and closed. Not where closing has effects of its own:
    /// it drops the process's record locks on the file (fcntl(2)), and has file systems of others write back.
    pub(crate) const fn may_be_duplicated(self) -> bool {
        matches!(self, Self::Socket | Self::Pipe | Self::Anonymous)
    }

    /// Whether it is told from all others by its identity alone as long as it is open, and may stay open a moment
    /// longer than its number.
    pub(crate) const fn may_be_kept(self) -> bool {
        matches!(self, Self::Socket | Self::Pipe)
    }

    /// False: fsync(2) fails with `EINVAL`. Of devices only their drivers know.
    pub(crate) const fn can_be_synchronised(self) -> bool {
        matches!(self, Self::Character | Self::Plain)
    }
}

/// What a number meant when it was looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meaning {
    pub(crate) kind: FileKind,
    /// Of device, inode and its generation, and what it is open for, mixed; the time when the file was made
    /// stands for that where there is none. Different files have different ones, but for anonymous files.
    /// The lowest bits of a plain file's say what it was told by: see [`look_again`].
    pub(crate) identity: u64,
    pub(crate) device: (u32, u32),
}

/// What tells a plain file from one that had its inode before: a filter of system calls may refuse a thread what
/// another one was given.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ToldBy {
    Handle,
    Time,
    Nothing,
}

impl ToldBy {
    /// Bits of an identity that say so.
    const BITS: u64 = 3;

    const fn of(identity: u64) -> Self {
        match identity & Self::BITS {
            0 => Self::Handle,
            1 => Self::Time,
            _ => Self::Nothing,
        }
    }
}

/// Looks at a descriptor.
///
/// # Errors
/// `EBADF`: it is not open.
pub(crate) fn look(fd: c_int) -> Result<Meaning, c_int> {
    look_by(fd, ToldBy::Handle)
}

/// Looks at a descriptor in the way of who found this identity: the same file has the same one then.
///
/// # Errors
/// As for [`look`].
pub(crate) fn look_again(fd: c_int, identity: u64) -> Result<Meaning, c_int> {
    look_by(fd, ToldBy::of(identity))
}

/// By no more than this.
fn look_by(fd: c_int, most: ToldBy) -> Result<Meaning, c_int> {
    // Without asking a server: whoever waits here holds up all operations.
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    let asked = libc::STATX_TYPE | libc::STATX_INO | libc::STATX_BTIME;
    // SAFETY: all-zero is a value of the struct.
    let mut stat: libc::statx = unsafe { mem::zeroed() };
    // SAFETY: the path is a string, the kernel fills the struct.
    let time = match check(unsafe { libc::statx(fd, c"".as_ptr(), flags, asked, &raw mut stat) } as isize) {
        Ok(_) => Some(time_of(&stat.stx_btime)),
        Err(libc::EBADF) => return Err(libc::EBADF),
        Err(_) => None,
    };
    if time.is_none() {
        // A filter of system calls that is older than this one.
        stat = old_stat(fd)?;
    }
    let kind = match u32::from(stat.stx_mode) & libc::S_IFMT {
        libc::S_IFSOCK => FileKind::Socket,
        libc::S_IFIFO => FileKind::Pipe,
        0 => FileKind::Anonymous,
        libc::S_IFCHR => FileKind::Character,
        _ => FileKind::Plain,
    };
    let device = (stat.stx_dev_major, stat.stx_dev_minor);
    // Of a file on a disk the inode may be freed and used again.
    let (told_by, made) = if kind == FileKind::Plain { tell(fd, time, most) } else { (ToldBy::Nothing, 0) };
    let place = u64::from(device.0) << 32 | u64::from(device.1);
    // The ends of a pipe are one inode. What it is open for never changes, unlike the other flags.
    // Sockets have no such thing.
    let access = match kind {
        FileKind::Socket | FileKind::Anonymous => 0,
        _ => super::status_flags(fd)? & libc::O_ACCMODE,
    };
    // Odd factors: one to one in each part.
    let identity = u64::from(access.unsigned_abs()).rotate_right(2)
        ^ stat.stx_ino.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ place.wrapping_mul(0xc2b2_ae3d_27d4_eb4f).rotate_left(17)
        ^ made.wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(34);
    let identity = if kind == FileKind::Plain { identity & !ToldBy::BITS | told_by as u64 } else { identity };
    Ok(Meaning { kind, identity, device })
}

/// What tells a plain file, by no more than this: its handle, or else the time when it was made.
fn tell(fd: c_int, time: Option<u64>, most: ToldBy) -> (ToldBy, u64) {
    let handle = if most == ToldBy::Handle { handle_of(fd) } else { None };
    match (handle, time) {
        (Some(handle), _) => (ToldBy::Handle, handle),
        (None, Some(time)) if most != ToldBy::Nothing => (ToldBy::Time, time),
        _ => (ToldBy::Nothing, 0),
    }
}

/// By fstat(2), which does not know when a file was made.
fn old_stat(fd: c_int) -> Result<libc::statx, c_int> {
    // SAFETY: all-zero is a value of both structs; the kernel fills the one.
    let (stat, mut found) = unsafe {
        let mut stat: libc::stat = mem::zeroed();
        check(libc::fstat(fd, &raw mut stat) as isize)?;
        (stat, mem::zeroed::<libc::statx>())
    };
    found.stx_mode = stat.st_mode as u16;
    found.stx_ino = stat.st_ino;
    (found.stx_dev_major, found.stx_dev_minor) = (libc::major(stat.st_dev), libc::minor(stat.st_dev));
    Ok(found)
}

fn time_of(made: &libc::statx_timestamp) -> u64 {
    made.tv_sec.cast_unsigned().rotate_left(30) ^ u64::from(made.tv_nsec)
}

/// What its file system tells the file by for good, mixed: for most the inode with its generation
/// (name_to_handle_at(2)). It asks no server.
fn handle_of(fd: c_int) -> Option<u64> {
    /// `AT_HANDLE_FID` (include/uapi/linux/fcntl.h, Linux 6.5): also where files can't be opened by their handle.
    const HANDLE_FID: c_int = 0x200;
    /// `MAX_HANDLE_SZ`.
    const MOST: usize = 128;
    #[repr(C, align(8))]
    struct Handle {
        bytes: u32,
        kind: c_int,
        handle: [u8; MOST],
    }
    let mut handle = Handle { bytes: MOST as u32, kind: 0, handle: [0; MOST] };
    let mut mount: c_int = 0;
    let mut ask = |flags: c_int| {
        handle.bytes = MOST as u32;
        // SAFETY: the path is a string, and the handle has room for as many bytes as it says.
        unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                fd,
                c"".as_ptr(),
                &raw mut handle,
                &raw mut mount,
                flags | libc::AT_EMPTY_PATH,
            )
        }
    };
    if ask(0) == -1 && ask(HANDLE_FID) == -1 {
        return None;
    }
    let words = handle.handle[..MOST.min(handle.bytes as usize)].chunks(8);
    Some(words.fold(u64::from(handle.bytes), |mixed, part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        (mixed ^ u64::from_le_bytes(word)).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29)
    }))
}

/// Whether a descriptor still means a file of this identity.
pub(crate) fn means(fd: c_int, identity: u64) -> bool {
    look_again(fd, identity).is_ok_and(|meaning| meaning.identity == identity)
}

/// Whether two descriptors mean the same open file; where nothing tells, it is taken for granted.
pub(crate) fn are_same(one: c_int, other: c_int) -> bool {
    /// `F_DUPFD_QUERY` (include/uapi/linux/fcntl.h, Linux 6.10).
    const DUPFD_QUERY: c_int = 1027;
    /// `KCMP_FILE` (include/uapi/linux/kcmp.h).
    const KCMP_FILE: c_int = 0;
    // SAFETY: no memory is passed.
    unsafe {
        match libc::fcntl(one, DUPFD_QUERY, other) {
            -1 => {
                let process = super::process();
                // Less and greater than the other are 1 and 2.
                libc::syscall(libc::SYS_kcmp, process, process, KCMP_FILE, one, other) <= 0
            }
            same => same != 0,
        }
    }
}

/// Whether the descriptor has offsets.
pub(crate) fn has_offsets(fd: c_int) -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) != -1 }
}
