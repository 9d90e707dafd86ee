//! The programs in the kernel: each adds to the entry of its connection, and none writes a record.
//!
//! They are at tracepoints that a connection without a loss meets only when it opens and when it ends. What they read
//! is read by calls of the kernel, which every kernel has.

use taut_bpf::instruction::{Alu, Assembler, Instruction, Jump, Label, R, Width};
use taut_bpf::{Btf, Field, helper};

use super::entry::{BYTES, INET6, What, at};
use crate::trace::error::Error;
use crate::trace::layout::{REPEATS, error_of_repeats};

use R::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};

// The stack.
/// The socket's address, its ports, and the hash of its addresses: the next connection has the memory of one that is
/// over, and may have its ports.
const KEY: i16 = -16;
const SCRATCH: i16 = -24;
/// [`opener`].
const OPENER: i16 = -56;
const ENTRY: i16 = OPENER - BYTES as i16;

/// Length of an entry's key.
pub(super) const KEY_BYTES: usize = 16;

/// What is kept of who opens a connection.
mod opener {
    /// When, in ns.
    pub(super) const SINCE: i16 = 0;
    /// Process and name.
    pub(super) const PID: i16 = 8;
    pub(super) const NAME: i16 = 16;
}

/// Length of that.
pub(super) const OPENER_BYTES: usize = 32;
/// `TASK_COMM_LEN`.
const NAME_BYTES: i64 = 16;

/// States of include/net/tcp_states.h, and `IPPROTO_TCP`.
const SYN_SENT: i32 = 2;
const FIN_WAIT_1: i32 = 4;
const FIN_WAIT_2: i32 = 5;
const CLOSED: i32 = 7;
const TCP: i32 = 6;
/// `RCV_SHUTDOWN` of include/net/sock.h.
const TAKES_NO_MORE: i32 = 1;
/// `BPF_NOEXIST`.
const IF_NEW: i64 = 1;
const NS_PER_US: i32 = 1000;

/// Where this kernel keeps what is read of a socket.
#[derive(Debug)]
pub(super) struct Places {
    /// The network namespace, and its number in that; none where the kernel has no others.
    network: Option<[u32; 2]>,
    family: u32,
    state: u32,
    /// Which ways are closed; none where that is no byte of its own.
    shutdown: Option<u32>,
    ports: u32,
    hash: u32,
    protocol: Field,
    /// The own address and the peer's, of both families.
    v4: [u32; 2],
    v6: Option<[u32; 2]>,
    /// When something was acknowledged last, or when something was sent first after all was: µs.
    delivered: u32,
    /// The smoothed round trip time, eight times, in µs.
    round_trip: u32,
}

impl Places {
    pub(super) fn of(btf: &Btf) -> Result<Self, Error> {
        let field = |structure: &str, path: &str| {
            btf.field(structure, path).ok_or_else(|| Error::Member(format!("{structure}.{path}")))
        };
        let byte = |structure: &str, path: &str| field(structure, path).map(Field::byte);
        let both = |paths: [&str; 2]| Ok::<_, Error>([byte("sock", paths[0])?, byte("sock", paths[1])?]);
        // Where sockets have a namespace and its number is not known, all namespaces would seem to be this one.
        let network = match byte("sock", "__sk_common.skc_net.net") {
            Ok(network) => Some([network, byte("net", "ns.inum")?]),
            Err(_) => None,
        };
        let shutdown = btf.field("sock", "sk_shutdown").filter(|field| field.bit_offset.is_multiple_of(8));
        Ok(Self {
            network,
            family: byte("sock", "__sk_common.skc_family")?,
            state: byte("sock", "__sk_common.skc_state")?,
            shutdown: shutdown.map(Field::byte),
            ports: byte("sock", "__sk_common.skc_portpair")?,
            hash: byte("sock", "__sk_common.skc_hash")?,
            protocol: field("sock", "sk_protocol")?,
            v4: both(["__sk_common.skc_rcv_saddr", "__sk_common.skc_daddr"])?,
            v6: both(["__sk_common.skc_v6_rcv_saddr", "__sk_common.skc_v6_daddr"]).ok(),
            delivered: byte("tcp_sock", "delivered_mstamp")?,
            round_trip: byte("tcp_sock", "srtt_us")?,
        })
    }

    /// Whether this kernel has several network namespaces.
    pub(super) const fn has_networks(&self) -> bool {
        self.network.is_some()
    }
}

/// Numbers of the maps' descriptors.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapNumbers {
    /// What was counted of each connection.
    pub(super) entries: i32,
    /// Who opened a connection, by the socket's address.
    pub(super) openers: i32,
    /// What was counted in all, in the order of [`What::ALL`].
    pub(super) totals: i32,
}

