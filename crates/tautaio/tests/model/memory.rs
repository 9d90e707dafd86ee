//! Memory of requests and their buffers. A request's memory is poisoned or taken away as soon as
//! the request is complete, so that a late look or write of the library is seen.
#![expect(unsafe_code, reason = "raw memory is what it is about")]

use std::alloc::{self, Layout};
use std::collections::VecDeque;
use std::ptr::{self, NonNull};
use std::sync::Mutex;

use super::ffi::Aiocb;
use super::random::Random;

const POISON: u8 = 0xA5;
const PAGE: usize = 4096;
/// Pages without access that are kept, so that a late access to them is not to somebody else's memory.
const QUARANTINE: usize = 256;

/// What becomes of a request's memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Home {
    /// Poisoned, and used again: at once or after all others.
    Pool,
    /// A page that nobody may touch afterwards.
    Page,
    /// Given back to malloc; AddressSanitizer sees a late access.
    Heap,
}

/// Room for one request. Not initialised by more than its caller sets: programs need not clear it.
pub(crate) struct Block {
    memory: NonNull<Aiocb>,
    home: Home,
}

// SAFETY: it is owned memory.
unsafe impl Send for Block {}

struct Addresses(VecDeque<usize>);

static POOL: Mutex<Addresses> = Mutex::new(Addresses(VecDeque::new()));
static PAGES: Mutex<Addresses> = Mutex::new(Addresses(VecDeque::new()));

impl Block {
    pub(crate) fn new(random: &mut Random) -> Self {
        match random.below(32) {
            0 => Self { memory: page(), home: Home::Page },
            1..=8 => Self { memory: heap(), home: Home::Heap },
            choice => Self { memory: pooled(choice % 2 == 0), home: Home::Pool },
        }
    }

    pub(crate) fn pointer(&self) -> *mut Aiocb {
        self.memory.as_ptr()
    }

    pub(crate) fn get_mut(&mut self) -> &mut Aiocb {
        // SAFETY: it is ours, and any bytes are a value of the structure.
        unsafe { self.memory.as_mut() }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let memory = self.memory.as_ptr();
        match self.home {
            Home::Heap => {
                // SAFETY: allocated with the same layout, and not used any more.
                unsafe { alloc::dealloc(memory.cast(), Layout::new::<Aiocb>()) };
            }
            Home::Pool => {
                // SAFETY: it is ours.
                unsafe { ptr::write_bytes(memory.cast::<u8>(), POISON, size_of::<Aiocb>()) };
                super::lock(&POOL).0.push_back(memory.expose_provenance());
            }
            Home::Page => {
                // SAFETY: a whole page of our own.
                assert_eq!(unsafe { libc::mprotect(memory.cast(), PAGE, libc::PROT_NONE) }, 0);
                let mut pages = super::lock(&PAGES);
                pages.0.push_back(memory.expose_provenance());
                if pages.0.len() > QUARANTINE {
                    let old = pages.0.pop_front().expect("not empty");
                    // SAFETY: a page that was mapped below.
                    unsafe { libc::munmap(ptr::with_exposed_provenance_mut(old), PAGE) };
                }
            }
        }
    }
}

fn heap() -> NonNull<Aiocb> {
    let layout = Layout::new::<Aiocb>();
    // SAFETY: the layout isn't empty.
    let memory = unsafe { alloc::alloc(layout) };
    let memory = NonNull::new(memory).unwrap_or_else(|| alloc::handle_alloc_error(layout));
    // SAFETY: it is ours. What programs find in new memory is anything.
    unsafe { ptr::write_bytes(memory.as_ptr(), POISON, size_of::<Aiocb>()) };
    memory.cast()
}

fn page() -> NonNull<Aiocb> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping.
    let memory = unsafe { libc::mmap(ptr::null_mut(), PAGE, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    assert_ne!(memory, libc::MAP_FAILED, "a page for a request");
    NonNull::new(memory.cast()).expect("not at address 0")
}

/// The one given back last or first.
fn pooled(last: bool) -> NonNull<Aiocb> {
    let address = {
        let mut pool = super::lock(&POOL);
        if last { pool.0.pop_back() } else { pool.0.pop_front() }
    };
    let Some(address) = address else { return heap() };
    let memory: NonNull<Aiocb> = NonNull::new(ptr::with_exposed_provenance_mut(address)).expect("not at address 0");
    // SAFETY: nobody else has it while it is out of the pool.
    let bytes = unsafe { std::slice::from_raw_parts(memory.as_ptr().cast::<u8>(), size_of::<Aiocb>()) };
    assert!(bytes.iter().all(|&byte| byte == POISON), "written to after it was complete: {bytes:02x?}");
    memory
}

/// A request's data, on a boundary that direct I/O takes.
pub(crate) struct Buffer {
    memory: NonNull<u8>,
    length: usize,
    aligned: bool,
}

// SAFETY: it is owned memory.
unsafe impl Send for Buffer {}

impl Buffer {
    const ALIGNMENT: usize = 4096;

    /// Filled with poison. Aligned only if asked for, so that the sanitizers see its exact end.
    pub(crate) fn new(length: usize, aligned: bool) -> Self {
        let layout = Self::layout(length, aligned);
        // SAFETY: the layout isn't empty.
        let memory = unsafe { alloc::alloc(layout) };
        let memory = NonNull::new(memory).unwrap_or_else(|| alloc::handle_alloc_error(layout));
        // SAFETY: it is ours.
        unsafe { ptr::write_bytes(memory.as_ptr(), POISON, layout.size()) };
        Self { memory, length, aligned }
    }

    fn layout(length: usize, aligned: bool) -> Layout {
        Layout::from_size_align(length.max(1), if aligned { Self::ALIGNMENT } else { 1 }).expect("a small size")
    }

    pub(crate) const fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn pointer(&self) -> *mut u8 {
        self.memory.as_ptr()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: it is ours and initialised; only looked at before and after the transfer.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.len()) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.len()) }
    }

    /// The transfer must not have touched it from here on.
    pub(crate) fn assert_untouched_from(&self, start: usize) {
        let place = self.bytes()[start..].iter().position(|&byte| byte != POISON);
        assert_eq!(place, None, "written to after the {start} bytes of the result");
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with the same layout.
        unsafe { alloc::dealloc(self.memory.as_ptr(), Self::layout(self.length, self.aligned)) };
    }
}
