//! The sockets of running programs, event by event: programs at tracepoints of the kernel, generated for its own types
//! (BTF), write records into a ring, and these become the events of `taut-event`. The programs traced are not changed.
//!
//! Only tracepoints are used, raw or with types: no kprobe, no fentry. A hook that this kernel lacks is named
//! ([`Tracer::missing`]); of those that are needed the lack is an [`Error`].

mod calls;
mod cast;
pub(crate) mod error;
mod follow;
mod hci;
pub(crate) mod hooks;
mod last;
pub(crate) mod layout;
mod maps;
mod marks;
pub(crate) mod memory;
mod order;
mod other;
mod peers;
mod program;
mod queues;
mod readers;
mod record;
mod repeats;
mod scope;
mod snapshot;
mod tcp;
mod threads;
mod timers;
mod told;
mod unread;
mod writer;

#[cfg(test)]
mod tests;

use std::fs;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use taut_bpf::sys::{self, Map, MapKind, MapShape};
use taut_bpf::{BpfError, Btf, Flags, Ring};
use taut_event::{Listening, Sink};
use taut_link::{bluetooth, clock};
use taut_time::Duration;

use crate::{Owners, SocketTable};
use cast::Cast;
pub use error::Error;
use follow::Follower;
use hci::Hci;
pub use hci::Radio;
use hooks::{HOOKS, SWITCH, WAKING, WRITERS, attach};
use layout::{Layout, Offsets, Others};
use maps::{MapNumbers, THREAD_BYTES};
use marks::{MARKS, mark_of_pair};
use memory::{may_read_memory, raise_locked_memory};
use order::{Told, hand_on};
use queues::{Accepting, Queues};
pub use scope::Scope;
use timers::timers;
use unread::Unread;
pub use unread::WaitedBefore;
use writer::Plan;

/// Bytes of the ring: what a busy host writes in several of the reader's pauses.
const RING_BYTES: usize = 16 << 20;
/// Between two looks into the ring; the shorter one while much is written.
const PAUSE: Duration = Duration::from_millis(20);
const SHORT_PAUSE: Duration = Duration::from_millis(2);
/// Between two looks at the queues in which connections wait to be accepted: each asks for all sockets of the host.
const AGAIN: Duration = Duration::from_millis(500);
const MOST_PROCESSES: usize = 4096;
const MOST_SOCKETS: usize = 16_384;
/// Threads that made a call and have not ended. With more, each call of the others is a record that is lost.
const MOST_THREADS: usize = 16_384;
const MOST_PORTS: usize = 65_536;
/// The first PID namespace, whose numbers are the kernel's: `PROC_PID_INIT_INO` of include/linux/proc_ns.h.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Begins to hear what passes between the kernel and its Bluetooth controllers, where it has some.
fn listen() -> Result<Hci, Radio> {
    if !bluetooth::has_adapter() {
        return Err(Radio::NoAdapter);
    }
    Hci::open().map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Radio::NotAllowed,
        number => Radio::Refused(number.unwrap_or(0)),
    })
}

/// What the programs share.
#[derive(Debug)]
struct Maps {
    ring: Map,
    targets: Map,
    ports: Map,
    sockets: Map,
    others: Map,
    threads: Map,
    marks: Flags,
    context: Map,
    lost: Map,
}

