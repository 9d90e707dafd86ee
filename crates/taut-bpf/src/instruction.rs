//! Instructions of eBPF (RFC 9669) and an assembler for them.

/// One instruction as the kernel takes it. A 64-bit constant takes two.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub struct Instruction {
    /// What it does.
    pub opcode: u8,
    /// Destination in the lower half, source in the upper one.
    pub registers: u8,
    /// Of a jump in instructions, of memory in bytes.
    pub offset: i16,
    /// A constant.
    pub immediate: i32,
}

/// A register.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
#[expect(missing_docs, reason = "they are the names of RFC 9669")]
pub enum R {
    /// Result of calls and expressions.
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    /// Frame pointer.
    R10,
}

/// Arithmetic of 64 bits (RFC 9669, section 4.1).
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "they are the names of RFC 9669")]
pub enum Alu {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    /// Unsigned; by zero it gives 0.
    Div = 0x30,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    /// Zeroes come in.
    ShiftRight = 0x70,
    /// Unsigned; by zero it changes nothing.
    Mod = 0x90,
    Xor = 0xa0,
    Mov = 0xb0,
    /// The sign comes in.
    ShiftRightSigned = 0xc0,
}

/// Conditions of jumps (RFC 9669, section 4.3), unsigned.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub enum Jump {
    /// `==`
    Equal = 0x10,
    /// `>`
    Greater = 0x20,
    /// `!=`
    Unequal = 0x50,
    /// `<`
    Less = 0xa0,
}

/// Bytes of a load or store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Width {
    /// 4 bytes.
    B4 = 0x00,
    /// 2 bytes.
    B2 = 0x08,
    /// 1 byte.
    B1 = 0x10,
    /// 8 bytes.
    B8 = 0x18,
}

impl Width {
    /// How many.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::B1 => 1,
            Self::B2 => 2,
            Self::B4 => 4,
            Self::B8 => 8,
        }
    }
}

/// A place to jump to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Label(usize);

/// Instructions with jumps to labels that may stand further on.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<Instruction>,
    /// Where each label is, once it is known.
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

const LDX: u8 = 0x61;
const STX: u8 = 0x63;
const LD_IMM64: u8 = 0x18;
const ATOMIC_ADD: u8 = 0xdb;
const ALU32: u8 = 0x04;
const ALU64: u8 = 0x07;
const JMP: u8 = 0x05;
const FROM_REGISTER: u8 = 0x08;
const NEG: u8 = 0x87;
const BYTE_ORDER: u8 = 0xd4;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// Source of `LD_IMM64`: a file descriptor of a map (`BPF_PSEUDO_MAP_FD`), or the address of its value.
const MAP_FD: u8 = 1;
const MAP_VALUE: u8 = 2;
/// Source of `CALL`: a function by its type (`BPF_PSEUDO_KFUNC_CALL`).
const KERNEL_FUNCTION: u8 = 2;

impl Assembler {
    fn push(&mut self, opcode: u8, dst: R, src: u8, offset: i16, immediate: i32) {
        self.code.push(Instruction { opcode, registers: dst as u8 | (src << 4), offset, immediate });
    }

    /// From two registers into the first.
    pub fn alu(&mut self, what: Alu, dst: R, src: R) {
        self.push(ALU64 | what as u8 | FROM_REGISTER, dst, src as u8, 0, 0);
    }

    /// From a register and a constant into the register.
    pub fn alu_imm(&mut self, what: Alu, dst: R, immediate: i32) {
        self.push(ALU64 | what as u8, dst, 0, 0, immediate);
    }

    /// Copies a register.
    pub fn mov(&mut self, dst: R, src: R) {
        self.alu(Alu::Mov, dst, src);
    }

    /// Copies the lower half of a register, with zeroes above. Of a pointer this makes a number.
    pub fn mov_low(&mut self, dst: R, src: R) {
        self.push(ALU32 | Alu::Mov as u8 | FROM_REGISTER, dst, src as u8, 0, 0);
    }

    /// The negative.
    pub fn negate(&mut self, dst: R) {
        self.push(NEG, dst, 0, 0, 0);
    }

