//! Memory of the library's own threads, which they get without malloc(3).
//!
//! A signal handler that waits for a request may have interrupted malloc(3) in its thread, which then has a lock that a
//! thread of the library would wait for. So these threads take their memory from a piece of the address space of their
//! own. The lock of that is held by them alone, and no handler ever runs in one of them.
#![expect(unsafe_code, reason = "an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use super::Deadline;
use super::futex;

/// Bytes of address space at most, half a million requests' worth; where that is limited (`RLIMIT_AS`), an eighth of
/// the limit.
const RESERVED: usize = 256 << 20;
/// Bytes that are made usable at a time, at least.
const STEP: usize = 1 << 18;
/// Blocks are powers of two, and this many bytes at least.
const SMALLEST: usize = 32;
const CLASSES: usize = RESERVED.ilog2() as usize + 1;
/// Blocks of as many bytes give their pages back when they are freed.
const LARGE: usize = 1 << 18;
/// Greatest alignment of blocks.
const PAGE: usize = 4096;

thread_local! {
    /// This thread is the library's, and all signals are blocked in it.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// The allocator of a program or library that has this one's threads in it: they take their memory from a place of
/// their own, so that nothing they do waits for a lock of malloc(3). All other threads have it from the system.
///
/// ```
/// #[global_allocator]
/// static MEMORY: taut_aio::Memory = taut_aio::Memory;
/// # fn main() {}
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory;

/// From now on this thread's memory comes from the arena, where [`Memory`] is the allocator.
pub(crate) fn take_from_arena() {
    IS_OURS.set(true);
}

/// For the child of a fork, in which no other thread is: what was in use stays where it is.
pub(crate) fn after_fork_in_child() {
    ARENA.forget_free();
}

struct Arena {
    lock: AtomicU32,
    /// It was tried to get the address space.
    tried: AtomicBool,
    /// 0: none.
    base: AtomicUsize,
    bytes: AtomicUsize,
    /// Bytes that were given out at least once, and those that can be.
    used: AtomicUsize,
    usable: AtomicUsize,
    /// Freed blocks by class: each has the address of the next in its first word.
    free: UnsafeCell<[usize; CLASSES]>,
    /// Blocks that others have freed; the second word is the class.
    returned: AtomicUsize,
}

// SAFETY: `free` is used by whoever has the lock.
unsafe impl Sync for Arena {}

static ARENA: Arena = Arena {
    lock: AtomicU32::new(UNLOCKED),
    tried: AtomicBool::new(false),
    base: AtomicUsize::new(0),
    bytes: AtomicUsize::new(0),
    used: AtomicUsize::new(0),
    usable: AtomicUsize::new(0),
    free: UnsafeCell::new([0; CLASSES]),
    returned: AtomicUsize::new(0),
};

const UNLOCKED: u32 = 0;
const LOCKED: u32 = 1;
const WAITED_FOR: u32 = 2;

struct Locked<'a>(&'a AtomicU32);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if self.0.swap(UNLOCKED, Ordering::Release) == WAITED_FOR {
            futex::wake(self.0, 1);
        }
    }
}

fn class_of(layout: Layout) -> usize {
    layout.size().max(layout.align()).max(SMALLEST).next_power_of_two().ilog2() as usize
}

impl Arena {
    /// Gets the address space. With the lock.
    fn reserve(&self) {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the kernel fills the struct.
        unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
        let most = usize::try_from(limit.rlim_cur).map_or(RESERVED, |limit| RESERVED.min(limit / 8));
        let mut bytes = (most / STEP).max(1) * STEP;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        while bytes >= STEP {
            // SAFETY: a new mapping.
            let base = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
            if base != libc::MAP_FAILED {
                self.bytes.store(bytes, Ordering::Relaxed);
                self.base.store(base as usize, Ordering::Release);
                return;
            }
            bytes = bytes / 2 / STEP * STEP;
        }
    }

