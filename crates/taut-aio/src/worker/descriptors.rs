//! What the I/O thread knows of each descriptor: which file it means, and the order of its operations.
#![expect(unsafe_code, reason = "statx(2)")]

use std::ffi::c_int;
use std::mem;

use super::mounts::Mounts;
use super::order::{Class, Kind, Order};
use crate::system;

/// A file, as statx(2) tells files apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Identity {
    device: (u32, u32),
    inode: u64,
}

/// One open file under one number, on a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Descriptor {
    pub(crate) order: Order,
    /// None for a socket that was not looked at since nothing was in flight on its number.
    identity: Option<Identity>,
    /// The last read of this socket left nothing behind.
    pub(crate) emptied: bool,
    /// Its file system waits for somebody else.
    pub(crate) distant: bool,
    /// The number means another file by now; operations begun before go on.
    detached: bool,
}

const _: () = assert!(size_of::<Option<Descriptor>>() <= 128);

/// Descriptors by number.
#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    entries: Vec<Option<Descriptor>>,
    free: Vec<u32>,
    /// Entry of each number, plus one; 0 is none.
    by_fd: Vec<u32>,
    mounts: Mounts,
}

/// An entry for an operation, and what became of others on its number.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) entry: u32,
    /// An entry that lost the number meanwhile.
    pub(crate) orphaned: Option<u32>,
    /// The entry is that of another class than it was taken for.
    pub(crate) class: Option<Class>,
}

impl Found {
    const fn known(entry: u32) -> Self {
        Self { entry, orphaned: None, class: None }
    }
}

impl Descriptors {
    /// The entry for an operation of this kind on this number. The number is looked at when nothing is in flight on it, or
    /// when the operation would have to wait for others: their file may have been closed and its number used again.
    ///
    /// Only an idle socket is taken for what it was (`still_socket`: nobody was seen to close it): another socket does as
    /// well, and anything else makes the operation fail with `ENOTSOCK`, upon which [`Self::look_again`] looks. That saves a
    /// system call for each message.
    ///
    /// # Errors
    /// `EBADF`.
    pub(crate) fn find(&mut self, fd: c_int, kind: Kind, still_socket: bool) -> Result<Found, c_int> {
        let number = usize::try_from(fd).map_err(|_| libc::EBADF)?;
        let known = self.by_fd.get(number).and_then(|entry| entry.checked_sub(1));
        let Some(entry) = known else {
            let entry = self.insert(look(fd)?);
            if self.by_fd.len() <= number {
                self.by_fd.resize(number + 1, 0);
            }
            self.by_fd[number] = entry + 1;
            return Ok(Found::known(entry));
        };
        let descriptor = self.get(entry);
        let idle = descriptor.order.is_idle();
        if idle && still_socket && descriptor.order.class() == Class::Socket {
            descriptor.identity = None;
            return Ok(Found::known(entry));
        }
        if !idle && !descriptor.order.would_wait(kind) {
            return Ok(Found::known(entry));
        }
        let seen = look(fd)?;
        if idle || descriptor.identity.is_none_or(|identity| identity == seen.0) {
            let class = self.identify(entry, seen);
            return Ok(Found { class, ..Found::known(entry) });
        }
        descriptor.detached = true;
        let fresh = self.insert(seen);
        self.by_fd[number] = fresh + 1;
        Ok(Found { orphaned: Some(entry), ..Found::known(fresh) })
    }

    /// Looks at a number that does not mean what its entry says; gives what it is instead.
    ///
    /// # Errors
    /// `EBADF`.
    pub(crate) fn look_again(&mut self, entry: u32, fd: c_int) -> Result<Option<Class>, c_int> {
        let seen = look(fd)?;
        Ok(self.identify(entry, seen))
    }

