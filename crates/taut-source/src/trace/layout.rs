//! Where this kernel keeps what is read of a socket, and where that stands in a record.

use taut_bpf::instruction::Width;
use taut_bpf::{Btf, Field};

use super::error::Error;

/// What is read of a socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub(super) enum Known {
    Family,
    State,
    PortPair,
    RemoteV4,
    LocalV4,
    RemoteV6,
    LocalV6,
    WriteQueued,
    SendBuffer,
    PacingRate,
    PacingStatus,
    WriteSeq,
    SndNxt,
    SndUna,
    SndSml,
    PacketsOut,
    SackedOut,
    LostOut,
    RetransOut,
    SndCwnd,
    SndSsthresh,
    SndWnd,
    MssCache,
    Nonagle,
    RcvNxt,
    CopiedSeq,
    Wstamp,
    SndWscale,
    CaState,
    Retransmits,
    ProbesOut,
    TlpHighSeq,
    ReceiveLeast,
    UrgentData,
    Duplicates,
    Type,
    Protocol,
    ReceiveQueued,
    ReceiveBytes,
    SendBytes,
    PipeHead,
    PipeTail,
    PipeRoom,
}

type Member = (Known, &'static str, &'static str);

/// How many members there are.
const COUNT: usize = Known::PipeRoom as usize + 1;

/// Structure and member of each of TCP, in the order of [`Known`].
const FIELDS: [Member; 35] = [
    (Known::Family, "sock", "__sk_common.skc_family"),
    (Known::State, "sock", "__sk_common.skc_state"),
    (Known::PortPair, "sock", "__sk_common.skc_portpair"),
    (Known::RemoteV4, "sock", "__sk_common.skc_daddr"),
    (Known::LocalV4, "sock", "__sk_common.skc_rcv_saddr"),
    (Known::RemoteV6, "sock", "__sk_common.skc_v6_daddr"),
    (Known::LocalV6, "sock", "__sk_common.skc_v6_rcv_saddr"),
    (Known::WriteQueued, "sock", "sk_wmem_queued"),
    (Known::SendBuffer, "sock", "sk_sndbuf"),
    (Known::PacingRate, "sock", "sk_pacing_rate"),
    (Known::PacingStatus, "sock", "sk_pacing_status"),
    (Known::WriteSeq, "tcp_sock", "write_seq"),
    (Known::SndNxt, "tcp_sock", "snd_nxt"),
    (Known::SndUna, "tcp_sock", "snd_una"),
    (Known::SndSml, "tcp_sock", "snd_sml"),
    (Known::PacketsOut, "tcp_sock", "packets_out"),
    (Known::SackedOut, "tcp_sock", "sacked_out"),
    (Known::LostOut, "tcp_sock", "lost_out"),
    (Known::RetransOut, "tcp_sock", "retrans_out"),
    (Known::SndCwnd, "tcp_sock", "snd_cwnd"),
    (Known::SndSsthresh, "tcp_sock", "snd_ssthresh"),
    (Known::SndWnd, "tcp_sock", "snd_wnd"),
    (Known::MssCache, "tcp_sock", "mss_cache"),
    (Known::Nonagle, "tcp_sock", "nonagle"),
    (Known::RcvNxt, "tcp_sock", "rcv_nxt"),
    (Known::CopiedSeq, "tcp_sock", "copied_seq"),
    (Known::Wstamp, "tcp_sock", "tcp_wstamp_ns"),
    (Known::SndWscale, "tcp_sock", "rx_opt.snd_wscale"),
    (Known::CaState, "tcp_sock", "inet_conn.icsk_ca_state"),
    (Known::Retransmits, "tcp_sock", "inet_conn.icsk_retransmits"),
    (Known::ProbesOut, "tcp_sock", "inet_conn.icsk_probes_out"),
    (Known::TlpHighSeq, "tcp_sock", "tlp_high_seq"),
    (Known::ReceiveLeast, "sock", "sk_rcvlowat"),
    (Known::UrgentData, "tcp_sock", "urg_data"),
    (Known::Duplicates, "tcp_sock", "dsack_dups"),
];

