//! Clients of stream endpoints: one thread each.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use taut_link::clock::{self, RealtimeOffset};
use taut_link::wire::{
    Accept, AckPolicy, ArrivalRecord, CONTROL_BYTES, EndMark, Frame, Hello, RECORDS_PER_FRAME, Refusal, Totals, Work,
};
use taut_link::{Link, Listener, SocketOption, boot_identity, stamp};
use taut_time::{Duration, Instant};

use crate::crowd::control;
use crate::exchange::{Bounds, Outcome, SessionError, drain, receive_frame, send};
use crate::limits::{Rate, Slot};
use crate::look_period::LOOK_PERIOD;
use crate::processor;
use crate::shape;
use crate::shared::Shared;

/// Enough for the deepest call here; buffers are on the heap.
const STACK_BYTES: usize = 256 * 1024;
/// Threads beyond the slots, for clients that have not said hello yet or are told no.
const WAITING_ROOM: usize = 1024;
/// Room for reading: many small messages come with one call. Twice as much was slower, as it falls out of the cache.
const BUFFER_BYTES: usize = 64 * 1024;

pub(super) fn accept_all(listener: &Arc<Listener>, shared: &Arc<Shared>) {
    let mut clients: Vec<thread::JoinHandle<()>> = Vec::new();
    while !shared.is_stopping() {
        shared.ending.wait_with(listener.as_ref());
        if shared.is_stopping() {
            break;
        }
        match listener.accept() {
            Ok(link) => {
                clients.retain(|client| !client.is_finished());
                if clients.len() >= shared.config.limits.clients + WAITING_ROOM {
                    shared.refused.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let (shared, listener) = (Arc::clone(shared), Arc::clone(listener));
                let spawned =
                    thread::Builder::new().stack_size(STACK_BYTES).spawn(move || greet(&link, &listener, &shared));
                clients.extend(spawned.ok());
            }
            // Out of descriptors or memory: clients wait in the backlog meanwhile.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => clock::sleep(Duration::from_millis(10)),
            Err(_) => {}
        }
    }
    for client in clients {
        // A panic there has been printed already.
        let _ = client.join();
    }
}

fn greet(link: &Link, listener: &Listener, shared: &Shared) {
    let outcome = serve(link, listener, shared);
    note_agreement(link, shared);
    match outcome {
        Ok(()) | Err(SessionError::Gone) => {}
        Err(SessionError::Misbehaved) => drop(shared.misbehaved.fetch_add(1, Ordering::Relaxed)),
        Err(SessionError::Refused(refusal)) => {
            shared.refused.fetch_add(1, Ordering::Relaxed);
            // Let the client read it before unread bytes reset the connection. A client that does not care is cut off.
            let _ = link.send(&Frame::Refuse(refusal).emit(0));
            let _ = link.finish_sending();
            drain(link, &Bounds::lasting(shared, Duration::from_millis(300)));
        }
    }
}

/// What was agreed on over a radio: once the peer has spoken, and again at the end, as an interval
/// may change meanwhile.
fn note_agreement(link: &Link, shared: &Shared) {
    if link.endpoint().has_radio() {
        *shared.last_link.lock().unwrap_or_else(PoisonError::into_inner) = SocketOption::in_force(link);
    }
}

fn serve(link: &Link, listener: &Listener, shared: &Shared) -> Outcome {
    let limits = &shared.config.limits;
    link.set_receive_timeout(Some(LOOK_PERIOD)).map_err(|_| SessionError::Gone)?;
    link.set_send_timeout(Some(LOOK_PERIOD)).map_err(|_| SessionError::Gone)?;
    let greeting = Bounds::lasting(shared, limits.hello);
    let (session, Frame::Hello(hello)) = receive_frame(link, &greeting)? else {
        return Err(SessionError::Refused(Refusal::NotUnderstood));
    };
    note_agreement(link, shared);
    let slot = shared.slots.take().map_err(SessionError::Refused)?;
    limits.check(&hello).map_err(SessionError::Refused)?;

    if link.endpoint().acknowledges() {
        SocketOption::Nodelay(true).apply(link).map_err(|_| SessionError::Gone)?;
        if let AckPolicy::DelayedAtMost(micros) = hello.acks {
            let set = SocketOption::DelackMaxUs(micros).apply(link);
            set.map_err(|_| SessionError::Refused(Refusal::AcksNotOffered))?;
        }
    } else if hello.acks != AckPolicy::System {
        return Err(SessionError::Refused(Refusal::AcksNotOffered));
    }
    let accept = Accept {
        boot: boot_identity(),
        max_message_bytes: u32::try_from(limits.message_bytes).unwrap_or(u32::MAX),
        max_duration: limits.session,
        receive_buffer: link.receive_buffer().unwrap_or(0),
        credit_rule: link.credit_rule(),
        agreed: link.agreed(),
        core: processor::for_client(&hello),
    };
    send(link, &Frame::Accept(accept).emit(session), &greeting)?;
    match hello.work {
        Work::Crowd => return control::serve(link, shared, &hello, session, &greeting),
        Work::Shape => return shape::serve(link, listener, shared, &hello, session),
        _ => {}
    }
    loop {
        match receive_frame(link, &greeting)? {
            (_, Frame::Clock { .. }) => {
                let answer = Frame::Clock { server_ns: clock::now().as_nanos() };
                send(link, &answer.emit(session), &greeting)?;
            }
            (_, Frame::Start) => break,
            _ => return Err(SessionError::Misbehaved),
        }
    }
    send(link, &Frame::Ready.emit(session), &greeting)?;
    shared.clients.fetch_add(1, Ordering::Relaxed);
    Worker::new(link, shared, hello, session, slot).work()
}

/// One client at work.
struct Worker<'a> {
    link: &'a Link,
    shared: &'a Shared,
    hello: Hello,
    session: u64,
    slot: Slot,
    rate: Rate,
    /// Where the transport can't tell the end of the stream.
    end: Option<EndMark>,
    /// Whether the client has said that it is done.
    is_over: bool,
    /// Bytes of the mark that were counted as data before it was whole.
    excess: u64,
    began: Instant,
    bounds: Bounds<'a>,
    last_progress: Instant,
}