impl Maps {
    fn create() -> Result<Self, BpfError> {
        let map = |kind, key_bytes, value_bytes, entries, name| {
            let shape = MapShape { kind, key_bytes, value_bytes, entries, name, types: None };
            Map::create(&shape).map_err(BpfError::of("create a map"))
        };
        Ok(Self {
            ring: map(MapKind::RingBuffer, 0, 0, RING_BYTES, "taut_trace")?,
            targets: map(MapKind::Hash, 4, 4, MOST_PROCESSES, "taut_targets")?,
            ports: map(MapKind::LruHash, 8, 4, MOST_PORTS, "taut_ports")?,
            sockets: map(MapKind::LruHash, 8, 4, MOST_SOCKETS, "taut_sockets")?,
            others: map(MapKind::LruHash, 8, 4, MOST_SOCKETS, "taut_others")?,
            threads: map(MapKind::Hash, 4, THREAD_BYTES, MOST_THREADS, "taut_threads")?,
            marks: Flags::create(MARKS, "taut_marks").map_err(BpfError::of("create a map"))?,
            context: map(MapKind::PerCpuArray, 4, 16, 1, "taut_context")?,
            lost: map(MapKind::Array, 4, 8, 1, "taut_lost")?,
        })
    }

    fn numbers(&self) -> MapNumbers {
        MapNumbers {
            ring: self.ring.number(),
            targets: self.targets.number(),
            ports: self.ports.number(),
            sockets: self.sockets.number(),
            others: self.others.number(),
            threads: self.threads.number(),
            marks: self.marks.number(),
            context: self.context.number(),
            lost: self.lost.number(),
        }
    }
}

/// Programs at work in the kernel, and what they wrote. They go with this value, and with the process however it ends.
#[derive(Debug)]
pub struct Tracer {
    links: Vec<OwnedFd>,
    /// Those that write records and those that only keep what the processor is at.
    programs: [Vec<OwnedFd>; 2],
    /// Runs that the kernel left out, as far as they were looked at.
    left_out: [u64; 2],
    ring: Ring,
    maps: Maps,
    layout: Layout,
    /// Where what is not TCP is traced, too.
    others: Option<Others>,
    follower: Follower,
    accepting: Accepting,
    missing: Vec<&'static str>,
    has_timer_names: bool,
    /// Whether there ever were so many sockets or calls that the kernel may have dropped some.
    was_crowded: bool,
    /// Where sockets of Bluetooth are traced: what passes below them.
    hci: Result<Hci, Radio>,
    /// What was read of sockets, and of channels of Bluetooth.
    told: [Told; 2],
    /// What waited in sockets of the named processes before.
    unread: Vec<Unread>,
}

impl Tracer {
    /// Loads the programs and attaches them. About 100 ms, most of it for the kernel's types.
    ///
    /// # Errors
    /// A right is missing, or the kernel has not what is needed; or processes are to be traced from within a PID
    /// namespace.
    pub fn start(scope: Scope) -> Result<Self, Error> {
        if scope == Scope::Processes && !has_kernels_numbers() {
            return Err(Error::Namespace);
        }
        may_read_memory()?;
        raise_locked_memory();
        let btf = Btf::of_kernel()?;
        let (layout, offsets) = (Layout::of(&btf)?, Offsets::of(&btf)?);
        let maps = Maps::create()?;
        // With a port only what has one is asked for. Without these types TCP is traced alone.
        let others = Some(scope).filter(|scope| *scope == Scope::Processes).and_then(|_| Others::of(&btf).ok());
        let cast = Cast::of(&btf);
        let plan = Plan { layout: &layout, others: others.as_ref(), offsets, maps: maps.numbers(), scope, cast };
        let (mut links, mut programs, mut missing) = (Vec::new(), [Vec::new(), Vec::new()], Vec::new());
        let mut sees_readers = 0;
        for hook in &HOOKS {
            match attach(hook, &plan, &btf) {
                Ok(None) if hook.name == SWITCH => missing.push(hook.name),
                Ok(None) => {}
                Ok(Some((program, link))) => {
                    programs[usize::from(!WRITERS.contains(&hook.name))].push(program);
                    links.push(link);
                    sees_readers += u32::from(matches!(hook.name, SWITCH | WAKING));
                }
                Err(Error::Bpf(error)) if error.is_missing_right() => return Err(error.into()),
                Err(_) if !hook.is_needed => missing.push(hook.name),
                Err(error) => return Err(error),
            }
        }
        let timers = timers();
        let has_timer_names = !timers.is_empty();
        let follower = Follower::new(matches!(scope, Scope::Port(_)), sees_readers == 2, timers);
        let ring =
            maps.ring.duplicate().and_then(|ring| Ring::new(ring, RING_BYTES)).map_err(BpfError::of("map the ring"))?;
        Ok(Self {
            links,
            programs,
            left_out: [0; 2],
            ring,
            maps,
            layout,
            others,
            follower,
            accepting: Accepting::new(scope),
            missing,
            has_timer_names,
            was_crowded: false,
            hci: if scope == Scope::Processes { listen() } else { Err(Radio::NoAdapter) },
            told: <[Told; 2]>::default(),
            unread: Vec::new(),
        })
    }

