//! The programs in the kernel: one for each tracepoint, all raw ones. Those that most of what passes runs into have the
//! types of their arguments ([`TYPED`](super::hooks::TYPED)).
//!
//! What is copied is decided by the [`Layout`](super::layout::Layout), and nothing is judged here. No record wakes the
//! reader up: a reader that is woken by each event takes the processor from the program that it watches, which makes
//! more events.
//!
//! Nearly all that passes here is of nobody who is traced. So each program asks first what needs one load
//! ([`MARKS`](super::marks::MARKS)), and ends there.

use taut_bpf::instruction::{Alu, Instruction, Jump, R, Width};
use taut_bpf::{Field, helper};

use super::calls::{ACCEPTS, POLLS, RECEIVES, SENDS};
use super::record::{What, at};
use super::scope::Scope;
use super::writer::{
    CLOSED, ESTABLISHED, KEY, LISTEN, ON_LISTENER, ON_MANY, ON_PIPE, ON_SOCKET, ON_TCP, Plan, RECEIVING, SYN_RECEIVED,
    SYN_SENT, VALUE, thread,
};

use R::{R0, R1, R6, R7, R8, R9, R10};

/// The greatest number of descriptors that may be ready, and the greatest descriptor. What is more is an error.
const MOST_READY: i32 = i32::MAX;
/// `TASK_COMM_LEN`.
const NAME_BYTES: u32 = 16;
/// Shorter waits for a processor are no record, in ns.
const LEAST_WAIT_NS: i32 = 50_000;
/// Of waits for descriptors none of which was ready, so long ones are told of.
const LEAST_SLEPT_NS: i32 = 500_000;

