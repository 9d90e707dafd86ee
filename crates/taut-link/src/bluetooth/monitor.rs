//! What adapters and kernel say to each other (`HCI_CHANNEL_MONITOR`), as far as it tells how a link is set up. Needs
//! `CAP_NET_RAW`; without it those facts are missing from the recording.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{SockFilter, Socket};
use taut_time::Duration;

use super::DeviceAddress;
use super::agreed::Agreed;
use super::heard::{
    ACL_RX, ACL_TX, CREDIT_CONNECTION_REQUEST, CREDIT_CONNECTION_RESPONSE, CREDITS, EVENT, Heard, LE_SIGNALLING,
    PARAMETER_UPDATE_REQUEST, PARAMETER_UPDATE_RESPONSE, Radio,
};
use super::management::hci_socket;

const HCI_DEV_NONE: u16 = 0xFFFF;
const HCI_CHANNEL_MONITOR: u16 = 2;

/// Hears what concerns one link, or those that a listener accepts.
#[derive(Debug)]
pub(super) struct Monitor {
    adapter: u16,
    radio: Option<Socket>,
    credits: Option<Socket>,
    /// What was said so far, for all that hear by these sockets: whoever looks first reads for the others too.
    said: Mutex<Said>,
}

/// Frames in the order in which they were read, the oldest dropped when there are too many.
#[derive(Debug, Default)]
struct Said {
    frames: VecDeque<Vec<u8>>,
    dropped: u64,
}

/// Most frames kept: signals and events of setting up some hundred links.
const MOST_FRAMES: usize = 2048;

impl Said {
    fn push(&mut self, frame: &[u8]) {
        if self.frames.len() == MOST_FRAMES {
            self.frames.pop_front();
            self.dropped += 1;
        }
        self.frames.push_back(frame.to_vec());
    }

    /// What somebody has not taken yet.
    fn tell(&self, adapter: u16, device: DeviceAddress, heard: &mut Heard) {
        let skip = heard.taken.saturating_sub(self.dropped);
        for frame in self.frames.iter().skip(usize::try_from(skip).unwrap_or(usize::MAX)) {
            heard.take(adapter, device, frame);
        }
        heard.taken = self.dropped + self.frames.len() as u64;
    }
}

/// Links stay up for a while when their last channel is closed, and a new channel on them brings no
/// new event of the radio.
static RADIOS: Mutex<BTreeMap<(u16, DeviceAddress), Radio>> = Mutex::new(BTreeMap::new());

impl Monitor {
    /// Begins to hear all that is said on an adapter, where that is allowed. To be
    /// [narrowed](Self::narrow) when the link is set up.
    pub(super) fn open(adapter: u16) -> Self {
        let open = || {
            let socket = hci_socket(HCI_DEV_NONE, HCI_CHANNEL_MONITOR).ok()?;
            socket.set_nonblocking(true).ok().map(|()| socket)
        };
        let radio = open();
        let credits = open().filter(|socket| attach(socket, &signals(&[CREDITS], false)).is_ok());
        Self { adapter, radio, credits, said: Mutex::default() }
    }

    /// From now on only what tells of the radio, so that data does not wake anybody up or fill the
    /// queue. The queue of credits fills in any case: the first some hundred are enough.
    pub(super) fn narrow(&self) {
        let codes = [
            PARAMETER_UPDATE_REQUEST,
            PARAMETER_UPDATE_RESPONSE,
            CREDIT_CONNECTION_REQUEST,
            CREDIT_CONNECTION_RESPONSE,
        ];
        if let Some(radio) = &self.radio {
            // A kernel without filters lets everything through, which is as good and more work.
            let _ = attach(radio, &signals(&codes, true));
        }
    }

    /// Takes what was said since, about the link to a device.
    pub(super) fn hear(&self, device: DeviceAddress, heard: &mut Heard) {
        let mut radios = RADIOS.lock().unwrap_or_else(PoisonError::into_inner);
        let known = radios.entry((self.adapter, device)).or_default();
        heard.begin_with(*known);
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let mut frame = [0; 4096];
        for socket in [&self.radio, &self.credits].into_iter().flatten() {
            let mut socket: &Socket = socket;
            while let Ok(bytes) = socket.read(&mut frame) {
                said.push(&frame[..bytes]);
            }
        }
        said.tell(self.adapter, device, heard);
        *known = heard.radio();
    }

