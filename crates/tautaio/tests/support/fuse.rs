//! A file system of one file whose reads, writes and syncs stay in the kernel until the test lets them go.
//!
//! It speaks the FUSE protocol of <linux/fuse.h> and is served by a process of its own: one that has requests in the
//! kernel and would have to answer them itself can't end.
#![expect(unsafe_code, reason = "mount, unshare and fork have no safe form")]

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use super::aio::PATIENCE;
use super::descriptors::is_root;
use super::net::{receive_timeout, unix_pair};
use super::process::die_with_parent;

/// What the file is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Held {
    Read,
    Write,
    Sync,
}

/// A request in the kernel that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    unique: u64,
    pub(crate) what: Held,
    pub(crate) offset: u64,
}

/// The mounted file system; gone when dropped.
pub(crate) struct SlowFile {
    directory: tempfile::TempDir,
    control: File,
    server: libc::pid_t,
}

impl SlowFile {
    /// Mounts it, as file systems made with libfuse are, with a file of that size. Only this process sees it. The error
    /// says why that can't be done here.
    pub(crate) fn mount(size: u64) -> Result<Self, String> {
        Self::mount_with(size, FUSE_ASYNC_DIO)
    }

    /// Mounts one that has the kernel block whoever reads, even if that one asked not to be.
    pub(crate) fn mount_blocking(size: u64) -> Result<Self, String> {
        Self::mount_with(size, 0)
    }

    fn mount_with(size: u64, init_flags: u32) -> Result<Self, String> {
        if !is_root() {
            return Err("mounting a FUSE file system needs root".to_owned());
        }
        let device = File::options().read(true).write(true).open("/dev/fuse").map_err(|e| format!("/dev/fuse: {e}"))?;
        // SAFETY: of this process alone.
        if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
            return Err(format!("a mount namespace: {}", std::io::Error::last_os_error()));
        }
        let private = libc::MS_REC | libc::MS_PRIVATE;
        mount(c"none", c"/", c"none", private, c"").map_err(|e| format!("private mounts: {e}"))?;
        let directory = tempfile::tempdir().unwrap();
        let point = CString::new(directory.path().as_os_str().as_bytes()).unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let flags = libc::MS_NOSUID | libc::MS_NODEV;
        mount(c"slow", &point, c"fuse", flags, &CString::new(options).unwrap()).map_err(|e| format!("FUSE: {e}"))?;

        let (ours, theirs) = unix_pair(libc::SOCK_SEQPACKET);
        // SAFETY: the tests mount it while the process has one thread.
        let server = unsafe { libc::fork() };
        if server == 0 {
            die_with_parent();
            drop(ours);
            serve(device, theirs, Server { size, flags: init_flags, held: HashMap::new() });
            // SAFETY: what the parent has registered for its exit is not for this process.
            unsafe { libc::_exit(0) };
        }
        assert!(server > 0, "{}", std::io::Error::last_os_error());
        Ok(Self { directory, control: ours.into(), server })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("file")
    }

    /// The next request that reaches the file system. None when none does in that time.
    pub(crate) fn next(&self, timeout: Duration) -> Option<Request> {
        receive_timeout(&self.control, timeout.as_millis().try_into().unwrap());
        let mut message = [0; 24];
        match (&self.control).read(&mut message) {
            Ok(24) => {
                let what = [Held::Read, Held::Write, Held::Sync][usize::try_from(u64_at(&message, 8)).unwrap()];
                Some(Request { unique: u64_at(&message, 0), what, offset: u64_at(&message, 16) })
            }
            Ok(_) => panic!("the file system's server has ended"),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
                None
            }
        }
    }

    /// The next request, which must come and be of that kind.
    pub(crate) fn expect(&self, what: Held) -> Request {
        let request = self.next(PATIENCE).expect("a request reaches the file system");
        assert_eq!(request.what, what);
        request
    }

    /// Nothing more reaches the file system for a while.
    pub(crate) fn expect_none(&self) {
        let request = self.next(Duration::from_millis(50));
        assert!(request.is_none(), "{request:?}");
    }

    /// Answers a request.
    pub(crate) fn release(&self, request: Request) {
        (&self.control).write_all(&request.unique.to_ne_bytes()).unwrap();
    }
}

impl Drop for SlowFile {
    fn drop(&mut self) {
        let point = CString::new(self.directory.path().as_os_str().as_bytes()).unwrap();
        // SAFETY: the server is this process's own child; what still waits for it fails then.
        unsafe {
            libc::kill(self.server, libc::SIGKILL);
            libc::waitpid(self.server, std::ptr::null_mut(), 0);
            libc::umount2(point.as_ptr(), libc::MNT_DETACH);
        }
    }
}

