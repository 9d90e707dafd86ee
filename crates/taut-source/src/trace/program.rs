//! The programs in the kernel: one for each tracepoint, all raw ones, so they need no types at loading.
//!
//! What is copied is decided by the [`Layout`], and nothing is judged here. No record wakes the reader up: a reader
//! that is woken by each event takes the processor from the program that it watches, which makes more events.

use taut_bpf::instruction::{Alu, Assembler, Instruction, Jump, Label, R, Width};
use taut_bpf::{Field, helper};

use super::calls::{RECEIVES, SENDS};
use super::layout::{Layout, Offsets, Others};
use super::maps::MapNumbers;
use super::record::{Copied, HEADER, What, at};
use super::scope::Scope;

use R::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};

// The stack.
const KEY: i16 = -8;
/// 16 bytes.
const VALUE: i16 = -24;
const DESCRIPTOR: i16 = -32;
const RECEIVING: i16 = -40;
const TIMER: i16 = -48;
const SCRATCH: i16 = -56;

/// Shorter waits for a processor are no record, in ns.
const LEAST_WAIT_NS: i32 = 50_000;

/// `IPPROTO_TCP`.
const TCP: i32 = 6;
/// `BPF_RB_NO_WAKEUP`.
const NO_WAKE_UP: i32 = 1;
/// `TCP_CLOSE` of include/net/tcp_states.h.
const CLOSED: i32 = 7;
const UNIX: i32 = 1;
const INET: i32 = 2;
const INET6: i32 = 10;
/// `IPPROTO_UDP`.
const UDP: i32 = 17;
/// `S_IFMT`, `S_IFSOCK` and `S_IFIFO`.
const KIND_OF_FILE: i32 = 0o170_000;
const SOCKET: i32 = 0o140_000;
const FIFO: i32 = 0o010_000;
/// What a thread's call is on, beside its number: TCP, another socket, or a pipe.
const ON_SOCKET: i64 = 1 << 32;
const ON_PIPE: i64 = 2 << 32;

/// What the programs are made for.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) layout: &'a Layout,
    /// Where what is not TCP is traced, too.
    pub(super) others: Option<&'a Others>,
    pub(super) offsets: Offsets,
    pub(super) maps: MapNumbers,
    pub(super) scope: Scope,
}

/// A program being written. R7 is the socket throughout.
struct Writer<'a> {
    a: Assembler,
    plan: &'a Plan<'a>,
    end: Label,
}

