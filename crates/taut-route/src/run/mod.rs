//! Routes at work, in the kernel and in user space.

mod broker;
mod evdev;
mod event;
pub(crate) mod gpio;
mod led;
mod lines;
mod log;
mod loops;
mod serial;
mod sink;
mod source;
mod status;
mod stream;
mod sys;
mod user;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use taut_link::{Error, Result};

use crate::bpf::{AttachPoint, Attachment, BpfError, Hop, KernelRoute, KernelTarget, Own};
use crate::module::{Condition, ModuleError, ModuleRoute};
use crate::net::netlink::Netlink;
use crate::route::{Host, Plan, Route, Wish};
use log::open_log;
use user::UserRoute;

pub use status::{BrokerSink, Counters, Latency, Status};
pub(crate) use sys::fifo as set_fifo;

/// Routes at work until this is dropped.
#[derive(Debug)]
pub struct Engine {
    running: Vec<Running>,
    /// Programs on devices; those of one device and place share one.
    attachments: BTreeMap<(u32, &'static str), Attachment>,
    host: Host,
    netlink: Option<Netlink>,
    /// When the ways to sinks are looked after again.
    look_at: Instant,
    /// Of routes that were stopped: what a user may want to read, and whether a broker lost messages of theirs.
    notes: Vec<String>,
    has_lost: bool,
}

/// How routes ended.
#[derive(Debug)]
pub struct Ended {
    /// Those that had not been stopped before, with their last counters.
    pub last: Vec<Status>,
    /// What a user may want to read of their end.
    pub notes: Vec<String>,
    /// Whether messages to a broker were lost, of these routes or of those that had been stopped.
    pub has_lost: bool,
}

struct Running {
    route: Route,
    plan: Plan,
    work: Work,
    log: Option<Box<dyn Write + Send>>,
    /// Records for which the log's reader had no room.
    unlogged: u64,
}

#[derive(Debug)]
enum Work {
    Kernel { route: Box<KernelRoute>, place: AttachPoint },
    Module(ModuleRoute),
    User(UserRoute),
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("route", &self.route.name).field("work", &self.work).finish_non_exhaustive()
    }
}

impl Engine {
    /// Sets all routes to work, each in the best place that takes it.
    ///
    /// # Errors
    /// One of them can't run where it was asked to, or not at all; then none runs.
    pub fn start(routes: Vec<Route>) -> Result<Self> {
        let host = Host::ask();
        let mut engine = Self {
            running: Vec::new(),
            attachments: BTreeMap::new(),
            host,
            netlink: Netlink::open().ok(),
            look_at: Instant::now(),
            notes: Vec::new(),
            has_lost: false,
        };
        // In whatever place: one that can't be written is to be known before anything is at work.
        for route in &routes {
            open_log(route)?;
        }
        let mut waiting: Vec<(Route, Plan)> = Vec::new();
        for route in routes {
            let plan = engine.host.plan(&route);
            waiting.extend(engine.try_module(route, plan));
        }
        // Those that want the same place of the same device are tried together, and all move on when it takes none.
        while let Some((ifindex, place)) =
            waiting.iter().find_map(|(_, plan)| Some((plan.ifindex, *plan.places.first()?)))
        {
            let (group, rest): (Vec<_>, Vec<_>) = waiting
                .into_iter()
                .partition(|(_, plan)| plan.ifindex == ifindex && plan.places.first() == Some(&place));
            waiting = rest;
            waiting.extend(engine.try_kernel(group, ifindex, place));
        }
        for (route, plan) in waiting {
            if !matches!(route.wish, Wish::Auto | Wish::User) {
                let reasons = plan.lacks.iter().chain(&plan.why).cloned().collect::<Vec<_>>().join("; ");
                return Err(Error::Unavailable(format!("route {}: the kernel path lacks {reasons}", route.name)));
            }
            let work = Work::User(UserRoute::start(&route)?);
            engine.running.push(Running { route, plan, work, log: None, unlogged: 0 });
        }
        Ok(engine)
    }

