use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::thread;

use taut_event::Timer;

use super::hooks::Hook;
use super::timers::timer;
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

#[test]
fn a_timer_is_known_by_its_name_and_not_by_a_part_of_it() {
    assert_eq!(timer(b"ffffffff81c3a2b0 t tcp_delack_timer"), Some((0xffff_ffff_81c3_a2b0, Timer::DelayedAck)));
    let others =
        [&b"ffffffff81c3a2b0 t my_tcp_delack_timer"[..], b"0000000000000000 t tcp_pace_kick", b"", b"tcp_pace_kick"];
    for line in others {
        assert_eq!(timer(line), None, "{}", String::from_utf8_lossy(line));
    }
}

/// Each program is taken by this kernel, and costs the verifier little: its work grows with the program's length alone.
/// So do those for older kernels, which call the kernel to read.
#[test]
fn the_verifier_takes_each_program_and_looks_at_each_instruction_about_once() {
    const NAME: &str = "trace::the_verifier_takes_each_program_and_looks_at_each_instruction_about_once";
    let (btf, maps) = match (Btf::of_kernel(), Maps::create()) {
        (Ok(btf), Ok(maps)) => (btf, maps),
        (Err(error), _) => return skip(NAME, &error.to_string()),
        (_, Err(error)) => return skip(NAME, &error.to_string()),
    };
    let (layout, offsets) = (Layout::of(&btf).unwrap(), Offsets::of(&btf).unwrap());
    let others = Others::of(&btf).ok();
    println!("{} ranges, {} bytes a record", layout.ranges.len(), record::HEADER + layout.bytes);
    let cast = Cast::of(&btf);
    println!("reads by {}", if cast.is_some() { "a cast" } else { "calls" });
    for (scope, cast) in
        [Scope::Processes, Scope::Port(443)].into_iter().flat_map(|scope| [(scope, cast), (scope, None)])
    {
        let plan = Plan { layout: &layout, others: others.as_ref(), offsets, maps: maps.numbers(), scope, cast };
        for hook in &HOOKS {
            let Some(code) = (hook.code)(&plan) else { continue };
            let Some((kind, purpose)) = hook.kind(&btf) else { continue };
            if let Err(error) = taut_bpf::load(kind, &code, purpose, hook.name) {
                panic!("{scope:?} {}: {error}", hook.name);
            }
            let verified = taut_bpf::verified(kind, &code, purpose).unwrap();
            println!("{scope:?} {}: {verified} for {}", hook.name, code.len());
            assert!(verified <= 2 * code.len(), "{scope:?} {}: {verified} for {}", hook.name, code.len());
        }
    }
}

#[test]
fn a_hook_with_other_arguments_is_refused_by_name() {
    let (Ok(btf), Ok(maps)) = (Btf::of_kernel(), Maps::create()) else {
        return skip("trace::a_hook_with_other_arguments_is_refused_by_name", "no BPF here");
    };
    let (layout, offsets) = (Layout::of(&btf).unwrap(), Offsets::of(&btf).unwrap());
    let plan =
        Plan { layout: &layout, others: None, offsets, maps: maps.numbers(), scope: Scope::Processes, cast: None };
    let hook = |name, arguments| Hook { name, arguments, is_needed: true, code: |plan| Some(plan.receive()) };
    let refused = |hook: &Hook| attach(hook, &plan, &btf).unwrap_err().to_string();
    assert!(
        refused(&hook("tcp_probe", &["sk_buff"])).contains("tcp_probe"),
        "{}",
        refused(&hook("tcp_probe", &["sk_buff"]))
    );
    assert!(refused(&hook("no_such_tracepoint", &[])).contains("no_such_tracepoint"));
    assert!(attach(&hook("tcp_probe", &["sock", "sk_buff"]), &plan, &btf).is_ok());
}

/// What the tables hold before they count as crowded is all there, and what was put in long ago, too.
#[test]
fn tables_that_are_not_crowded_have_dropped_nothing() {
    let Ok(maps) = Maps::create() else {
        return skip("trace::tables_that_are_not_crowded_have_dropped_nothing", "no BPF here");
    };
    let most = (0..).find(|&sockets| is_crowded((sockets + 1, 0))).unwrap();
    assert!(is_crowded((0, most + 1)) && !is_crowded((most, most)));
    for key in 0..most as u64 {
        maps.sockets.update(&key.to_ne_bytes(), &[1; 4]).unwrap();
    }
    let lost = (0..most as u64).filter(|key| maps.sockets.look_up(&key.to_ne_bytes()).is_err());
    assert_eq!(lost.count(), 0, "of {most}");
}

/// A thread has one entry from its first call to its end. One that finds no room is told as a lost record.
#[test]
fn threads_have_their_places_until_they_end_and_a_call_without_one_counts_as_lost() {
    const NAME: &str = "trace::threads_have_their_places_until_they_end_and_a_call_without_one_counts_as_lost";
    let (Ok(btf), Ok(maps)) = (Btf::of_kernel(), Maps::create()) else { return skip(NAME, "no BPF here") };
    let (layout, offsets) = (Layout::of(&btf).unwrap(), Offsets::of(&btf).unwrap());
    let plan =
        Plan { layout: &layout, others: None, offsets, maps: maps.numbers(), scope: Scope::Processes, cast: None };
    let attached = |name| attach(HOOKS.iter().find(|hook| hook.name == name).unwrap(), &plan, &btf).unwrap();
    let _programs = ["sched_process_exit", "sys_enter", "sys_exit"].map(attached);
    let pid = std::process::id();
    maps.marks.set(pid);
    maps.targets.update(&pid.to_ne_bytes(), &1_u32.to_ne_bytes()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let call_of = |thread: u32| maps.threads.look_up(&thread.to_ne_bytes()).map(|value| value[24..].to_vec());
    // The thread that writes, and what the table has of it when the call is over.
    let mut write = || {
        let writes = || {
            client.write_all(b"x").unwrap();
            let link = fs::read_link("/proc/thread-self").unwrap();
            let thread = link.file_name().unwrap().to_str().unwrap().parse().unwrap();
            (thread, call_of(thread).ok())
        };
        thread::scope(|scope| scope.spawn(writes).join().unwrap())
    };
    let lost = || u64::from_ne_bytes(maps.lost.look_up(&[0; 4]).unwrap().try_into().unwrap());
    let (thread, call) = write();
    assert_eq!((call, lost()), (Some(vec![0; 8]), 0));
    // The end of a thread is seen some moments after it was joined.
    let is_gone = (0..200).any(|_| {
        thread::sleep(Duration::from_millis(10));
        call_of(thread).is_err()
    });
    assert!(is_gone);
    let mut others = 1_u32 << 30..;
    while maps.threads.update(&others.next().unwrap().to_ne_bytes(), &[0; THREAD_BYTES]).is_ok() {}
    let (_, call) = write();
    assert!(call.is_none() && lost() > 0, "{call:?}, {} lost", lost());
}