impl Plan<'_> {
    fn write(&self, body: impl FnOnce(&mut Writer<'_>)) -> Vec<Instruction> {
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

    /// `sys_enter(regs, number)`
    pub(super) fn call(&self) -> Vec<Instruction> {
        self.write(|w| {
            w.a.load(Width::B8, R6, R1, 0);
            w.a.load(Width::B8, R9, R1, 8);
            let wanted = w.a.label();
            for number in SENDS.into_iter().chain(RECEIVES) {
                w.a.jump_if_imm(Jump::Equal, R9, number as i32, wanted);
            }
            let end = w.end;
            w.a.jump(end);
            w.a.place(wanted);
            w.only_targets();
            w.read(Width::B8, R8, R6, self.offsets.first_argument);
            w.a.store(Width::B8, R10, DESCRIPTOR, R8);
            let (other, pipe) = (w.a.label(), w.a.label());
            w.socket_of_descriptor(self.others.map(|_| (other, pipe)));
            w.only_wanted_ports();
            w.follow();
            w.forget_receiving();
            w.enter(0);
            w.begin(What::Call);
            w.a.store(Width::B4, R8, at::NUMBER, R9);
            w.submit();
            let Some(others) = self.others else { return };
            w.a.jump(end);
            w.a.place(other);
            w.a.store(Width::B8, R10, KEY, R7);
            w.a.constant(R1, 1);
            w.a.store(Width::B4, R10, VALUE, R1);
            w.update(self.maps.others, VALUE);
            w.enter_other(What::SocketCall, ON_SOCKET, others);
            w.a.jump(end);
            w.a.place(pipe);
            w.read(Width::B8, R7, R6, others.inode_pipe);
            w.a.jump_if_imm(Jump::Equal, R7, 0, end);
            w.enter_other(What::PipeCall, ON_PIPE, others);
        })
    }

    /// `sys_exit(regs, result)`
    pub(super) fn call_return(&self) -> Vec<Instruction> {
        self.write(|w| {
            w.a.load(Width::B8, R6, R1, 8);
            w.a.call(helper::GET_CURRENT_PID_TGID);
            w.a.store(Width::B4, R10, KEY, R0);
            w.look_up(self.maps.calls, KEY);
            w.a.load(Width::B8, R7, R0, 0);
            w.a.load(Width::B8, R9, R0, 8);
            w.delete(self.maps.calls, KEY);
            let (socket, pipe) = (w.a.label(), w.a.label());
            if self.others.is_some() {
                w.a.mov(R8, R9);
                w.a.alu_imm(Alu::ShiftRight, R8, 32);
                w.a.jump_if_imm(Jump::Equal, R8, (ON_SOCKET >> 32) as i32, socket);
                w.a.jump_if_imm(Jump::Equal, R8, (ON_PIPE >> 32) as i32, pipe);
            }
            w.known();
            w.forget_receiving();
            w.come_back(What::Return);
            if self.others.is_some() {
                let end = w.end;
                w.a.jump(end);
                w.a.place(socket);
                w.come_back(What::SocketReturn);
                w.a.jump(end);
                w.a.place(pipe);
                w.come_back(What::PipeReturn);
            }
        })
    }

    /// `sk_data_ready(sk)`: something was put into the receive queue.
    pub(super) fn ready(&self) -> Vec<Instruction> {
        self.write(|w| {
            w.a.load(Width::B8, R7, R1, 0);
            w.a.store(Width::B8, R10, KEY, R7);
            w.look_up(self.maps.others, KEY);
            w.begin(What::SocketReady);
            w.submit();
        })
    }

    /// `sock_send_length(sk, result, flags)` or `sock_recv_length`, after the socket's own code ran: what no system
    /// call of the lists above did, so io_uring or splice(2).
    pub(super) fn transfer(&self, what: What) -> Vec<Instruction> {
        self.write(|w| {
            w.a.load(Width::B8, R7, R1, 0);
            w.a.load(Width::B8, R6, R1, 8);
            w.a.load(Width::B8, R9, R1, 16);
            w.only_targets();
            // A call that is traced tells of itself.
            w.a.call(helper::GET_CURRENT_PID_TGID);
            w.a.store(Width::B4, R10, KEY, R0);
            w.map_and_key(self.maps.calls, KEY);
            w.a.call(helper::MAP_LOOKUP_ELEM);
            let end = w.end;
            w.a.jump_if_imm(Jump::Unequal, R0, 0, end);
            w.only_tcp(None);
            w.only_wanted_ports();
            w.follow();
            w.forget_receiving();
            w.begin(what);
            w.a.store(Width::B8, R8, at::RESULT, R6);
            w.a.store(Width::B4, R8, at::NUMBER, R9);
            w.submit();
        })
    }

    /// `net_dev_queue(skb)`
    pub(super) fn queue(&self) -> Vec<Instruction> {
        let offsets = &self.offsets;
        self.write(|w| {
            w.a.load(Width::B8, R9, R1, 0);
            w.read(Width::B8, R7, R9, offsets.skb_sk);
            let end = w.end;
            w.a.jump_if_imm(Jump::Equal, R7, 0, end);
            w.known();
            w.context();
            w.begin(What::Queue);
            w.read(Width::B8, R6, R9, offsets.skb_head);
            w.read(Width::B2, R1, R9, offsets.skb_transport_header);
            w.a.alu(Alu::Add, R6, R1);
            w.copy_from(at::TCP, 20, R6, 0);
            // Bytes from the header on: all, less what stands before it.
            w.read(Width::B8, R1, R9, offsets.skb_data);
            w.a.alu(Alu::Sub, R6, R1);
            w.read(Width::B4, R1, R9, offsets.skb_len);
            w.a.alu(Alu::Sub, R1, R6);
            w.a.store(Width::B4, R8, at::LENGTH, R1);
            w.submit();
        })
    }

    /// `tcp_probe(sk, skb)`
    pub(super) fn receive(&self) -> Vec<Instruction> {
        let offsets = &self.offsets;
        self.write(|w| {
            w.a.load(Width::B8, R7, R1, 0);
            w.a.load(Width::B8, R9, R1, 8);
            w.known_by_ports();
            // What leaves this socket while the segment is taken in leaves because of it.
            w.context();
            w.a.store(Width::B8, R0, 0, R7);
            w.begin(What::Receive);
            w.read(Width::B8, R6, R9, offsets.skb_data);
            w.copy_from(at::TCP, 20, R6, 0);
            w.read(Width::B4, R1, R9, offsets.skb_len);
            w.a.store(Width::B4, R8, at::LENGTH, R1);
            w.submit();
        })
    }

    /// `tcp_retransmit_skb(sk, skb, …)`
    pub(super) fn repeat(&self) -> Vec<Instruction> {
        self.write(|w| {
            w.a.load(Width::B8, R7, R1, 0);
            w.known();
            w.begin(What::Repeat);
            w.submit();
        })
    }

    /// `inet_sock_set_state(sk, old, new)`
    pub(super) fn state(&self) -> Vec<Instruction> {
        self.write(|w| {
            w.a.load(Width::B8, R7, R1, 0);
            w.a.load(Width::B8, R9, R1, 16);
            let end = w.end;
            w.a.jump_if_imm(Jump::Unequal, R9, CLOSED, end);
            w.known();
            w.delete(self.maps.sockets, KEY);
            w.begin(What::Close);
            w.submit();
        })
    }

    /// `timer_expire_entry(timer, …)` or `hrtimer_expire_entry(hrtimer, …)`; `None` at their exits.
    pub(super) fn timer(&self, function: Option<u32>) -> Vec<Instruction> {
        self.write(|w| {
            w.a.load(Width::B8, R9, R1, 0);
            match function {
                Some(function) => w.read(Width::B8, R7, R9, function),
                None => w.a.constant(R7, 0),
            }
            w.context();
            w.a.store(Width::B8, R0, 8, R7);
        })
    }

    /// `sched_waking(task)`: from now on it is ready to run.
    pub(super) fn waking(&self) -> Vec<Instruction> {
        self.write(|w| {
            w.a.load(Width::B8, R6, R1, 0);
            w.read(Width::B4, R8, R6, self.offsets.task_pid);
            w.a.store(Width::B4, R10, KEY, R8);
            w.look_up(self.maps.threads, KEY);
            w.a.mov(R9, R0);
            w.a.call(helper::KTIME_GET_NS);
            w.a.store(Width::B8, R9, 0, R0);
            w.context();
            w.a.load(Width::B8, R1, R10, RECEIVING);
            w.a.store(Width::B8, R9, 8, R1);
        })
    }

    /// `sched_switch(preempt, prev, next, …)`: one that could go on is ready to run, and another one runs.
    pub(super) fn switch(&self, state: Field) -> Vec<Instruction> {
        self.write(|w| {
            let (next, sleeps) = (w.a.label(), w.a.label());
            w.a.load(Width::B8, R9, R1, 0);
            w.a.load(Width::B8, R6, R1, 8);
            w.a.load(Width::B8, R7, R1, 16);
            // The one before is still the current one.
            w.a.call(helper::GET_CURRENT_PID_TGID);
            w.a.store(Width::B4, R10, KEY, R0);
            w.map_and_key(self.maps.threads, KEY);
            w.a.call(helper::MAP_LOOKUP_ELEM);
            w.a.jump_if_imm(Jump::Equal, R0, 0, next);
            w.a.mov(R8, R0);
            w.a.constant(R1, 0);
            w.a.store(Width::B8, R8, 0, R1);
            w.a.store(Width::B8, R8, 8, R1);
            let width = if state.bits > 32 { Width::B8 } else { Width::B4 };
            let is_ready = w.a.label();
            w.a.alu_imm(Alu::And, R9, 1);
            w.a.jump_if_imm(Jump::Equal, R9, 1, is_ready);
            w.read(width, R1, R6, state.byte());
            w.a.jump_if_imm(Jump::Unequal, R1, 0, sleeps);
            w.a.place(is_ready);
            w.a.call(helper::KTIME_GET_NS);
            w.a.store(Width::B8, R8, 0, R0);
            w.a.place(sleeps);
            w.a.place(next);
            w.read(Width::B4, R8, R7, self.offsets.task_pid);
            w.a.store(Width::B4, R10, KEY, R8);
            w.look_up(self.maps.threads, KEY);
            w.a.mov(R8, R0);
            w.a.load(Width::B8, R6, R8, 0);
            w.a.load(Width::B8, R7, R8, 8);
            let end = w.end;
            w.a.jump_if_imm(Jump::Equal, R6, 0, end);
            w.a.constant(R1, 0);
            w.a.store(Width::B8, R8, 0, R1);
            w.a.store(Width::B8, R8, 8, R1);
            w.a.call(helper::KTIME_GET_NS);
            w.a.alu(Alu::Sub, R0, R6);
            w.a.mov(R6, R0);
            w.a.jump_if_imm(Jump::Less, R6, LEAST_WAIT_NS, end);
            w.begin(What::Ran);
            w.a.store(Width::B8, R8, at::RESULT, R6);
            w.a.load(Width::B4, R1, R10, KEY);
            w.a.store(Width::B8, R8, at::TASK, R1);
            w.submit();
        })
    }

    /// `softirq_exit(vector)`
    pub(super) fn softirq_exit(&self) -> Vec<Instruction> {
        self.write(|w| w.forget_receiving())
    }

    /// `sched_process_fork(parent, child)`
    pub(super) fn fork(&self) -> Vec<Instruction> {
        self.write(|w| {
            w.a.load(Width::B8, R6, R1, 0);
            w.a.load(Width::B8, R7, R1, 8);
            w.read(Width::B4, R8, R6, self.offsets.task_tgid);
            w.a.store(Width::B4, R10, KEY, R8);
            w.look_up(self.maps.targets, KEY);
            w.read(Width::B4, R8, R7, self.offsets.task_tgid);
            w.a.store(Width::B4, R10, KEY, R8);
            w.a.constant(R1, 1);
            w.a.store(Width::B4, R10, VALUE, R1);
            w.update(self.maps.targets, VALUE);
        })
    }

    /// `sched_process_exit(task, …)`: when no thread of the process is left, its number may be used again.
    pub(super) fn exit(&self) -> Vec<Instruction> {
        self.write(|w| {
            w.a.load(Width::B8, R6, R1, 0);
            w.read(Width::B8, R7, R6, self.offsets.task_signal);
            w.read(Width::B4, R8, R7, self.offsets.signal_live);
            let end = w.end;
            w.a.jump_if_imm(Jump::Unequal, R8, 0, end);
            w.read(Width::B4, R8, R6, self.offsets.task_tgid);
            w.a.store(Width::B4, R10, KEY, R8);
            w.delete(self.maps.targets, KEY);
        })
    }
}

impl Writer<'_> {
    /// Reads memory of the kernel into a register; what can't be read is 0.
    fn read(&mut self, width: Width, dst: R, base: R, offset: u32) {
        let bytes = match width {
            Width::B1 => 1,
            Width::B2 => 2,
            Width::B4 => 4,
            Width::B8 => 8,
        };
        // The base first: it may be one of the arguments.
        self.a.mov(R3, base);
        self.a.alu_imm(Alu::Add, R3, offset as i32);
        self.a.mov(R1, R10);
        self.a.alu_imm(Alu::Add, R1, SCRATCH.into());
        self.a.constant(R2, bytes);
        self.a.call(helper::PROBE_READ_KERNEL);
        self.a.load(width, dst, R10, SCRATCH);
    }

    /// Copies memory of the kernel into the record.
    fn copy_from(&mut self, to: i16, bytes: u32, base: R, offset: u32) {
        self.a.mov(R3, base);
        self.a.alu_imm(Alu::Add, R3, offset as i32);
        self.a.mov(R1, R8);
        self.a.alu_imm(Alu::Add, R1, to.into());
        self.a.constant(R2, bytes.into());
        self.a.call(helper::PROBE_READ_KERNEL);
    }

    fn map_and_key(&mut self, map: i32, key: i16) {
        self.a.map(R1, map);
        self.a.mov(R2, R10);
        self.a.alu_imm(Alu::Add, R2, key.into());
    }

    /// R0 is the value's address; ends where there is none.
    fn look_up(&mut self, map: i32, key: i16) {
        self.map_and_key(map, key);
        self.a.call(helper::MAP_LOOKUP_ELEM);
        let end = self.end;
        self.a.jump_if_imm(Jump::Equal, R0, 0, end);
    }

    /// Writes the value at `value` under the key at [`KEY`].
    fn update(&mut self, map: i32, value: i16) {
        self.map_and_key(map, KEY);
        self.a.mov(R3, R10);
        self.a.alu_imm(Alu::Add, R3, value.into());
        self.a.constant(R4, 0);
        self.a.call(helper::MAP_UPDATE_ELEM);
    }

    fn delete(&mut self, map: i32, key: i16) {
        self.map_and_key(map, key);
        self.a.call(helper::MAP_DELETE_ELEM);
    }

    /// Ends unless the process is traced.
    fn only_targets(&mut self) {
        if self.plan.scope != Scope::Processes {
            return;
        }
        self.a.call(helper::GET_CURRENT_PID_TGID);
        self.a.alu_imm(Alu::ShiftRight, R0, 32);
        self.a.store(Width::B4, R10, KEY, R0);
        self.look_up(self.plan.maps.targets, KEY);
    }

    /// Keeps the thread's call: the socket in R7 and the number in R9, with what it is on.
    fn enter(&mut self, on: i64) {
        self.a.call(helper::GET_CURRENT_PID_TGID);
        self.a.store(Width::B4, R10, KEY, R0);
        self.a.store(Width::B8, R10, VALUE, R7);
        self.a.constant(R1, on);
        self.a.alu(Alu::Or, R1, R9);
        self.a.store(Width::B8, R10, VALUE + 8, R1);
        self.update(self.plan.maps.calls, VALUE);
        // Whoever calls runs, whatever was seen of its switches.
        let (is_known, noted) = (self.a.label(), self.a.label());
        self.map_and_key(self.plan.maps.threads, KEY);
        self.a.call(helper::MAP_LOOKUP_ELEM);
        self.a.constant(R1, 0);
        self.a.jump_if_imm(Jump::Unequal, R0, 0, is_known);
        self.a.store(Width::B8, R10, VALUE, R1);
        self.a.store(Width::B8, R10, VALUE + 8, R1);
        self.update(self.plan.maps.threads, VALUE);
        self.a.jump(noted);
        self.a.place(is_known);
        self.a.store(Width::B8, R0, 0, R1);
        self.a.place(noted);
    }

    /// Reports a call on what is not TCP, whose inode is in R6.
    fn enter_other(&mut self, what: What, on: i64, others: &Others) {
        self.read(Width::B8, R6, R6, others.inode_number);
        self.enter(on);
        self.begin(what);
        self.a.store(Width::B4, R8, at::NUMBER, R9);
        self.a.store(Width::B8, R8, at::TCP, R6);
        self.submit();
    }

    /// Reports the end of the call with the result in R6 and the number in R9.
    fn come_back(&mut self, what: What) {
        self.begin(what);
        self.a.store(Width::B8, R8, at::RESULT, R6);
        self.a.store(Width::B4, R8, at::NUMBER, R9);
        self.submit();
    }

    /// The socket behind the descriptor in R8, into R7; goes to the labels with another socket or with a pipe, whose
    /// inode is in R6, and ends with all else.
    fn socket_of_descriptor(&mut self, others: Option<(Label, Label)>) {
        let offsets = self.plan.offsets;
        let end = self.end;
        // A descriptor has 32 bits, whatever the register has.
        self.a.alu_imm(Alu::ShiftLeft, R8, 32);
        self.a.alu_imm(Alu::ShiftRight, R8, 32);
        self.a.call(helper::GET_CURRENT_TASK);
        self.read(Width::B8, R7, R0, offsets.task_files);
        self.read(Width::B8, R7, R7, offsets.files_fdt);
        self.read(Width::B4, R6, R7, offsets.fdt_max);
        let inside = self.a.label();
        self.a.jump_if(Jump::Less, R8, R6, inside);
        self.a.jump(end);
        self.a.place(inside);
        self.read(Width::B8, R7, R7, offsets.fdt_fd);
        self.a.alu_imm(Alu::ShiftLeft, R8, 3);
        self.a.alu(Alu::Add, R7, R8);
        self.read(Width::B8, R7, R7, 0);
        self.a.jump_if_imm(Jump::Equal, R7, 0, end);
        self.read(Width::B8, R6, R7, offsets.file_inode);
        self.read(Width::B2, R8, R6, offsets.inode_mode);
        self.a.alu_imm(Alu::And, R8, KIND_OF_FILE);
        if let Some((_, pipe)) = others {
            self.a.jump_if_imm(Jump::Equal, R8, FIFO, pipe);
        }
        self.a.jump_if_imm(Jump::Unequal, R8, SOCKET, end);
        self.read(Width::B8, R7, R7, offsets.file_private);
        self.read(Width::B8, R7, R7, offsets.socket_sk);
        self.a.jump_if_imm(Jump::Equal, R7, 0, end);
        self.only_tcp(others.map(|(other, _)| other));
    }

    /// Ends unless the socket is one of TCP; goes to the label with one of UDP or a Unix socket.
    fn only_tcp(&mut self, other: Option<Label>) {
        let (offsets, end) = (self.plan.offsets, self.end);
        let inet = self.a.label();
        self.read(Width::B2, R8, R7, offsets.family);
        if let Some(other) = other {
            self.a.jump_if_imm(Jump::Equal, R8, UNIX, other);
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
    fn only_wanted_ports(&mut self) {
        let Scope::Port(port) = self.plan.scope else { return };
        self.read(Width::B4, R8, R7, self.plan.offsets.port_pair);
        self.port_of(port);
    }

    /// Ends unless the port pair in R8 has this port. Its lower half is the peer's in network order, the upper one
    /// our own.
    fn port_of(&mut self, port: u16) {
        let (found, end) = (self.a.label(), self.end);
        self.a.mov(R1, R8);
        self.a.alu_imm(Alu::ShiftRight, R1, 16);
        self.a.jump_if_imm(Jump::Equal, R1, port.into(), found);
        self.a.mov(R1, R8);
        self.a.alu_imm(Alu::And, R1, 0xffff);
        self.a.jump_if_imm(Jump::Unequal, R1, port.to_be().into(), end);
        self.a.place(found);
    }

    /// Follows the socket from now on, and the peer's once it gets a segment.
    fn follow(&mut self) {
        let known = self.a.label();
        self.a.store(Width::B8, R10, KEY, R7);
        self.map_and_key(self.plan.maps.sockets, KEY);
        self.a.call(helper::MAP_LOOKUP_ELEM);
        self.a.jump_if_imm(Jump::Unequal, R0, 0, known);
        self.a.constant(R1, 1);
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
        self.update(self.plan.maps.ports, VALUE);
        self.a.place(known);
    }

    /// Ends unless the socket is followed; [`KEY`] is its address then.
    fn known(&mut self) {
        self.a.store(Width::B8, R10, KEY, R7);
        self.look_up(self.plan.maps.sockets, KEY);
    }

    /// As [`known`](Self::known), and follows one whose ports are wanted. Only for sockets that are established.
    fn known_by_ports(&mut self) {
        let known = self.a.label();
        self.a.store(Width::B8, R10, KEY, R7);
        self.map_and_key(self.plan.maps.sockets, KEY);
        self.a.call(helper::MAP_LOOKUP_ELEM);
        self.a.jump_if_imm(Jump::Unequal, R0, 0, known);
        self.read(Width::B4, R8, R7, self.plan.offsets.port_pair);
        match self.plan.scope {
            Scope::Port(port) => self.port_of(port),
            Scope::Processes => {
                self.a.store(Width::B8, R10, KEY, R8);
                self.look_up(self.plan.maps.ports, KEY);
            }
        }
        self.a.store(Width::B8, R10, KEY, R7);
        self.a.constant(R1, 1);
        self.a.store(Width::B4, R10, VALUE, R1);
        self.update(self.plan.maps.sockets, VALUE);
        self.a.place(known);
    }

    /// What this processor is at: R0 is where it stands, and it is kept on the stack for the record.
    fn context(&mut self) {
        self.a.constant(R1, 0);
        self.a.store(Width::B4, R10, SCRATCH, R1);
        self.look_up(self.plan.maps.context, SCRATCH);
        self.a.load(Width::B8, R1, R0, 0);
        self.a.store(Width::B8, R10, RECEIVING, R1);
        self.a.load(Width::B8, R1, R0, 8);
        self.a.store(Width::B8, R10, TIMER, R1);
    }

    /// No segment is being taken in on this processor any more.
    fn forget_receiving(&mut self) {
        self.context();
        self.a.constant(R1, 0);
        self.a.store(Width::B8, R0, 0, R1);
    }

    /// Begins a record, in R8, with the state of the socket. Nothing may end between this and [`submit`](Self::submit).
    fn begin(&mut self, what: What) {
        let (reserved, end) = (self.a.label(), self.end);
        let plan = self.plan;
        let (bytes, ranges) = match (what.copied(), plan.others) {
            (Copied::Nothing, _) => (0, &[][..]),
            (Copied::Socket, Some(others)) => (others.socket.bytes, &others.socket.ranges[..]),
            (Copied::Pipe, Some(others)) => (others.pipe.bytes, &others.pipe.ranges[..]),
            _ => (plan.layout.bytes, &plan.layout.ranges[..]),
        };
        if matches!(what, What::Repeat | What::Close) || what.copied() != Copied::Tcp {
            self.a.constant(R1, 0);
            self.a.store(Width::B8, R10, RECEIVING, R1);
            self.a.store(Width::B8, R10, TIMER, R1);
        }
        self.a.map(R1, self.plan.maps.ring);
        self.a.constant(R2, (HEADER + bytes).into());
        self.a.constant(R3, 0);
        self.a.call(helper::RINGBUF_RESERVE);
        self.a.jump_if_imm(Jump::Unequal, R0, 0, reserved);
        self.a.map_value(R1, self.plan.maps.lost);
        self.a.constant(R2, 1);
        self.a.atomic_add(R1, 0, R2);
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
        for range in ranges {
            self.copy_from((HEADER + range.at) as i16, range.bytes, R7, range.from);
        }
    }

    fn submit(&mut self) {
        self.a.mov(R1, R8);
        self.a.constant(R2, NO_WAKE_UP.into());
        self.a.call(helper::RINGBUF_SUBMIT);
    }
}
