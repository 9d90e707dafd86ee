//! Routes in the kernel: a program for each, attached to a device by links that end with the process.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::header::{self, Hop, OWN_BYTES, Own, SINK_BYTES};
use super::incoming::{self, KEY_BYTES};
use super::network;
use super::object::{KernelCounters, MemoryMap};
use super::parts::{Hook, LOG_BYTES, NetParts, NetSink};
use crate::condition::Program;
use crate::route::MOST_REPLIES;
use taut_bpf::BpfError;
use taut_bpf::Ring;
use taut_bpf::instruction::Instruction;
use taut_bpf::sys::{self, Map, MapKind, MapShape, ProgramKind};

// Attach types (enum bpf_attach_type) and flags of links (linux/if_link.h).
const BPF_XDP: u32 = 37;
const BPF_TCX_INGRESS: u32 = 46;
const XDP_FLAGS_SKB_MODE: u32 = 2;
const XDP_FLAGS_DRV_MODE: u32 = 4;

/// Bytes of a route's log: some thousands of records.
const LOG_RING: usize = 1 << 18;

/// Where a route runs in the kernel.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum AttachPoint {
    /// XDP in the driver.
    XdpNative,
    /// XDP after the driver, for drivers without it.
    XdpGeneric,
    /// Traffic control on the way in (tcx, Linux 6.6).
    Tc,
}

/// Where a sink sends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KernelTarget {
    /// Back to the sender.
    Reply,
    /// To this address.
    To(SocketAddr),
}

/// A route as the kernel runs it.
#[derive(Clone, Debug)]
pub struct KernelSpec {
    /// The address whose datagrams are taken; those of the sinks are of the same version of IP.
    pub source: SocketAddr,
    /// Where they go, each with the index of the output that is sent (8 bytes, network byte order),
    /// or none for the payload as it came.
    pub sinks: Vec<(KernelTarget, Option<usize>)>,
    /// Whether events that pass are logged, and the output that is logged with them.
    pub log: Option<Option<usize>>,
    /// This host on the device of the source.
    pub own: Own,
    /// Most replies a second.
    pub replies: u32,
}

impl KernelSpec {
    /// Without a log, on loopback until told otherwise, and with the usual number of replies.
    pub const fn new(source: SocketAddr, sinks: Vec<(KernelTarget, Option<usize>)>) -> Self {
        let own = Own { ethernet: [0; 6], broadcast: None };
        Self { source, sinks, log: None, own, replies: MOST_REPLIES }
    }
}

/// A program with its maps.
#[derive(Debug)]
pub struct KernelRoute {
    program: OwnedFd,
    memory: MemoryMap,
    sinks: Map,
    log: Option<Ring>,
    spec: KernelSpec,
    table: Vec<u8>,
}

/// An event that passed, from the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LogRecord {
    /// Time (`CLOCK_MONOTONIC`).
    pub now_ns: u64,
    /// Number of the event.
    pub count: u64,
    /// What was logged of it.
    pub value: i64,
}

/// Programs at work on a device, until this is dropped or the process ends in whatever way.
#[derive(Debug)]
pub struct Attachment {
    _link: OwnedFd,
    /// Table of the dispatcher in front of several routes.
    table: Option<Map>,
    _programs: Option<Map>,
}

impl AttachPoint {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::XdpNative => "xdp-native",
            Self::XdpGeneric => "xdp-generic",
            Self::Tc => "tc",
        }
    }

    const fn hook(self) -> Hook {
        match self {
            Self::XdpNative | Self::XdpGeneric => Hook::Xdp,
            Self::Tc => Hook::Tc,
        }
    }

    const fn kind(self) -> ProgramKind {
        match self {
            Self::XdpNative | Self::XdpGeneric => ProgramKind::Xdp,
            Self::Tc => ProgramKind::Classifier,
        }
    }

    const fn attach_type(self) -> u32 {
        match self {
            Self::XdpNative | Self::XdpGeneric => BPF_XDP,
            Self::Tc => BPF_TCX_INGRESS,
        }
    }

    fn attach(self, program: BorrowedFd<'_>, ifindex: u32) -> io::Result<OwnedFd> {
        let flags = match self {
            Self::XdpNative => XDP_FLAGS_DRV_MODE,
            Self::XdpGeneric => XDP_FLAGS_SKB_MODE,
            Self::Tc => 0,
        };
        sys::link(program, ifindex, self.attach_type(), flags)
    }
}

/// What a program works with.
struct Maps {
    memory: MemoryMap,
    sinks: Map,
    log: Option<Map>,
}

fn table_bytes(spec: &KernelSpec) -> usize {
    OWN_BYTES + SINK_BYTES * spec.sinks.len()
}

