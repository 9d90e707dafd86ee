//! Many sockets on one io_uring: the queue takes raw pointers, and here is who owns what they point to.
#![expect(unsafe_code, reason = "the kernel reads and writes buffers between the calls of the program")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;

use crate::Link;

/// Sockets, each with a buffer and at most one operation under way, driven by one io_uring on one thread.
///
/// Needs Linux 6.1: the ring belongs to the thread that made it (`IORING_SETUP_SINGLE_ISSUER`), and
/// completions are worked off when that thread waits (`IORING_SETUP_DEFER_TASKRUN`).
pub struct SocketRing {
    ring: IoUring,
    links: Vec<Link>,
    /// `each` bytes for each link. A raw pointer, since no reference may exist to what the kernel is writing.
    memory: *mut [u8],
    each: usize,
    under_way: Vec<bool>,
    count_under_way: usize,
}

/// An operation that has come to its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Completion {
    /// Whose.
    pub slot: usize,
    /// Bytes received, 0 at the end of the stream; of a reply that could not be sent, why.
    pub result: Result<usize, Errno>,
}

/// Entries of the submission queue: how much goes to the kernel with one call.
const SUBMISSIONS: u32 = 1024;
/// Marks the sending half of a reply. It is heard of only when it fails; then the receiving half is
/// cancelled and nothing is heard of that (io_uring_enter(2), `IOSQE_CQE_SKIP_SUCCESS`).
const SENDING: u64 = 1 << 32;

impl SocketRing {
    /// A ring for these links, with a buffer of `buffer_bytes` for each.
    ///
    /// # Errors
    /// The kernel refuses io_uring (seccomp, `kernel.io_uring_disabled`, `RLIMIT_MEMLOCK`) or is too old.
    ///
    /// # Panics
    /// When `buffer_bytes` is 0 or the buffers exceed the address space.
    pub fn new(links: Vec<Link>, buffer_bytes: usize) -> io::Result<Self> {
        assert!(buffer_bytes > 0, "a buffer has room");
        // Room for all that can be under way, so that completions never overflow into the kernel's slow list.
        let completions = u32::try_from(links.len() * 2).unwrap_or(u32::MAX).clamp(2 * SUBMISSIONS, 65_536);
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_clamp()
            .setup_cqsize(completions)
            .build(SUBMISSIONS)?;
        let memory = Box::into_raw(vec![0; links.len() * buffer_bytes].into_boxed_slice());
        let under_way = vec![false; links.len()];
        Ok(Self { ring, links, memory, each: buffer_bytes, under_way, count_under_way: 0 })
    }

    /// Number of links.
    pub const fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether there is no link.
    pub const fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Queues a receive into the slot's buffer.
    ///
    /// # Errors
    /// `EBUSY` while an operation of the slot is under way, `EINVAL` when there is no such slot;
    /// else as io_uring_enter(2).
    pub fn receive(&mut self, slot: usize) -> io::Result<()> {
        self.check_idle(slot)?;
        let receive = self.receive_entry(slot);
        self.queue(slot, &[receive])
    }

    /// Queues the sending of the first bytes of the slot's buffer, all of them, and after it a
    /// receive into the same buffer. One completion tells of both.
    ///
    /// # Errors
    /// As [`receive`](Self::receive); `EINVAL` when the buffer is shorter.
    pub fn reply(&mut self, slot: usize, length: usize) -> io::Result<()> {
        self.check_idle(slot)?;
        if length == 0 || length > self.each {
            return Err(Errno::INVAL.into());
        }
        let fd = types::Fd(self.links[slot].as_fd().as_raw_fd());
        let send = opcode::Send::new(fd, self.pointer(slot), u32::try_from(length).unwrap_or(u32::MAX))
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
            .build()
            .flags(squeue::Flags::IO_LINK | squeue::Flags::SKIP_SUCCESS)
            .user_data(slot as u64 | SENDING);
        let receive = self.receive_entry(slot);
        self.queue(slot, &[send, receive])
    }

    /// Hands the kernel what is queued, waits for at least one completion, and puts all there are into `done`, which is
    /// emptied before. A signal ends the wait with none.
    ///
    /// # Errors
    /// As io_uring_enter(2).
    pub fn wait(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        done.clear();
        match self.ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) => {}
            Err(error) => return Err(error),
        }
        for entry in self.ring.completion() {
            let slot = (entry.user_data() & !SENDING) as usize;
            self.under_way[slot] = false;
            self.count_under_way -= 1;
            let result = match usize::try_from(entry.result()) {
                Err(_) => Err(Errno::from_raw_os_error(-entry.result())),
                // A part was sent before the peer went.
                Ok(_) if entry.user_data() & SENDING != 0 => Err(Errno::PIPE),
                Ok(bytes) => Ok(bytes),
            };
            done.push(Completion { slot, result });
        }
        Ok(())
    }

    /// The slot's buffer; `None` while an operation is under way, since the kernel writes there then.
    pub fn buffer(&self, slot: usize) -> Option<&[u8]> {
        if self.check_idle(slot).is_err() {
            return None;
        }
        // SAFETY: the slot's bytes lie within `memory`, which lives until `drop`; no operation is
        // under way, so the kernel does not write there, and none can begin while `self` is borrowed.
        Some(unsafe { std::slice::from_raw_parts(self.pointer(slot), self.each) })
    }

    fn check_idle(&self, slot: usize) -> io::Result<()> {
        match self.under_way.get(slot) {
            Some(false) => Ok(()),
            Some(true) => Err(Errno::BUSY.into()),
            None => Err(Errno::INVAL.into()),
        }
    }

    fn receive_entry(&self, slot: usize) -> squeue::Entry {
        let fd = types::Fd(self.links[slot].as_fd().as_raw_fd());
        let length = u32::try_from(self.each).unwrap_or(u32::MAX);
        opcode::Recv::new(fd, self.pointer(slot), length).build().user_data(slot as u64)
    }

    /// Where an existing slot's buffer begins.
    fn pointer(&self, slot: usize) -> *mut u8 {
        self.memory.cast::<u8>().wrapping_add(slot * self.each)
    }

    fn queue(&mut self, slot: usize, entries: &[squeue::Entry]) -> io::Result<()> {
        let room = {
            let submissions = self.ring.submission();
            submissions.capacity() - submissions.len()
        };
        if room < entries.len() {
            self.ring.submit()?;
        }
        // SAFETY: the entries name the slot's own buffer and descriptor. Both stay valid and
        // untouched until the completion: the slot counts as under way from here on, links are never
        // closed before the ring is, and `drop` gives the memory back only when nothing is under way.
        unsafe { self.ring.submission().push_multiple(entries) }.map_err(io::Error::other)?;
        self.under_way[slot] = true;
        self.count_under_way += 1;
        Ok(())
    }
}

