//! One direction of a pipe: what was taken from one end and not yet given to the other.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use taut_time::{Duration, Instant};

use crate::end::{End, Moved};
use crate::framing::{Decoder, Framing, FramingError, Messages, encode};

/// The most that one direction moves before the others have their turn, in bytes.
const TURN: usize = 1 << 20;
/// Size of a pipe in the kernel, in bytes: what an unprivileged process may ask for (pipe(7)).
const KERNEL_PIPE: usize = 1 << 20;
/// Reads that filled the buffer, in a row, after which a stream is one of bulk.
const FULL_READS: u8 = 2;
/// Splices of less than this many bytes, in a row, after which it is no more.
const SMALL_SPLICE: usize = 16 << 10;
const SMALL_SPLICES: u8 = 8;
/// How soon to look again whether a packet link is still sending, while a tail is held back for it.
const HOLD: Duration = Duration::from_millis(2);

/// A pipe of the kernel's, through which bytes move without being copied to us.
#[derive(Debug)]
pub(crate) struct KernelPipe {
    read: OwnedFd,
    write: OwnedFd,
    bytes: usize,
}

impl KernelPipe {
    fn new() -> rustix::io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A smaller one does as well.
        let _ = fcntl_setpipe_size(&write, KERNEL_PIPE);
        Ok(Self { read, write, bytes: 0 })
    }
}

/// Sees the bytes that one end has sent.
pub(crate) type Tee<'a> = &'a mut dyn FnMut(&[u8]);

/// What every direction may use while it has its turn.
pub(crate) struct Turn<'a> {
    pub(crate) now: Instant,
    pub(crate) scratch: &'a mut [u8],
    /// Kernel pipes without use, empty.
    pub(crate) spare: &'a mut Vec<KernelPipe>,
    /// Sees all bytes that are taken; with it nothing is spliced.
    pub(crate) tee: Option<Tee<'a>>,
}

/// What a direction needs next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Next {
    /// An end has to become ready.
    Waiting,
    /// Another turn.
    More,
    /// A time.
    Until(Instant),
    /// Nothing: it is over.
    Over,
}

/// Why a direction is over.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Stop {
    /// Whether the source brought it about, and not the sink.
    pub(crate) by_source: bool,
    /// What went wrong; `None` when the source said that it was done.
    pub(crate) error: Option<String>,
}

/// One direction.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Bytes read from the source.
    pub(crate) taken: u64,
    /// Bytes given to the sink's kernel.
    pub(crate) delivered: u64,
    /// Those of them that were spliced.
    pub(crate) spliced: u64,
    /// Messages given to the sink; stays 0 between streams.
    pub(crate) messages: u64,
    /// Messages that were not given: too long for the link, or no room.
    pub(crate) lost: u64,
    /// Writes that were made.
    pub(crate) writes: u64,
    pub(crate) stop: Option<Stop>,
    /// There is no such direction.
    pub(crate) is_absent: bool,
    /// What comes can't be given to anybody, as the other end is only read from; it is counted here.
    pub(crate) discarded: Option<u64>,
    source_stop: Option<Stop>,
    out: Vec<u8>,
    head: usize,
    /// Where each message in `out` ends, counted as `delivered` is.
    frames: VecDeque<u64>,
    queue: Messages,
    decoder: Option<Decoder>,
    framing: Framing,
    kernel: Option<KernelPipe>,
    full_reads: u8,
    small_splices: u8,
    bucket: Option<Bucket>,
}

enum Out {
    Empty,
    Blocked,
    Held,
}