    /// Traces a process, and from now on what it forks.
    ///
    /// # Errors
    /// More processes than there is room for.
    pub fn follow(&mut self, pid: i32) -> Result<(), Error> {
        let one = 1_u32.to_ne_bytes();
        self.maps.marks.set(pid.cast_unsigned());
        self.maps.targets.update(&pid.to_ne_bytes(), &one).map_err(BpfError::of("name a process"))?;
        Ok(())
    }

    /// Whether a process is traced that has not ended.
    pub fn follows(&self, pid: i32) -> bool {
        self.maps.targets.look_up(&pid.to_ne_bytes()).is_ok()
    }

    /// Traces a process no longer; what it forked stays traced.
    pub fn leave(&mut self, pid: i32) {
        // It may have gone by itself.
        let _ = self.maps.targets.delete(&pid.to_ne_bytes());
    }

    /// Finds the connections that a process has already, of its network namespace: one that waits in a call makes no
    /// other until something comes.
    pub fn find_sockets(&mut self, pid: i32) {
        if self.others.is_some() {
            self.unread.extend(Unread::of(pid, clock::now()));
        }
        let owners = Owners::read(Some(pid));
        let (mut found, mut listening) = (Vec::new(), Vec::new());
        let looked = SocketTable::open_for(pid).and_then(|mut table| {
            table.look(|socket| {
                if owners.of(socket.inode).is_none() {
                } else if socket.accept_queue.is_some() {
                    listening.push(socket.local.port());
                } else {
                    found.push((socket.local, socket.peer));
                }
            })
        });
        // Without the list, or the right to enter that namespace, they are found by their next call.
        let _ = looked;
        for &(local, peer) in &found {
            self.follower.want((local, peer));
            pairs((local, peer)).into_iter().for_each(|pair| self.want_pair(pair));
        }
        let network = fs::metadata(format!("/proc/{pid}/ns/net")).map_or(0, |namespace| namespace.ino());
        // As `Writer::listened` has them.
        listening.into_iter().for_each(|port| self.want_pair(u64::from(port) << 16 | network << 32));
    }

    /// Connections with these ports are followed.
    fn want_pair(&self, pair: u64) {
        self.maps.marks.set(mark_of_pair(pair));
        // With no room for it they are found by their next call.
        let _ = self.maps.ports.update(&pair.to_ne_bytes(), &1_u32.to_ne_bytes());
    }

    /// Hands over what was written since the last time, and says how long to wait until the next one: nothing wakes the
    /// caller up, and the ring must not fill up meanwhile.
    pub fn read(&mut self, sink: &mut impl Sink) -> Duration {
        // All that happened until now is there when it is read after this.
        let until = clock::now();
        let bytes_read = self.read_ring(sink);
        self.look_for_listeners(false, sink);
        if let Ok(hci) = &mut self.hci {
            let [sockets, channels] = &mut self.told;
            hci.read(channels);
            for unnamed in self.follower.others.unnamed() {
                if let Some(end) = hci::end(unnamed) {
                    self.follower.others.name(unnamed.address, end, clock::now(), sockets);
                }
            }
            hand_on([sockets, channels], until.as_nanos(), sink);
        }
        if bytes_read > RING_BYTES / 16 { SHORT_PAUSE } else { PAUSE }
    }