/// What the programs are made for.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) places: Places,
    pub(super) maps: MapNumbers,
    /// The number of the network namespace that is looked at, where it is known.
    pub(super) network: Option<i64>,
    /// The PID namespace whose numbers are told, by the device and the number of its file; else they are the kernel's.
    pub(super) pids: Option<[i64; 2]>,
}

/// A tracepoint, the structures that its first arguments point to, and the program there.
pub(super) struct Hook {
    pub(super) name: &'static str,
    pub(super) arguments: &'static [&'static str],
    pub(super) code: fn(&Plan, &Btf) -> Vec<Instruction>,
}

/// Where it is known who opens a connection: without it, what befalls a short one has no name.
pub(super) const OPENS: &str = "inet_sock_set_state";

pub(super) const HOOKS: [Hook; 3] = [
    Hook { name: OPENS, arguments: &["sock"], code: |plan, _| plan.state() },
    Hook { name: REPEATS, arguments: &["sock", "sk_buff"], code: |plan, btf| plan.repeat(error_of_repeats(btf)) },
    Hook { name: "tcp_receive_reset", arguments: &["sock"], code: |plan, _| plan.reset() },
];

impl Plan {
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

    /// `inet_sock_set_state(sk, old, new)`
    fn state(&self) -> Vec<Instruction> {
        self.write(|w| {
            let (opens, end) = (w.a.label(), w.end);
            w.a.load(Width::B8, R6, R1, 0);
            w.a.load(Width::B8, R7, R1, 16);
            w.a.store(Width::B8, R10, KEY, R6);
            w.a.jump_if_imm(Jump::Equal, R7, SYN_SENT, opens);
            w.a.jump_if_imm(Jump::Unequal, R7, CLOSED, end);
            // Another connection may have its address next.
            w.map_and_key(self.maps.openers);
            w.a.call(helper::MAP_DELETE_ELEM);
            w.a.jump(end);
            // A connect(2) of this process.
            w.a.place(opens);
            let protocol = self.places.protocol;
            w.read(if protocol.bits > 8 { Width::B2 } else { Width::B1 }, R7, R6, protocol.byte());
            w.a.jump_if_imm(Jump::Unequal, R7, TCP, end);
            w.only_own_network();
            w.a.call(helper::KTIME_GET_NS);
            w.a.store(Width::B8, R10, OPENER + opener::SINCE, R0);
            w.process();
            w.a.mov(R1, R10);
            w.a.alu_imm(Alu::Add, R1, (OPENER + opener::NAME).into());
            w.a.constant(R2, NAME_BYTES);
            w.a.call(helper::GET_CURRENT_COMM);
            w.update(self.maps.openers, OPENER, 0);
        })
    }

    /// `tcp_retransmit_skb(sk, skb)`, or `tcp_retransmit_skb(sk, skb, error)`
    fn repeat(&self, error: Option<i16>) -> Vec<Instruction> {
        self.write(|w| {
            let (opens, end) = (w.a.label(), w.end);
            w.a.load(Width::B8, R6, R1, 0);
            if let Some(error) = error {
                w.a.load(Width::B8, R7, R1, error);
                // Any number of 32 bits but 0, as kernels without it tell only of what was sent.
                w.a.alu_imm(Alu::ShiftLeft, R7, 32);
                w.a.jump_if_imm(Jump::Unequal, R7, 0, end);
            }
            w.begin(opens);
            w.count(What::Loss, |w| {
                w.read(Width::B8, R7, R6, self.places.delivered);
                w.read(Width::B4, R1, R6, self.places.round_trip);
                w.a.alu_imm(Alu::ShiftRight, R1, 3);
            });
            w.a.place(opens);
            w.count(What::Handshake, |w| {
                let is_known = w.a.label();
                w.map_and_key(self.maps.openers);
                w.a.call(helper::MAP_LOOKUP_ELEM);
                w.a.constant(R7, 0);
                w.a.jump_if_imm(Jump::Equal, R0, 0, is_known);
                w.a.load(Width::B8, R7, R0, opener::SINCE);
                w.a.alu_imm(Alu::Div, R7, NS_PER_US);
                w.a.place(is_known);
                // How long the way is, nobody knows yet.
                w.a.constant(R1, 0);
            });
        })
    }

    /// `tcp_receive_reset(sk)`, before that has ended the connection
    fn reset(&self) -> Vec<Instruction> {
        self.write(|w| {
            let opens = w.a.label();
            w.a.load(Width::B8, R6, R1, 0);
            w.begin(opens);
            w.only_open();
            w.count(What::Reset, |_| {});
            w.a.place(opens);
            w.count(What::Refused, |_| {});
        })
    }
}

/// A program being written. R6 is the socket throughout.
struct Writer<'a> {
    a: Assembler,
    plan: &'a Plan,
    end: Label,
}