impl Maps {
    fn create(program: &Program, spec: &KernelSpec) -> Result<Self, BpfError> {
        let memory = MemoryMap::create(program.slots)?;
        let create = |kind, key_bytes, value_bytes, entries, name| {
            let shape = MapShape { kind, key_bytes, value_bytes, entries, name, types: None };
            Map::create(&shape).map_err(BpfError::of("create a map"))
        };
        let sinks = create(MapKind::Array, 4, table_bytes(spec), 1, "taut_sinks")?;
        let log = match spec.log {
            Some(_) => Some(create(MapKind::RingBuffer, 0, 0, LOG_RING, "taut_log")?),
            None => None,
        };
        Ok(Self { memory, sinks, log })
    }

    fn code(&self, program: &Program, spec: &KernelSpec, place: AttachPoint) -> Vec<Instruction> {
        let sinks: Vec<NetSink> = spec
            .sinks
            .iter()
            .map(|&(target, output)| NetSink { reply: target == KernelTarget::Reply, output })
            .collect();
        let parts = NetParts {
            hook: place.hook(),
            source: spec.source,
            sinks: &sinks,
            memory_fd: self.memory.number(),
            sinks_fd: self.sinks.number(),
            replies: spec.replies,
            log: self.log.as_ref().map(|log| (log.number(), spec.log.flatten())),
        };
        network::generate(program, &parts)
    }
}

impl LogRecord {
    /// From three words in the host's byte order, as the programs and the kernel module write them.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let word = |at: usize| u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| bytes[at + byte]));
        Self { now_ns: word(0), count: word(8), value: word(16).cast_signed() }
    }
}

impl KernelRoute {
    /// Generates a route's program and loads it. It does nothing yet.
    ///
    /// # Errors
    /// The right is missing, or the kernel is too old for a part of it.
    pub fn load(program: &Program, spec: KernelSpec, place: AttachPoint, name: &str) -> Result<Self, BpfError> {
        let maps = Maps::create(program, &spec)?;
        let program = taut_bpf::load(place.kind(), &maps.code(program, &spec, place), place.attach_type(), name)?;
        let Maps { memory, sinks, log } = maps;
        let ring = |map: Map| Ring::new(map.into_fd(), LOG_RING).map_err(BpfError::of("map the log"));
        let log = log.map(ring).transpose()?;
        let (table, own) = (vec![0; table_bytes(&spec)], spec.own);
        let mut route = Self { program, memory, sinks, log, spec, table };
        route.set_own(own).map_err(BpfError::of("write a map"))?;
        Ok(route)
    }

    /// Tells the program this host's addresses on the device of the source from now on.
    ///
    /// # Errors
    /// The kernel refused to write the map.
    pub fn set_own(&mut self, own: Own) -> io::Result<()> {
        self.write_table(0, &own.entry())
    }

    /// Tells the program how a sink is reached from now on; `None`: not at all, so that what would
    /// go there counts as lost.
    ///
    /// # Errors
    /// The kernel refused to write the map.
    pub fn set_hop(&mut self, sink: usize, hop: Option<Hop>) -> io::Result<()> {
        let KernelTarget::To(to) = self.spec.sinks[sink].0 else { return Ok(()) };
        let entry = header::entry(hop, self.spec.source, to);
        self.write_table(OWN_BYTES + sink * SINK_BYTES, &entry)
    }

    fn write_table(&mut self, at: usize, entry: &[u8]) -> io::Result<()> {
        let place = &mut self.table[at..at + entry.len()];
        if *place != *entry {
            place.copy_from_slice(entry);
            self.sinks.update(&0_u32.to_ne_bytes(), &self.table)?;
        }
        Ok(())
    }

    /// What it was made of.
    pub const fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    /// The counters as they are now.
    ///
    /// # Errors
    /// The kernel refused to read the map.
    pub fn counters(&self) -> io::Result<KernelCounters> {
        self.memory.counters()
    }

    /// Readable when something has been logged; `None` without a log.
    pub fn log_fd(&self) -> Option<BorrowedFd<'_>> {
        self.log.as_ref().map(AsFd::as_fd)
    }

    /// Hands over what has been logged since.
    pub fn read_log(&mut self, mut record: impl FnMut(LogRecord)) {
        let Some(ring) = &mut self.log else { return };
        ring.read(|bytes| {
            if bytes.len() >= LOG_BYTES {
                record(LogRecord::from_bytes(bytes));
            }
        });
    }

    /// Runs the program once on a frame; its result and what the frame is then (`BPF_PROG_TEST_RUN`).
    ///
    /// # Errors
    /// The kernel refused to run it.
    pub fn test_run(&self, frame: &[u8]) -> io::Result<(u32, Vec<u8>)> {
        sys::test_run(self.program.as_fd(), frame)
    }
}

