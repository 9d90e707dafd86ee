//! Ways to write the first data of a connection, and to read it, that are not write(2) and read(2).
#![expect(unsafe_code, reason = "these calls have no safe face here")]

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::Command;

/// What hands the data to the socket.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// Out of a pipe.
    Splice,
    /// Out of a file.
    Sendfile,
    Pwritev2,
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::Splice, Self::Sendfile, Self::Pwritev2];

    pub(crate) fn write(self, to: &TcpStream, bytes: &[u8]) {
        let to = to.as_raw_fd();
        let written = match self {
            Self::Splice => {
                let (reader, mut writer) = io::pipe().unwrap();
                writer.write_all(bytes).unwrap();
                splice(reader.as_raw_fd(), to)
            }
            Self::Sendfile => {
                let mut file: File = tempfile::tempfile().unwrap();
                file.write_all(bytes).unwrap();
                file.rewind().unwrap();
                // SAFETY: it takes no memory of ours.
                unsafe { libc::sendfile(to, file.as_raw_fd(), std::ptr::null_mut(), bytes.len()) }
            }
            Self::Pwritev2 => {
                let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
                // SAFETY: the part is memory that outlives the call, which only reads it.
                unsafe { libc::pwritev2(to, &raw const part, 1, -1, 0) }
            }
        };
        assert_eq!(written, bytes.len() as isize, "{self:?}: {}", io::Error::last_os_error());
    }
}

fn splice(from: RawFd, to: RawFd) -> isize {
    // SAFETY: it takes no memory of ours.
    unsafe { libc::splice(from, std::ptr::null_mut(), to, std::ptr::null_mut(), 1 << 16, 0) }
}

/// Takes what has come out of the socket by splice(2), or waits for it.
pub(crate) fn splice_out(from: &TcpStream) -> usize {
    let (mut reader, writer) = io::pipe().unwrap();
    let bytes = usize::try_from(splice(from.as_raw_fd(), writer.as_raw_fd())).unwrap();
    reader.read_exact(&mut vec![0; bytes]).unwrap();
    bytes
}

/// How the first segment comes to have data (TCP Fast Open).
#[derive(Clone, Copy, Debug)]
pub(crate) enum FastOpen {
    /// sendto(2) with `MSG_FASTOPEN`.
    Send,
    /// `TCP_FASTOPEN_CONNECT`, connect(2) and a write.
    Connect,
}

/// Gives this thread a network of its own in which TCP Fast Open needs no cookie; `false` where that is not allowed.
pub(crate) fn own_network() -> bool {
    // SAFETY: it takes no memory of ours.
    let is_own = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
    is_own
        && Command::new("ip").args(["link", "set", "lo", "up"]).status().is_ok_and(|status| status.success())
        && fs::write("/proc/sys/net/ipv4/tcp_fastopen", "519").is_ok()
}

fn set(socket: RawFd, option: libc::c_int, value: libc::c_int) {
    let length = size_of_val(&value) as u32;
    // SAFETY: the value outlives the call, which reads as much.
    let done = unsafe { libc::setsockopt(socket, libc::IPPROTO_TCP, option, (&raw const value).cast(), length) };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
}

/// A listening socket that takes data with the first segment.
pub(crate) fn fast_listener() -> (TcpListener, SocketAddrV4) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    set(listener.as_raw_fd(), libc::TCP_FASTOPEN, 5);
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else { panic!("not IPv4") };
    (listener, address)
}

impl FastOpen {
    pub(crate) const ALL: [Self; 2] = [Self::Send, Self::Connect];

    /// A connection whose first segment has these bytes.
    pub(crate) fn open(self, to: SocketAddrV4, bytes: &[u8]) -> TcpStream {
        let mut stream = stream(libc::IPPROTO_TCP).unwrap();
        match self {
            Self::Send => {
                let address = address(to);
                let length = size_of_val(&address) as u32;
                // SAFETY: bytes and address outlive the call, which only reads them.
                let sent = unsafe {
                    let to = (&raw const address).cast();
                    libc::sendto(stream.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_FASTOPEN, to, length)
                };
                assert_eq!(sent, bytes.len() as isize, "{}", io::Error::last_os_error());
            }
            Self::Connect => {
                set(stream.as_raw_fd(), libc::TCP_FASTOPEN_CONNECT, 1);
                connect(&stream, to);
                stream.write_all(bytes).unwrap();
            }
        }
        stream
    }
}

/// A socket of this protocol.
pub(crate) fn stream(protocol: libc::c_int) -> io::Result<TcpStream> {
    // SAFETY: it takes no memory of ours; the descriptor is a new one.
    unsafe {
        match libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, protocol) {
            -1 => Err(io::Error::last_os_error()),
            socket => Ok(OwnedFd::from_raw_fd(socket).into()),
        }
    }
}

pub(crate) fn connect(stream: &TcpStream, to: SocketAddrV4) {
    let address = address(to);
    // SAFETY: the address outlives the call, which only reads it.
    let done = unsafe { libc::connect(stream.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32) };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
}

fn address(of: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: of.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*of.ip()).to_be() },
        sin_zero: [0; 8],
    }
}