impl Drop for SocketRing {
    fn drop(&mut self) {
        // Closing a ring cancels what is under way some time later; until then the kernel may
        // write, so the memory stays.
        if self.count_under_way == 0 {
            // SAFETY: made by `Box::into_raw`, given back once, and nobody refers to it any more.
            drop(unsafe { Box::from_raw(self.memory) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use taut_time::Duration;

    use super::*;
    use crate::{Endpoint, Listener};

    /// A ring over `n` connections, and their other ends. `None` where io_uring is refused, which is noted.
    fn ring(test: &str, n: usize) -> Option<(SocketRing, Vec<TcpStream>)> {
        let listener = Listener::bind(&"tcp://127.0.0.1:0".parse::<Endpoint>().unwrap()).unwrap();
        let mut peers = Vec::new();
        let links = (0..n).map(|_| {
            let port = listener.endpoint().to_string().rsplit_once(':').unwrap().1.parse::<u16>().unwrap();
            let peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
            peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            peers.push(peer);
            listener.accept().unwrap()
        });
        let links: Vec<Link> = links.collect();
        match SocketRing::new(links, 64) {
            Ok(ring) => Some((ring, peers)),
            Err(error) => {
                crate::skip::note(&format!("ring::{test}"), &format!("io_uring is refused: {error}"));
                None
            }
        }
    }

    #[test]
    fn every_slot_answers_and_its_end_is_told() {
        let Some((mut ring, mut peers)) = ring("every_slot_answers_and_its_end_is_told", 300) else { return };
        (0..ring.len()).for_each(|slot| ring.receive(slot).unwrap());
        let mut done = Vec::new();
        for turn in 0..3u8 {
            for (index, peer) in peers.iter_mut().enumerate() {
                peer.write_all(&[turn, index as u8]).unwrap();
            }
            let mut answered = 0;
            while answered < peers.len() {
                ring.wait(&mut done).unwrap();
                for completion in &done {
                    let length = completion.result.unwrap();
                    assert_eq!(ring.buffer(completion.slot).unwrap()[..length], [turn, completion.slot as u8]);
                    ring.reply(completion.slot, length).unwrap();
                    assert_eq!(ring.buffer(completion.slot), None, "the kernel has it");
                    assert_eq!(ring.receive(completion.slot).unwrap_err().raw_os_error(), Some(libc::EBUSY));
                    answered += 1;
                }
            }
            // The last replies go out with the next wait; a wait that has nothing to wait for would not end.
            ring.ring.submit().unwrap();
            for (index, peer) in peers.iter_mut().enumerate() {
                let mut reply = [0; 2];
                peer.read_exact(&mut reply).unwrap();
                assert_eq!(reply, [turn, index as u8]);
            }
        }
        peers.swap_remove(7);
        ring.wait(&mut done).unwrap();
        assert_eq!(done, [Completion { slot: 7, result: Ok(0) }]);
    }

    #[test]
    fn a_reply_to_one_who_has_gone_is_an_error_of_its_slot() {
        let Some((mut ring, mut peers)) = ring("a_reply_to_one_who_has_gone_is_an_error_of_its_slot", 1) else {
            return;
        };
        ring.receive(0).unwrap();
        peers[0].write_all(b"x").unwrap();
        let mut done = Vec::new();
        ring.wait(&mut done).unwrap();
        socket2::SockRef::from(&peers[0]).set_linger(Some(Duration::ZERO)).unwrap();
        peers.clear();
        ring.reply(0, 1).unwrap();
        ring.wait(&mut done).unwrap();
        while done.is_empty() {
            ring.wait(&mut done).unwrap();
        }
        assert!(done[0].result.is_err(), "{done:?}");
    }

    #[test]
    fn there_is_no_slot_beyond_the_last_and_no_reply_beyond_the_buffer() {
        let Some((mut ring, _peers)) = ring("there_is_no_slot_beyond_the_last_and_no_reply_beyond_the_buffer", 1)
        else {
            return;
        };
        assert_eq!(ring.receive(1).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(ring.reply(0, 65).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(ring.buffer(1), None);
    }
}