    /// Hands a route to the kernel module; gives back one that has to go elsewhere.
    fn try_module(&mut self, route: Route, mut plan: Plan) -> Option<(Route, Plan)> {
        let places = std::mem::take(&mut plan.module);
        let only = if let [place] = places[..] { Some(place) } else { None };
        if places.is_empty() {
            return Some((route, plan));
        }
        let started = match crate::route::module_spec(&route) {
            Ok(spec) => ModuleRoute::start(spec, &route.program, only, Condition::Program),
            Err(lacks) => Err(ModuleError::Missing(lacks.join("; "))),
        };
        match started {
            Ok(module) => {
                let log = open_log(&route).ok().flatten();
                self.running.push(Running { route, plan, work: Work::Module(module), log, unlogged: 0 });
                None
            }
            Err(error) => {
                plan.lacks.push(error.to_string());
                Some((route, plan))
            }
        }
    }

    /// Attaches a group of routes; gives back those that have to go elsewhere.
    fn try_kernel(&mut self, group: Vec<(Route, Plan)>, ifindex: u32, place: AttachPoint) -> Vec<(Route, Plan)> {
        let refused = |group: Vec<(Route, Plan)>, error: &BpfError| -> Vec<(Route, Plan)> {
            let note = |(route, mut plan): (Route, Plan)| {
                plan.places.remove(0);
                plan.lacks.push(format!("{} on {}: {error}", place.name(), plan.device));
                (route, plan)
            };
            group.into_iter().map(note).collect()
        };
        let mut loaded = Vec::new();
        for (route, _) in &group {
            let mut unused = Plan::default();
            // It was planned with the same result.
            let Some(mut spec) = crate::route::kernel_spec(route, &mut unused) else { continue };
            spec.own = self.host.own(spec.source, ifindex);
            match KernelRoute::load(&route.program, spec, place, &route.name) {
                Ok(kernel) => loaded.push(kernel),
                Err(error) => return refused(group, &error),
            }
        }
        for kernel in &mut loaded {
            self.find_ways(kernel, ifindex);
        }
        let key = (ifindex, place.name());
        match Attachment::attach(ifindex, place, &loaded.iter().collect::<Vec<_>>()) {
            Ok(attachment) => self.attachments.insert(key, attachment),
            Err(error) => return refused(group, &error),
        };
        for ((route, mut plan), kernel) in group.into_iter().zip(loaded) {
            plan.why.append(&mut plan.lacks);
            let log = open_log(&route).ok().flatten();
            self.running.push(Running {
                route,
                plan,
                work: Work::Kernel { route: Box::new(kernel), place },
                log,
                unlogged: 0,
            });
        }
        Vec::new()
    }

    /// Tells a program in the kernel how its sinks are reached now, and what address its device has.
    fn find_ways(&self, kernel: &mut KernelRoute, ifindex: u32) -> bool {
        if let Some(ethernet) = self.netlink.as_ref().and_then(|netlink| netlink.device(ifindex).ok()?.address) {
            // A map that can't be written keeps the address that it has.
            let _ = kernel.set_own(Own { ethernet, ..kernel.spec().own });
        }
        let targets: Vec<KernelTarget> = kernel.spec().sinks.iter().map(|(target, _)| *target).collect();
        let mut all = true;
        for (sink, target) in targets.into_iter().enumerate() {
            if target == KernelTarget::Reply {
                continue;
            }
            let hop = self.hop(target);
            all &= hop.is_some();
            // A map that can't be written keeps the way that it has.
            all &= kernel.set_hop(sink, hop).is_ok();
        }
        all
    }