/// The same of a Unix socket, or one of UDP or Bluetooth.
const SOCKET_FIELDS: [Member; 12] = [
    (Known::Family, "sock", "__sk_common.skc_family"),
    (Known::PortPair, "sock", "__sk_common.skc_portpair"),
    (Known::RemoteV4, "sock", "__sk_common.skc_daddr"),
    (Known::LocalV4, "sock", "__sk_common.skc_rcv_saddr"),
    (Known::RemoteV6, "sock", "__sk_common.skc_v6_daddr"),
    (Known::LocalV6, "sock", "__sk_common.skc_v6_rcv_saddr"),
    (Known::SendBuffer, "sock", "sk_sndbuf"),
    (Known::Type, "sock", "sk_type"),
    (Known::Protocol, "sock", "sk_protocol"),
    (Known::ReceiveQueued, "sock", "sk_receive_queue.qlen"),
    (Known::ReceiveBytes, "sock", "sk_backlog.rmem_alloc.counter"),
    (Known::SendBytes, "sock", "sk_wmem_alloc.refs.counter"),
];

/// And of a pipe.
const PIPE_FIELDS: [Member; 3] = [
    (Known::PipeHead, "pipe_inode_info", "head"),
    (Known::PipeTail, "pipe_inode_info", "tail"),
    (Known::PipeRoom, "pipe_inode_info", "max_usage"),
];

/// Members of IPv6, which a kernel may be built without, and those without which a trace only tells less.
const OPTIONAL: [Known; 5] =
    [Known::RemoteV6, Known::LocalV6, Known::ReceiveLeast, Known::UrgentData, Known::Duplicates];
/// Two members closer than this are read together: one call of the kernel costs more than the bytes between.
const NEAR: u32 = 64;
/// So many bytes are read at once: they stand on the program's stack, which has 512.
pub(super) const MOST_AT_ONCE: u32 = 400;
/// More is no socket.
const MOST_BYTES: u32 = 4096;

/// A stretch of the socket that is read at once.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Range {
    /// From the beginning of the socket; a multiple of eight.
    pub(super) from: u32,
    pub(super) bytes: u32,
    /// What is kept of it.
    pub(super) picks: Vec<Pick>,
}

/// What a record keeps of a stretch: a record with all of it would be three times as long, and to write memory that no
/// processor has at hand is most of what a record costs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Pick {
    /// From the beginning of the stretch.
    pub(super) from: u32,
    pub(super) width: Width,
    /// From the beginning of the record's copies.
    pub(super) at: u32,
}

/// Aligned parts of these bytes, from the beginning to each end, as large as they can be.
pub(super) fn parts(from: u32, end: u32) -> impl Iterator<Item = (u32, Width)> {
    let widths = [Width::B8, Width::B4, Width::B2, Width::B1];
    let mut at = from;
    std::iter::from_fn(move || {
        let fits = |width: &Width| at.is_multiple_of(width.bytes()) && at + width.bytes() <= end;
        let part = (at, widths.into_iter().find(fits)?);
        at += part.1.bytes();
        Some(part)
    })
}

/// What is copied of a socket, and where each member is in the copies.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) ranges: Vec<Range>,
    /// Of all copies, a multiple of eight.
    pub(super) bytes: u32,
    /// In bits from the beginning of the copies, and how many bits.
    places: Vec<Option<(u32, u32)>>,
    /// The number of the type in which all members are; none where the kernel's types are not at hand.
    pub(super) structure: Option<u32>,
}

impl Layout {
    pub(super) fn of(btf: &Btf) -> Result<Self, Error> {
        Self::of_members(btf, "tcp_sock", &FIELDS)
    }

    fn of_members(btf: &Btf, whole: &str, members: &[Member]) -> Result<Self, Error> {
        let mut found = Vec::new();
        for &(known, structure, path) in members {
            match btf.field(structure, path) {
                Some(field) if field.bits > 0 => found.push((known, field)),
                _ if OPTIONAL.contains(&known) => {}
                _ => return Err(Error::Member(format!("{structure}.{path}"))),
            }
        }
        let layout = Self::from_fields(&found).ok_or_else(|| Error::Member(members[0].1.to_owned()))?;
        Ok(Self { structure: btf.structure_id(whole), ..layout })
    }

