//! What befalls the connections of this network namespace, counted in the kernel event by event: segments sent again,
//! handshakes repeated, refused and reset connections.
//!
//! Programs at tracepoints that a connection without a loss does not run into, but for its begin and its end, add to
//! an entry for each connection. Nothing is woken by an event: the entries are read when somebody asks. They are
//! bounded; of very many the ones used least lately go, and what went unread is told as such.

mod entry;
mod program;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::{fs, io};

use rustix::fs::{major, minor};
use taut_bpf::sys::{self, Map, MapKind, MapShape, ProgramKind, Purpose};
use taut_bpf::{BpfError, Btf};
use taut_link::clock;
use taut_time::{Duration, Instant};

pub use entry::What;
use entry::{BYTES, Entry, Sums};
use program::{HOOKS, KEY_BYTES, MapNumbers, OPENER_BYTES, OPENS, Places, Plan};

use crate::owners::name_of;
use crate::trace::error::Error;
use crate::trace::has_kernels_numbers;
use crate::trace::hooks::attach_program;
use crate::trace::memory::{may_read_memory, raise_locked_memory};

/// Connections of which something is kept: about 4 MB.
const MOST_CONNECTIONS: usize = 16_384;

/// What befell one connection since it was last asked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Befallen {
    /// What.
    pub what: What,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// The program that opened it, its process and its name, where that was seen. The name of a process that is gone is
    /// that of its thread. In a PID namespace other namespaces' programs are not told.
    pub opener: Option<(i32, String)>,
    /// How often, at least once.
    pub events: u64,
    /// Time that passed in vain until a segment was sent again: since the last one that arrived, or since the first one
    /// that was sent then, without the round trip that it takes anyway. Zero for what takes no time.
    pub lost: Duration,
    /// The longest time of one such stall, of all of this connection.
    pub longest: Duration,
    /// When the first one was that is known of, and the last one.
    pub first: Instant,
    /// When the last one was.
    pub last: Instant,
}

#[derive(Debug)]
struct Maps {
    entries: Map,
    openers: Map,
    totals: Map,
}

impl Maps {
    fn create() -> Result<Self, BpfError> {
        let map = |kind, key_bytes, value_bytes, entries, name| {
            let shape = MapShape { kind, key_bytes, value_bytes, entries, name, types: None };
            Map::create(&shape).map_err(BpfError::of("create a map"))
        };
        Ok(Self {
            entries: map(MapKind::LruHash, KEY_BYTES, BYTES, MOST_CONNECTIONS, "taut_counts")?,
            openers: map(MapKind::LruHash, 8, OPENER_BYTES, MOST_CONNECTIONS, "taut_openers")?,
            totals: map(MapKind::Array, 4, 8 * What::ALL.len(), 1, "taut_totals")?,
        })
    }

    fn numbers(&self) -> MapNumbers {
        MapNumbers { entries: self.entries.number(), openers: self.openers.number(), totals: self.totals.number() }
    }
}

/// Programs that count in the kernel. They go with this value, and with the process however it ends.
#[derive(Debug)]
pub struct Counter {
    /// The programs that count.
    programs: Vec<OwnedFd>,
    /// The others, and the links of all.
    _links: Vec<OwnedFd>,
    maps: Maps,
    missing: Vec<&'static str>,
    /// What each entry had when it was read last, and when it began.
    before: HashMap<[u8; KEY_BYTES], (u64, [Sums; What::ALL.len()])>,
    totals: [u64; What::ALL.len()],
    /// Of the totals, what was found in entries.
    placed: [u64; What::ALL.len()],
    unplaced: u64,
    /// Whether the numbers of processes are those that they have here.
    has_numbers: bool,
}

impl Counter {
    /// Loads the programs and attaches them. About 50 ms, most of it for the kernel's types.
    ///
    /// # Errors
    /// A right is missing (`CAP_BPF` and `CAP_PERFMON`), or the kernel has none of what is needed.
    pub fn start() -> Result<Self, Error> {
        Self::begin(if has_kernels_numbers() { None } else { pid_namespace() })
    }

    /// Tells the numbers that processes have in that PID namespace, or the kernel's.
    fn begin(pids: Option<[i64; 2]>) -> Result<Self, Error> {
        may_read_memory()?;
        raise_locked_memory();
        let btf = Btf::of_kernel()?;
        let maps = Maps::create()?;
        let places = Places::of(&btf)?;
        // Without its number the connections of all namespaces would seem to be of this one.
        let network = match fs::metadata("/proc/self/ns/net") {
            Ok(namespace) => Some(namespace.ino().cast_signed()),
            Err(error) if places.has_networks() => return Err(Error::Network(error)),
            Err(_) => None,
        };
        let plan = Plan { places, maps: maps.numbers(), network, pids };
        let (mut programs, mut links, mut missing, mut refused) = (Vec::new(), Vec::new(), Vec::new(), None);
        for hook in &HOOKS {
            let kind = (ProgramKind::RawTracepoint, Purpose::default());
            match attach_program(hook.name, hook.arguments, kind, &(hook.code)(&plan, &btf), &btf) {
                Ok((program, link)) => {
                    links.push(link);
                    if hook.name == OPENS { &mut links } else { &mut programs }.push(program);
                }
                Err(Error::Bpf(error)) if error.is_missing_right() => return Err(error.into()),
                Err(error) => {
                    missing.push(hook.name);
                    refused = Some(error);
                }
            }
        }
        if let Some(error) = refused.filter(|_| programs.is_empty()) {
            return Err(error);
        }
        Ok(Self {
            programs,
            _links: links,
            maps,
            missing,
            before: HashMap::new(),
            totals: [0; What::ALL.len()],
            placed: [0; What::ALL.len()],
            unplaced: 0,
            has_numbers: pids.is_some() || has_kernels_numbers(),
        })
    }