    /// Notes which file an entry is about; gives its class when that is another.
    fn identify(&mut self, entry: u32, (identity, class): (Identity, Class)) -> Option<Class> {
        let distant = matches!(class, Class::File { .. }) && self.mounts.is_distant(identity.device);
        let descriptor = self.get(entry);
        if descriptor.identity.replace(identity) != Some(identity) {
            descriptor.emptied = false;
        }
        descriptor.distant = distant;
        (descriptor.order.class() != class).then_some(class)
    }

    /// Whether the number still means the file that its entry is about.
    pub(crate) fn is_current(&mut self, entry: u32, fd: c_int) -> bool {
        look(fd).is_ok_and(|(identity, _)| self.get(entry).identity == Some(identity))
    }

    /// Whether the number is known not to mean the file any more that its entry is about.
    pub(crate) fn is_gone(&mut self, entry: u32, fd: c_int) -> bool {
        let Some(known) = self.get(entry).identity else { return false };
        look(fd).map_or(true, |(identity, _)| identity != known)
    }

    /// Forgets what the number means: it is about to be closed.
    pub(crate) fn forget(&mut self, fd: c_int) {
        let Some(entry) = self.present(fd) else { return };
        self.get(entry).detached = true;
        if let Some(present) = usize::try_from(fd).ok().and_then(|number| self.by_fd.get_mut(number)) {
            *present = 0;
        }
        self.release(entry);
    }

    /// The entry that the number has now, if any.
    pub(crate) fn present(&self, fd: c_int) -> Option<u32> {
        self.by_fd.get(usize::try_from(fd).ok()?)?.checked_sub(1)
    }

    /// A descriptor by its entry, which must exist.
    pub(crate) fn get(&mut self, entry: u32) -> &mut Descriptor {
        match &mut self.entries[entry as usize] {
            Some(descriptor) => descriptor,
            None => unreachable!("an entry lives as long as an operation or a number names it"),
        }
    }

    /// Gives an entry back that nothing needs any more.
    pub(crate) fn release(&mut self, entry: u32) {
        let descriptor = self.get(entry);
        if descriptor.detached && descriptor.order.is_idle() {
            self.entries[entry as usize] = None;
            self.free.push(entry);
        }
    }

    fn insert(&mut self, (identity, class): (Identity, Class)) -> u32 {
        let distant = matches!(class, Class::File { .. }) && self.mounts.is_distant(identity.device);
        let order = Order::new(class);
        let descriptor = Descriptor { order, identity: Some(identity), emptied: false, distant, detached: false };
        if let Some(entry) = self.free.pop() {
            self.entries[entry as usize] = Some(descriptor);
            return entry;
        }
        self.entries.push(Some(descriptor));
        self.entries.len() as u32 - 1
    }
}

fn look(fd: c_int) -> Result<(Identity, Class), c_int> {
    // Without asking a server: whoever waits here holds up all operations.
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: the path is a string, the kernel fills the struct.
    let stat = unsafe {
        let mut stat: libc::statx = mem::zeroed();
        let asked = libc::STATX_TYPE | libc::STATX_INO;
        system::check(libc::statx(fd, c"".as_ptr(), flags, asked, &raw mut stat) as isize)?;
        stat
    };
    let identity = Identity { device: (stat.stx_dev_major, stat.stx_dev_minor), inode: stat.stx_ino };
    let class = match u32::from(stat.stx_mode) & libc::S_IFMT {
        libc::S_IFSOCK => Class::Socket,
        libc::S_IFIFO => Class::Stream,
        libc::S_IFREG | libc::S_IFBLK => file(fd)?,
        // A device may have offsets or not.
        // SAFETY: no memory is passed.
        libc::S_IFCHR if unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) } != -1 => file(fd)?,
        // Also eventfd(2) and its like, which pretend to seek.
        _ => Class::Stream,
    };
    Ok((identity, class))
}

fn file(fd: c_int) -> Result<Class, c_int> {
    Ok(Class::File { append: system::status_flags(fd)? & libc::O_APPEND != 0 })
}