impl Attachment {
    /// Sets routes to work on a device, all in the same place.
    ///
    /// # Errors
    /// The device has no such place, or it is taken (`EBUSY`: another XDP program).
    pub fn attach(ifindex: u32, place: AttachPoint, routes: &[&KernelRoute]) -> Result<Self, BpfError> {
        let attach = |program: BorrowedFd<'_>| {
            place.attach(program, ifindex).map_err(|error| BpfError::Io { what: "attach to the device", error })
        };
        if let [route] = routes {
            return Ok(Self { _link: attach(route.program.as_fd())?, table: None, _programs: None });
        }
        let create = |kind, key_bytes, name| {
            let shape = MapShape { kind, key_bytes, value_bytes: 4, entries: routes.len(), name, types: None };
            Map::create(&shape).map_err(BpfError::of("create a map"))
        };
        let table = create(MapKind::Hash, KEY_BYTES, "taut_routes")?;
        let programs = create(MapKind::ProgramArray, 4, "taut_programs")?;
        let code = network::dispatcher(place.hook(), table.number(), programs.number());
        let dispatcher = taut_bpf::load(place.kind(), &code, place.attach_type(), "taut_dispatch")?;
        for (index, route) in routes.iter().enumerate() {
            let index = (index as u32).to_ne_bytes();
            let program = sys::number(&route.program).to_ne_bytes();
            programs
                .update(&index, &program)
                .and_then(|()| table.update(&incoming::key(route.spec.source), &index))
                .map_err(BpfError::of("fill the table of routes"))?;
        }
        let link = attach(dispatcher.as_fd())?;
        // The kernel empties an array of programs when nobody holds a descriptor of it (kernel/bpf/arraymap.c).
        Ok(Self { _link: link, table: Some(table), _programs: Some(programs) })
    }

    /// Puts a program into a device's driver that leaves everything alone. A veth needs one at the other end, or what
    /// XDP sends back waits in its ring: `veth_xdp_flush` (drivers/net/veth.c) wakes up only an end with a program.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn leave_alone(ifindex: u32) -> Result<Self, BpfError> {
        let place = AttachPoint::XdpNative;
        let program = taut_bpf::load(place.kind(), &network::leave_alone(), place.attach_type(), "taut_pass")?;
        let link = place.attach(program.as_fd(), ifindex);
        let link = link.map_err(|error| BpfError::Io { what: "attach to the device", error })?;
        Ok(Self { _link: link, table: None, _programs: None })
    }

    /// Takes one route out; whether others are left.
    pub fn remove(&mut self, source: SocketAddr, left: usize) -> bool {
        if let Some(table) = &self.table {
            // It is there, or it was taken out before.
            let _ = table.delete(&incoming::key(source));
        }
        left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::TERMS;
    use crate::route::Source;

    /// The time to start a route is that of the verifier, whose work has to grow with a program's length alone.
    #[test]
    fn the_verifier_looks_at_each_instruction_about_once() {
        let sources = ["127.0.0.1:9000", "[::1]:9000"].map(|source| source.parse::<SocketAddr>().unwrap());
        let layout = Source::Udp(sources[0]).layout();
        let filters = "changed(value) && rise(value > 1) && fall(value > 2) && debounce(value != 3, 1ms) && limit(true, 3, 1s) \
                       && hysteresis(value, 1, 9) && average(value, 5) != 0 && smooth(value, 2) != 4 && median(value) == 5";
        let signs = (0..20).map(|byte| format!("(i8[{byte}] >> 63 & 5) != 1")).collect::<Vec<_>>().join(" && ");
        for text in [TERMS, filters, &signs] {
            let program = Program::parse(text, &[], &layout).unwrap();
            for (source, place) in
                sources.iter().flat_map(|&source| [(source, AttachPoint::XdpGeneric), (source, AttachPoint::Tc)])
            {
                let to = |port| KernelTarget::To(SocketAddr::new(source.ip(), port));
                let sinks = if place == AttachPoint::Tc { 4 } else { 1 };
                let sinks = (0..sinks).map(|i| (to(i), None)).collect();
                let spec = KernelSpec { log: Some(None), ..KernelSpec::new(source, sinks) };
                let verified = Maps::create(&program, &spec).map(|maps| {
                    let code = maps.code(&program, &spec, place);
                    (code.len(), taut_bpf::verified(place.kind(), &code, place.attach_type()))
                });
                let (length, verified) = match verified {
                    Err(error) if error.is_missing_right() => {
                        return crate::skip::note(
                            "bpf::route::the_verifier_looks_at_each_instruction_about_once",
                            &error.to_string(),
                        );
                    }
                    other => other.unwrap(),
                };
                let verified = verified.unwrap_or_else(|error| panic!("{place:?} {text}: {error}"));
                println!("{place:?} from {source}: {verified} for {length}");
                assert!(verified <= length + length / 2, "{place:?} {text}: {verified} for {length}");
                // For the reader; times are not asserted.
                let load = || {
                    let began = std::time::Instant::now();
                    let program = Program::parse(text, &[], &layout).unwrap();
                    KernelRoute::load(&program, spec.clone(), place, "taut_timed").map(|_| began.elapsed())
                };
                let mut times: Vec<_> = (0..51).map(|_| load().unwrap()).collect();
                times.sort();
                println!("  from the text to the kernel: shortest {:?}, median {:?}", times[0], times[25]);
            }
        }
    }
}