    fn from_fields(found: &[(Known, Field)]) -> Option<Self> {
        // Members of a few bits may stand in the same bytes.
        let stretch = |field: &Field| (field.byte(), field.byte() + field.bytes());
        let mut sorted: Vec<(u32, u32)> = found.iter().map(|(_, field)| stretch(field)).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let mut ranges: Vec<Range> = Vec::new();
        let (mut bytes, mut starts) = (0_u32, Vec::new());
        for &(from, end) in &sorted {
            let is_near = |last: &&mut Range| from < last.from + last.bytes + NEAR && end <= last.from + MOST_AT_ONCE;
            if ranges.last_mut().as_ref().is_none_or(|last| !is_near(last)) {
                ranges.push(Range { from: from / 8 * 8, bytes: 0, picks: Vec::new() });
            }
            let range = ranges.last_mut()?;
            range.bytes = range.bytes.max(end - range.from);
            if range.bytes > MOST_AT_ONCE {
                return None;
            }
            bytes = bytes.next_multiple_of((end - from).next_power_of_two().min(8));
            starts.push(bytes);
            range.picks.extend(parts(from, end).map(|(at, width)| Pick {
                from: at - range.from,
                width,
                at: bytes + at - from,
            }));
            bytes += end - from;
        }
        let bytes = bytes.next_multiple_of(8);
        if bytes > MOST_BYTES {
            return None;
        }
        let mut places = vec![None; COUNT];
        for (known, field) in found {
            let start = starts[sorted.binary_search(&stretch(field)).ok()?];
            places[*known as usize] = Some((8 * start + field.bit_offset % 8, field.bits));
        }
        Some(Self { ranges, bytes, places, structure: None })
    }

    /// The value of a member of at most 64 bits; 0 where the record does not reach.
    pub(super) fn get(&self, copies: &[u8], known: Known) -> u64 {
        let Some((bit, bits)) = self.places[known as usize] else { return 0 };
        let (from, to) = ((bit / 8) as usize, (bit + bits).div_ceil(8) as usize);
        let Some(bytes) = copies.get(from..to) else { return 0 };
        let mut word = [0; 16];
        word[..bytes.len().min(16)].copy_from_slice(&bytes[..bytes.len().min(16)]);
        let value = u128::from_le_bytes(word) >> (bit % 8);
        let value = value as u64;
        if bits >= 64 { value } else { value & ((1 << bits) - 1) }
    }

    /// The same of a number of 32 bits.
    pub(super) fn word(&self, copies: &[u8], known: Known) -> u32 {
        self.get(copies, known) as u32
    }

    /// The bytes of a member.
    pub(super) fn bytes<const N: usize>(&self, copies: &[u8], known: Known) -> Option<[u8; N]> {
        let (bit, _) = self.places[known as usize]?;
        copies.get((bit / 8) as usize..)?.get(..N)?.try_into().ok()
    }
}

/// What is copied of what is not TCP, and what the programs need to find it.
#[derive(Debug)]
pub(super) struct Others {
    pub(super) socket: Layout,
    pub(super) pipe: Layout,
    pub(super) inode_number: u32,
    pub(super) inode_pipe: u32,
}

impl Others {
    pub(super) fn of(btf: &Btf) -> Result<Self, Error> {
        let byte = |path: &str| {
            btf.field("inode", path).map(Field::byte).ok_or_else(|| Error::Member(format!("inode.{path}")))
        };
        Ok(Self {
            socket: Layout::of_members(btf, "sock", &SOCKET_FIELDS)?,
            pipe: Layout::of_members(btf, "pipe_inode_info", &PIPE_FIELDS)?,
            inode_number: byte("i_ino")?,
            inode_pipe: byte("i_pipe")?,
        })
    }
}