impl Flow {
    /// A direction from one end to the other, at most `rate` bytes a second.
    pub(crate) fn new(from: &End, to: &End, framing: Framing, rate: Option<u64>, now: Instant) -> Self {
        let decodes = to.has_messages() && !from.has_messages();
        let bucket = rate.map(|rate| Bucket::new(rate, now));
        let mut flow = Self { framing, bucket, ..Self::default() };
        if decodes {
            let limit = if framing == Framing::None { to.write_limit } else { crate::MESSAGE_LIMIT };
            flow.decoder = Some(Decoder::new(framing, limit));
        }
        if to.output.is_none() && !to.has_messages() {
            flow.discarded = Some(0);
        }
        if from.input.is_none() && !from.has_messages() {
            flow.is_absent = true;
            flow.stop = Some(Stop { by_source: true, error: None });
        }
        flow
    }

    /// Bytes that were taken and not given to the sink.
    pub(crate) fn held(&self) -> u64 {
        let kernel = self.kernel.as_ref().map_or(0, |kernel| kernel.bytes);
        let partial = self.decoder.as_ref().map_or(0, Decoder::held);
        (self.out.len() - self.head + self.queue.bytes() + partial + kernel) as u64 + self.discarded.unwrap_or(0)
    }

    /// Messages that were taken and not given to the sink.
    pub(crate) fn held_messages(&self) -> u64 {
        (self.queue.count() + self.frames.len()) as u64
    }

    /// Moves what can be moved now.
    pub(crate) fn turn(&mut self, from: &mut End, to: &mut End, turn: &mut Turn<'_>) -> Next {
        if self.stop.is_some() {
            return Next::Over;
        }
        let begin = self.taken;
        loop {
            let paused = self.bucket.as_mut().and_then(|bucket| bucket.pause(turn.now));
            // Whether the tail of a packet might be filled up by what is there to read.
            let more = from.readable && paused.is_none() && self.source_stop.is_none();
            match self.give(to, more) {
                Ok(Out::Empty) => {}
                Ok(Out::Blocked) => return Next::Waiting,
                Ok(Out::Held) if more => {}
                Ok(Out::Held) => return Next::Until(turn.now + HOLD),
                Err(error) => return self.over(false, Some(error)),
            }
            if let Some(stop) = self.source_stop.take() {
                return self.finish(to, stop);
            }
            if let Some(until) = paused {
                return Next::Until(until);
            }
            if !from.readable {
                self.rest(turn);
                return Next::Waiting;
            }
            if self.taken - begin >= TURN as u64 {
                return Next::More;
            }
            if let Err(stop) = self.take(from, to, turn) {
                if !stop.by_source {
                    return self.over(
                        false,
                        Some(stop.error.map_or_else(|| io::ErrorKind::BrokenPipe.into(), io::Error::other)),
                    );
                }
                self.source_stop = Some(stop);
            }
        }
    }

    fn over(&mut self, by_source: bool, error: Option<io::Error>) -> Next {
        self.stop = Some(Stop { by_source, error: error.map(|error| error.to_string()) });
        Next::Over
    }

    fn finish(&mut self, to: &mut End, mut stop: Stop) -> Next {
        if let Some(decoder) = &mut self.decoder
            && let Err(cut) = decoder.finish(stop.error.is_none(), &mut self.queue)
        {
            stop.error.get_or_insert_with(|| cut.to_string());
        }
        match self.give(to, false) {
            Ok(Out::Empty) => {}
            Ok(_) => {
                self.source_stop = Some(stop);
                return Next::Waiting;
            }
            Err(error) => return self.over(false, Some(error)),
        }
        // What was cut off must not look whole where the kind can tell the two apart.
        let is_whole = stop.error.is_none();
        if (is_whole || !matches!(to.form, crate::end::Form::Tls(_)))
            && let Err(error) = to.finish()
        {
            return self.over(false, Some(error));
        }
        self.stop = Some(stop);
        Next::Over
    }

    /// An idle direction gives its pipe back.
    fn rest(&mut self, turn: &mut Turn<'_>) {
        if let Some(kernel) = self.kernel.take_if(|kernel| kernel.bytes == 0 && self.small_splices >= SMALL_SPLICES) {
            self.full_reads = 0;
            if turn.spare.len() < 16 {
                turn.spare.push(kernel);
            }
        }
    }

