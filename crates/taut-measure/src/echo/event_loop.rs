use rustix::io::Errno;
use taut_link::{Error, Link, Numbering, Result, clock};
use taut_time::{Duration, Framing, Instant};

use super::client::{EchoClient, Step, no_echo, stuck};
use super::plan::EchoPlan;
use super::samples::Samples;
use crate::engine::{Engine, EngineKind};
use crate::interrupt::Interrupt;

/// Longest wait: between two of them the user is heard, whose signal may go to another thread.
const LOOK_PERIOD: Duration = Duration::from_millis(100);

/// Drives an open loop, or a closed loop over several links, by one thread: a slow reply never keeps the next message.
pub(super) struct EventLoop<'a> {
    client: EchoClient<'a>,
    links: Vec<&'a Link>,
    interrupt: &'a Interrupt,
    engine: Box<dyn Engine + 'a>,
    ready: Vec<usize>,
    buffer: Vec<u8>,
}

impl<'a> EventLoop<'a> {
    pub(super) fn new(
        plan: &'a EchoPlan,
        links: &[(&'a Link, Numbering)],
        engine: EngineKind,
        interrupt: &'a Interrupt,
    ) -> Result<Self> {
        let client = EchoClient::new(plan, links.iter().map(|&(_, numbering)| numbering));
        let links: Vec<&Link> = links.iter().map(|&(link, _)| link).collect();
        links.iter().try_for_each(|link| link.set_nonblocking(true))?;
        let engine = engine.build(&links).map_err(|error| {
            Error::Unavailable(format!("the engine {engine} can't be set up on this host: {error}"))
        })?;
        Ok(Self {
            client,
            interrupt,
            engine,
            ready: Vec::with_capacity(links.len()),
            links,
            buffer: vec![0; plan.message_bytes.max(64 * 1024)],
        })
    }

    /// Exchanges messages that don't count.
    pub(super) fn warm_up(&mut self) -> Result<()> {
        self.client.warm_up(clock::now());
        self.run()
    }

    /// Exchanges so many messages that count, none of them begun at `end` or later.
    pub(super) fn count(&mut self, messages: u64, end: Instant, now: Instant) -> Result<()> {
        self.client.count(messages, end, now);
        self.run()
    }

    /// Sends and receives until the client has enough.
    fn run(&mut self) -> Result<()> {
        loop {
            let look = clock::now();
            let (mut now, mut writer) = (look, None);
            if self.interrupt.is_set() {
                self.client.stop(now);
            }
            // What is due by now, and no more: in between, what has come back is read.
            loop {
                match self.client.poll(now) {
                    Step::Done => return Ok(()),
                    Step::Stuck { flow, waited } => return Err(stuck(self.links[flow], waited)),
                    Step::Wait => break,
                    Step::Write { flow, .. } if self.write(flow)? => {}
                    Step::Write { flow, .. } => {
                        writer = Some(flow);
                        break;
                    }
                }
                if !self.client.was_due(look) {
                    break;
                }
                now = clock::now();
            }
            self.wait(writer)?;
            self.receive()?;
        }
    }

    /// Writes what is left of the message; false when the link has no room for all of it.
    fn write(&mut self, flow: usize) -> Result<bool> {
        let link = self.links[flow];
        loop {
            let (message, written) = self.client.unwritten();
            match link.send(&message[written..]) {
                Ok(sent) => {
                    if self.client.wrote(sent) {
                        return Ok(true);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(link.error("send on", errno)),
            }
        }
    }

    fn wait(&mut self, writer: Option<usize>) -> Result<()> {
        let longest = clock::now() + LOOK_PERIOD;
        let until = self.client.deadline().map_or(longest, |deadline| deadline.min(longest));
        self.engine.wait(Some(until), writer, &mut self.ready).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            self.links[0].error("wait on", errno)
        })
    }

    fn receive(&mut self) -> Result<()> {
        for &index in &self.ready {
            let link = self.links[index];
            let is_stream = link.endpoint().framing() == Framing::Stream;
            loop {
                match link.receive(&mut self.buffer) {
                    Ok(0) if is_stream => {
                        let endpoint = link.endpoint().to_string();
                        return Err(Error::Closed { endpoint, when: "before all replies came" });
                    }
                    Ok(bytes) => {
                        let at = clock::now();
                        self.client.handle(index, &self.buffer[..bytes], at).map_err(|what| no_echo(link, what))?;
                        // The kernel is likely to have nothing more.
                        if is_stream && bytes < self.buffer.len() {
                            self.engine.drained(index);
                            break;
                        }
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => {
                        self.engine.drained(index);
                        break;
                    }
                    Err(errno) => return Err(link.error("receive on", errno)),
                }
            }
        }
        Ok(())
    }

    /// What has become of the messages.
    pub(super) fn into_samples(self) -> Samples {
        self.client.into_samples()
    }
}