/// Offsets that the programs in the kernel need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    pub(super) skb_sk: u32,
    pub(super) skb_head: u32,
    pub(super) skb_data: u32,
    pub(super) skb_len: u32,
    pub(super) skb_transport_header: u32,
    /// From a device to the first of its queues, to what orders that, and to how that takes a packet: nothing, where
    /// packets do not wait.
    pub(super) device_queue: Option<[u32; 3]>,
    pub(super) family: u32,
    pub(super) state: u32,
    /// The network namespace, and its number in that; none where the kernel has no others.
    pub(super) network: Option<[u32; 2]>,
    pub(super) port_pair: u32,
    pub(super) protocol: Field,
    pub(super) task_files: u32,
    pub(super) task_tgid: u32,
    pub(super) task_pid: u32,
    /// What a thread is at: 0 where it could run.
    pub(super) task_state: Option<Field>,
    pub(super) task_signal: u32,
    pub(super) signal_live: u32,
    /// The first thread of the process, by whose name it is known.
    pub(super) task_leader: u32,
    pub(super) task_name: u32,
    pub(super) files_fdt: u32,
    pub(super) fdt_fd: u32,
    pub(super) fdt_max: u32,
    pub(super) file_inode: u32,
    pub(super) file_private: u32,
    pub(super) inode_mode: u32,
    pub(super) socket_sk: u32,
    pub(super) first_argument: u32,
    /// [`error_of_repeats`]
    pub(super) repeat_error: Option<i16>,
    /// Whether a socket is a part of a connection of MPTCP, where the kernel has that.
    pub(super) is_mptcp: Option<Field>,
    pub(super) timer_function: Option<u32>,
    pub(super) hrtimer_function: Option<u32>,
}

/// The tracepoint of a segment that is sent again.
pub(crate) const REPEATS: &str = "tcp_retransmit_skb";

/// Where the arguments of [`REPEATS`] have the error of a segment that the host itself did not take; none where the
/// kernel does not tell of those.
pub(crate) fn error_of_repeats(btf: &Btf) -> Option<i16> {
    btf.tracepoint(REPEATS).filter(|arguments| arguments.len() > 2).map(|_| 16)
}

/// The register of the first argument of a system call in `struct pt_regs`.
const FIRST_ARGUMENT: &str = if cfg!(target_arch = "x86_64") { "di" } else { "regs" };

