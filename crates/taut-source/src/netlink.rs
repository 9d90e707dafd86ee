use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::socket::{Socket, State};

/// Why sockets could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel has no sock_diag for TCP, or a filter of system calls refuses it.
    #[error(
        "the kernel's list of sockets (sock_diag) can't be had: {0}; is CONFIG_INET_DIAG there, and netlink allowed?"
    )]
    Refused(#[source] io::Error),
    /// An answer broke off.
    #[error("the kernel's list of sockets (sock_diag) broke off: {0}")]
    BrokenOff(#[source] io::Error),
}

/// The TCP sockets of one network namespace, those in TIME-WAIT left out (sock_diag(7)).
#[derive(Debug)]
pub struct SocketTable {
    netlink: OwnedFd,
    answer: Vec<u8>,
    sequence: u32,
}

// linux/netlink.h and linux/sock_diag.h.
const HEADER_BYTES: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const REQUEST_AND_DUMP: u16 = 0x301;
const REQUEST: u16 = 1;
const REQUEST_BYTES: usize = 72;
const IPPROTO_TCP: u8 = 6;
/// `1 << (INET_DIAG_INFO - 1)`.
const WITH_INFO: u8 = 2;
/// The kernel fills at most 32 KiB at once.
const ANSWER_BYTES: usize = 64 << 10;
/// The kernel answers from its own tables; longer means that nobody does.
const PATIENCE: Duration = Duration::from_secs(2);
/// Sockets asked for at once. All answers have to find room in the receive buffer (`net.core.rmem_default`), about
/// 2 KiB each.
const MOST_AT_ONCE: usize = 32;

impl SocketTable {
    /// Opens the way to the kernel, for the network namespace of this thread.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when there is no netlink here.
    pub fn open() -> Result<Self, Error> {
        let open = || -> rustix::io::Result<OwnedFd> {
            let netlink = rustix::net::socket_with(
                AddressFamily::NETLINK,
                SocketType::DGRAM,
                SocketFlags::CLOEXEC,
                Some(netlink::SOCK_DIAG),
            )?;
            set_socket_timeout(&netlink, Timeout::Recv, Some(PATIENCE))?;
            Ok(netlink)
        };
        let netlink = open().map_err(|error| Error::Refused(error.into()))?;
        Ok(Self { netlink, answer: vec![0; ANSWER_BYTES], sequence: 0 })
    }

    /// The same for the network namespace of a process, which lives on as long as this. Where that is not this thread's
    /// own it takes `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when that namespace may not be entered, or there is no netlink or no room for a thread.
    pub fn open_for(pid: i32) -> Result<Self, Error> {
        let theirs = File::open(format!("/proc/{pid}/ns/net")).map_err(Error::Refused)?;
        let number = theirs.metadata().map_err(Error::Refused)?.ino();
        if fs::metadata("/proc/thread-self/ns/net").is_ok_and(|own| own.ino() == number) {
            return Self::open();
        }
        // A thread of its own goes there, and its socket stays there when it has ended.
        thread::scope(|scope| {
            let there = thread::Builder::new().spawn_scoped(scope, || {
                move_into_link_name_space(theirs.as_fd(), Some(LinkNameSpaceType::Network))
                    .map_err(|error| Error::Refused(error.into()))?;
                Self::open()
            });
            // There may be no room for one more thread (pids_max of a cgroup).
            let opened = there.map_err(Error::Refused)?.join();
            opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Calls `each` with every socket as it is now; they are looked at one after another. About 1 µs a socket.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, or its answer breaks off.
    pub fn look(&mut self, mut each: impl FnMut(&Socket)) -> Result<(), Error> {
        self.dump(State::all(), &mut each)
    }

    /// Calls `each` with every listening socket as it is now. The kernel passes over all others without a look at them.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, or its answer breaks off.
    pub fn look_at_listening(&mut self, mut each: impl FnMut(&Socket)) -> Result<(), Error> {
        self.dump(State::Listen.bit(), &mut each)
    }

    /// Calls `each` with these sockets as they are now, without those that are gone; about 3 µs a socket. A listening
    /// socket is only found by [`SocketTable::look`] and [`SocketTable::look_at_listening`].
    ///
    /// # Errors
    ///
    /// When the kernel refuses, or its answer breaks off.
    pub fn look_at(&mut self, sockets: &[Socket], mut each: impl FnMut(&Socket)) -> Result<(), Error> {
        for some in sockets.chunks(MOST_AT_ONCE) {
            self.sequence = self.sequence.wrapping_add(1);
            let requests: Vec<u8> = some.iter().flat_map(|socket| request_for(socket, self.sequence)).collect();
            rustix::net::send(&self.netlink, &requests, SendFlags::empty())
                .map_err(|error| Error::Refused(error.into()))?;
            let mut answers = 0;
            while answers < some.len() {
                let length = self.receive()?;
                let answer = &self.answer[..length];
                // One that is gone, or whose addresses are another's by now (the cookie), is an error
                // (`inet_diag_find_one_icsk`, net/ipv4/inet_diag.c).
                match read(answer, self.sequence, &mut each) {
                    Part::Error(error)
                        if !matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::STALE)) =>
                    {
                        return Err(Error::Refused(error));
                    }
                    _ => answers += usize::from(is_to(answer, self.sequence)),
                }
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<usize, Error> {
        rustix::io::retry_on_intr(|| rustix::net::recv(&self.netlink, &mut *self.answer, RecvFlags::empty()))
            .map(|(length, _)| length)
            .map_err(|error| Error::BrokenOff(error.into()))
    }

    fn dump(&mut self, states: u32, each: &mut impl FnMut(&Socket)) -> Result<(), Error> {
        for family in [AddressFamily::INET, AddressFamily::INET6] {
            self.dump_family(family, states, each)?;
        }
        Ok(())
    }

    fn dump_family(&mut self, family: AddressFamily, states: u32, each: &mut impl FnMut(&Socket)) -> Result<(), Error> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(family, states, self.sequence);
        rustix::net::send(&self.netlink, &request, SendFlags::empty()).map_err(|error| Error::Refused(error.into()))?;
        loop {
            let length = self.receive()?;
            match read(&self.answer[..length], self.sequence, each) {
                Part::More => {}
                Part::Last => return Ok(()),
                // A kernel without IPv6 has no sockets of it.
                Part::Error(error)
                    if family == AddressFamily::INET6
                        && matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::AFNOSUPPORT)) =>
                {
                    return Ok(());
                }
                Part::Error(error) => return Err(Error::Refused(error)),
            }
        }
    }
}

/// Whether an answer is one to this question.
fn is_to(answer: &[u8], sequence: u32) -> bool {
    answer.get(8..12).is_some_and(|bytes| bytes == sequence.to_ne_bytes())
}

/// Asks for one socket, by `struct inet_diag_sockid`.
fn request_for(socket: &Socket, sequence: u32) -> [u8; REQUEST_BYTES] {
    let family = if socket.local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut bytes = request(family, State::all(), sequence);
    bytes[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    for (at, end) in [(24, socket.local), (26, socket.peer)] {
        bytes[at..at + 2].copy_from_slice(&end.port().to_be_bytes());
    }
    for (at, end) in [(28, socket.local), (44, socket.peer)] {
        match end.ip() {
            IpAddr::V4(address) => bytes[at..at + 4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => bytes[at..at + 16].copy_from_slice(&address.octets()),
        }
    }
    bytes[60..64].copy_from_slice(&socket.interface.to_ne_bytes());
    // Two words, the lower one first.
    bytes[64..68].copy_from_slice(&(socket.id.0 as u32).to_ne_bytes());
    bytes[68..72].copy_from_slice(&((socket.id.0 >> 32) as u32).to_ne_bytes());
    bytes
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`, for all sockets of a family in these states, a bit for each.
fn request(family: AddressFamily, states: u32, sequence: u32) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..4].copy_from_slice(&(REQUEST_BYTES as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&REQUEST_AND_DUMP.to_ne_bytes());
    bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    bytes[16] = family.as_raw() as u8;
    bytes[17] = IPPROTO_TCP;
    bytes[18] = WITH_INFO;
    bytes[20..24].copy_from_slice(&states.to_ne_bytes());
    bytes
}

/// What the messages of one answer come to.
#[derive(Debug)]
enum Part {
    More,
    Last,
    Error(io::Error),
}

fn read(mut answer: &[u8], sequence: u32, each: &mut impl FnMut(&Socket)) -> Part {
    while let Some((head, _)) = answer.split_at_checked(HEADER_BYTES) {
        let u32_at = |at: usize| head[at..at + 4].try_into().map_or(0, u32::from_ne_bytes);
        let Some(body) = answer.get(HEADER_BYTES..u32_at(0) as usize) else {
            return Part::Error(io::Error::from(io::ErrorKind::InvalidData));
        };
        // What is left of an earlier list, which was given up, is passed over.
        if u32_at(8) == sequence {
            let number = body.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
            match u16::from_ne_bytes([head[4], head[5]]) {
                // A list that can't be had (no tcp_diag) ends at once, with the reason (`netlink_dump`,
                // net/netlink/af_netlink.c).
                NLMSG_DONE if number >= 0 => return Part::Last,
                NLMSG_DONE | NLMSG_ERROR => return Part::Error(io::Error::from_raw_os_error(number.saturating_neg())),
                _ => Socket::parse(body).iter().for_each(&mut *each),
            }
        }
        answer = answer.get((u32_at(0) as usize).next_multiple_of(4)..).unwrap_or_default();
    }
    Part::More
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_ends_of_a_connection_are_listed_with_what_waits_in_them() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                assert!(address.starts_with('['), "IPv4 is always there");
                continue;
            };
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            client.write_all(b"four").unwrap();
            let (mut ours, mut theirs) = (None, None);
            SocketTable::open()
                .unwrap()
                .look(|socket| {
                    if socket.local == client.local_addr().unwrap() {
                        ours = Some(*socket);
                    } else if socket.local == server.local_addr().unwrap()
                        && socket.peer == client.local_addr().unwrap()
                    {
                        theirs = Some(*socket);
                    }
                })
                .unwrap();
            let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
            assert_eq!((theirs.unread_bytes, ours.unread_bytes), (4, 0));
            assert_eq!((ours.state, ours.info.bytes_sent), (State::Established, 4));
            assert_ne!(ours.id, theirs.id);
            assert_ne!(ours.inode, 0);
        }
    }

    #[test]
    fn single_ones_are_looked_at_and_those_that_are_gone_are_left_out() {
        for address in ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let pairs: Vec<_> = (0..40)
                .map(|_| (TcpStream::connect(listener.local_addr().unwrap()).unwrap(), listener.accept().unwrap().0))
                .collect();
            let mut table = SocketTable::open().unwrap();
            let mut all = Vec::new();
            let port = listener.local_addr().unwrap().port();
            table
                .look(|socket| {
                    if socket.state == State::Established && socket.peer.port() == port {
                        all.push(*socket);
                    }
                })
                .unwrap();
            assert_eq!(all.len(), 40);
            let mut pairs = pairs.into_iter();
            let [gone, mut written, quiet] = [(); 3].map(|()| pairs.next().unwrap());
            let local = |stream: &TcpStream| stream.local_addr().unwrap().port();
            let (gone_port, written_port) = (local(&gone.0), local(&written.0));
            // The end that closes last waits for nothing (TIME-WAIT is the other's).
            drop(gone.1);
            drop(gone.0);
            written.1.write_all(b"four").unwrap();
            let mut found = Vec::new();
            let mut looks = 0..1_000;
            // On a busy machine the last acknowledgement and the four bytes may be on their way for a while.
            let is_there = |found: &[Socket]| {
                let unread = |port: u16| found.iter().find(|one| one.local.port() == port).map(|one| one.unread_bytes);
                let has_come = (unread(written_port), unread(local(&quiet.0))) == (Some(4), Some(0));
                has_come && found.len() == 39 && unread(gone_port).is_none()
            };
            while !is_there(&found) {
                assert!(looks.next().is_some(), "{address}: {found:?}");
                thread::sleep(Duration::from_millis(1));
                found.clear();
                table.look_at(&all, |socket| found.push(*socket)).unwrap();
            }
            let mut listening = Vec::new();
            table.look_at_listening(|socket| listening.push((socket.state, socket.local.port()))).unwrap();
            assert!(listening.contains(&(State::Listen, port)), "{listening:?}");
            assert!(listening.iter().all(|(state, _)| *state == State::Listen), "{listening:?}");
            // It has the addresses of another one, and is not it.
            let there: Vec<_> = all.iter().filter(|socket| socket.local.port() != gone_port).take(2).collect();
            let stale = Socket { id: crate::SocketId(there[0].id.0 ^ 1 << 40), ..*there[0] };
            found.clear();
            table.look_at(&[stale, *there[1]], |socket| found.push(*socket)).unwrap();
            assert_eq!(found.iter().map(|socket| socket.id).collect::<Vec<_>>(), [there[1].id]);
        }
    }

    #[test]
    fn a_refusal_is_an_error() {
        let mut answer = vec![0; 36];
        answer[..4].copy_from_slice(&36_u32.to_ne_bytes());
        answer[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        answer[8..12].copy_from_slice(&5_u32.to_ne_bytes());
        answer[16..20].copy_from_slice(&(-2_i32).to_ne_bytes());
        let Part::Error(error) = read(&answer, 5, &mut |_| {}) else { panic!("an error") };
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        // The answer to another question is none to this one.
        assert!(matches!(read(&answer, 6, &mut |_| {}), Part::More));
        // A kernel without the list says so at its end.
        answer[4..6].copy_from_slice(&NLMSG_DONE.to_ne_bytes());
        let Part::Error(error) = read(&answer, 5, &mut |_| {}) else { panic!("an error") };
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        answer[16..20].copy_from_slice(&0_i32.to_ne_bytes());
        assert!(matches!(read(&answer, 5, &mut |_| {}), Part::Last));
    }

    proptest! {
        #[test]
        fn no_answer_is_too_wild(
            mut answer in prop::collection::vec(any::<u8>(), 0..300),
            length in 0_u32..80,
            sequence in any::<bool>(),
        ) {
            if let Some(head) = answer.first_chunk_mut::<16>() {
                head[..4].copy_from_slice(&length.to_ne_bytes());
                if sequence {
                    head[8..12].copy_from_slice(&7_u32.to_ne_bytes());
                }
            }
            let _ = read(&answer, 7, &mut |_| {});
        }
    }
}
