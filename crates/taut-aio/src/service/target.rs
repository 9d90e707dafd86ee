//! The file that an operation is about: found out by the submitting thread, since its number may
//! mean another one by the time that the I/O thread comes to it.

use std::ffi::c_int;

use crate::system::file::{self, FileKind, Meaning};
use crate::system::own::OwnDescriptors;

/// The file of an operation, as its control block carries it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// As [`file::Meaning`] has it.
    pub(crate) identity: u64,
    /// None: the number meant no file.
    pub(crate) kind: Option<FileKind>,
    /// A descriptor of the library's own that holds it, in place of the number.
    pub(crate) own: Option<c_int>,
    /// The entry in which the I/O thread has it already, and keeps it until the operation has arrived.
    pub(crate) kept: Option<u32>,
}

/// In [`Target::own_word`]: the upper half is an entry, not a descriptor.
const KEPT: u64 = 1 << 8;

impl Target {
    /// What the number means now: held by the I/O thread where `pin` says so, or by a descriptor of our own where that
    /// does no harm and there is one left. Async-signal-safe.
    pub(crate) fn find(fd: c_int, descriptors: &OwnDescriptors, pin: impl Fn(u64) -> Option<u32>) -> Self {
        loop {
            let Ok(meaning) = file::look(fd) else { return Self { identity: 0, kind: None, own: None, kept: None } };
            let mut target = Self::not_held(meaning);
            if meaning.kind.may_be_kept() {
                target.kept = pin(meaning.identity);
            }
            if target.kept.is_some() || !meaning.kind.may_be_duplicated() {
                return target;
            }
            let Ok(own) = descriptors.duplicate(fd) else { return target };
            // The number may have come to mean another file in between.
            match file::look(own) {
                Ok(held) if held.kind.may_be_duplicated() => return Self { own: Some(own), ..Self::not_held(held) },
                Ok(_) => descriptors.close(own),
                // Somebody has closed it behind our back.
                Err(_) => descriptors.forget(own),
            }
        }
    }

    const fn not_held(meaning: Meaning) -> Self {
        Self { identity: meaning.identity, kind: Some(meaning.kind), own: None, kept: None }
    }

    /// Whether nothing holds it, since there is no descriptor left that would.
    pub(crate) fn lacks_a_descriptor(self) -> bool {
        self.own.is_none() && self.kept.is_none() && self.kind.is_some_and(FileKind::may_be_duplicated)
    }

    /// All but the identity.
    pub(crate) fn own_word(self) -> u64 {
        let kind = match self.kind {
            None => 0,
            Some(FileKind::Socket) => 1,
            Some(FileKind::Pipe) => 2,
            Some(FileKind::Anonymous) => 3,
            Some(FileKind::Character) => 4,
            Some(FileKind::Plain) => 5,
        };
        match self.kept {
            Some(entry) => u64::from(entry) << 32 | KEPT | kind,
            None => u64::from(self.own.unwrap_or(-1).cast_unsigned()) << 32 | kind,
        }
    }

    /// From what was stored.
    pub(crate) fn read(identity: u64, word: u64) -> Self {
        let kind = match word & 0xff {
            1 => Some(FileKind::Socket),
            2 => Some(FileKind::Pipe),
            3 => Some(FileKind::Anonymous),
            4 => Some(FileKind::Character),
            5 => Some(FileKind::Plain),
            _ => None,
        };
        let held = (word >> 32) as u32;
        let is_kept = word & KEPT != 0;
        let own = Some(held.cast_signed()).filter(|&own| own >= 0 && !is_kept);
        Self { identity, kind, own, kept: Some(held).filter(|_| is_kept) }
    }
}