    /// What befell each connection since this was last asked. Where nothing did, that takes one system call.
    ///
    /// # Errors
    /// The kernel does not hand over the entries.
    pub fn read(&mut self) -> io::Result<Vec<Befallen>> {
        let value = self.maps.totals.look_up(&0_u32.to_ne_bytes())?;
        let mut totals = [0; What::ALL.len()];
        for (total, bytes) in totals.iter_mut().zip(value.as_chunks::<8>().0) {
            *total = u64::from_ne_bytes(*bytes);
        }
        let mut befallen = Vec::new();
        if totals == self.totals {
            return Ok(befallen);
        }
        let mut entries = HashMap::new();
        let mut over: Vec<[u8; KEY_BYTES]> = Vec::new();
        let (before, now_ns) = (&self.before, clock::now().as_nanos());
        self.maps.entries.each(|key, value| {
            let (Ok(key), Some(entry)) = (key.try_into(), Entry::parse(value)) else { return };
            // The same again where the kernel began anew with a part: what is new of it is told once.
            if entries.contains_key(&key) {
                return;
            }
            // One that went and came again begins at nothing.
            let known = before.get(&key).filter(|(first, _)| *first == entry.first_ns).map(|(_, sums)| *sums);
            befallen.extend(news(&entry, known));
            if entry.is_over(now_ns) {
                over.push(key);
            }
            entries.insert(key, (entry.first_ns, entry.sums));
        })?;
        // Else the table would fill with connections of long ago, all of which each reading goes through, and the
        // kernel would make room among those that go on.
        for key in over {
            entries.remove(&key);
            // One that has gone already is what is wanted.
            let _ = self.maps.entries.delete(&key);
        }
        let mut names = HashMap::new();
        for one in &mut befallen {
            self.placed[one.what as usize] += one.events;
            if let Some((pid, name)) = one.opener.as_mut().filter(|_| self.has_numbers) {
                let of_process: &String = names.entry(*pid).or_insert_with(|| name_of(*pid));
                if !of_process.is_empty() {
                    name.clone_from(of_process);
                }
            }
        }
        let unplaced = totals.iter().zip(&self.placed).map(|(total, placed)| total.saturating_sub(*placed)).sum();
        (self.before, self.totals, self.unplaced) = (entries, totals, self.unplaced.max(unplaced));
        Ok(befallen)
    }

    /// Events that are in no figure: of connections that had no room or went before they were read, or that came while
    /// the same program was at work on that processor.
    pub fn unplaced(&self) -> u64 {
        // A kernel that does not tell has none to add.
        let missed = |program: &OwnedFd| sys::recursion_misses(program.as_fd()).unwrap_or(0);
        self.unplaced + self.programs.iter().map(missed).sum::<u64>()
    }

    /// Whether the numbers of processes are those that they have here.
    pub const fn has_numbers(&self) -> bool {
        self.has_numbers
    }

    /// Tracepoints that this kernel has not, or not as known; less is counted without them.
    pub fn missing(&self) -> &[&'static str] {
        &self.missing
    }
}

/// The file of this PID namespace: its device, as the kernel numbers it (`MKDEV` of include/linux/kdev_t.h), and the
/// file's own number.
fn pid_namespace() -> Option<[i64; 2]> {
    let file = fs::metadata("/proc/self/ns/pid").ok()?;
    let device = (i64::from(major(file.dev())) << 20) | i64::from(minor(file.dev()));
    Some([device, file.ino().cast_signed()])
}

/// What an entry has more than it had.
fn news(entry: &Entry, known: Option<[Sums; What::ALL.len()]>) -> impl Iterator<Item = Befallen> {
    let is_new = known.is_none();
    let before = known.unwrap_or_default();
    What::ALL.into_iter().zip(entry.sums.into_iter().zip(before)).filter_map(move |(what, (now, before))| {
        let events = now.events.saturating_sub(before.events);
        (events > 0).then(|| Befallen {
            what,
            local: entry.local,
            peer: entry.peer,
            opener: entry
                .opener
                .as_ref()
                .map(|(pid, name)| (*pid, taut_event::printable(String::from_utf8_lossy(name).trim_end()))),
            events,
            lost: Duration::from_micros(now.lost_us.saturating_sub(before.lost_us)),
            longest: Duration::from_micros(now.longest_us),
            first: Instant::from_nanos(if is_new { entry.first_ns } else { entry.last_ns }),
            last: Instant::from_nanos(entry.last_ns),
        })
    })
}
