//! A connection that is written to and read by io_uring alone.
#![expect(unsafe_code, reason = "entries of the submission queue name memory")]

use std::net::{SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, squeue, types};

/// The operations that do it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    SendAndReceive,
    /// As with a file; the descriptor is one of the ring's own.
    WriteAndRead,
    Messages,
    /// Each by a thread of the kernel's pool.
    Workers,
}

impl By {
    pub(crate) const ALL: [Self; 4] = [Self::SendAndReceive, Self::WriteAndRead, Self::Messages, Self::Workers];
}

pub(crate) struct Ring {
    ring: IoUring,
    /// None where only the ring has the socket.
    stream: Option<TcpStream>,
    by: By,
}

impl Ring {
    /// Nothing where io_uring is not allowed.
    pub(crate) fn new(stream: TcpStream, by: By) -> Option<Self> {
        let ring = IoUring::new(4).ok()?;
        ring.submitter().register_files(&[stream.as_raw_fd()]).unwrap();
        Some(Self { ring, stream: Some(stream), by })
    }

    /// A connection that io_uring opens, and that has no descriptor: only the ring's table holds it. Nothing where that
    /// is not allowed.
    pub(crate) fn connect(address: SocketAddrV4) -> Option<Self> {
        let ring = IoUring::new(4).ok()?;
        ring.submitter().register_files_sparse(1).ok()?;
        let mut made = Self { ring, stream: None, by: By::WriteAndRead };
        let slot = types::DestinationSlot::try_from_slot_target(0).unwrap();
        let socket = opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).file_index(Some(slot)).build();
        if made.run(&socket) < 0 {
            return None;
        }
        let address = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: address.port().to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
            sin_zero: [0; 8],
        };
        let length = size_of_val(&address) as u32;
        let connect = opcode::Connect::new(types::Fixed(0), (&raw const address).cast(), length).build();
        assert_eq!(made.run(&connect), 0);
        Some(made)
    }

    pub(crate) const fn stream(&self) -> Option<&TcpStream> {
        self.stream.as_ref()
    }

    fn descriptor(&self) -> types::Fd {
        types::Fd(self.stream.as_ref().map_or(-1, AsRawFd::as_raw_fd))
    }

    /// Takes all bytes: they are few.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let (descriptor, length) = (self.descriptor(), bytes.len() as u32);
        let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let message = message(&mut part);
        let entry = match self.by {
            By::SendAndReceive => opcode::Send::new(descriptor, bytes.as_ptr(), length).build(),
            By::Workers => opcode::Send::new(descriptor, bytes.as_ptr(), length).build().flags(squeue::Flags::ASYNC),
            By::WriteAndRead => opcode::Write::new(types::Fixed(0), bytes.as_ptr(), length).build(),
            By::Messages => opcode::SendMsg::new(descriptor, &raw const message).build(),
        };
        assert_eq!(self.run(&entry), bytes.len() as i32);
    }

    /// How many bytes came, or a negative error number.
    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> i32 {
        let (descriptor, length) = (self.descriptor(), bytes.len() as u32);
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let mut message = message(&mut part);
        let entry = match self.by {
            By::SendAndReceive => opcode::Recv::new(descriptor, bytes.as_mut_ptr(), length).build(),
            By::Workers => {
                opcode::Recv::new(descriptor, bytes.as_mut_ptr(), length).build().flags(squeue::Flags::ASYNC)
            }
            By::WriteAndRead => opcode::Read::new(types::Fixed(0), bytes.as_mut_ptr(), length).build(),
            By::Messages => opcode::RecvMsg::new(descriptor, &raw mut message).build(),
        };
        self.run(&entry)
    }

    /// One operation, to its end.
    fn run(&mut self, entry: &squeue::Entry) -> i32 {
        // SAFETY: what the entry names outlives this call, which waits for the operation's end.
        unsafe { self.ring.submission().push(entry) }.unwrap();
        self.ring.submit_and_wait(1).unwrap();
        self.ring.completion().next().unwrap().result()
    }
}

fn message(part: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: all members may be zero.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (part, 1);
    message
}