    fn lock(&self) -> Locked<'_> {
        if self.lock.compare_exchange(UNLOCKED, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.lock.swap(WAITED_FOR, Ordering::Acquire) != UNLOCKED {
                futex::sleep(&self.lock, WAITED_FOR, Deadline::NEVER);
            }
        }
        Locked(&self.lock)
    }

    fn contains(&self, address: usize) -> bool {
        let base = self.base.load(Ordering::Relaxed);
        base != 0 && address.wrapping_sub(base) < self.bytes.load(Ordering::Relaxed)
    }

    /// A block, or null.
    fn allocate(&self, class: usize) -> *mut u8 {
        let _locked = self.lock();
        if !self.tried.swap(true, Ordering::Relaxed) {
            self.reserve();
        }
        let base = self.base.load(Ordering::Relaxed);
        if base == 0 || class >= CLASSES {
            return ptr::null_mut();
        }
        self.collect();
        // SAFETY: we have the lock.
        let free = unsafe { &mut (*self.free.get())[class] };
        if *free != 0 {
            let block = *free as *mut usize;
            // SAFETY: a free block of ours; its first word is the next one's address.
            *free = unsafe { *block };
            return block.cast();
        }
        let bytes = 1 << class;
        let start = self.used.load(Ordering::Relaxed).next_multiple_of(bytes.min(PAGE));
        let end = start + bytes;
        let usable = self.usable.load(Ordering::Relaxed);
        if end > usable {
            let wanted = end.next_multiple_of(STEP);
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: within the mapping, if it is that large.
            let made = wanted <= self.bytes.load(Ordering::Relaxed)
                && unsafe { libc::mprotect((base + usable) as *mut _, wanted - usable, protection) } == 0;
            if !made {
                return ptr::null_mut();
            }
            self.usable.store(wanted, Ordering::Relaxed);
        }
        self.used.store(end, Ordering::Relaxed);
        (base + start) as *mut u8
    }

    /// Takes in what others have freed. With the lock.
    fn collect(&self) {
        if self.returned.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut block = self.returned.swap(0, Ordering::Acquire) as *mut usize;
        while !block.is_null() {
            // SAFETY: free blocks of ours with two words each; we have the lock.
            unsafe {
                let (next, class) = (*block, *block.add(1));
                self.put(block, class);
                block = next as *mut usize;
            }
        }
    }

    /// # Safety
    /// The caller has the lock, and nobody has the block.
    unsafe fn put(&self, block: *mut usize, class: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            if 1 << class >= LARGE {
                libc::madvise(block.cast(), 1 << class, libc::MADV_DONTNEED);
            }
            let free = &mut (*self.free.get())[class];
            *block = *free;
            *free = block as usize;
        }
    }

    /// # Safety
    /// The block came from `allocate`, and nobody has it.
    unsafe fn free(&self, block: *mut usize, class: usize) {
        if IS_OURS.get() {
            let _locked = self.lock();
            // SAFETY: the caller's promise, and we have the lock.
            return unsafe { self.put(block, class) };
        }
        // Without the lock: here a handler may run.
        let mut top = self.returned.load(Ordering::Relaxed);
        loop {
            // SAFETY: the caller's promise.
            unsafe { (*block, *block.add(1)) = (top, class) };
            match self.returned.compare_exchange_weak(top, block as usize, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    fn forget_free(&self) {
        self.lock.store(UNLOCKED, Ordering::Relaxed);
        self.returned.store(0, Ordering::Relaxed);
        // SAFETY: there is no other thread.
        unsafe { *self.free.get() = [0; CLASSES] };
    }
}

// SAFETY: blocks are large enough, aligned to their size up to a page, and nobody else's; what is in the arena goes
// back there, and all else to the system.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_OURS.get() && layout.align() <= PAGE {
            let block = ARENA.allocate(class_of(layout));
            if !block.is_null() {
                return block;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe {
            if ARENA.contains(block as usize) {
                ARENA.free(block.cast(), class_of(layout));
            } else {
                System.dealloc(block, layout);
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise: the size is a possible one.
        unsafe {
            if !ARENA.contains(block as usize) && !IS_OURS.get() {
                return System.realloc(block, layout, size);
            }
            let wanted = Layout::from_size_align_unchecked(size, layout.align());
            if ARENA.contains(block as usize) && class_of(wanted) == class_of(layout) {
                return block;
            }
            let moved = self.alloc(wanted);
            if !moved.is_null() {
                ptr::copy_nonoverlapping(block, moved, layout.size().min(size));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}
