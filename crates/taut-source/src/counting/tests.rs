use std::io::Write as _;
use std::net::{TcpListener, TcpStream};

use rustix::net::{AddressFamily, SocketType, bind, connect, sockopt};

use super::*;

/// Notes loudly that a test can't run here.
fn skip(test: &str, reason: &str) {
    eprintln!("SKIPPED: {test}: {reason}");
    if let Some(path) = std::env::var_os("TAUT_SKIP_LOG") {
        let mut log = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        // One write, so that lines of tests that run at once do not mix.
        log.write_all(format!("taut-source {test}: {reason}\n").as_bytes()).unwrap();
    }
}

/// Each program is taken by this kernel, and costs the verifier little: its work grows with the program's length alone.
#[test]
fn the_verifier_takes_each_program_and_looks_at_each_instruction_about_once() {
    const NAME: &str = "counting::the_verifier_takes_each_program_and_looks_at_each_instruction_about_once";
    let (btf, maps) = match (Btf::of_kernel(), Maps::create()) {
        (Ok(btf), Ok(maps)) => (btf, maps),
        (Err(error), _) => return skip(NAME, &error.to_string()),
        (_, Err(error)) => return skip(NAME, &error.to_string()),
    };
    for (network, pids) in [(None, None), (Some(4_026_531_840), Some([4, 4_026_531_836]))] {
        let plan = Plan { places: Places::of(&btf).unwrap(), maps: maps.numbers(), network, pids };
        for hook in &HOOKS {
            let (kind, code) = (ProgramKind::RawTracepoint, (hook.code)(&plan, &btf));
            if let Err(error) = taut_bpf::load(kind, &code, Purpose::default(), hook.name) {
                panic!("{}: {error}", hook.name);
            }
            let verified = taut_bpf::verified(kind, &code, Purpose::default()).unwrap();
            println!("{}: {verified} for {}", hook.name, code.len());
            assert!(verified <= 2 * code.len(), "{}: {verified} for {}", hook.name, code.len());
        }
    }
}

fn entry(events: u64, lost_us: u64, last_ns: u64) -> Entry {
    let end = |port| SocketAddr::new([127, 0, 0, 1].into(), port);
    let mut sums = [Sums::default(); What::ALL.len()];
    sums[What::Loss as usize] = Sums { events, lost_us, longest_us: lost_us };
    Entry { first_ns: 1, last_ns, sums, local: end(1), peer: end(2), opener: Some((7, b"a\x1bb".to_vec())) }
}

#[test]
fn of_an_entry_only_what_is_new_is_told() {
    let first: Vec<Befallen> = news(&entry(2, 300, 9), None).collect();
    let [first] = &first[..] else { panic!("{first:?}") };
    assert_eq!((first.what, first.events, first.lost), (What::Loss, 2, Duration::from_micros(300)));
    assert_eq!((first.first, first.last), (Instant::from_nanos(1), Instant::from_nanos(9)));
    // A name steers no terminal.
    assert!(first.opener.as_ref().is_some_and(|(pid, name)| *pid == 7 && !name.contains('\x1b')), "{first:?}");
    let known = Some(entry(2, 300, 9).sums);
    assert_eq!(news(&entry(2, 300, 9), known).count(), 0);
    let next: Vec<Befallen> = news(&entry(3, 700, 20), known).collect();
    assert_eq!((next.len(), next[0].events, next[0].lost), (1, 1, Duration::from_micros(400)));
    assert_eq!((next[0].first, next[0].longest), (Instant::from_nanos(20), Duration::from_micros(700)));
}

/// Many connections that are refused, of which each is counted once, however often it is read meanwhile.
#[test]
fn each_refused_connection_is_counted_once_with_who_asked_for_it() {
    const NAME: &str = "counting::each_refused_connection_is_counted_once_with_who_asked_for_it";
    let mut counter = match Counter::start() {
        Ok(counter) => counter,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut of_port = Vec::new();
    for number in 0..600 {
        assert!(TcpStream::connect(closed).is_err());
        if number % 100 == 0 {
            of_port.extend(counter.read().unwrap());
        }
    }
    of_port.extend(counter.read().unwrap());
    of_port.retain(|one| one.peer == closed);
    assert_eq!(of_port.iter().map(|one| one.events).sum::<u64>(), 600);
    let own = if has_kernels_numbers() { std::process::id().cast_signed() } else { 0 };
    for one in &of_port {
        assert_eq!((one.what, one.lost), (What::Refused, Duration::ZERO), "{one:?}");
        assert!(one.opener.as_ref().is_some_and(|(pid, name)| [*pid, 0].contains(&own) && !name.is_empty()), "{one:?}");
    }
    assert_eq!(counter.read().unwrap().iter().filter(|one| one.peer == closed).count(), 0);
    // What is over takes no room any more.
    let mut kept = 0;
    let is_one = |value: &[u8]| Entry::parse(value).is_some_and(|entry| entry.peer == closed);
    counter.maps.entries.each(|_, value| kept += usize::from(is_one(value))).unwrap();
    assert_eq!(kept, 0);
}

/// As within a container that shares the network: else its own connections would seem to be of somebody else.
#[test]
fn in_a_pid_namespace_a_process_has_the_number_that_it_has_there() {
    const NAME: &str = "counting::in_a_pid_namespace_a_process_has_the_number_that_it_has_there";
    // This one, and one that is none.
    for (pids, own) in [(pid_namespace(), Some(std::process::id().cast_signed())), (Some([4, 1]), None)] {
        let mut counter = match Counter::begin(pids) {
            Ok(counter) => counter,
            Err(error) => return skip(NAME, &error.to_string()),
        };
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(TcpStream::connect(closed).is_err());
        let befallen = counter.read().unwrap();
        let of_port: Vec<&Befallen> = befallen.iter().filter(|one| one.peer == closed).collect();
        let [one] = of_port[..] else { panic!("{befallen:?}") };
        assert_eq!(one.opener.as_ref().map(|(pid, _)| *pid), own, "{one:?}");
    }
}

/// The next connection has the memory of the one before, which the kernel gives out again at once, and here its ports.
#[test]
fn connections_with_the_same_ports_are_told_apart_by_their_addresses() {
    const NAME: &str = "counting::connections_with_the_same_ports_are_told_apart_by_their_addresses";
    const MANY: u8 = 50;
    let mut counter = match Counter::start() {
        Ok(counter) => counter,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // Nobody listens there, and nobody else can meanwhile.
    let kept = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&kept, &SocketAddr::from(([0, 0, 0, 0], 0))).unwrap();
    let closed = SocketAddr::try_from(rustix::net::getsockname(&kept).unwrap()).unwrap().port();
    let own = free();
    for last in 1..=MANY {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::set_socket_reuseaddr(&socket, true).unwrap();
        bind(&socket, &own).unwrap();
        assert!(connect(&socket, &SocketAddr::from(([127, 0, 0, last], closed))).is_err());
    }
    let befallen = counter.read().unwrap();
    let of_own = befallen.iter().filter(|one| one.local == own);
    let mut peers: Vec<(SocketAddr, u64)> = of_own.map(|one| (one.peer, one.events)).collect();
    peers.sort();
    let expected = (1..=MANY).map(|last| (SocketAddr::from(([127, 0, 0, last], closed)), 1));
    assert_eq!(peers, expected.collect::<Vec<_>>());
}