impl Plan<'_> {
    /// `sys_enter(regs, number)`
    pub(super) fn call(&self) -> Vec<Instruction> {
        self.write(|w| {
            w.a.mov(R8, R1);
            w.only_targets();
            w.a.load(Width::B8, R6, R8, 0);
            w.a.load(Width::B8, R9, R8, 8);
            let wanted = w.a.label();
            for number in SENDS.into_iter().chain(RECEIVES) {
                w.a.jump_if_imm(Jump::Equal, R9, number as i32, wanted);
            }
            let (polls, accepts, end) = (w.a.label(), w.a.label(), w.end);
            for &number in POLLS {
                w.a.jump_if_imm(Jump::Equal, R9, number as i32, polls);
            }
            for number in ACCEPTS {
                w.a.jump_if_imm(Jump::Equal, R9, number as i32, accepts);
            }
            w.a.jump(end);
            w.a.place(accepts);
            w.read(Width::B8, R8, R6, self.offsets.first_argument);
            w.socket_of_descriptor(None);
            w.only_wanted_ports();
            w.enter(ON_LISTENER);
            w.a.jump(end);
            w.a.place(polls);
            // With a port, one that never used a socket that is traced waits for something else.
            if matches!(self.scope, Scope::Port(_)) {
                w.a.call(helper::GET_CURRENT_PID_TGID);
                w.a.store(Width::B4, R10, KEY, R0);
                w.look_up(self.maps.threads, KEY);
            }
            w.a.call(helper::KTIME_GET_NS);
            w.a.mov(R7, R0);
            w.enter(ON_MANY);
            w.a.jump(end);
            w.a.place(wanted);
            w.read(Width::B8, R8, R6, self.offsets.first_argument);
            let (other, pipe) = (w.a.label(), w.a.label());
            w.socket_of_descriptor(self.others.map(|_| (other, pipe)));
            w.only_wanted_ports();
            // What is closed may be read to its end. To follow it would be to follow who has its place next.
            let closed = w.a.label();
            w.read(Width::B1, R8, R7, self.offsets.state);
            w.a.jump_if_imm(Jump::Equal, R8, CLOSED, closed);
            w.follow();
            w.a.place(closed);
            w.forget_receiving();
            w.enter(ON_TCP);
            w.begin(What::Call);
            w.a.store(Width::B4, R8, at::NUMBER, R9);
            w.submit();
            let Some(others) = self.others else { return };
            w.a.jump(end);
            w.a.place(other);
            w.mark_socket();
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
            w.a.mov(R8, R1);
            w.a.call(helper::GET_CURRENT_PID_TGID);
            w.a.mov(R1, R0);
            w.only_marked();
            w.a.store(Width::B4, R10, KEY, R0);
            w.look_up(self.maps.threads, KEY);
            w.a.load(Width::B8, R9, R0, thread::CALL);
            w.leave_if_zero(R9);
            w.a.load(Width::B8, R7, R0, thread::CALL_ON);
            w.a.constant(R1, 0);
            w.a.store(Width::B8, R0, thread::CALL, R1);
            w.a.load(Width::B8, R6, R8, 8);
            let [socket, pipe, many, listener] = [(); 4].map(|()| w.a.label());
            w.a.mov(R8, R9);
            w.a.alu_imm(Alu::ShiftRight, R8, 32);
            w.a.jump_if_imm(Jump::Equal, R8, (ON_MANY >> 32) as i32, many);
            w.a.jump_if_imm(Jump::Equal, R8, (ON_LISTENER >> 32) as i32, listener);
            if self.others.is_some() {
                w.a.jump_if_imm(Jump::Equal, R8, (ON_SOCKET >> 32) as i32, socket);
                w.a.jump_if_imm(Jump::Equal, R8, (ON_PIPE >> 32) as i32, pipe);
            }
            w.known_or_closed();
            w.forget_receiving();
            w.come_back(What::Return);
            let end = w.end;
            w.a.jump(end);
            w.a.place(listener);
            w.a.jump_if_imm(Jump::Greater, R6, MOST_READY, end);
            w.a.mov(R8, R6);
            w.socket_of_descriptor(None);
            w.read(Width::B1, R8, R7, self.offsets.state);
            w.a.jump_if_imm(Jump::Equal, R8, CLOSED, end);
            w.follow();
            w.begin(What::Accepted);
            w.submit();
            w.a.jump(end);
            w.a.place(many);
            // It failed: then the result is a very large number.
            w.a.jump_if_imm(Jump::Greater, R6, MOST_READY, end);
            let ready = w.a.label();
            w.a.jump_if_imm(Jump::Unequal, R6, 0, ready);
            // None is ready: of interest where it slept meanwhile.
            w.a.call(helper::KTIME_GET_NS);
            w.a.alu(Alu::Sub, R0, R7);
            w.a.jump_if_imm(Jump::Less, R0, LEAST_SLEPT_NS, end);
            w.a.place(ready);
            w.come_back(What::Polled);
            if self.others.is_some() {
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
            let (tcp, end) = (w.a.label(), w.end);
            w.a.load(Width::B8, R7, R1, 0);
            w.only_marked_sockets();
            w.a.store(Width::B8, R10, KEY, R7);
            if self.others.is_some() {
                w.map_and_key(self.maps.others, KEY);
                w.a.call(helper::MAP_LOOKUP_ELEM);
                w.a.jump_if_imm(Jump::Equal, R0, 0, tcp);
                w.begin(What::SocketReady);
                w.submit();
                w.a.jump(end);
            }
            w.a.place(tcp);
            // Of one that is established `tcp_probe` tells.
            w.read(Width::B1, R8, R7, self.offsets.state);
            w.a.jump_if_imm(Jump::Equal, R8, ESTABLISHED, end);
            w.known();
            w.begin(What::Arrived);
            w.submit();
        })
    }

    /// `sock_send_length(sk, result, flags)` or `sock_recv_length`, after the socket's own code ran: what no system
    /// call of the lists above did, so io_uring or splice(2).
    pub(super) fn transfer(&self, what: What) -> Vec<Instruction> {
        self.write(|w| {
            w.a.mov(R8, R1);
            w.only_targets();
            w.a.load(Width::B8, R7, R8, 0);
            w.a.load(Width::B8, R6, R8, 8);
            w.a.load(Width::B8, R9, R8, 16);
            w.only_wanted_ports();
            w.only_outside_of_calls();
            w.only_tcp(None);
            let end = w.end;
            w.read(Width::B1, R8, R7, self.offsets.state);
            w.a.jump_if_imm(Jump::Equal, R8, CLOSED, end);
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
        self.write(|w| {
            w.a.load(Width::B8, R9, R1, 0);
            w.load(Width::B8, R7, R9, self.offsets.skb_sk);
            w.leave_if_zero(R7);
            w.only_marked_sockets();
            w.known();
            w.context();
            w.begin(What::Queue);
            w.copy_segment();
            w.submit();
        })
    }

    /// `net_dev_start_xmit(skb, device)`, of devices in whose queue it may have waited. `queue` leads to what takes
    /// packets into that.
    pub(super) fn start(&self, queue: [u32; 3]) -> Vec<Instruction> {
        self.write(|w| {
            w.a.load(Width::B8, R9, R1, 0);
            w.a.load(Width::B8, R8, R1, 8);
            for member in queue {
                w.load(Width::B8, R8, R8, member);
                w.leave_if_zero(R8);
            }
            w.load(Width::B8, R7, R9, self.offsets.skb_sk);
            w.leave_if_zero(R7);
            w.only_marked_sockets();
            w.known();
            w.begin(What::Started);
            w.copy_segment();
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
            w.load(Width::B8, R6, R9, offsets.skb_data);
            w.load(Width::B4, R9, R9, offsets.skb_len);
            w.a.store(Width::B4, R8, at::LENGTH, R9);
            w.copy_from(at::TCP, 20, R6, 0);
            w.submit();
        })
    }

    /// `tcp_retransmit_skb(sk, skb, …)`
    pub(super) fn repeat(&self) -> Vec<Instruction> {
        self.write(|w| {
            w.a.load(Width::B8, R7, R1, 0);
            if let Some(error) = self.offsets.repeat_error {
                w.a.load(Width::B8, R8, R1, error);
                // A number of 32 bits.
                w.a.alu_imm(Alu::ShiftLeft, R8, 32);
                w.a.jump_if_imm(Jump::Unequal, R8, 0, w.end);
            }
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
            w.a.load(Width::B8, R6, R1, 8);
            let end = w.end;
            let [opens, opened, accepted, listens] = [(); 4].map(|()| w.a.label());
            w.a.jump_if_imm(Jump::Equal, R9, SYN_SENT, opens);
            w.a.jump_if_imm(Jump::Equal, R9, ESTABLISHED, opened);
            w.a.jump_if_imm(Jump::Equal, R9, LISTEN, listens);
            w.a.jump_if_imm(Jump::Unequal, R9, CLOSED, end);
            w.known();
            w.delete(self.maps.sockets, KEY);
            w.begin(What::Close);
            w.submit();
            w.a.jump(end);
            w.a.place(opened);
            w.a.jump_if_imm(Jump::Equal, R6, SYN_RECEIVED, accepted);
            w.a.jump_if_imm(Jump::Unequal, R6, SYN_SENT, end);
            w.known();
            w.open();
            w.a.jump(end);
            // It will be accepted from a socket that listens. Who does that makes its first call on it later, and what
            // comes until then is followed.
            w.a.place(accepted);
            match self.scope {
                Scope::Port(_) => w.only_wanted_ports(),
                Scope::Processes => w.only_listened_ports(),
            }
            w.follow();
            w.open();
            w.a.jump(end);
            // A connect(2) of this thread; its first segment leaves next.
            w.a.place(opens);
            w.only_targets();
            w.only_tcp(None);
            w.only_wanted_ports();
            w.follow_opening();
            w.a.jump(end);
            // A listen(2) of this thread.
            w.a.place(listens);
            if self.scope == Scope::Processes {
                w.only_targets();
                w.only_tcp(None);
                w.listen();
            }
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
            w.load(Width::B4, R8, R6, self.offsets.task_pid);
            w.a.mov(R1, R8);
            w.only_marked();
            w.a.store(Width::B4, R10, KEY, R8);
            w.look_up(self.maps.threads, KEY);
            w.a.mov(R9, R0);
            w.a.call(helper::KTIME_GET_NS);
            w.a.store(Width::B8, R9, thread::READY_SINCE, R0);
            w.context();
            w.a.load(Width::B8, R1, R10, RECEIVING);
            w.a.store(Width::B8, R9, thread::WOKEN_BY, R1);
        })
    }

    /// `sched_switch(preempt, prev, next, …)`: one that could go on is ready to run, and another one runs.
    pub(super) fn switch(&self, state: Field) -> Vec<Instruction> {
        self.write(|w| {
            let (next, sleeps) = (w.a.label(), w.a.label());
            w.a.mov(R9, R1);
            // The one before is still the current one.
            w.a.call(helper::GET_CURRENT_PID_TGID);
            w.a.mov(R1, R0);
            w.load_mark();
            w.a.jump_if_imm(Jump::Equal, R1, 0, next);
            w.a.store(Width::B4, R10, KEY, R0);
            w.map_and_key(self.maps.threads, KEY);
            w.a.call(helper::MAP_LOOKUP_ELEM);
            w.a.jump_if_imm(Jump::Equal, R0, 0, next);
            w.a.mov(R8, R0);
            w.a.constant(R1, 0);
            w.a.store(Width::B8, R8, thread::READY_SINCE, R1);
            w.a.store(Width::B8, R8, thread::WOKEN_BY, R1);
            let width = if state.bits > 32 { Width::B8 } else { Width::B4 };
            let is_ready = w.a.label();
            w.a.load(Width::B8, R1, R9, 0);
            w.a.alu_imm(Alu::And, R1, 1);
            w.a.jump_if_imm(Jump::Equal, R1, 1, is_ready);
            w.a.load(Width::B8, R6, R9, 8);
            w.load(width, R1, R6, state.byte());
            w.a.jump_if_imm(Jump::Unequal, R1, 0, sleeps);
            w.a.place(is_ready);
            w.a.call(helper::KTIME_GET_NS);
            w.a.store(Width::B8, R8, thread::READY_SINCE, R0);
            w.a.place(sleeps);
            w.a.place(next);
            w.a.load(Width::B8, R7, R9, 16);
            w.load(Width::B4, R8, R7, self.offsets.task_pid);
            w.a.mov(R1, R8);
            w.only_marked();
            w.a.store(Width::B4, R10, KEY, R8);
            w.look_up(self.maps.threads, KEY);
            w.a.mov(R8, R0);
            w.a.load(Width::B8, R6, R8, thread::READY_SINCE);
            w.a.load(Width::B8, R7, R8, thread::WOKEN_BY);
            let end = w.end;
            w.a.jump_if_imm(Jump::Equal, R6, 0, end);
            w.a.constant(R1, 0);
            w.a.store(Width::B8, R8, thread::READY_SINCE, R1);
            w.a.store(Width::B8, R8, thread::WOKEN_BY, R1);
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
        self.write(|w| {
            w.a.constant(R1, 0);
            w.a.store(Width::B4, R10, KEY, R1);
            w.map_and_key(self.maps.context, KEY);
            w.a.call(helper::MAP_LOOKUP_ELEM);
            w.leave_if_zero(R0);
            w.a.constant(R1, 0);
            w.a.store(Width::B8, R0, 0, R1);
        })
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
            w.mark_number(R8);
            w.a.store(Width::B4, R10, KEY, R8);
            w.a.constant(R1, 1);
            w.a.store(Width::B4, R10, VALUE, R1);
            w.update(self.maps.targets, VALUE);
            let end = w.end;
            w.a.jump_if_imm(Jump::Equal, R0, 0, end);
            // All that it does from now on.
            w.count_lost();
        })
    }

    /// `sched_process_exit(task, …)`: a thread calls no more, and its process may not be there any more when somebody
    /// looks for its name; when none of the process is left, its number may be used again.
    pub(super) fn exit(&self) -> Vec<Instruction> {
        self.write(|w| {
            w.a.load(Width::B8, R6, R1, 0);
            w.read(Width::B4, R8, R6, self.offsets.task_pid);
            w.a.store(Width::B4, R10, KEY, R8);
            w.delete(self.maps.threads, KEY);
            w.a.mov(R9, R0);
            let is_told = w.a.label();
            if self.scope == Scope::Processes {
                w.read(Width::B8, R7, R6, self.offsets.task_signal);
                w.read(Width::B4, R8, R7, self.offsets.signal_live);
                w.a.jump_if_imm(Jump::Unequal, R8, 0, is_told);
                w.read(Width::B4, R8, R6, self.offsets.task_tgid);
                w.a.store(Width::B4, R10, KEY, R8);
                w.delete(self.maps.targets, KEY);
            }
            // Last, as there may be no room for it.
            w.a.place(is_told);
            let end = w.end;
            w.a.jump_if_imm(Jump::Unequal, R9, 0, end);
            w.read(Width::B8, R9, R6, self.offsets.task_leader);
            w.a.constant(R7, 0);
            w.begin(What::Named);
            w.copy_from(at::TCP, NAME_BYTES, R9, self.offsets.task_name);
            w.submit();
        })
    }
}