    fn hop(&self, target: KernelTarget) -> Option<Hop> {
        let netlink = self.netlink.as_ref()?;
        let way = self.host.way(target)?;
        let device = netlink.device(way.ifindex).ok()?;
        if device.name == "lo" {
            return Some(Hop { ifindex: way.ifindex, own: [0; 6], next: [0; 6] });
        }
        let own = device.address?;
        let next = netlink.neighbour(way);
        // Asked for again each time, so that it stays known while nobody else sends there.
        let asked = netlink.use_neighbour(way);
        let next = next.or_else(|| asked.ok().and_then(|()| netlink.neighbour(way)))?;
        Some(Hop { ifindex: way.ifindex, own, next })
    }

    /// Does what is due: looks after the ways to sinks, and writes logs. Waits for up to 200 ms, or
    /// until `also` is readable; shorter while a way is still being found out, or a route comes to its end.
    pub fn turn(&mut self, also: BorrowedFd<'_>) {
        if self.look_at <= Instant::now() {
            let mut running = std::mem::take(&mut self.running);
            let mut all_known = true;
            for one in &mut running {
                if let Work::Kernel { route, .. } = &mut one.work {
                    all_known &= self.find_ways(route, one.plan.ifindex);
                }
            }
            self.running = running;
            self.look_at = Instant::now() + Duration::from_millis(if all_known { 1000 } else { 5 });
        }
        let fds: Vec<_> = self.running.iter().filter_map(Running::log_fd).chain([also]).collect();
        let mut polled: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let most = Duration::from_millis(if self.running.iter().any(Running::is_ending) { 10 } else { 200 });
        let wait = self.look_at.saturating_duration_since(Instant::now()).min(most);
        let wait = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
        // What interrupts it is a reason to look.
        let _ = rustix::event::poll(&mut polled, Some(&wait));
        drop(polled);
        self.write_logs();
    }

    fn write_logs(&mut self) {
        self.running.iter_mut().for_each(Running::write_log);
    }

    /// All routes with their counters.
    pub fn status(&self) -> Vec<Status> {
        self.running.iter().map(Running::status).collect()
    }

    /// What has happened to sinks that a user may want to read, since this was asked last.
    pub fn take_notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(self.running.iter().flat_map(Running::take_notes));
        notes
    }

    /// Asks a route to end, and waits for nothing. Whether it is still at work: then [`stop`](Self::stop) would wait
    /// for what it has to bring to its sinks.
    pub fn ask_to_end(&self, name: &str) -> bool {
        match self.running.iter().find(|one| one.route.name == name).map(|one| &one.work) {
            Some(Work::User(user)) => {
                user.ask_to_stop();
                !user.has_ended()
            }
            Some(Work::Kernel { .. } | Work::Module(_)) | None => false,
        }
    }

    /// Ends a route; its last counters, or nothing if there is none of that name.
    pub fn stop(&mut self, name: &str) -> Option<Status> {
        let index = self.running.iter().position(|one| one.route.name == name)?;
        let mut one = self.running.remove(index);
        if let Work::User(user) = &mut one.work {
            user.end();
        }
        if let Work::Kernel { route, place } = &one.work {
            let key = (one.plan.ifindex, place.name());
            let left = self.running.iter().filter(|other| other.key() == Some(key)).count();
            let source = route.spec().source;
            if self.attachments.get_mut(&key).is_some_and(|attachment| !attachment.remove(source, left)) {
                self.attachments.remove(&key);
            }
        }
        let last = one.last_status();
        self.notes.extend(one.take_notes());
        if has_lost(&last) {
            self.has_lost = true;
            self.notes.push(format!("route {name}: messages to a broker were lost; who stopped it has the counters"));
        }
        Some(last)
    }

    /// Ends all routes.
    pub fn end(mut self) -> Ended {
        self.ask_to_stop();
        for one in &mut self.running {
            if let Work::User(user) = &mut one.work {
                user.end();
            }
        }
        let last: Vec<Status> = self.running.iter_mut().map(Running::last_status).collect();
        let has_lost = self.has_lost || last.iter().any(has_lost);
        Ended { last, notes: self.take_notes(), has_lost }
    }

    /// All at once, since each may take a while to notice.
    fn ask_to_stop(&self) {
        for one in &self.running {
            if let Work::User(user) = &one.work {
                user.ask_to_stop();
            }
        }
    }

    /// Whether nothing is left that could do anything: no route, or only such whose source has ended.
    pub fn has_ended(&self) -> bool {
        self.running.iter().all(|one| matches!(&one.work, Work::User(user) if user.has_ended()))
    }
}

