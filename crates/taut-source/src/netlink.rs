use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

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

/// The TCP sockets of this network namespace, those in TIME-WAIT left out (sock_diag(7)).
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
const IPPROTO_TCP: u8 = 6;
/// `1 << (INET_DIAG_INFO - 1)`.
const WITH_INFO: u8 = 2;
/// The kernel fills at most 32 KiB at once.
const ANSWER_BYTES: usize = 64 << 10;
/// The kernel answers from its own tables; longer means that nobody does.
const PATIENCE: Duration = Duration::from_secs(2);

impl SocketTable {
    /// Opens the way to the kernel.
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

    /// Calls `each` with every socket as it is now; they are looked at one after another. About 1 µs a socket.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, or its answer breaks off.
    pub fn look(&mut self, mut each: impl FnMut(&Socket)) -> Result<(), Error> {
        for family in [AddressFamily::INET, AddressFamily::INET6] {
            self.dump(family, &mut each)?;
        }
        Ok(())
    }

    fn dump(&mut self, family: AddressFamily, each: &mut impl FnMut(&Socket)) -> Result<(), Error> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(family, self.sequence);
        rustix::net::send(&self.netlink, &request, SendFlags::empty()).map_err(|error| Error::Refused(error.into()))?;
        loop {
            let (length, _) =
                rustix::io::retry_on_intr(|| rustix::net::recv(&self.netlink, &mut *self.answer, RecvFlags::empty()))
                    .map_err(|error| Error::BrokenOff(error.into()))?;
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

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
fn request(family: AddressFamily, sequence: u32) -> [u8; 72] {
    let mut bytes = [0; 72];
    bytes[..4].copy_from_slice(&72_u32.to_ne_bytes());
    bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&REQUEST_AND_DUMP.to_ne_bytes());
    bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    bytes[16] = family.as_raw() as u8;
    bytes[17] = IPPROTO_TCP;
    bytes[18] = WITH_INFO;
    bytes[20..24].copy_from_slice(&State::all().to_ne_bytes());
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
