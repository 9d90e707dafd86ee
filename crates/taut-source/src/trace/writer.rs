//! Writing a program: how memory of the kernel is read, maps are asked, and records are begun and handed over.

use taut_bpf::helper;
use taut_bpf::instruction::{Alu, Assembler, Instruction, Jump, Label, R, Width};

use super::cast::Cast;
use super::layout::{Layout, MOST_AT_ONCE, Offsets, Others, parts};
use super::maps::MapNumbers;
use super::record::{Copied, HEADER, What, at};
use super::scope::Scope;

use R::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};

// The stack.
pub(super) const KEY: i16 = -8;
/// [`THREAD_BYTES`](super::maps::THREAD_BYTES).
pub(super) const VALUE: i16 = -40;
pub(super) const RECEIVING: i16 = -48;
pub(super) const TIMER: i16 = -56;
pub(super) const SCRATCH: i16 = -64;
/// What is read at once.
const BUFFER: i16 = SCRATCH - MOST_AT_ONCE as i16;

/// What the table of threads has of each.
pub(super) mod thread {
    /// Since when it is ready to run, or 0.
    pub(in crate::trace) const READY_SINCE: i16 = 0;
    /// The socket whose segment woke it up, or 0.
    pub(in crate::trace) const WOKEN_BY: i16 = 8;
    /// The socket or pipe that its call is on; of a wait for several descriptors, when it began.
    pub(in crate::trace) const CALL_ON: i16 = 16;
    /// The number of its call, with what that is on above; 0 outside of those calls.
    pub(in crate::trace) const CALL: i16 = 24;
}

/// `IPPROTO_TCP`.
const TCP: i32 = 6;
/// `BPF_RB_NO_WAKEUP`.
const NO_WAKE_UP: i32 = 1;
/// `TCP_CLOSE` of include/net/tcp_states.h.
pub(super) const CLOSED: i32 = 7;
pub(super) const ESTABLISHED: i32 = 1;
pub(super) const SYN_SENT: i32 = 2;
pub(super) const SYN_RECEIVED: i32 = 3;
pub(super) const LISTEN: i32 = 10;
/// What the table of sockets has of one: it is followed, and so is the peer's; or it is being opened, and has no port
/// yet by which to follow the peer's.
const FOLLOWED: i64 = 1;
const OPENING: i64 = 2;
const UNIX: i32 = 1;
const INET: i32 = 2;
const INET6: i32 = 10;
/// `AF_BLUETOOTH`.
const BLUETOOTH: i32 = 31;
/// `IPPROTO_UDP`.
const UDP: i32 = 17;
/// `S_IFMT`, `S_IFSOCK` and `S_IFIFO`.
const KIND_OF_FILE: i32 = 0o170_000;
const SOCKET: i32 = 0o140_000;
const FIFO: i32 = 0o010_000;
/// What a thread's call is on, beside its number: TCP, another socket, or a pipe.
pub(super) const ON_TCP: i64 = 1 << 32;
pub(super) const ON_SOCKET: i64 = 2 << 32;
pub(super) const ON_PIPE: i64 = 3 << 32;
/// Or on several descriptors at once.
pub(super) const ON_MANY: i64 = 4 << 32;
/// Or it takes what a listening socket has.
pub(super) const ON_LISTENER: i64 = 5 << 32;

/// Members of a structure within so many bytes are read at once.
const MOST_TOGETHER: u32 = 128;

/// What the programs are made for.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) layout: &'a Layout,
    /// Where what is not TCP is traced, too.
    pub(super) others: Option<&'a Others>,
    pub(super) offsets: Offsets,
    pub(super) maps: MapNumbers,
    pub(super) scope: Scope,
    /// Where the kernel has no such thing, each read is a call of it.
    pub(super) cast: Option<Cast>,
}

/// A program being written. R7 is the socket throughout.
pub(super) struct Writer<'a> {
    pub(super) a: Assembler,
    pub(super) plan: &'a Plan<'a>,
    pub(super) end: Label,
}

