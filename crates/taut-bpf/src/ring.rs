//! The reading end of a `BPF_MAP_TYPE_RINGBUF` (Documentation/bpf/ringbuf.rst), through its pages.
#![expect(unsafe_code, reason = "the ring is shared memory")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

/// Records waiting to be read. The descriptor is readable while there are some.
#[derive(Debug)]
pub struct Ring {
    fd: OwnedFd,
    /// One page with the consumer's position, writable.
    consumer: NonNull<u8>,
    /// One page with the producer's position, then the data twice over, so that a record never ends at the edge.
    producer: NonNull<u8>,
    page: usize,
    bytes: usize,
}

// SAFETY: the pages belong to this value and are shared with the kernel only, through atomics.
unsafe impl Send for Ring {}
// SAFETY: nothing is read through a shared reference.
unsafe impl Sync for Ring {}

const HEADER: usize = 8;
const BUSY: u32 = 1 << 31;
const DISCARD: u32 = 1 << 30;

impl Ring {
    /// Takes a ring of so many bytes of data.
    pub fn new(fd: OwnedFd, bytes: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let map = |length: usize, protection: ProtFlags, offset: usize| {
            // SAFETY: a new mapping at a place of the kernel's choice.
            let address = unsafe {
                rustix::mm::mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, &fd, offset as u64)
            }?;
            NonNull::new(address.cast::<u8>()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
        };
        let consumer = map(page, ProtFlags::READ | ProtFlags::WRITE, 0)?;
        let producer = map(page + 2 * bytes, ProtFlags::READ, page).inspect_err(|_| unmap(consumer, page))?;
        Ok(Self { fd, consumer, producer, page, bytes })
    }

    /// Hands over what there is, in order.
    pub fn read(&mut self, mut record: impl FnMut(&[u8])) {
        // SAFETY: both positions stand at the beginning of their page, aligned, for as long as the mapping lives.
        let (consumed, produced) =
            unsafe { (self.consumer.cast::<AtomicU64>().as_ref(), self.producer.cast::<AtomicU64>().as_ref()) };
        let mut at = consumed.load(Ordering::Relaxed);
        while at < produced.load(Ordering::Acquire) {
            let offset = self.page + (at as usize & (self.bytes - 1));
            // SAFETY: within the data, since the ring is a power of two and mapped twice; records are aligned to 8
            // bytes.
            let header = unsafe { self.producer.add(offset).cast::<AtomicU32>().as_ref() }.load(Ordering::Acquire);
            if header & BUSY != 0 {
                break;
            }
            let length = (header & !(BUSY | DISCARD)) as usize;
            if header & DISCARD == 0 {
                // SAFETY: the kernel wrote that many bytes behind the header and leaves them alone until they are
                // consumed.
                record(unsafe { std::slice::from_raw_parts(self.producer.add(offset + HEADER).as_ptr(), length) });
            }
            at += (length + HEADER).next_multiple_of(8) as u64;
            consumed.store(at, Ordering::Release);
        }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        unmap(self.consumer, self.page);
        unmap(self.producer, self.page + 2 * self.bytes);
    }
}

fn unmap(address: NonNull<u8>, length: usize) {
    // SAFETY: mapped with that length, and used by nobody any more.
    let _ = unsafe { rustix::mm::munmap(address.as_ptr().cast(), length) };
}
