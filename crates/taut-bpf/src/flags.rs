//! Bytes that programs and this process share, each set once: a question that costs a program one load.
#![expect(unsafe_code, reason = "the bytes are shared memory")]

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

use crate::sys::Map;

/// An array map of one value, which is as many bytes as there are flags. A program takes its address with
/// [`map_value`](crate::Assembler::map_value).
#[derive(Debug)]
pub struct Flags {
    map: Map,
    bytes: NonNull<u8>,
    count: usize,
}

// SAFETY: the bytes belong to this value and are shared with the kernel only, through atomics.
unsafe impl Send for Flags {}
// SAFETY: they are written through atomics only.
unsafe impl Sync for Flags {}

impl Flags {
    /// Makes them, none set; `count` is a power of two, and at least a page (`name` as in
    /// [`MapShape`](crate::sys::MapShape)).
    ///
    /// # Errors
    /// A right is missing, or memory. Mapped arrays are there since Linux 5.5.
    pub fn create(count: usize, name: &str) -> io::Result<Self> {
        if !count.is_power_of_two() || count < rustix::param::page_size() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let map = Map::create_mapped(count, name)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let address =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), count, protection, MapFlags::SHARED, map.as_fd(), 0) }?;
        let bytes = NonNull::new(address.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self { map, bytes, count })
    }

    /// The map's number, for an instruction that names it.
    pub fn number(&self) -> i32 {
        self.map.number()
    }

    /// Sets a flag; of the index only so many bits count as there are flags for.
    pub fn set(&self, index: u32) {
        // SAFETY: within the mapping, which lives as long as this value; both sides write single bytes.
        let flag = unsafe { self.bytes.add(index as usize & (self.count - 1)).cast::<AtomicU8>().as_ref() };
        flag.store(1, Ordering::Release);
    }
}

impl Drop for Flags {
    fn drop(&mut self) {
        // SAFETY: mapped with that length, and used by nobody any more.
        let _ = unsafe { rustix::mm::munmap(self.bytes.as_ptr().cast(), self.count) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_here_stands_in_the_map_and_nothing_else() {
        const NAME: &str = "flags::what_is_set_here_stands_in_the_map_and_nothing_else";
        let flags = match Flags::create(1 << 16, "taut_test") {
            Ok(flags) => flags,
            Err(error) => return crate::skip::note(NAME, &error.to_string()),
        };
        flags.set(3);
        flags.set((5 << 16) + 70);
        let value = flags.map.look_up(&[0; 4]).unwrap();
        let set: Vec<usize> = (0..value.len()).filter(|&index| value[index] != 0).collect();
        assert_eq!((value.len(), set), (1 << 16, vec![3, 70]));
        assert!(Flags::create(16, "taut_test").is_err() && Flags::create(65_537, "taut_test").is_err());
    }
}