fn mount(source: &CStr, target: &CStr, kind: &CStr, flags: libc::c_ulong, options: &CStr) -> std::io::Result<()> {
    // SAFETY: all are strings.
    let result =
        unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

// Opcodes and the sizes and places of fields are those of <linux/fuse.h>, version 7.31.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;
const HEADER: usize = 40;
const FUSE_ASYNC_DIO: u32 = 1 << 15;
const FOPEN_DIRECT_IO: u32 = 1;
const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
const LARGEST_WRITE: u32 = 64 << 10;

/// Serves until the file system is gone.
fn serve(mut device: File, control: OwnedFd, mut server: Server) {
    let mut control = File::from(control);
    let mut request = vec![0; HEADER + 4096 + LARGEST_WRITE as usize];
    loop {
        let mut waited =
            [&device, &control].map(|file| libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 });
        // SAFETY: two structures.
        if unsafe { libc::poll(waited.as_mut_ptr(), 2, -1) } < 0 {
            return;
        }
        if waited[0].revents != 0 {
            let Ok(length) = device.read(&mut request) else { return };
            if let Some(reply) = server.request(&request[..length], &mut control)
                && device.write_all(&reply).is_err()
            {
                return;
            }
        }
        if waited[1].revents != 0 {
            let mut unique = [0; 8];
            if control.read(&mut unique).ok() != Some(8) {
                return;
            }
            // A request that was interrupted meanwhile is no longer known.
            let _ = device.write_all(&server.released(u64::from_ne_bytes(unique)));
        }
    }
}

struct Server {
    size: u64,
    /// What it told the kernel in the beginning.
    flags: u32,
    /// Answers to what is held, and the size the file has then.
    held: HashMap<u64, (Vec<u8>, u64)>,
}

impl Server {
    /// The reply, for what is answered at once.
    fn request(&mut self, request: &[u8], control: &mut File) -> Option<Vec<u8>> {
        let (opcode, unique, node) = (u32_at(request, 4), u64_at(request, 8), u64_at(request, 16));
        let body = &request[HEADER..];
        match opcode {
            INIT => Some(reply(unique, &[u32s(&[7, 31, 0, self.flags, 0, LARGEST_WRITE, 1]), vec![0; 36]].concat())),
            LOOKUP if body.starts_with(b"file\0") => {
                Some(reply(unique, &[u64s(&[2, 0, 0, 0]), u32s(&[0, 0]), self.attributes(2)].concat()))
            }
            LOOKUP => Some(error(unique, libc::ENOENT)),
            GETATTR | SETATTR => Some(reply(unique, &[u64s(&[0, 0]), self.attributes(node)].concat())),
            OPEN => {
                let flags = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
                Some(reply(unique, &[u64s(&[0]), u32s(&[flags, 0])].concat()))
            }
            RELEASE | FLUSH => Some(reply(unique, &[])),
            FORGET | BATCH_FORGET | INTERRUPT => None,
            READ | WRITE | FSYNC => {
                let (offset, length) = if opcode == FSYNC { (0, 0) } else { (u64_at(body, 8), u32_at(body, 16)) };
                let (kind, answer, end) = match opcode {
                    READ => (0, vec![b'r'; length as usize], 0),
                    WRITE => (1, u32s(&[length, 0]), offset + u64::from(length)),
                    _ => (2, Vec::new(), 0),
                };
                self.held.insert(unique, (answer, end));
                control.write_all(&u64s(&[unique, kind, offset])).ok()?;
                None
            }
            _ => Some(error(unique, libc::ENOSYS)),
        }
    }

    fn released(&mut self, unique: u64) -> Vec<u8> {
        let (answer, end) = self.held.remove(&unique).expect("only what is held is released");
        self.size = self.size.max(end);
        reply(unique, &answer)
    }

    /// `struct fuse_attr` of the root directory, 1, or the file, 2.
    fn attributes(&self, node: u64) -> Vec<u8> {
        let mode = if node == 1 { libc::S_IFDIR | 0o755 } else { libc::S_IFREG | 0o644 };
        [u64s(&[node, self.size, 0, 0, 0, 0]), u32s(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0])].concat()
    }
}

fn reply(unique: u64, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(16 + body.len()).unwrap();
    [u32s(&[length, 0]), u64s(&[unique]), body.to_vec()].concat()
}

fn error(unique: u64, errno: i32) -> Vec<u8> {
    [u32s(&[16, (-errno).cast_unsigned()]), u64s(&[unique])].concat()
}

fn u32s(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn u64s(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}