impl<'a> Worker<'a> {
    fn new(link: &'a Link, shared: &'a Shared, hello: Hello, session: u64, slot: Slot) -> Self {
        let limits = &shared.config.limits;
        let now = clock::now();
        let bounds = Bounds::new(shared, &hello);
        let rate = Rate::new(limits.rate, now);
        let end = (!link.endpoint().closes_by_halves()).then(|| EndMark::of(session));
        Self {
            link,
            shared,
            hello,
            session,
            slot,
            rate,
            end,
            is_over: false,
            excess: 0,
            began: now,
            bounds,
            last_progress: now,
        }
    }

    fn work(mut self) -> Outcome {
        match self.hello.work {
            Work::Echo => self.echo(),
            Work::Collect => self.collect(),
            Work::Sink => self.sink(),
            Work::Source => self.source(),
            Work::Duplex => self.duplex(),
            // Has left before.
            Work::Crowd | Work::Shape => Err(SessionError::Misbehaved),
        }
    }

    fn echo(&mut self) -> Outcome {
        let message = self.hello.message_bytes as usize;
        let mut buffer = vec![0; message.max(BUFFER_BYTES)];
        let mut filled = 0;
        loop {
            let Some(bytes) = self.receive(&mut buffer[filled..])? else { return Ok(()) };
            filled += bytes;
            let whole = filled - filled % message;
            if whole == 0 {
                continue;
            }
            self.shared.config.faults.wait(self.began, self.shared.ending.flag());
            send(self.link, &buffer[..whole], &self.bounds)?;
            buffer.copy_within(whole..filled, 0);
            filled -= whole;
            self.last_progress = clock::now();
        }
    }