    /// Tells of the listening sockets of this host that connections without an answer are to be accepted by, and those
    /// that wait to be accepted.
    fn look_for_listeners(&mut self, is_end: bool, sink: &mut impl Sink) {
        let Self { hci, told, follower, accepting, maps, .. } = self;
        let at = clock::now();
        let (unanswered, awaiting) = (follower.unanswered(), follower.awaiting(at, AGAIN, is_end));
        if unanswered.is_empty() && awaiting.is_empty() {
            return;
        }
        // Without the list it is asked for again next time.
        let asked = unanswered.iter().map(|(_, ends)| *ends).collect();
        let Some(queues) = Queues::now(&asked) else { return };
        accepting.learn(&queues, &awaiting, |pid| maps.targets.look_up(&pid.to_ne_bytes()).is_ok());
        let unanswered = unanswered.into_iter().map(|(address, ends)| (address, queues.of_peer(ends)));
        let mut found: Vec<(u64, Listening)> =
            unanswered.filter_map(|(address, queue)| Some((address, queue?))).collect();
        for (address, ends) in awaiting {
            match queues.waits_in(ends.0, accepting).filter(|_| queues.has(ends)) {
                Some(queue) => found.push((address, queue)),
                None => follower.look_no_more(address),
            }
        }
        for (address, queue) in found {
            match hci {
                Ok(_) => follower.listens(address, queue, at, is_end, &mut told[0]),
                Err(_) => follower.listens(address, queue, at, is_end, sink),
            }
        }
    }

    /// Reads the ring; of events that wait for what passes below the sink gets none yet.
    fn read_ring(&mut self, sink: &mut impl Sink) -> usize {
        self.look_for_left_out();
        let Self { ring, follower, layout, others, hci, told, maps, .. } = self;
        let mut bytes_read = 0;
        ring.read(|bytes| {
            bytes_read += bytes.len();
            match hci {
                Ok(_) => follower.take(layout, others.as_ref(), bytes, &mut told[0]),
                Err(_) => follower.take(layout, others.as_ref(), bytes, sink),
            }
        });
        for pair in follower.gone.drain(..).flat_map(pairs) {
            // It may have had no place.
            let _ = maps.ports.delete(&pair.to_ne_bytes());
        }
        bytes_read
    }

    /// Takes the programs out of the kernel and hands over the rest.
    pub fn stop(&mut self, sink: &mut impl Sink) {
        // Those that undo something stand first, and go last.
        self.links.drain(..).rev().for_each(drop);
        self.read(sink);
        self.look_for_listeners(true, sink);
        let (lost, now) = (self.lost(), clock::now());
        match &mut self.hci {
            Ok(hci) => {
                let [sockets, channels] = &mut self.told;
                self.follower.end(lost, now, sockets);
                hci.finish(channels);
                hand_on([sockets, channels], u64::MAX, sink);
            }
            Err(_) => self.follower.end(lost, now, sink),
        }
    }

    /// Whether what passes between the kernel and its Bluetooth controllers is heard.
    pub fn radio(&self) -> Radio {
        match &self.hci {
            Ok(hci) => hci.radio(),
            Err(why) => *why,
        }
    }

    /// Records read so far.
    pub const fn records(&self) -> u64 {
        self.follower.records
    }

