//! A route in user space: a thread with everything kept open, which sleeps in the receiving call.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use rustix::thread::{CpuSet, sched_setaffinity};
use taut_link::{Error, Result};

use super::event::{Next, now_ns};
use super::sink::Output;
use super::source::Input;
use super::status::Shared;
use super::sys;
use crate::bpf::LogRecord;
use crate::condition::Verdict;
use crate::route::Route;

/// A route's thread, ended when this is dropped.
#[derive(Debug)]
pub(super) struct UserRoute {
    pub(super) counters: Arc<Shared>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl UserRoute {
    /// Opens source and sinks, and begins.
    pub(super) fn start(route: &Route) -> Result<Self> {
        let input = Input::open(route)?;
        let (counters, stop) = (Arc::<Shared>::default(), Arc::<AtomicBool>::default());
        let outputs = Output::open_all(route, input.udp(), &counters, &stop)?;
        let log = super::log::open_log(route)?;
        let worker = Worker { route: route.clone(), input, outputs, log, counters, stop };
        let (counters, stop) = (Arc::clone(&worker.counters), Arc::clone(&worker.stop));
        // What the scheduler refuses is to be known before it begins.
        let (ready, began) = std::sync::mpsc::sync_channel(1);
        let name = format!("route-{:.9}", route.name);
        let run = move || {
            let placed = worker.place();
            let is_placed = placed.is_ok();
            let _ = ready.send(placed);
            if is_placed {
                worker.run();
            }
        };
        let host = |error| Error::Host { what: format!("start route {}", route.name), error };
        let thread = thread::Builder::new().name(name).spawn(run).map_err(host)?;
        let user = Self { counters, stop, thread: Some(thread) };
        began.recv().unwrap_or(Ok(()))?;
        Ok(user)
    }

    /// Has it end when it looks up next.
    pub(super) fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Ends it, so that its counters are the last ones.
    pub(super) fn end(&mut self) {
        self.ask_to_stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// Whether it was asked to end, and has not yet.
    pub(super) fn is_ending(&self) -> bool {
        self.stop.load(Ordering::Relaxed) && !self.has_ended()
    }

    /// Whether its source has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for UserRoute {
    fn drop(&mut self) {
        self.end();
    }
}

struct Worker {
    route: Route,
    input: Input,
    outputs: Vec<Output>,
    log: Option<Box<dyn Write + Send>>,
    counters: Arc<Shared>,
    stop: Arc<AtomicBool>,
}

impl Worker {
    fn place(&self) -> Result<()> {
        let name = &self.route.name;
        if let Some(cpu) = self.route.cpu {
            let mut set = CpuSet::new();
            if cpu < CpuSet::MAX_CPU {
                set.set(cpu);
            }
            sched_setaffinity(None, &set)
                .map_err(|errno| Error::Input(format!("route {name}: processor {cpu} can't be used: {errno}")))?;
        }
        if let Some(priority) = self.route.fifo {
            sys::fifo(priority).map_err(|error| {
                Error::Unavailable(format!(
                    "route {name}: SCHED_FIFO {priority}: {error} (needs CAP_SYS_NICE, and a priority from 1 to 99)"
                ))
            })?;
        }
        Ok(())
    }

    fn run(mut self) {
        let mut memory = self.route.program.memory();
        let mut outputs = Vec::with_capacity(self.route.program.outputs.len());
        // The largest datagram of UDP.
        let mut buffer = vec![0; 65_536];
        let counters = Arc::clone(&self.counters);
        while !self.stop.load(Ordering::Relaxed) {
            let event = match self.input.next(&mut buffer) {
                Ok(Next::Event(event)) => event,
                Ok(Next::Unreadable) => {
                    Shared::add(&counters.events, 1);
                    Shared::add(&counters.short, 1);
                    continue;
                }
                Ok(Next::Lost(lost)) => {
                    Shared::add(&counters.lost, lost);
                    continue;
                }
                Ok(Next::Nothing) => continue,
                // A socket reports what became of datagrams sent earlier.
                Err(_) if self.input.udp().is_some() => continue,
                Ok(Next::End) | Err(_) => break,
            };
            let payload = &buffer[..event.bytes];
            let now = event.now_ns;
            Shared::add(&counters.events, 1);
            if event.lost > 0 {
                Shared::add(&counters.lost, event.lost);
            }
            match self.route.program.handle(&mut memory, now, payload, &mut outputs) {
                Verdict::Short => Shared::add(&counters.short, 1),
                Verdict::Dropped => Shared::add(&counters.dropped, 1),
                Verdict::Passed => {
                    // A socket takes any number that came; without it, datagrams would go further than they should.
                    let is_kept = self.input.keep_hops(&event).is_ok();
                    for output in &mut self.outputs {
                        let sent = is_kept
                            && loop {
                                match output.send(self.input.udp(), &event, payload, &outputs) {
                                    Err(error)
                                        if error.kind() == io::ErrorKind::WouldBlock
                                            && !self.stop.load(Ordering::Relaxed)
                                            && output.wait() => {}
                                    done => break done.is_ok(),
                                }
                            };
                        if !sent {
                            Shared::add(&counters.lost, 1);
                            output.miss();
                        }
                    }
                    Shared::add(&counters.passed, 1);
                    counters.record(u64::try_from(now_ns() - event.at_ns).unwrap_or(0));
                    if let Some(log) = &mut self.log {
                        let value = self.route.logged.map_or(0, |output| outputs[output]);
                        let record = LogRecord { now_ns: now as u64, count: memory.count as u64, value };
                        let line = log_line(&self.route, record);
                        match log.write_all(line.as_bytes()).and_then(|()| log.flush()) {
                            Ok(()) => {}
                            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                                Shared::add(&counters.log_lost, 1)
                            }
                            Err(_) => self.log = None,
                        }
                    }
                }
            }
        }
        // All at once, since each may take a while to bring what it has; they do so until they are dropped.
        self.outputs.iter_mut().for_each(Output::close);
        Shared::add(&counters.lost, self.input.finish());
    }
}

/// A line of the log.
pub(super) fn log_line(route: &Route, record: LogRecord) -> String {
    let value = route.logged.map(|_| record.value);
    let line = serde_json::json!({
        "route": route.name, "at_ns": record.now_ns, "count": record.count, "value": value,
    });
    format!("{line}\n")
}