    fn collect(&mut self) -> Outcome {
        stamp::start_receiving(self.link).map_err(|_| SessionError::Gone)?;
        if self.link.endpoint().acknowledges() && self.hello.acks == AckPolicy::System {
            // Our handshake has put the socket into the mode of one that answers; be one that only reads (tcp(7)).
            SocketOption::Quickack(true).apply(self.link).map_err(|_| SessionError::Gone)?;
        }
        let cpu_before = clock::thread_cpu();
        let mut offset = RealtimeOffset::read();
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut records: Vec<ArrivalRecord> = Vec::new();
        let mut summary = Totals::default();
        while let Some((bytes, received)) = self.receive_stamped(&mut buffer, offset)? {
            let now = clock::now();
            self.last_progress = now;
            summary.bytes += bytes as u64;
            summary.note_arrival(now);
            if self.slot.take_record() {
                records.push(ArrivalRecord {
                    end: summary.bytes,
                    received_ns: received.map_or(0, Instant::as_nanos),
                    read_ns: now.as_nanos(),
                });
            } else {
                summary.records_dropped = summary.records_dropped.saturating_add(1);
            }
            if records.len().is_multiple_of(64) {
                offset = RealtimeOffset::read();
            }
        }
        summary.bytes -= self.excess;
        cut(&mut records, summary.bytes);
        let reporting = self.reporting();
        for (part, chunk) in records.chunks(RECORDS_PER_FRAME).enumerate() {
            let index = (part * RECORDS_PER_FRAME) as u64;
            send(self.link, &Frame::Records { index, records: chunk.to_vec() }.emit(self.session), &reporting)?;
        }
        summary.cpu = clock::thread_cpu().saturating_sub(cpu_before);
        self.close_with(summary)
    }

    fn sink(&mut self) -> Outcome {
        let summary = self.read_and_count()?;
        self.close_with(summary)
    }

    fn source(&mut self) -> Outcome {
        let cpu_before = clock::thread_cpu();
        self.write_for(self.hello.duration)?;
        let summary = Totals { cpu: clock::thread_cpu().saturating_sub(cpu_before), ..Totals::default() };
        self.close_with(summary)
    }