impl Writer<'_> {
    /// Reads memory of the kernel into a register; what can't be read is 0. R0 to R5 are lost.
    fn read(&mut self, width: Width, dst: R, base: R, offset: u32) {
        self.read_to(SCRATCH, width.bytes(), base, offset);
        self.a.load(width, dst, R10, SCRATCH);
    }

    /// Reads memory of the kernel onto the stack.
    fn read_to(&mut self, to: i16, bytes: u32, base: R, offset: u32) {
        self.a.mov(R3, base);
        self.a.alu_imm(Alu::Add, R3, offset as i32);
        self.a.mov(R1, R10);
        self.a.alu_imm(Alu::Add, R1, to.into());
        self.a.constant(R2, bytes.into());
        self.a.call(helper::PROBE_READ_KERNEL);
    }

    fn map_and_key(&mut self, map: i32) {
        self.a.map(R1, map);
        self.a.mov(R2, R10);
        self.a.alu_imm(Alu::Add, R2, KEY.into());
    }

    fn update(&mut self, map: i32, value: i16, flags: i64) {
        self.map_and_key(map);
        self.a.mov(R3, R10);
        self.a.alu_imm(Alu::Add, R3, value.into());
        self.a.constant(R4, flags);
        self.a.call(helper::MAP_UPDATE_ELEM);
    }

    /// Puts the number of the process that is at work with who opens a connection: 0 for one of another PID namespace
    /// than the one whose numbers are told.
    fn process(&mut self) {
        let number = OPENER + opener::PID;
        if let Some([device, file]) = self.plan.pids {
            self.a.constant(R1, device);
            self.a.constant(R2, file);
            self.a.mov(R3, R10);
            self.a.alu_imm(Alu::Add, R3, number.into());
            // `struct bpf_pidns_info`: the thread, then the process; both are zero where it has none there.
            self.a.constant(R4, 8);
            self.a.call(helper::GET_NS_CURRENT_PID_TGID);
            self.a.load(Width::B4, R0, R10, number + 4);
        } else {
            self.a.call(helper::GET_CURRENT_PID_TGID);
            self.a.alu_imm(Alu::ShiftRight, R0, 32);
        }
        self.a.store(Width::B8, R10, number, R0);
    }

    /// Ends unless the socket is in the network namespace that is looked at. R7 is lost.
    fn only_own_network(&mut self) {
        let (Some([network, number]), Some(own)) = (self.plan.places.network, self.plan.network) else { return };
        self.read(Width::B8, R7, R6, network);
        self.read(Width::B4, R7, R7, number);
        self.a.constant(R1, own);
        let end = self.end;
        self.a.jump_if(Jump::Unequal, R7, R1, end);
    }

    /// Ends where a program has closed both ways of the connection, whose state is in R7, and waits for the peer's end.
    /// It has lost nothing; and the kernel meets this also when it refuses what the peer sends still, by a reset of its
    /// own. R7 is lost.
    fn only_open(&mut self) {
        let Some(shutdown) = self.plan.places.shutdown else { return };
        let (closing, is_open, end) = (self.a.label(), self.a.label(), self.end);
        self.a.jump_if_imm(Jump::Equal, R7, FIN_WAIT_1, closing);
        self.a.jump_if_imm(Jump::Unequal, R7, FIN_WAIT_2, is_open);
        self.a.place(closing);
        self.read(Width::B1, R7, R6, shutdown);
        self.a.alu_imm(Alu::And, R7, TAKES_NO_MORE);
        self.a.jump_if_imm(Jump::Unequal, R7, 0, end);
        self.a.place(is_open);
    }

    /// R9 is the time from here on, R7 the state, and the stack has the key. A connection that is not open yet goes to
    /// the label.
    fn begin(&mut self, opens: Label) {
        self.only_own_network();
        self.a.call(helper::KTIME_GET_NS);
        self.a.mov(R9, R0);
        self.a.store(Width::B8, R10, KEY, R6);
        for (at, part) in [(KEY + 8, self.plan.places.ports), (KEY + 12, self.plan.places.hash)] {
            self.read(Width::B4, R7, R6, part);
            self.a.store(Width::B4, R10, at, R7);
        }
        self.read(Width::B1, R7, R6, self.plan.places.state);
        self.a.jump_if_imm(Jump::Equal, R7, SYN_SENT, opens);
    }

    /// Counts one more event of the connection, and ends. Where time goes with it, `since` leaves in R7 since when
    /// nothing came back, in µs, or 0 where nobody knows; and in R1 how long the way takes when nothing is lost.
    fn count(&mut self, what: What, since: impl FnOnce(&mut Self)) {
        let (unplaced, end) = (self.a.label(), self.end);
        self.entry(unplaced);
        self.a.constant(R1, 1);
        self.a.atomic_add(R8, what.at(), R1);
        if what.takes_time() {
            since(self);
            self.stall(what);
        }
        self.a.place(unplaced);
        // After the entry: a reader that reads this first finds at least as much there.
        self.a.map_value(R1, self.plan.maps.totals);
        self.a.constant(R2, 1);
        self.a.atomic_add(R1, 8 * what as i16, R2);
        self.a.jump(end);
    }

    /// Adds what is new of a stall: each repeat of the same segment tells all that went by since it began.
    fn stall(&mut self, what: What) {
        let [is_longer, is_same, is_begun, is_over] = [(); 4].map(|()| self.a.label());
        let (time, longest) = (what.at() + at::TIME, what.at() + at::LONGEST);
        self.a.jump_if_imm(Jump::Equal, R7, 0, is_over);
        self.a.mov(R2, R9);
        self.a.alu_imm(Alu::Div, R2, NS_PER_US);
        self.a.alu(Alu::Add, R1, R7);
        self.a.jump_if(Jump::Less, R1, R2, is_longer);
        self.a.jump(is_over);
        self.a.place(is_longer);
        self.a.alu(Alu::Sub, R2, R1);
        self.a.load(Width::B8, R3, R8, at::STALL_SINCE);
        self.a.jump_if(Jump::Equal, R3, R7, is_same);
        self.a.store(Width::B8, R8, at::STALL_SINCE, R7);
        self.a.constant(R3, 0);
        self.a.jump(is_begun);
        self.a.place(is_same);
        self.a.load(Width::B8, R3, R8, at::STALL);
        self.a.place(is_begun);
        self.a.jump_if(Jump::Less, R2, R3, is_over);
        self.a.store(Width::B8, R8, at::STALL, R2);
        self.a.mov(R4, R2);
        self.a.alu(Alu::Sub, R4, R3);
        self.a.atomic_add(R8, time, R4);
        self.a.load(Width::B8, R3, R8, longest);
        self.a.jump_if(Jump::Greater, R3, R2, is_over);
        self.a.store(Width::B8, R8, longest, R2);
        self.a.place(is_over);
    }

    /// R8 is the entry of the connection; goes to the label where there is no room. R7 is lost.
    fn entry(&mut self, unplaced: Label) {
        let (known, maps) = (self.a.label(), self.plan.maps);
        self.map_and_key(maps.entries);
        self.a.call(helper::MAP_LOOKUP_ELEM);
        self.a.jump_if_imm(Jump::Unequal, R0, 0, known);
        self.a.constant(R1, 0);
        for at in (0..BYTES as i16).step_by(8) {
            self.a.store(Width::B8, R10, ENTRY + at, R1);
        }
        self.a.store(Width::B8, R10, ENTRY + at::FIRST, R9);
        self.ends();
        self.opener();
        // Another processor may have been first, with the same.
        self.update(maps.entries, ENTRY, IF_NEW);
        self.map_and_key(maps.entries);
        self.a.call(helper::MAP_LOOKUP_ELEM);
        self.a.jump_if_imm(Jump::Equal, R0, 0, unplaced);
        self.a.place(known);
        self.a.mov(R8, R0);
        self.a.store(Width::B8, R8, at::LAST, R9);
    }

    /// The connection's addresses and ports.
    fn ends(&mut self) {
        let plan = self.plan;
        let places = &plan.places;
        let (v4, told) = (self.a.label(), self.a.label());
        self.a.load(Width::B4, R1, R10, KEY + 8);
        self.a.store(Width::B4, R10, ENTRY + at::PORTS, R1);
        self.read(Width::B2, R7, R6, places.family);
        if let Some(v6) = places.v6 {
            self.a.jump_if_imm(Jump::Unequal, R7, INET6.into(), v4);
            for (to, from) in [at::LOCAL, at::PEER].into_iter().zip(v6) {
                self.read_to(ENTRY + to, 16, R6, from);
            }
            self.a.jump(told);
            self.a.place(v4);
        }
        for (to, from) in [at::LOCAL, at::PEER].into_iter().zip(places.v4) {
            self.read_to(ENTRY + to, 4, R6, from);
        }
        self.a.place(told);
        self.a.store(Width::B2, R10, ENTRY + at::FAMILY, R7);
    }

    /// Who opened it.
    fn opener(&mut self) {
        let unknown = self.a.label();
        self.map_and_key(self.plan.maps.openers);
        self.a.call(helper::MAP_LOOKUP_ELEM);
        self.a.jump_if_imm(Jump::Equal, R0, 0, unknown);
        for (from, to) in [(opener::PID, at::PID), (opener::NAME, at::NAME), (opener::NAME + 8, at::NAME + 8)] {
            self.a.load(Width::B8, R1, R0, from);
            self.a.store(Width::B8, R10, ENTRY + to, R1);
        }
        self.a.place(unknown);
    }
}