    /// Records that found no room so far.
    pub fn lost(&self) -> u64 {
        let value = self.maps.lost.look_up(&0_u32.to_ne_bytes()).unwrap_or_default();
        value.get(..8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
    }

    /// Runs that the kernel left out so far, since the same program was at work on that processor: an interrupt had
    /// come into it. First those that would have written a record, then those that only tell what a processor is at.
    pub const fn left_out(&self) -> [u64; 2] {
        self.left_out
    }

    /// Of what is read next nobody knows before or after which record it belongs.
    fn look_for_left_out(&mut self) {
        // A kernel that does not tell has none to book.
        let missed = |program: &OwnedFd| sys::recursion_misses(program.as_fd()).unwrap_or(0);
        let left_out = self.programs.each_ref().map(|programs| programs.iter().map(missed).sum());
        if !self.was_crowded && is_crowded(self.follower.counts()) {
            // The kernel forgets a thread when it ends.
            self.follower.keep_pollers(|thread| Path::new(&format!("/proc/{thread}")).exists());
            self.was_crowded = is_crowded(self.follower.counts());
        }
        self.follower.is_doubtful = left_out[0] > self.left_out[0] || self.was_crowded;
        self.left_out = left_out;
    }

    /// Whether there ever were more sockets or calls at once than the tables in the kernel surely hold.
    pub const fn was_crowded(&self) -> bool {
        self.was_crowded
    }

    /// Whether Unix sockets, sockets of UDP and pipes are traced: those of processes, if the kernel's types have them.
    pub const fn traces_others(&self) -> bool {
        self.others.is_some()
    }

    /// Unix sockets and sockets of UDP in which something waited before the trace began, and what became of it.
    pub fn waited_before(&self) -> Vec<WaitedBefore> {
        self.unread.iter().filter_map(|unread| unread.outcome(&self.follower.others)).collect()
    }

    /// Sockets and pipes that were left out, since more are not followed at once.
    pub const fn left_out_others(&self) -> u64 {
        self.follower.others.left_out
    }

    /// Whether a socket of Bluetooth was traced, and how many of them now have no channel that is known.
    pub fn bluetooth(&self) -> Option<usize> {
        let others = &self.follower.others;
        others.has_bluetooth.then(|| others.unnamed().len())
    }

    /// Tracepoints that this kernel has not, or not as known; less is told without them.
    pub fn missing(&self) -> &[&'static str] {
        &self.missing
    }

    /// Whether timers are told by name; else what a timer released is told as such.
    pub const fn has_timer_names(&self) -> bool {
        self.has_timer_names
    }

    /// The process of a thread that made a call.
    pub fn process_of(&self, thread: u32) -> Option<u32> {
        self.follower.threads.process_of(thread)
    }

    /// Threads that made a call, each with its process; of very many those that were met last.
    pub fn threads(&self) -> impl Iterator<Item = (u32, u32)> {
        self.follower.threads.all()
    }

    /// Processes of which a thread ended since this was last asked that had made a call, with their names. They may go
    /// on.
    pub fn take_ended(&mut self) -> Vec<(u32, String)> {
        std::mem::take(&mut self.follower.ended)
    }

    /// Processes that made their first call since this was last asked, for who wants their names while they are there.
    pub fn take_new_processes(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.follower.new_processes)
    }
}

/// Full tables in the kernel drop what was used least lately, and tell nobody. They begin before they are full, as each
/// processor keeps some room for itself (`LOCAL_FREE_TARGET` of kernel/bpf/bpf_lru_list.c).
const fn is_crowded((sockets, calls): (usize, usize)) -> bool {
    sockets > MOST_SOCKETS / 4 * 3 || calls > MOST_THREADS / 4 * 3
}

/// The port pairs of both ends, as sockets have them: the peer's in network order below, the own one above.
fn pairs((local, peer): (SocketAddr, SocketAddr)) -> [u64; 2] {
    [(local, peer), (peer, local)].map(|(own, other)| u64::from(other.port().to_be()) | u64::from(own.port()) << 16)
}

/// Whether processes have the same numbers here and in the kernel. Where that can't be told, they are taken to.
pub fn has_kernels_numbers() -> bool {
    fs::read_link("/proc/self/ns/pid").map_or(true, |namespace| namespace == Path::new(FIRST_PID_NAMESPACE))
}