impl Offsets {
    pub(super) fn of(btf: &Btf) -> Result<Self, Error> {
        let field = |structure: &str, path: &str| {
            btf.field(structure, path).ok_or_else(|| Error::Member(format!("{structure}.{path}")))
        };
        let byte = |structure: &str, path: &str| field(structure, path).map(Field::byte);
        Ok(Self {
            skb_sk: byte("sk_buff", "sk")?,
            skb_head: byte("sk_buff", "head")?,
            skb_data: byte("sk_buff", "data")?,
            skb_len: byte("sk_buff", "len")?,
            skb_transport_header: byte("sk_buff", "transport_header")?,
            device_queue: (|| {
                Ok::<_, Error>([byte("net_device", "_tx")?, byte("netdev_queue", "qdisc")?, byte("Qdisc", "enqueue")?])
            })()
            .ok(),
            family: byte("sock", "__sk_common.skc_family")?,
            state: byte("sock", "__sk_common.skc_state")?,
            network: byte("sock", "__sk_common.skc_net.net").and_then(|net| Ok([net, byte("net", "ns.inum")?])).ok(),
            port_pair: byte("sock", "__sk_common.skc_portpair")?,
            protocol: field("sock", "sk_protocol")?,
            task_files: byte("task_struct", "files")?,
            task_tgid: byte("task_struct", "tgid")?,
            task_pid: byte("task_struct", "pid")?,
            // Before Linux 5.14 the older name.
            task_state: btf.field("task_struct", "__state").or_else(|| btf.field("task_struct", "state")),
            task_signal: byte("task_struct", "signal")?,
            signal_live: byte("signal_struct", "live")?,
            task_leader: byte("task_struct", "group_leader")?,
            task_name: byte("task_struct", "comm")?,
            files_fdt: byte("files_struct", "fdt")?,
            fdt_fd: byte("fdtable", "fd")?,
            fdt_max: byte("fdtable", "max_fds")?,
            file_inode: byte("file", "f_inode")?,
            file_private: byte("file", "private_data")?,
            inode_mode: byte("inode", "i_mode")?,
            socket_sk: byte("socket", "sk")?,
            first_argument: byte("pt_regs", FIRST_ARGUMENT)?,
            repeat_error: error_of_repeats(btf),
            is_mptcp: btf.field("tcp_sock", "is_mptcp").filter(|field| field.bits > 0),
            timer_function: btf.field("timer_list", "function").map(Field::byte),
            hrtimer_function: btf.field("hrtimer", "function").map(Field::byte),
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A socket whose members stand one after another, eight bytes each, the addresses of IPv6 sixteen.
    pub(in crate::trace) fn plain() -> Layout {
        let mut at = 0;
        let fields: Vec<(Known, Field)> = FIELDS
            .iter()
            .map(|(known, ..)| {
                let bits = if matches!(known, Known::RemoteV6 | Known::LocalV6) { 128 } else { 64 };
                let field = Field { bit_offset: at, bits };
                at += bits;
                (*known, field)
            })
            .collect();
        Layout::from_fields(&fields).unwrap()
    }

    /// The same of what is not TCP.
    pub(in crate::trace) fn plain_others() -> Others {
        let of = |members: &[Member]| {
            let field = |(at, member): (usize, &Member)| (member.0, Field { bit_offset: 128 * at as u32, bits: 64 });
            Layout::from_fields(&members.iter().enumerate().map(field).collect::<Vec<_>>()).unwrap()
        };
        Others { socket: of(&SOCKET_FIELDS), pipe: of(&PIPE_FIELDS), inode_number: 0, inode_pipe: 0 }
    }

    /// Sets a member in the copies of [`plain`].
    pub(in crate::trace) fn set(copies: &mut [u8], known: Known, value: u64) {
        set_in(&plain(), copies, known, value);
    }

    /// Sets a member in copies.
    pub(in crate::trace) fn set_in(layout: &Layout, copies: &mut [u8], known: Known, value: u64) {
        let (bit, _) = layout.places[known as usize].unwrap();
        copies[(bit / 8) as usize..][..8].copy_from_slice(&value.to_le_bytes());
    }

    #[test]
    fn each_member_has_its_place_in_the_table() {
        for (index, (known, ..)) in FIELDS.iter().enumerate() {
            assert_eq!(*known as usize, index);
        }
    }

    #[test]
    fn members_far_apart_are_read_by_themselves_and_of_what_is_read_the_members_are_kept() {
        let fields = [
            (Known::SndNxt, Field { bit_offset: 8 * 1004, bits: 32 }),
            (Known::Nonagle, Field { bit_offset: 8 * 1009 + 3, bits: 4 }),
            (Known::CaState, Field { bit_offset: 8 * 1009, bits: 3 }),
            (Known::State, Field { bit_offset: 8 * 18, bits: 8 }),
            (Known::RemoteV6, Field { bit_offset: 8 * 1020, bits: 128 }),
        ];
        let layout = Layout::from_fields(&fields).unwrap();
        let pick = |from, width, at| Pick { from, width, at };
        let expected = [
            Range { from: 16, bytes: 3, picks: vec![pick(2, Width::B1, 0)] },
            Range {
                from: 1000,
                bytes: 36,
                picks: vec![
                    pick(4, Width::B4, 4),
                    pick(9, Width::B1, 8),
                    pick(20, Width::B4, 16),
                    pick(24, Width::B8, 20),
                    pick(32, Width::B4, 28),
                ],
            },
        ];
        assert_eq!((layout.ranges.as_slice(), layout.bytes), (expected.as_slice(), 32));
        let mut copies = [0; 32];
        copies[0] = 7;
        copies[4..8].copy_from_slice(&9_u32.to_le_bytes());
        copies[8] = 0b101_1010;
        copies[16..].copy_from_slice(&[6; 16]);
        let get = |known| layout.get(&copies, known);
        assert_eq!((get(Known::State), get(Known::SndNxt), get(Known::Nonagle), get(Known::CaState)), (7, 9, 11, 2));
        assert_eq!(layout.bytes(&copies, Known::RemoteV6), Some([6; 16]));
        assert_eq!((get(Known::SndUna), layout.get(&copies[..3], Known::SndNxt)), (0, 0));
    }

    #[test]
    fn what_lies_close_but_is_too_much_for_the_stack_is_read_in_two() {
        let fields: Vec<(Known, Field)> = FIELDS[..20]
            .iter()
            .enumerate()
            .map(|(index, (known, ..))| (*known, Field { bit_offset: 8 * 48 * index as u32, bits: 64 }))
            .collect();
        let layout = Layout::from_fields(&fields).unwrap();
        assert!(layout.ranges.len() > 1 && layout.ranges.iter().all(|range| range.bytes <= MOST_AT_ONCE));
        assert_eq!(layout.ranges.iter().map(|range| range.picks.len()).sum::<usize>(), fields.len());
    }
}