    fn duplex(&mut self) -> Outcome {
        let duration = self.hello.duration;
        let (link, shared, hello, session) = (self.link, self.shared, self.hello, self.session);
        let writer_slot = shared.slots.take().map_err(SessionError::Refused)?;
        let mut summary = thread::scope(|scope| {
            let writer = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, move || {
                let before = clock::thread_cpu();
                Worker::new(link, shared, hello, session, writer_slot).write_for(duration)?;
                Ok(clock::thread_cpu().saturating_sub(before))
            });
            let read = self.read_and_count();
            let wrote = match writer {
                Ok(writer) => writer.join().unwrap_or(Err(SessionError::Gone)),
                Err(_) => Err(SessionError::Gone),
            };
            let mut summary = read?;
            summary.cpu += wrote?;
            Ok(summary)
        })?;
        summary.records_dropped = 0;
        self.close_with(summary)
    }

    fn read_and_count(&mut self) -> Result<Totals, SessionError> {
        let cpu_before = clock::thread_cpu();
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut summary = Totals::default();
        while let Some(bytes) = self.receive(&mut buffer)? {
            summary.bytes += bytes as u64;
            self.last_progress = clock::now();
            summary.note_arrival(self.last_progress);
        }
        summary.bytes -= self.excess;
        summary.cpu = clock::thread_cpu().saturating_sub(cpu_before);
        Ok(summary)
    }

    fn write_for(&mut self, duration: Duration) -> Outcome {
        let block = vec![0x5A; (self.hello.message_bytes as usize).max(1)];
        let end = clock::now() + duration;
        while clock::now() < end && !self.shared.is_stopping() {
            send(self.link, &block, &self.bounds)?;
        }
        Ok(())
    }

    fn close_with(&self, summary: Totals) -> Outcome {
        send(self.link, &Frame::Summary(summary).emit(self.session), &self.reporting())?;
        self.link.finish_sending().map_err(|_| SessionError::Gone)?;
        // Where halves can't be closed, closing takes back what is still to be sent: the client closes first.
        let patience = if self.end.is_none() { Duration::from_secs(1) } else { self.shared.config.limits.idle };
        drain(self.link, &Bounds::lasting(self.shared, patience));
        Ok(())
    }

    /// The time for a report, which begins when the work is done.
    fn reporting(&self) -> Bounds<'a> {
        Bounds::lasting(self.shared, self.shared.config.limits.idle)
    }

    /// Reads some bytes, as the client wants them acknowledged; `None` at the end of the stream.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, SessionError> {
        let delayed = matches!(self.hello.acks, AckPolicy::Delayed | AckPolicy::DelayedAtMost(_));
        while !self.is_over {
            if delayed {
                self.wait_in_delayed_mode()?;
            }
            match self.link.receive(buffer) {
                Ok(0) => return Ok(None),
                Ok(bytes) => {
                    if self.hello.acks == AckPolicy::Prompt {
                        SocketOption::Quickack(true).apply(self.link).map_err(|_| SessionError::Gone)?;
                    }
                    self.count(bytes)?;
                    return Ok(self.data_in(&buffer[..bytes]));
                }
                Err(errno) => self.check(errno)?,
            }
        }
        Ok(None)
    }

    /// As [`receive`](Self::receive), with the time at which the kernel took the bytes in.
    fn receive_stamped(
        &mut self,
        buffer: &mut [u8],
        offset: RealtimeOffset,
    ) -> Result<Option<(usize, Option<Instant>)>, SessionError> {
        let delayed = matches!(self.hello.acks, AckPolicy::Delayed | AckPolicy::DelayedAtMost(_));
        while !self.is_over {
            if delayed {
                self.wait_in_delayed_mode()?;
            }
            match stamp::receive(self.link, offset, buffer) {
                Ok((0, _)) => return Ok(None),
                Ok((bytes, at)) => {
                    if self.hello.acks == AckPolicy::Prompt {
                        SocketOption::Quickack(true).apply(self.link).map_err(|_| SessionError::Gone)?;
                    }
                    self.count(bytes)?;
                    return Ok(self.data_in(&buffer[..bytes]).map(|bytes| (bytes, at)));
                }
                Err(error) => self.check(Errno::from_io_error(&error).unwrap_or(Errno::IO))?,
            }
        }
        Ok(None)
    }

    /// How much of what came is data; `None` when it is only the mark of the end.
    fn data_in(&mut self, bytes: &[u8]) -> Option<usize> {
        let Some(of_mark) = self.end.as_mut().and_then(|end| end.take(bytes)) else { return Some(bytes.len()) };
        self.is_over = true;
        self.excess = (CONTROL_BYTES - of_mark) as u64;
        Some(bytes.len() - of_mark).filter(|&data| data > 0)
    }

    /// Waits for data and then asks for delayed acknowledgements: done before each read, or the kernel falls back to
    /// acknowledging at once when the read empties the buffer (`tcp_cleanup_rbuf`).
    fn wait_in_delayed_mode(&self) -> Outcome {
        let glance = rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK_PERIOD.subsec_nanos()) };
        let mut wanted = [PollFd::from_borrowed_fd(self.link.as_fd(), PollFlags::IN)];
        match rustix::event::poll(&mut wanted, Some(&glance)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Err(SessionError::Gone),
        }
        SocketOption::Quickack(false).apply(self.link).map_err(|_| SessionError::Gone)
    }

    /// Counts what came, and waits where it came faster than it may; a client whose time is over is
    /// not served on, busy or not.
    fn count(&mut self, bytes: usize) -> Outcome {
        self.shared.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
        loop {
            let now = clock::now();
            if self.bounds.are_passed_at(now) {
                return Err(SessionError::Gone);
            }
            match self.rate.pass(now) {
                Ok(()) => return Ok(()),
                Err(wait) => clock::sleep(wait.min(LOOK_PERIOD)),
            }
        }
    }

    /// Whether to go on after a receive that brought nothing.
    fn check(&self, errno: Errno) -> Outcome {
        let now = clock::now();
        let idle = now.saturating_since(self.last_progress) > self.shared.config.limits.idle;
        match errno {
            Errno::AGAIN | Errno::INTR if idle || self.bounds.are_passed_at(now) => Err(SessionError::Gone),
            Errno::AGAIN | Errno::INTR => Ok(()),
            _ => Err(SessionError::Gone),
        }
    }
}

/// Takes from records what lies beyond the end of the data.
fn cut(records: &mut Vec<ArrivalRecord>, bytes: u64) {
    let before_end = records.partition_point(|record| record.end < bytes);
    records.truncate(before_end + usize::from(bytes > 0));
    if let Some(last) = records.last_mut() {
        last.end = last.end.min(bytes);
    }
}

/// Notes when the first and the last bytes came.
trait NoteArrival {
    fn note_arrival(&mut self, now: Instant);
}

impl NoteArrival for Totals {
    fn note_arrival(&mut self, now: Instant) {
        if self.messages == 0 {
            self.first_ns = now.as_nanos();
        }
        self.messages += 1;
        self.last_ns = now.as_nanos();
    }
}