    /// A constant of any size.
    pub fn constant(&mut self, dst: R, value: i64) {
        match i32::try_from(value) {
            Ok(small) => self.alu_imm(Alu::Mov, dst, small),
            Err(_) => self.wide(dst, 0, value as i32, (value >> 32) as i32),
        }
    }

    fn wide(&mut self, dst: R, src: u8, low: i32, high: i32) {
        self.push(LD_IMM64, dst, src, 0, low);
        self.push(0, R::R0, 0, 0, high);
    }

    /// The address of a map.
    pub fn map(&mut self, dst: R, fd: i32) {
        self.wide(dst, MAP_FD, fd, 0);
    }

    /// The address of the only value of an array map.
    pub fn map_value(&mut self, dst: R, fd: i32) {
        self.wide(dst, MAP_VALUE, fd, 0);
    }

    /// Loads from memory, with zeroes above.
    pub fn load(&mut self, width: Width, dst: R, src: R, offset: i16) {
        self.push(LDX | width as u8, dst, src as u8, offset, 0);
    }

    /// Stores the lowest bytes.
    pub fn store(&mut self, width: Width, dst: R, offset: i16, src: R) {
        self.push(STX | width as u8, dst, src as u8, offset, 0);
    }

    /// Adds 64 bits to memory, atomically.
    pub fn atomic_add(&mut self, dst: R, offset: i16, src: R) {
        self.push(ATOMIC_ADD, dst, src as u8, offset, 0);
    }

    /// Between the host's byte order and big endian (or little), for the lowest `bits`; those above become zero.
    pub fn byte_order(&mut self, dst: R, bits: i32, big_endian: bool) {
        self.push(BYTE_ORDER | if big_endian { FROM_REGISTER } else { 0 }, dst, 0, 0, bits);
    }

    /// Calls a function of the kernel ([`helper`](crate::helper)): R1 to R5 are its arguments and lost, R0 is its
    /// result.
    pub fn call(&mut self, helper: i32) {
        self.push(CALL, R::R0, 0, 0, helper);
    }

    /// Calls a function of the kernel (kfunc) by its number in the kernel's types; as with a helper, R1 to R5 are its
    /// arguments and lost.
    pub fn call_function(&mut self, number: u32) {
        self.push(CALL, R::R0, KERNEL_FUNCTION, 0, number.cast_signed());
    }

    /// Ends the program with the result in R0.
    pub fn exit(&mut self) {
        self.push(EXIT, R::R0, 0, 0, 0);
    }

    /// A label that stands nowhere yet.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Whether anything jumps there so far.
    pub fn is_wanted(&self, label: Label) -> bool {
        self.jumps.iter().any(|(_, to)| *to == label)
    }

    /// Puts a label here.
    pub fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// Jumps always.
    pub fn jump(&mut self, label: Label) {
        self.jumps.push((self.code.len(), label));
        // Always.
        self.push(JMP, R::R0, 0, 0, 0);
    }

    /// Jumps if two registers compare so.
    pub fn jump_if(&mut self, what: Jump, dst: R, src: R, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(JMP | what as u8 | FROM_REGISTER, dst, src as u8, 0, 0);
    }

    /// Jumps if a register and a constant compare so.
    pub fn jump_if_imm(&mut self, what: Jump, dst: R, immediate: i32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(JMP | what as u8, dst, 0, 0, immediate);
    }

    /// The instructions, with all jumps to where their labels are.
    ///
    /// # Panics
    /// A label that is jumped to was not placed, or stands more than 32,767 instructions off.
    pub fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let to = self.labels[label.0].expect("every label has been placed");
            // A program is at most some ten thousand instructions long: parts of a route and their size are bounded.
            self.code[at].offset = i16::try_from(to as i64 - at as i64 - 1).expect("jumps are short");
        }
        self.code
    }
}

impl Instruction {
    /// The bytes, as an interpreter of another make takes them.
    pub fn bytes(code: &[Self]) -> Vec<u8> {
        code.iter()
            .flat_map(|instruction| {
                let (offset, immediate) = (instruction.offset.to_le_bytes(), instruction.immediate.to_le_bytes());
                let mut bytes = [0; 8];
                (bytes[0], bytes[1]) = (instruction.opcode, instruction.registers);
                bytes[2..4].copy_from_slice(&offset);
                bytes[4..].copy_from_slice(&immediate);
                bytes
            })
            .collect()
    }
}
