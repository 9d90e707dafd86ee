//! The file that an operation is about: found out by the submitting thread, since its number may
//! mean another one by the time that the I/O thread comes to it.

use std::ffi::c_int;

use crate::system::file::{self, FileKind};
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
}

impl Target {
    /// What the number means now, held by a descriptor of our own where that does no harm and there is one left.
    /// Async-signal-safe.
    pub(crate) fn find(fd: c_int, descriptors: &OwnDescriptors) -> Self {
        let Ok(meaning) = file::look(fd) else { return Self { identity: 0, kind: None, own: None } };
        let own = if meaning.kind.may_be_duplicated() { descriptors.duplicate(fd).ok() } else { None };
        Self { identity: meaning.identity, kind: Some(meaning.kind), own }
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
        let own = self.own.unwrap_or(-1);
        u64::from(own.cast_unsigned()) << 32 | kind
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
        let own = ((word >> 32) as u32).cast_signed();
        Self { identity, kind, own: Some(own).filter(|&own| own >= 0) }
    }
}