    /// Gives the sink what is held, as much as it takes; `more` is there to read.
    fn give(&mut self, to: &mut End, more: bool) -> io::Result<Out> {
        if !to.flush()? {
            return Ok(Out::Blocked);
        }
        if let (Some(kernel), Some(sink)) = (&mut self.kernel, &to.output) {
            while kernel.bytes > 0 {
                if !to.writable {
                    return Ok(Out::Blocked);
                }
                let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
                match splice(&kernel.read, None, sink, None, kernel.bytes, flags) {
                    Ok(bytes) => {
                        kernel.bytes -= bytes;
                        self.delivered += bytes as u64;
                        self.spliced += bytes as u64;
                        self.writes += 1;
                    }
                    Err(Errno::AGAIN) => to.writable = false,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        while let Some(message) = self.queue.first() {
            let bytes = message.len();
            if !to.writable {
                return Ok(Out::Blocked);
            }
            match to.write(message) {
                Ok(Moved::Bytes(_)) => {
                    self.delivered += bytes as u64;
                    self.messages += 1;
                    self.writes += 1;
                }
                Ok(_) => return Ok(Out::Blocked),
                // Longer than the link's, or no memory for it at the device: the next one may go.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EMSGSIZE | libc::ENOBUFS)) => self.lost += 1,
                Err(error) => return Err(error),
            }
            self.queue.remove_first();
        }
        while self.head < self.out.len() {
            if !to.writable {
                return Ok(Out::Blocked);
            }
            let bytes = &self.out[self.head..];
            // A packet link gets whole packets: a tail waits for what is there to read, and for a
            // link that is still sending and would not send it any sooner.
            let is_tail = bytes.len() < to.write_limit && to.write_limit != usize::MAX;
            if is_tail && self.source_stop.is_none() && (more || to.is_sending()) {
                self.out.drain(..self.head);
                self.head = 0;
                return Ok(Out::Held);
            }
            match to.write(&bytes[..bytes.len().min(to.write_limit)])? {
                Moved::Bytes(written) => {
                    self.head += written;
                    self.delivered += written as u64;
                    self.writes += 1;
                    while self.frames.pop_front_if(|end| *end <= self.delivered).is_some() {
                        self.messages += 1;
                    }
                }
                Moved::Blocked | Moved::End => return Ok(Out::Blocked),
            }
        }
        if self.out.capacity() > 0 {
            // An idle pipe holds no memory.
            (self.out, self.head) = (Vec::new(), 0);
        }
        if to.flush()? { Ok(Out::Empty) } else { Ok(Out::Blocked) }
    }

    /// Takes once from the source.
    fn take(&mut self, from: &mut End, to: &mut End, turn: &mut Turn<'_>) -> Result<(), Stop> {
        let by_source = |error: String| Stop { by_source: true, error: Some(error) };
        if self.is_bulk(from, to, turn) {
            return self.take_into_kernel(from);
        }
        let most = self.bucket.as_ref().map_or(usize::MAX, Bucket::available).min(turn.scratch.len());
        // A message is taken whole or not at all.
        let most = if from.has_messages() { turn.scratch.len() } else { most };
        let bytes = match from.read(&mut turn.scratch[..most]) {
            Ok(Moved::Bytes(bytes)) => bytes,
            Ok(Moved::Blocked) => return Ok(()),
            Ok(Moved::End) => return Err(Stop { by_source: true, error: None }),
            Err(error) => return Err(by_source(error.to_string())),
        };
        self.full_reads = if bytes == most { self.full_reads.saturating_add(1) } else { 0 };
        self.taken += bytes as u64;
        if let Some(bucket) = &mut self.bucket {
            bucket.spend(bytes);
        }
        if let Some(discarded) = &mut self.discarded {
            *discarded += bytes as u64;
            return Ok(());
        }
        let bytes = &turn.scratch[..bytes];
        if let Some(tee) = &mut turn.tee {
            tee(bytes);
        }
        let unframed = |error: FramingError| by_source(error.to_string());
        if let Some(decoder) = &mut self.decoder {
            return decoder.push(bytes, &mut self.queue).map_err(unframed);
        }
        if to.has_messages() {
            self.queue.push(bytes);
            return Ok(());
        }
        if from.has_messages() {
            let result = encode(self.framing, bytes, &mut self.out).map_err(unframed);
            match result {
                Ok(()) => self.frames.push_back(self.delivered + (self.out.len() - self.head) as u64),
                Err(_) => self.lost += 1,
            }
            return result;
        }
        if to.write_limit != usize::MAX || self.head < self.out.len() || !to.writable {
            self.out.extend_from_slice(bytes);
            return Ok(());
        }
        let result = to.write(bytes);
        let written = if let Ok(Moved::Bytes(written)) = result { written } else { 0 };
        self.delivered += written as u64;
        self.writes += 1;
        if written < bytes.len() {
            self.out.extend_from_slice(&bytes[written..]);
        }
        result.map(drop).map_err(|error| Stop { by_source: false, error: Some(error.to_string()) })
    }

    /// Whether bytes should go through the kernel alone. Small messages cost less the other way.
    fn is_bulk(&mut self, from: &End, to: &End, turn: &mut Turn<'_>) -> bool {
        if self.kernel.is_some() {
            return true;
        }
        if self.full_reads < FULL_READS
            || self.discarded.is_some()
            || turn.tee.is_some()
            || self.bucket.is_some()
            || self.head < self.out.len()
        {
            return false;
        }
        if !from.can_be_spliced() || !to.can_be_spliced() {
            return false;
        }
        // Without one, for want of descriptors or memory, it goes the other way as well.
        self.kernel = turn.spare.pop().or_else(|| KernelPipe::new().ok());
        self.small_splices = 0;
        self.kernel.is_some()
    }

    fn take_into_kernel(&mut self, from: &mut End) -> Result<(), Stop> {
        let (Some(kernel), Some(source)) = (&mut self.kernel, &from.input) else { return Ok(()) };
        match splice(source.as_fd(), None, &kernel.write, None, KERNEL_PIPE, SpliceFlags::MOVE | SpliceFlags::NONBLOCK)
        {
            Ok(0) => Err(Stop { by_source: true, error: None }),
            Ok(bytes) => {
                kernel.bytes = bytes;
                self.taken += bytes as u64;
                self.small_splices = if bytes < SMALL_SPLICE { self.small_splices.saturating_add(1) } else { 0 };
                Ok(())
            }
            Err(Errno::AGAIN) => {
                from.readable = false;
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(error) => Err(Stop { by_source: true, error: Some(io::Error::from(error).to_string()) }),
        }
    }
}

/// A limit of bytes a second: what was not used is kept for a tenth of a second.
#[derive(Debug)]
struct Bucket {
    rate: u64,
    /// Bytes, times 10⁹; below zero when a message was larger than what was there.
    level: i128,
    at: Instant,
}

const NANOS: i128 = 1_000_000_000;

impl Bucket {
    fn new(rate: u64, now: Instant) -> Self {
        Self { rate: rate.max(1), level: 0, at: now }
    }

    /// Until when nothing may be taken.
    fn pause(&mut self, now: Instant) -> Option<Instant> {
        let rate = i128::from(self.rate);
        let passed = now.saturating_since(self.at).as_nanos() as i128;
        self.level = (self.level + passed * rate).min((rate * NANOS / 10).max(NANOS));
        self.at = now;
        if self.level >= NANOS {
            return None;
        }
        // Not for each byte of a slow one, but not too many at once either: a hundredth of a second's worth.
        let wanted = (rate * NANOS / 100).max(NANOS) - self.level;
        Some(now + Duration::from_nanos(u64::try_from(wanted.div_euclid(rate) + 1).unwrap_or(u64::MAX / 2)))
    }

    fn available(&self) -> usize {
        usize::try_from(self.level / NANOS).unwrap_or(0)
    }

    fn spend(&mut self, bytes: usize) {
        self.level -= bytes as i128 * NANOS;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
    use taut_link::clock;

    use super::*;
    use crate::end::Form;

    const MTU: usize = 672;

    /// A packet link: each write is one packet, of at most the MTU.
    fn packet_link() -> (End, OwnedFd) {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let mut end = End::new("packets".to_owned(), Form::Stream, Some(Arc::new(ours)));
        end.write_limit = MTU;
        (end, theirs)
    }

    fn turn(flow: &mut Flow, from: &mut End, to: &mut End) -> Next {
        from.readable = true;
        let mut scratch = vec![0; 65_536];
        let mut spare = Vec::new();
        flow.turn(from, to, &mut Turn { now: clock::now(), scratch: &mut scratch, spare: &mut spare, tee: None })
    }

    fn packets(theirs: &OwnedFd) -> Vec<usize> {
        let mut buffer = [0; 4096];
        std::iter::from_fn(|| recv(theirs, &mut buffer, RecvFlags::DONTWAIT).ok().map(|(bytes, _)| bytes))
            .take_while(|bytes| *bytes > 0)
            .collect()
    }

    #[test]
    fn blocks_become_whole_packets_while_the_link_is_busy_and_no_tail_is_left_when_it_is_not() {
        let (source, ours) = UnixStream::pair().unwrap();
        let mut from = End::new("source".to_owned(), Form::Stream, Some(Arc::new(ours.into())));
        let (mut to, theirs) = packet_link();
        let mut flow = Flow::new(&from, &to, Framing::None, None, clock::now());
        // Blocks of 4096 are six packets and a tail of 64 each: the tail is held while the link has packets to send.
        for block in 1..=5_u64 {
            send(&source, &[0; 4096], SendFlags::empty()).unwrap();
            assert!(matches!(turn(&mut flow, &mut from, &mut to), Next::Until(_)));
            assert_eq!(flow.held(), block * 4096 % MTU as u64);
        }
        assert_eq!(packets(&theirs), [MTU; 30]);
        // The link is idle: what is left goes at once.
        assert_eq!(turn(&mut flow, &mut from, &mut to), Next::Waiting);
        assert_eq!((packets(&theirs), flow.held()), (vec![5 * 4096 - 30 * MTU], 0));
        // And so does a small message over an idle link.
        send(&source, &[0; 10], SendFlags::empty()).unwrap();
        assert_eq!(turn(&mut flow, &mut from, &mut to), Next::Waiting);
        assert_eq!(packets(&theirs), [10]);
        assert_eq!((flow.taken, flow.delivered), (5 * 4096 + 10, 5 * 4096 + 10));
    }

    #[test]
    fn the_end_of_the_source_lets_no_tail_wait() {
        let (source, ours) = UnixStream::pair().unwrap();
        let mut from = End::new("source".to_owned(), Form::Stream, Some(Arc::new(ours.into())));
        let (mut to, theirs) = packet_link();
        let mut flow = Flow::new(&from, &to, Framing::None, None, clock::now());
        send(&source, &[0; 700], SendFlags::empty()).unwrap();
        drop(source);
        // As epoll tells it.
        from.hung_up = true;
        assert_eq!(turn(&mut flow, &mut from, &mut to), Next::Over);
        assert_eq!(packets(&theirs), [MTU, 28]);
    }

    #[test]
    fn a_bucket_gives_its_rate_and_no_more() {
        let mut now = Instant::from_nanos(0);
        let mut bucket = Bucket::new(1000, now);
        let mut given = 0;
        while now < Instant::from_nanos(2_000_000_000) {
            match bucket.pause(now) {
                Some(until) => {
                    assert!(until > now);
                    now = until;
                }
                None => {
                    given += bucket.available();
                    bucket.spend(bucket.available());
                }
            }
        }
        assert!((1900..=2000).contains(&given), "{given}");
    }
}