impl Plan<'_> {
    pub(super) fn write(&self, body: impl FnOnce(&mut Writer<'_>)) -> Vec<Instruction> {
        let mut a = Assembler::default();
        let end = a.label();
        let mut writer = Writer { a, plan: self, end };
        body(&mut writer);
        let Writer { mut a, end, .. } = writer;
        a.place(end);
        a.constant(R0, 0);
        a.exit();
        a.finish()
    }
}

impl Writer<'_> {
    /// Reads memory of the kernel into a register; what can't be read is 0.
    pub(super) fn read(&mut self, width: Width, dst: R, base: R, offset: u32) {
        if let Some(cast) = self.plan.cast {
            return cast.read(&mut self.a, width, dst, base, offset);
        }
        // The base first: it may be one of the arguments.
        self.a.mov(R3, base);
        self.a.alu_imm(Alu::Add, R3, offset as i32);
        self.a.mov(R1, R10);
        self.a.alu_imm(Alu::Add, R1, SCRATCH.into());
        self.a.constant(R2, width.bytes().into());
        self.a.call(helper::PROBE_READ_KERNEL);
        self.a.load(width, dst, R10, SCRATCH);
    }

    /// Loads a member of a structure whose type the verifier knows: in programs of [`TYPED`](super::hooks::TYPED)
    /// tracepoints.
    pub(super) fn load(&mut self, width: Width, dst: R, base: R, offset: u32) {
        self.a.load(width, dst, base, offset as i16);
    }

    /// Reads members of one structure into registers, at once if they stand so close that this is cheaper.
    pub(super) fn read_members(&mut self, base: R, members: &[(Width, R, u32)]) {
        let from = members.iter().map(|&(_, _, offset)| offset).min().unwrap_or(0) / 8 * 8;
        let end = members.iter().map(|&(width, _, offset)| offset + width.bytes()).max().unwrap_or(0);
        if self.plan.cast.is_some() || end - from > MOST_TOGETHER {
            // The base last: it may be one of the registers.
            let (last, others): (Vec<_>, Vec<_>) = members.iter().partition(|&&(_, dst, _)| dst == base);
            for &&(width, dst, offset) in others.iter().chain(&last) {
                self.read(width, dst, base, offset);
            }
            return;
        }
        self.read_at_once(base, from, end - from);
        for &(width, dst, offset) in members {
            self.a.load(width, dst, R10, BUFFER + (offset - from) as i16);
        }
    }

    /// Reads at most [`MOST_AT_ONCE`] bytes to [`BUFFER`].
    fn read_at_once(&mut self, base: R, offset: u32, bytes: u32) {
        self.a.mov(R3, base);
        self.a.alu_imm(Alu::Add, R3, offset as i32);
        self.a.mov(R1, R10);
        self.a.alu_imm(Alu::Add, R1, BUFFER.into());
        self.a.constant(R2, bytes.into());
        self.a.call(helper::PROBE_READ_KERNEL);
    }

    /// Copies memory of the kernel into the record.
    pub(super) fn copy_from(&mut self, to: i16, bytes: u32, base: R, offset: u32) {
        if self.plan.cast.is_some() {
            for (at, width) in parts(0, bytes) {
                self.read(width, R1, base, offset + at);
                self.a.store(width, R8, to + at as i16, R1);
            }
            return;
        }
        self.a.mov(R3, base);
        self.a.alu_imm(Alu::Add, R3, offset as i32);
        self.a.mov(R1, R8);
        self.a.alu_imm(Alu::Add, R1, to.into());
        self.a.constant(R2, bytes.into());
        self.a.call(helper::PROBE_READ_KERNEL);
    }

    pub(super) fn map_and_key(&mut self, map: i32, key: i16) {
        self.a.map(R1, map);
        self.a.mov(R2, R10);
        self.a.alu_imm(Alu::Add, R2, key.into());
    }

    /// R0 is the value's address; ends where there is none.
    pub(super) fn look_up(&mut self, map: i32, key: i16) {
        self.map_and_key(map, key);
        self.a.call(helper::MAP_LOOKUP_ELEM);
        let end = self.end;
        self.a.jump_if_imm(Jump::Equal, R0, 0, end);
    }

    /// Writes the value at `value` under the key at [`KEY`].
    pub(super) fn update(&mut self, map: i32, value: i16) {
        self.map_and_key(map, KEY);
        self.a.mov(R3, R10);
        self.a.alu_imm(Alu::Add, R3, value.into());
        self.a.constant(R4, 0);
        self.a.call(helper::MAP_UPDATE_ELEM);
    }

    pub(super) fn delete(&mut self, map: i32, key: i16) {
        self.map_and_key(map, key);
        self.a.call(helper::MAP_DELETE_ELEM);
    }

    /// Ends unless the process is traced.
    pub(super) fn only_targets(&mut self) {
        if self.plan.scope != Scope::Processes {
            return;
        }
        self.a.call(helper::GET_CURRENT_PID_TGID);
        self.a.alu_imm(Alu::ShiftRight, R0, 32);
        self.a.mov(R1, R0);
        self.only_marked();
        self.a.store(Width::B4, R10, KEY, R0);
        self.look_up(self.plan.maps.targets, KEY);
    }

    /// Ends if the thread is in a call on a socket, which tells of itself. One on a pipe may be splice(2).
    pub(super) fn only_outside_of_calls(&mut self) {
        let outside = self.a.label();
        self.a.call(helper::GET_CURRENT_PID_TGID);
        self.a.store(Width::B4, R10, KEY, R0);
        self.map_and_key(self.plan.maps.threads, KEY);
        self.a.call(helper::MAP_LOOKUP_ELEM);
        self.a.jump_if_imm(Jump::Equal, R0, 0, outside);
        self.a.load(Width::B8, R1, R0, thread::CALL);
        self.a.alu_imm(Alu::ShiftRight, R1, 32);
        let end = self.end;
        for on in [ON_TCP, ON_SOCKET] {
            self.a.jump_if_imm(Jump::Equal, R1, (on >> 32) as i32, end);
        }
        self.a.place(outside);
    }

    /// Keeps the thread's call: the socket in R7 and the number in R9, with what it is on. Without room for the thread
    /// the call counts as a record that found none, and this ends.
    pub(super) fn enter(&mut self, on: i64) {
        let (is_known, noted, end) = (self.a.label(), self.a.label(), self.end);
        self.a.call(helper::GET_CURRENT_PID_TGID);
        self.a.store(Width::B4, R10, KEY, R0);
        self.map_and_key(self.plan.maps.threads, KEY);
        self.a.call(helper::MAP_LOOKUP_ELEM);
        self.a.jump_if_imm(Jump::Unequal, R0, 0, is_known);
        self.a.load(Width::B4, R1, R10, KEY);
        self.mark();
        self.a.constant(R1, 0);
        self.a.store(Width::B8, R10, VALUE + thread::READY_SINCE, R1);
        self.a.store(Width::B8, R10, VALUE + thread::WOKEN_BY, R1);
        self.a.store(Width::B8, R10, VALUE + thread::CALL_ON, R7);
        self.a.constant(R1, on);
        self.a.alu(Alu::Or, R1, R9);
        self.a.store(Width::B8, R10, VALUE + thread::CALL, R1);
        self.update(self.plan.maps.threads, VALUE);
        self.a.jump_if_imm(Jump::Equal, R0, 0, noted);
        self.count_lost();
        self.a.jump(end);
        self.a.place(is_known);
        // Whoever calls runs, whatever was seen of its switches.
        self.a.constant(R1, 0);
        self.a.store(Width::B8, R0, thread::READY_SINCE, R1);
        self.a.store(Width::B8, R0, thread::CALL_ON, R7);
        self.a.constant(R1, on);
        self.a.alu(Alu::Or, R1, R9);
        self.a.store(Width::B8, R0, thread::CALL, R1);
        self.a.place(noted);
    }

    /// One more record has no place.
    pub(super) fn count_lost(&mut self) {
        self.a.map_value(R1, self.plan.maps.lost);
        self.a.constant(R2, 1);
        self.a.atomic_add(R1, 0, R2);
    }

    /// Reports a call on what is not TCP, whose inode is in R6.
    pub(super) fn enter_other(&mut self, what: What, on: i64, others: &Others) {
        self.read(Width::B8, R6, R6, others.inode_number);
        self.enter(on);
        self.begin(what);
        self.a.store(Width::B4, R8, at::NUMBER, R9);
        self.a.store(Width::B8, R8, at::TCP, R6);
        self.submit();
    }

    /// Reports the end of the call with the result in R6 and the number in R9.
    pub(super) fn come_back(&mut self, what: What) {
        self.begin(what);
        self.a.store(Width::B8, R8, at::RESULT, R6);
        self.a.store(Width::B4, R8, at::NUMBER, R9);
        self.submit();
    }

    /// The socket behind the descriptor in R8, into R7; goes to the labels with another socket or with a pipe, whose
    /// inode is in R6, and ends with all else.
    pub(super) fn socket_of_descriptor(&mut self, others: Option<(Label, Label)>) {
        let offsets = self.plan.offsets;
        let end = self.end;
        // A descriptor has 32 bits, whatever the register has.
        self.a.alu_imm(Alu::ShiftLeft, R8, 32);
        self.a.alu_imm(Alu::ShiftRight, R8, 32);
        self.a.call(helper::GET_CURRENT_TASK);
        self.read(Width::B8, R7, R0, offsets.task_files);
        self.read(Width::B8, R7, R7, offsets.files_fdt);
        self.read_members(R7, &[(Width::B4, R6, offsets.fdt_max), (Width::B8, R7, offsets.fdt_fd)]);
        let inside = self.a.label();
        self.a.jump_if(Jump::Less, R8, R6, inside);
        self.a.jump(end);
        self.a.place(inside);
        self.a.alu_imm(Alu::ShiftLeft, R8, 3);
        self.a.alu(Alu::Add, R7, R8);
        self.read(Width::B8, R7, R7, 0);
        self.a.jump_if_imm(Jump::Equal, R7, 0, end);
        self.read_members(R7, &[(Width::B8, R6, offsets.file_inode), (Width::B8, R7, offsets.file_private)]);
        self.read(Width::B2, R8, R6, offsets.inode_mode);
        self.a.alu_imm(Alu::And, R8, KIND_OF_FILE);
        if let Some((_, pipe)) = others {
            self.a.jump_if_imm(Jump::Equal, R8, FIFO, pipe);
        }
        self.a.jump_if_imm(Jump::Unequal, R8, SOCKET, end);
        self.read(Width::B8, R7, R7, offsets.socket_sk);
        self.a.jump_if_imm(Jump::Equal, R7, 0, end);
        self.only_tcp(others.map(|(other, _)| other));
    }

    /// Ends unless the socket is one of TCP; goes to the label with one of UDP or Bluetooth, or a
    /// Unix socket.
    pub(super) fn only_tcp(&mut self, other: Option<Label>) {
        let (offsets, end) = (self.plan.offsets, self.end);
        let inet = self.a.label();
        self.read(Width::B2, R8, R7, offsets.family);
        if let Some(other) = other {
            self.a.jump_if_imm(Jump::Equal, R8, UNIX, other);
            self.a.jump_if_imm(Jump::Equal, R8, BLUETOOTH, other);
        }
        self.a.jump_if_imm(Jump::Equal, R8, INET, inet);
        self.a.jump_if_imm(Jump::Unequal, R8, INET6, end);
        self.a.place(inet);
        let width = if offsets.protocol.bits > 8 { Width::B2 } else { Width::B1 };
        self.read(width, R8, R7, offsets.protocol.byte());
        if let Some(other) = other {
            self.a.jump_if_imm(Jump::Equal, R8, UDP, other);
        }
        self.a.jump_if_imm(Jump::Unequal, R8, TCP, end);
    }

    /// Ends unless one of the socket's ports is the one that is traced.
    pub(super) fn only_wanted_ports(&mut self) {
        let Scope::Port(port) = self.plan.scope else { return };
        self.read(Width::B4, R8, R7, self.plan.offsets.port_pair);
        self.port_of(port);
    }

    /// Ends unless the port pair in R8 has this port. Its lower half is the peer's in network order, the upper one
    /// our own.
    pub(super) fn port_of(&mut self, port: u16) {
        let (found, end) = (self.a.label(), self.end);
        self.a.mov(R1, R8);
        self.a.alu_imm(Alu::ShiftRight, R1, 16);
        self.a.jump_if_imm(Jump::Equal, R1, port.into(), found);
        self.a.mov(R1, R8);
        self.a.alu_imm(Alu::And, R1, 0xffff);
        self.a.jump_if_imm(Jump::Unequal, R1, port.to_be().into(), end);
        self.a.place(found);
    }

    /// Ends unless a traced program listens at the own port of the socket in R7.
    pub(super) fn only_listened_ports(&mut self) {
        self.listened();
        self.index_of_pair();
        self.only_marked();
        self.a.store(Width::B8, R10, KEY, R8);
        self.look_up(self.plan.maps.ports, KEY);
    }

    /// The socket in R7 listens: what is accepted from it will be a traced program's.
    pub(super) fn listen(&mut self) {
        self.listened();
        self.mark_pair();
        self.a.store(Width::B8, R10, KEY, R8);
        self.a.constant(R1, 1);
        self.a.store(Width::B4, R10, VALUE, R1);
        self.update(self.plan.maps.ports, VALUE);
    }

    /// R8 is the port pair of who listens at the own port of the socket in R7, with the number of its network namespace
    /// above.
    fn listened(&mut self) {
        let offsets = self.plan.offsets;
        self.read(Width::B4, R8, R7, offsets.port_pair);
        self.a.alu_imm(Alu::ShiftRight, R8, 16);
        self.a.alu_imm(Alu::ShiftLeft, R8, 16);
        let Some([net, number]) = offsets.network else { return };
        self.read(Width::B8, R6, R7, net);
        self.read(Width::B4, R6, R6, number);
        self.a.alu_imm(Alu::ShiftLeft, R6, 32);
        self.a.alu(Alu::Or, R8, R6);
    }

    /// Reports that the socket is open, and whether it is a part of a connection of MPTCP.
    pub(super) fn open(&mut self) {
        self.a.constant(R9, 0);
        if let Some(is_mptcp) = self.plan.offsets.is_mptcp {
            self.read(Width::B1, R9, R7, is_mptcp.byte());
            self.a.alu_imm(Alu::ShiftRight, R9, (is_mptcp.bit_offset % 8) as i32);
            self.a.alu_imm(Alu::And, R9, 1);
        }
        self.begin(What::Opened);
        self.a.store(Width::B8, R8, at::RESULT, R9);
        self.submit();
    }

    /// Follows a socket that is being opened.
    pub(super) fn follow_opening(&mut self) {
        self.a.store(Width::B8, R10, KEY, R7);
        self.mark_socket();
        self.a.constant(R1, OPENING);
        self.a.store(Width::B4, R10, VALUE, R1);
        self.update(self.plan.maps.sockets, VALUE);
    }

    /// Follows the socket from now on, and the peer's once it gets a segment.
    pub(super) fn follow(&mut self) {
        let (known, unknown) = (self.a.label(), self.a.label());
        self.a.store(Width::B8, R10, KEY, R7);
        self.map_and_key(self.plan.maps.sockets, KEY);
        self.a.call(helper::MAP_LOOKUP_ELEM);
        self.a.jump_if_imm(Jump::Equal, R0, 0, unknown);
        self.a.load(Width::B4, R1, R0, 0);
        self.a.jump_if_imm(Jump::Equal, R1, FOLLOWED as i32, known);
        self.a.place(unknown);
        self.mark_socket();
        self.a.constant(R1, FOLLOWED);
        self.a.store(Width::B4, R10, VALUE, R1);
        self.update(self.plan.maps.sockets, VALUE);
        // The pair as the peer has it: our port in network order below, its own above.
        self.read(Width::B4, R8, R7, self.plan.offsets.port_pair);
        self.a.mov(R1, R8);
        self.a.alu_imm(Alu::ShiftRight, R1, 16);
        self.a.byte_order(R1, 16, true);
        self.a.alu_imm(Alu::And, R8, 0xffff);
        self.a.byte_order(R8, 16, true);
        self.a.alu_imm(Alu::ShiftLeft, R8, 16);
        self.a.alu(Alu::Or, R8, R1);
        self.a.store(Width::B8, R10, KEY, R8);
        self.mark_pair();
        self.update(self.plan.maps.ports, VALUE);
        self.a.place(known);
    }

    /// Ends unless the socket is followed; [`KEY`] is its address then.
    pub(super) fn known(&mut self) {
        self.a.store(Width::B8, R10, KEY, R7);
        self.look_up(self.plan.maps.sockets, KEY);
    }

    /// As [`known`](Self::known); goes on with one that is closed, too.
    pub(super) fn known_or_closed(&mut self) {
        let (known, end) = (self.a.label(), self.end);
        self.a.store(Width::B8, R10, KEY, R7);
        self.map_and_key(self.plan.maps.sockets, KEY);
        self.a.call(helper::MAP_LOOKUP_ELEM);
        self.a.jump_if_imm(Jump::Unequal, R0, 0, known);
        self.read(Width::B1, R8, R7, self.plan.offsets.state);
        self.a.jump_if_imm(Jump::Unequal, R8, CLOSED, end);
        self.a.place(known);
    }

    /// As [`known`](Self::known), and follows one whose ports are wanted. Only for sockets that are established.
    pub(super) fn known_by_ports(&mut self) {
        let (known, unknown) = (self.a.label(), self.a.label());
        self.index_of_socket();
        self.load_mark();
        self.a.jump_if_imm(Jump::Equal, R1, 0, unknown);
        self.a.store(Width::B8, R10, KEY, R7);
        self.map_and_key(self.plan.maps.sockets, KEY);
        self.a.call(helper::MAP_LOOKUP_ELEM);
        self.a.jump_if_imm(Jump::Unequal, R0, 0, known);
        self.a.place(unknown);
        self.load(Width::B4, R8, R7, self.plan.offsets.port_pair);
        match self.plan.scope {
            Scope::Port(port) => self.port_of(port),
            Scope::Processes => {
                self.index_of_pair();
                self.only_marked();
                self.a.store(Width::B8, R10, KEY, R8);
                self.look_up(self.plan.maps.ports, KEY);
            }
        }
        self.mark_socket();
        self.a.store(Width::B8, R10, KEY, R7);
        self.a.constant(R1, 1);
        self.a.store(Width::B4, R10, VALUE, R1);
        self.update(self.plan.maps.sockets, VALUE);
        self.a.place(known);
    }

    /// What this processor is at: R0 is where it stands, and it is kept on the stack for the record.
    pub(super) fn context(&mut self) {
        self.a.constant(R1, 0);
        self.a.store(Width::B4, R10, SCRATCH, R1);
        self.look_up(self.plan.maps.context, SCRATCH);
        self.a.load(Width::B8, R1, R0, 0);
        self.a.store(Width::B8, R10, RECEIVING, R1);
        self.a.load(Width::B8, R1, R0, 8);
        self.a.store(Width::B8, R10, TIMER, R1);
    }

    /// No segment is being taken in on this processor any more.
    pub(super) fn forget_receiving(&mut self) {
        self.context();
        self.a.constant(R1, 0);
        self.a.store(Width::B8, R0, 0, R1);
    }

    /// Begins a record, in R8, with the state of the socket. Nothing may end between this and [`submit`](Self::submit).
    pub(super) fn begin(&mut self, what: What) {
        let (reserved, end) = (self.a.label(), self.end);
        let plan = self.plan;
        let copied = match (what.copied(), plan.others) {
            (Copied::Nothing, _) => None,
            (Copied::Socket, Some(others)) => Some(&others.socket),
            (Copied::Pipe, Some(others)) => Some(&others.pipe),
            _ => Some(plan.layout),
        };
        let bytes = copied.map_or(0, |layout| layout.bytes);
        let is_alone = matches!(what, What::Repeat | What::Close | What::Opened | What::Arrived | What::Accepted);
        if is_alone || what.copied() != Copied::Tcp {
            self.a.constant(R1, 0);
            self.a.store(Width::B8, R10, RECEIVING, R1);
            self.a.store(Width::B8, R10, TIMER, R1);
        }
        self.a.map(R1, self.plan.maps.ring);
        self.a.constant(R2, (HEADER + bytes).into());
        self.a.constant(R3, 0);
        self.a.call(helper::RINGBUF_RESERVE);
        self.a.jump_if_imm(Jump::Unequal, R0, 0, reserved);
        self.count_lost();
        self.a.jump(end);
        self.a.place(reserved);
        self.a.mov(R8, R0);
        self.a.call(helper::KTIME_GET_NS);
        self.a.store(Width::B8, R8, at::NS, R0);
        self.a.call(helper::GET_CURRENT_PID_TGID);
        self.a.store(Width::B8, R8, at::TASK, R0);
        self.a.store(Width::B8, R8, at::SOCKET, R7);
        for (slot, to) in [(RECEIVING, at::RECEIVING), (TIMER, at::TIMER)] {
            self.a.load(Width::B8, R1, R10, slot);
            self.a.store(Width::B8, R8, to, R1);
        }
        self.a.map_value(R1, self.plan.maps.lost);
        self.a.load(Width::B8, R1, R1, 0);
        self.a.store(Width::B8, R8, at::LOST, R1);
        self.a.constant(R1, what as i64);
        self.a.store(Width::B8, R8, at::WHAT, R1);
        if let Some(layout) = copied {
            self.copy_members(layout);
        }
    }

    /// Copies what a record keeps of the socket.
    fn copy_members(&mut self, layout: &Layout) {
        let cast = self.plan.cast.zip(layout.structure);
        if let Some((cast, structure)) = cast {
            cast.structure(&mut self.a, R7, structure);
        }
        for range in &layout.ranges {
            let (base, from) = if cast.is_some() { (R0, range.from as i16) } else { (R10, BUFFER) };
            if cast.is_none() {
                self.read_at_once(R7, range.from, range.bytes);
            }
            for pick in &range.picks {
                self.a.load(pick.width, R1, base, from + pick.from as i16);
                self.a.store(pick.width, R8, (HEADER + pick.at) as i16, R1);
            }
        }
    }

    /// Copies the header of the packet in R9, which goes out, and notes how long it is from there on.
    pub(super) fn copy_segment(&mut self) {
        let offsets = self.plan.offsets;
        self.load(Width::B8, R6, R9, offsets.skb_head);
        self.load(Width::B2, R7, R9, offsets.skb_transport_header);
        self.load(Width::B8, R1, R9, offsets.skb_data);
        self.load(Width::B4, R9, R9, offsets.skb_len);
        // Bytes from the header on: all, less what stands before it.
        self.a.alu(Alu::Add, R6, R7);
        self.a.alu(Alu::Add, R9, R1);
        self.a.alu(Alu::Sub, R9, R6);
        self.a.store(Width::B4, R8, at::LENGTH, R9);
        self.copy_from(at::TCP, 20, R6, 0);
    }

    pub(super) fn submit(&mut self) {
        self.a.mov(R1, R8);
        self.a.constant(R2, NO_WAKE_UP.into());
        self.a.call(helper::RINGBUF_SUBMIT);
    }
}
