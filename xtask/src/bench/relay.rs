//! The least that can stand between two connections: what is left when everything that makes a pipe useful is
//! taken away. Beside these one sees how much of a pipe's time is the kernel's (`cargo xtask bench pipe`).
//!
//! They know nothing of half-closes, back-pressure, limits or more than one client, and end with the first connection.
#![expect(unsafe_code, reason = "the kernel reads and writes the buffers of io_uring between the calls of the program")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::thread;

use anyhow::{Result, ensure};
use io_uring::{IoUring, cqueue, opcode, squeue, types};

const BUFFER: usize = 64 << 10;

/// How a relay is driven.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Design {
    /// One thread reads here, writes there, reads there, writes here: two system calls a message
    /// and nothing else. Only for who asks and waits for the answer.
    Turns,
    /// A thread for each direction, which sleeps in read(2).
    Threads,
    /// One io_uring: a write and the next read with one system call (`DEFER_TASKRUN`, registered
    /// files, `RECVSEND_POLL_FIRST`).
    Uring,
}

impl Design {
    /// As on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Turns => "turns",
            Self::Threads => "threads",
            Self::Uring => "uring",
        }
    }
}

/// A relay for one client.
#[derive(clap::Args)]
pub(crate) struct Args {
    design: Design,
    /// Listens on this port of 127.0.0.1.
    port: u16,
    /// Goes to this one.
    to: u16,
}

/// Relays until either side closes.
pub(crate) fn run(args: &Args) -> Result<()> {
    let (near, _) = TcpListener::bind(("127.0.0.1", args.port))?.accept()?;
    let far = TcpStream::connect(("127.0.0.1", args.to))?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    match args.design {
        Design::Turns => turns(near, far),
        Design::Threads => threads(near, far),
        Design::Uring => uring(near, far),
    }
}

fn turns(mut near: TcpStream, mut far: TcpStream) -> Result<()> {
    let mut buffer = vec![0; BUFFER];
    while pass(&mut near, &mut far, &mut buffer)? && pass(&mut far, &mut near, &mut buffer)? {}
    Ok(())
}

fn threads(mut near: TcpStream, mut far: TcpStream) -> Result<()> {
    let (mut near_too, mut far_too) = (near.try_clone()?, far.try_clone()?);
    let back = thread::spawn(move || {
        let mut buffer = vec![0; BUFFER];
        while pass(&mut far_too, &mut near_too, &mut buffer)? {}
        Ok(())
    });
    let mut buffer = vec![0; BUFFER];
    while pass(&mut near, &mut far, &mut buffer)? {}
    back.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the other direction panicked")))
}

/// Whether there was something.
fn pass(from: &mut TcpStream, to: &mut TcpStream, buffer: &mut [u8]) -> Result<bool> {
    let bytes = from.read(buffer)?;
    to.write_all(&buffer[..bytes])?;
    Ok(bytes > 0)
}

/// linux/io_uring.h: don't try before there is something.
const POLL_FIRST: u16 = 1;
/// Marks a write, of which is heard only when it fails.
const WRITE: u64 = 2;

fn uring(near: TcpStream, far: TcpStream) -> Result<()> {
    let mut ring = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(8)?;
    let fds: [RawFd; 2] = [near.as_raw_fd(), far.as_raw_fd()];
    ring.submitter().register_files(&fds)?;
    // For each direction one that is read into and one that is written from. The kernel has them
    // until the process ends.
    let buffers: [[*mut u8; 2]; 2] =
        [0, 1].map(|_| [0, 1].map(|_| Box::leak(vec![0_u8; BUFFER].into_boxed_slice()).as_mut_ptr()));
    let mut filling = [0; 2];
    let read = |from: usize, buffer: *mut u8| {
        let read = opcode::Recv::new(types::Fixed(from as u32), buffer, BUFFER as u32).ioprio(POLL_FIRST);
        read.build().user_data(from as u64)
    };
    let begin = [read(0, buffers[0][0]), read(1, buffers[1][0])];
    // SAFETY: the buffers are never freed, and the sockets live until this function returns, after
    // which the process ends.
    unsafe { ring.submission().push_multiple(&begin)? };
    loop {
        ring.submit_and_wait(1)?;
        let done: Vec<(u64, i32)> =
            ring.completion().map(|entry: cqueue::Entry| (entry.user_data(), entry.result())).collect();
        for (which, result) in done {
            ensure!(which != WRITE, "a write failed: {result}");
            if result <= 0 {
                return Ok(());
            }
            let from = which as usize;
            let full = buffers[from][filling[from]];
            filling[from] ^= 1;
            let write = opcode::Send::new(types::Fixed(1 - from as u32), full, result as u32).flags(libc::MSG_NOSIGNAL);
            let write = write.build().flags(squeue::Flags::SKIP_SUCCESS).user_data(WRITE);
            // SAFETY: as above. Of two buffers the one that was filled is not read into before the
            // next has been filled.
            unsafe { ring.submission().push_multiple(&[write, read(from, buffers[from][filling[from]])])? };
        }
    }
}
