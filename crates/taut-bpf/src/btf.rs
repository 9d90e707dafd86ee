//! The types of the running kernel (Documentation/bpf/btf.rst): where the members of its structures are.

use std::collections::HashMap;
use std::{fs, io};

/// Where a member is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Field {
    /// From the beginning of the structure, in bits.
    pub bit_offset: u32,
    /// Its size in bits; 0 where the type has none.
    pub bits: u32,
}

impl Field {
    /// From the beginning of the structure to the byte that it begins in.
    pub const fn byte(self) -> u32 {
        self.bit_offset / 8
    }

    /// Bytes from the one that it begins in to the one that it ends in.
    pub const fn bytes(self) -> u32 {
        (self.bit_offset % 8 + self.bits).div_ceil(8)
    }
}

/// Why types could not be had.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// The kernel has none, or they may not be read.
    #[error("/sys/kernel/btf/vmlinux: {0} (the kernel needs CONFIG_DEBUG_INFO_BTF)")]
    Io(#[from] io::Error),
    /// They are not in the known form.
    #[error("the kernel's types (BTF) can't be read: {0}")]
    Form(&'static str),
}

/// The types, looked through once.
#[derive(Debug)]
pub struct Btf {
    data: Vec<u8>,
    /// Where each type begins; number 0 is `void`.
    types: Vec<u32>,
    /// Where the strings begin and end.
    strings: (usize, usize),
    /// Structures and unions that have a name.
    named: HashMap<Vec<u8>, u32>,
    /// Typedefs by name: the arguments of tracepoints stand there.
    typedefs: HashMap<Vec<u8>, u32>,
}

// enum of kinds (linux/btf.h).
const INT: u32 = 1;
const POINTER: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const FUNCTION: u32 = 12;
const FUNCTION_PROTOTYPE: u32 = 13;
const VARIABLE: u32 = 14;
const DATA_SECTION: u32 = 15;
const DECLARATION_TAG: u32 = 17;
const ENUM64: u32 = 19;
/// Typedefs, qualifiers and tags: the type behind them has the size and the members.
const TRANSPARENT: [u32; 5] = [TYPEDEF, 9, 10, 11, 18];
/// Deeper nesting and longer chains are no types of a kernel.
const DEEPEST: usize = 32;

impl Btf {
    /// The types of the running kernel. About 40 ms.
    ///
    /// # Errors
    /// The kernel was built without them, or they are not in the known form.
    pub fn of_kernel() -> Result<Self, BtfError> {
        Self::parse(fs::read("/sys/kernel/btf/vmlinux")?)
    }

    /// Types from their bytes, in this machine's byte order.
    ///
    /// # Errors
    /// They are not in the known form.
    pub fn parse(data: Vec<u8>) -> Result<Self, BtfError> {
        let cut = BtfError::Form("cut off");
        let magic = data.get(..2).map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]]));
        if magic != Some(0xeb9f) {
            return Err(BtfError::Form("no mark at the beginning"));
        }
        let mut btf = Self { data, types: vec![0], strings: (0, 0), named: HashMap::new(), typedefs: HashMap::new() };
        let words = [4, 8, 12, 16, 20].map(|at| btf.word(at).map(|word| word as usize));
        let [Some(head), Some(types), Some(types_length), Some(strings), Some(strings_length)] = words else {
            return Err(cut);
        };
        let (Some(first), Some(text)) = (head.checked_add(types), head.checked_add(strings)) else { return Err(cut) };
        let (last, text_end) = (first.saturating_add(types_length), text.saturating_add(strings_length));
        if last > btf.data.len() || text_end > btf.data.len() {
            return Err(cut);
        }
        btf.strings = (text, text_end);
        btf.walk(first, last).ok_or(cut)?;
        Ok(btf)
    }

    fn walk(&mut self, mut at: usize, end: usize) -> Option<()> {
        while at < end {
            let info = self.word(at + 4)?;
            let (kind, count) = (info >> 24 & 31, (info & 0xffff) as usize);
            let number = u32::try_from(self.types.len()).ok()?;
            self.types.push(u32::try_from(at).ok()?);
            if matches!(kind, STRUCT | UNION | TYPEDEF) {
                let name = self.name(self.word(at)?)?.to_vec();
                if !name.is_empty() {
                    let table = if kind == TYPEDEF { &mut self.typedefs } else { &mut self.named };
                    table.entry(name).or_insert(number);
                }
            }
            at += 12
                + match kind {
                    INT | VARIABLE | DECLARATION_TAG => 4,
                    ARRAY => 12,
                    STRUCT | UNION | DATA_SECTION | ENUM64 => 12 * count,
                    ENUM | FUNCTION_PROTOTYPE => 8 * count,
                    _ => 0,
                };
        }
        Some(())
    }

    /// Where a member of a structure is; of members in members with dots between: `icsk_inet.sk`. Members of anonymous
    /// members count as the structure's own.
    pub fn field(&self, structure: &str, path: &str) -> Option<Field> {
        let mut of = *self.named.get(structure.as_bytes())?;
        let mut field = Field { bit_offset: 0, bits: 0 };
        for name in path.split('.') {
            let (inner, found) = self.member(of, name.as_bytes(), DEEPEST)?;
            field = Field { bit_offset: field.bit_offset.checked_add(found.bit_offset)?, bits: found.bits };
            of = inner;
        }
        Some(field)
    }

    /// How many bytes a structure has.
    pub fn size(&self, structure: &str) -> Option<u32> {
        self.word(self.start(*self.named.get(structure.as_bytes())?)? + 8)
    }

    /// The number of a structure's type.
    pub fn structure_id(&self, name: &str) -> Option<u32> {
        self.named.get(name.as_bytes()).copied()
    }

    /// The number of a function of the kernel.
    pub fn function_id(&self, name: &str) -> Option<u32> {
        let is_it = |&number: &u32| {
            let start = self.start(number)?;
            let is_function = self.word(start + 4)? >> 24 & 31 == FUNCTION;
            Some(is_function && self.name(self.word(start)?)? == name.as_bytes())
        };
        (1..self.types.len() as u32).find(|number| is_it(number) == Some(true))
    }

    /// The number of the type that stands for a tracepoint; `None` when this kernel has no such tracepoint.
    pub fn tracepoint_id(&self, name: &str) -> Option<u32> {
        self.typedefs.get(format!("btf_trace_{name}").as_bytes()).copied()
    }

    /// The structures that the arguments of a tracepoint point to, in order; `None` for one that points to none. `None`
    /// altogether when this kernel has no such tracepoint.
    pub fn tracepoint(&self, name: &str) -> Option<Vec<Option<String>>> {
        let typedef = self.tracepoint_id(name)?;
        let (pointer, _) = self.behind(self.word(self.start(typedef)? + 8)?)?;
        let (prototype, kind) = self.behind(self.word(self.start(pointer)? + 8)?)?;
        if kind != FUNCTION_PROTOTYPE {
            return None;
        }
        let start = self.start(prototype)?;
        let count = (self.word(start + 4)? & 0xffff) as usize;
        // The first one is the tracepoint's own.
        let arguments = (1..count).map(|index| self.pointed(self.word(start + 12 + 8 * index + 4)?));
        Some(arguments.collect())
    }

    fn pointed(&self, number: u32) -> Option<String> {
        let (pointer, kind) = self.behind(number)?;
        if kind != POINTER {
            return None;
        }
        let (structure, kind) = self.behind(self.word(self.start(pointer)? + 8)?)?;
        let name = (kind == STRUCT).then(|| self.name(self.word(self.start(structure)?)?))??;
        Some(String::from_utf8_lossy(name).into_owned())
    }

    fn member(&self, of: u32, name: &[u8], depth: usize) -> Option<(u32, Field)> {
        let start = self.start(of)?;
        let info = self.word(start + 4)?;
        if !matches!(info >> 24 & 31, STRUCT | UNION) || depth == 0 {
            return None;
        }
        for index in 0..(info & 0xffff) as usize {
            let at = start + 12 + 12 * index;
            let (text, place) = (self.name(self.word(at)?)?, self.word(at + 8)?);
            let (offset, bits) = if info >> 31 == 1 { (place & 0xff_ffff, place >> 24) } else { (place, 0) };
            if text == name && !name.is_empty() {
                let (inner, _) = self.behind(self.word(at + 4)?)?;
                let bits = if bits == 0 { self.bits(inner)? } else { bits };
                return Some((inner, Field { bit_offset: offset, bits }));
            }
            if text.is_empty()
                && let Some((inner, _)) = self.behind(self.word(at + 4)?)
                && let Some((found, field)) = self.member(inner, name, depth - 1)
            {
                return Some((found, Field { bit_offset: offset.checked_add(field.bit_offset)?, ..field }));
            }
        }
        None
    }

    /// The type behind typedefs and qualifiers, and its kind.
    fn behind(&self, mut number: u32) -> Option<(u32, u32)> {
        for _ in 0..DEEPEST {
            let start = self.start(number)?;
            let kind = self.word(start + 4)? >> 24 & 31;
            if !TRANSPARENT.contains(&kind) {
                return Some((number, kind));
            }
            number = self.word(start + 8)?;
        }
        None
    }

    fn bits(&self, number: u32) -> Option<u32> {
        let start = self.start(number)?;
        let kind = self.word(start + 4)? >> 24 & 31;
        match kind {
            POINTER => Some(64),
            INT | STRUCT | UNION | ENUM | ENUM64 => self.word(start + 8)?.checked_mul(8),
            _ => Some(0),
        }
    }

    fn start(&self, number: u32) -> Option<usize> {
        self.types.get(number as usize).map(|&at| at as usize).filter(|&at| at > 0)
    }

    fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.data.get(at..at.checked_add(4)?)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    }

    fn name(&self, offset: u32) -> Option<&[u8]> {
        let text = self.data.get(self.strings.0..self.strings.1)?.get(offset as usize..)?;
        text.split(|&byte| byte == 0).next()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STRINGS: &[u8] = b"\0int\0inner\0x\0outer\0a\0flag\0";

    /// `struct inner { int x; }; struct outer { int a; struct { int flag : 3; }; struct inner inner; }`, and a type
    /// that is a typedef of itself.
    fn types() -> Vec<u8> {
        let kind = |kind: u32, count: u32| kind << 24 | count;
        let words = [
            // 1: int
            vec![1, kind(INT, 0), 4, 32],
            // 2: struct inner
            vec![5, kind(STRUCT, 1), 4, 11, 1, 0],
            // 3: struct { int flag : 3; }
            vec![0, kind(STRUCT, 1) | 1 << 31, 4, 21, 1, 3 << 24 | 2],
            // 4: struct outer
            vec![13, kind(STRUCT, 3), 12, 19, 1, 0, 0, 3, 32, 5, 2, 64],
            // 5: typedef int int, of itself
            vec![1, kind(TYPEDEF, 0), 5],
        ]
        .concat();
        let length = 4 * words.len() as u32;
        let mut bytes = 0xeb9f_u16.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        [24, 0, length, length, STRINGS.len() as u32].iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        words.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes.extend(STRINGS);
        bytes
    }

    #[test]
    fn members_are_found_through_anonymous_ones_and_paths() {
        let btf = Btf::parse(types()).unwrap();
        assert_eq!(btf.field("outer", "a"), Some(Field { bit_offset: 0, bits: 32 }));
        assert_eq!(btf.field("outer", "flag"), Some(Field { bit_offset: 34, bits: 3 }));
        assert_eq!(btf.field("outer", "inner.x"), Some(Field { bit_offset: 64, bits: 32 }));
        assert_eq!(btf.size("outer"), Some(12));
        for missing in [("outer", "b"), ("outer", "a.x"), ("none", "a"), ("outer", "")] {
            assert_eq!(btf.field(missing.0, missing.1), None, "{missing:?}");
        }
        let flag = btf.field("outer", "flag").unwrap();
        assert_eq!((flag.byte(), flag.bytes()), (4, 1));
        assert_eq!(btf.tracepoint("int"), None);
    }

    #[test]
    fn the_kernels_own_types_have_what_a_socket_has() {
        let btf = match Btf::of_kernel() {
            Ok(btf) => btf,
            Err(BtfError::Io(error)) => {
                return crate::skip::note("btf::the_kernels_own_types_have_what_a_socket_has", &error.to_string());
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!(btf.field("sock", "__sk_common.skc_family").map(|field| field.bits), Some(16));
        assert_eq!(btf.field("tcp_sock", "snd_nxt").map(|field| field.bits), Some(32));
        let arguments = btf.tracepoint("tcp_probe").unwrap();
        assert_eq!(arguments.first(), Some(&Some("sock".to_owned())));
        assert_eq!(btf.tracepoint("no_such_tracepoint"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_wild(
            at in 0_usize..240,
            wild in prop::collection::vec(any::<u8>(), 0..16),
            end in 0_usize..260,
        ) {
            let mut bytes = types();
            for (offset, byte) in wild.iter().enumerate() {
                if let Some(place) = bytes.get_mut(at + offset) {
                    *place = *byte;
                }
            }
            bytes.truncate(end);
            if let Ok(btf) = Btf::parse(bytes) {
                for path in ["a", "flag", "inner.x", "x"] {
                    let _ = (btf.field("outer", path), btf.field("inner", path), btf.size("outer"));
                }
                let _ = btf.tracepoint("int");
            }
        }
    }
}