    /// Readable when something was said of the radio; `None` where that may not be heard.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.radio.as_ref().map(Socket::as_fd)
    }

    /// Takes what the peer tells of the link, for all that was not heard here. Where nothing is
    /// heard, what is told now could be over later and nobody would know; so nothing is taken then.
    pub(super) fn tell(&self, device: DeviceAddress, heard: &mut Heard, told: Agreed) {
        if !self.hears() {
            return;
        }
        self.hear(device, heard);
        heard.be_told(told);
        RADIOS.lock().unwrap_or_else(PoisonError::into_inner).insert((self.adapter, device), heard.radio());
    }

    /// Whether the right to hear was there.
    pub(super) const fn hears(&self) -> bool {
        self.radio.is_some()
    }

    /// Waits until something was said of the radio, at most so long; whether something was.
    pub(super) fn wait(&self, at_most: Duration) -> io::Result<bool> {
        let Some(radio) = &self.radio else { return Err(io::ErrorKind::PermissionDenied.into()) };
        let timeout = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
        let descriptor = radio.as_fd();
        match poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// An instruction of the classic Berkeley Packet Filter (Documentation/networking/filter.rst).
#[derive(Clone, Copy, Debug)]
struct Instruction {
    code: u32,
    equal: usize,
    other: usize,
    value: u32,
}

const LOAD: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const ABOVE: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
const JUMP: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// Lets the LE signals with these codes through (`SO_ATTACH_FILTER`), and with `events` all events
/// but reports of advertising and of completed packets.
fn signals(codes: &[u8], events: bool) -> Vec<Instruction> {
    const NUMBER_OF_COMPLETED_PACKETS: u32 = 0x13;
    const LE_META: u32 = 0x3E;
    const LE_ADVERTISING_REPORT: u32 = 0x02;
    const LE_EXTENDED_ADVERTISING_REPORT: u32 = 0x0D;
    const ALL: u32 = 0xFFFF;
    let load = |at: u32| Instruction { code: LOAD, equal: 0, other: 0, value: at };
    let jump = |value: u32, equal: usize, other: usize| Instruction { code: JUMP, equal, other, value };
    let give = |bytes: u32| Instruction { code: RETURN, equal: 0, other: 0, value: bytes };

    // struct hci_mon_hdr is 6 bytes long. Of events: code, length, subevent. Of data: handle,
    // length; length, channel; code.
    let of_events = if events {
        vec![
            load(6),
            jump(NUMBER_OF_COMPLETED_PACKETS, 5, 0),
            jump(LE_META, 0, 3),
            load(8),
            jump(LE_ADVERTISING_REPORT, 2, 0),
            jump(LE_EXTENDED_ADVERTISING_REPORT, 1, 0),
            give(ALL),
            give(0),
        ]
    } else {
        vec![give(0)]
    };
    // A continuing fragment has no header of L2CAP. The rest of a signal is shorter than the
    // longest that every device takes (23 bytes, Vol 3, Part A, section 4); the end of other data
    // that is as short continues nothing that gets through.
    const BOUNDARY: u32 = 0x30;
    const CONTINUING: u32 = 0x10;
    const LONGEST_REST: u32 = 22;
    let other = |code: u32, equal: usize, other: usize, value: u32| Instruction { code, equal, other, value };
    let pass_over = codes.len() + 3;
    let of_boundary = [
        load(7),
        other(AND, 0, 0, BOUNDARY),
        jump(CONTINUING, 0, 4),
        load(9),
        jump(0, 0, pass_over + 2),
        load(8),
        other(ABOVE, pass_over, pass_over + 1, LONGEST_REST),
    ];
    let mut of_data = vec![load(12), jump(LE_SIGNALLING.into(), 0, codes.len() + 1), load(14)];
    of_data.extend(codes.iter().enumerate().map(|(at, &code)| jump(code.into(), codes.len() - at, 0)));
    of_data.extend([give(0), give(ALL)]);
    let to_data = of_events.len();
    let head = [
        load(0),
        jump(EVENT.into(), 3, 0),
        jump(ACL_TX.into(), 2 + to_data, 0),
        jump(ACL_RX.into(), 1 + to_data, 0),
        give(0),
    ];
    head.into_iter().chain(of_events).chain(of_boundary).chain(of_data).collect()
}

fn attach(socket: &Socket, program: &[Instruction]) -> io::Result<()> {
    let instruction = |i: &Instruction| SockFilter::new(i.code as u16, i.equal as u8, i.other as u8, i.value);
    socket.attach_filter(&program.iter().map(instruction).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel does.
    fn passes(program: &[Instruction], frame: &[u8]) -> bool {
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let Instruction { code, equal, other, value } = program[at];
            at += 1;
            match code {
                LOAD => match frame.get(value as usize) {
                    Some(&byte) => accumulator = byte.into(),
                    None => return false,
                },
                JUMP => at += if accumulator == value { equal } else { other },
                ABOVE => at += if accumulator > value { equal } else { other },
                AND => accumulator &= value,
                RETURN => return value > 0,
                _ => unreachable!("{code:#x}"),
            }
        }
    }

    fn frame(opcode: u16, body: &[u8]) -> Vec<u8> {
        let mut frame: Vec<u8> =
            [opcode, 0, u16::try_from(body.len()).unwrap()].into_iter().flat_map(u16::to_le_bytes).collect();
        frame.extend_from_slice(body);
        frame
    }

    /// Two links of one listener: whoever looks first reads for the other too.
    #[test]
    fn several_that_hear_by_one_socket_all_hear_everything() {
        let device = DeviceAddress::from_wire([1, 2, 3, 4, 5, 6]);
        let request = |handle: u8, mps: u8| {
            let mut body = vec![handle, 0, 18, 0, 14, 0, 5, 0, CREDIT_CONNECTION_REQUEST, 1, 10, 0];
            body.extend([129, 0, 65, 0, 0, 2, mps, 0, 3, 0]);
            frame(ACL_RX, &body)
        };
        let (mut said, mut first, mut second) = (Said::default(), Heard::of(Some(64)), Heard::of(Some(65)));
        said.push(&request(64, 100));
        said.push(&request(65, 200));
        said.tell(0, device, &mut first);
        said.tell(0, device, &mut second);
        let mps = |heard: &Heard| heard.facts().into_iter().find(|fact| fact.starts_with("snd_mps"));
        assert_eq!((mps(&first).unwrap(), mps(&second).unwrap()), ("snd_mps=100".to_owned(), "snd_mps=200".to_owned()));
        // Each frame is taken once, also when old ones are dropped meanwhile.
        let taken = first.taken;
        for _ in 0..MOST_FRAMES {
            said.push(&request(66, 30));
        }
        said.tell(0, device, &mut first);
        assert_eq!((first.taken, said.frames.len()), (taken + MOST_FRAMES as u64, MOST_FRAMES));
    }

    #[test]
    fn filters_let_through_what_tells_of_the_link() {
        let radio = signals(&[PARAMETER_UPDATE_REQUEST, CREDIT_CONNECTION_REQUEST], true);
        let credits = signals(&[CREDITS], false);
        let signal = |code| frame(ACL_RX, &[64, 0, 20, 0, 16, 0, 5, 0, code, 1, 8, 0]);
        let cases = [
            (frame(EVENT, &[0x3E, 10, 3, 0, 64, 0]), true, false),
            (frame(EVENT, &[0x3E, 10, 2, 0, 64, 0]), false, false),
            (frame(EVENT, &[0x3E, 10, 0x0D, 0, 64, 0]), false, false),
            (frame(EVENT, &[0x0F, 4, 0, 1, 0x13, 0x20]), true, false),
            (frame(EVENT, &[0x13, 5, 1, 64, 0, 1, 0]), false, false),
            (signal(PARAMETER_UPDATE_REQUEST), true, false),
            (signal(CREDIT_CONNECTION_REQUEST), true, false),
            (signal(CREDITS), false, true),
            (frame(ACL_TX, &[64, 0, 20, 0, 16, 0, 64, 0, CREDITS, 1, 8, 0]), false, false),
            // Continuing fragments: one that looks like a signal and is too long to be the rest of
            // one, and one that may be.
            (frame(ACL_RX, &[64, 0x10, 23, 0, 16, 0, 5, 0, CREDITS, 1, 8, 0]), false, false),
            (frame(ACL_RX, &[64, 0x10, 8, 1, 16, 0, 5, 0, CREDITS, 1, 8, 0]), false, false),
            (frame(ACL_RX, &[64, 0x10, 4, 0, 16, 0, 5, 0]), true, true),
            // A first fragment from the controller.
            (frame(ACL_RX, &[64, 0x20, 8, 0, 4, 0, 5, 0, CREDITS, 1, 8, 0]), false, true),
            (frame(2, &[0x13, 0x20, 14, 0, 0, 0, 0, 0, 0, 0, 0, 0]), false, false),
        ];
        for (frame, of_radio, of_credits) in cases {
            assert_eq!((passes(&radio, &frame), passes(&credits, &frame)), (of_radio, of_credits), "{frame:x?}");
        }
    }
}