/// Whether messages to a broker were lost.
fn has_lost(status: &Status) -> bool {
    status.counters.brokers.iter().any(BrokerSink::has_losses)
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.ask_to_stop();
        self.write_logs();
    }
}

impl Running {
    /// Readable when there is something to write to the log.
    fn log_fd(&self) -> Option<BorrowedFd<'_>> {
        self.log.as_ref()?;
        match &self.work {
            Work::Kernel { route, .. } => route.log_fd(),
            Work::Module(module) => module.log_fd(),
            // Its thread does that.
            Work::User(_) => None,
        }
    }

    /// Writes what the kernel has logged since. A log that can't be written or read is given up;
    /// what finds no room in the kernel then counts as lost.
    fn write_log(&mut self) {
        let Some(log) = &mut self.log else { return };
        let mut written = Ok(());
        // One by one: a pipe takes a line as a whole or not at all (PIPE_BUF, pipe(7)).
        let record = |record| match log.write_all(user::log_line(&self.route, record).as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.unlogged += 1,
            Err(error) => written = Err(error),
            Ok(()) => {}
        };
        let read = match &mut self.work {
            Work::Kernel { route, .. } => {
                route.read_log(record);
                Ok(())
            }
            Work::Module(module) => module.read_log(record),
            Work::User(_) => return,
        };
        if read.and(written).and_then(|()| log.flush()).is_err() {
            self.log = None;
        }
    }

    /// Whether it was asked to end, and still has something to bring to its sinks.
    fn is_ending(&self) -> bool {
        matches!(&self.work, Work::User(user) if user.is_ending())
    }

    fn take_notes(&self) -> Vec<String> {
        match &self.work {
            Work::User(user) => user.counters.take_notes(),
            Work::Kernel { .. } | Work::Module(_) => Vec::new(),
        }
    }

    /// The counters, and then the log, so that it has all that they count.
    fn last_status(&mut self) -> Status {
        let status = self.status();
        self.write_log();
        status
    }

    fn key(&self) -> Option<(u32, &'static str)> {
        if let Work::Kernel { place, .. } = &self.work { Some((self.plan.ifindex, place.name())) } else { None }
    }

    fn status(&self) -> Status {
        let mut lacks = self.plan.lacks.clone();
        let (runs, mut counters): (_, Counters) = match &self.work {
            // A map of our own can be read.
            Work::Kernel { route, place } => (place.name(), route.counters().unwrap_or_default().into()),
            Work::Module(module) => {
                let counters = module.counters();
                if counters.as_ref().is_ok_and(|counters| counters.stopped) {
                    lacks.push("a condition that ends in time: it took too long, and the route was stopped".to_owned());
                }
                (module.place().name(), counters.map(Counters::from).unwrap_or_default())
            }
            Work::User(user) => ("user", user.counters.counters("from the kernel's arrival to the last sending")),
        };
        counters.log_lost += self.unlogged;
        let in_kernel = matches!(self.work, Work::Kernel { .. });
        Status {
            name: self.route.name.clone(),
            from: self.route.source.to_string(),
            when: self.route.when.clone(),
            to: self.route.sinks.iter().map(|sink| sink.target.to_string()).collect(),
            runs: runs.to_owned(),
            device: in_kernel.then(|| self.plan.device.clone()),
            why: self.plan.why.clone(),
            lacks,
            pid: std::process::id(),
            counters,
        }
        .printable()
    }
}
