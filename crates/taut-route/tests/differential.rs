//! The interpreter, the kernel and rbpf give the same for any program and any event.

mod support;

use support::{Random, skip};
use taut_route::bpf::{Instruction, RECORD_HEADER, RecordProgram, RecordTarget, generate_record, memory_bytes};
use taut_route::condition::{Layout, MOST_OUTPUTS, Memory, Program, Verdict};

fn layout() -> Layout {
    Layout::new([("value".to_owned(), "i64be@0".parse().unwrap())]).unwrap()
}

/// A program with up to four outputs, and its text.
fn random_program(random: &mut Random) -> (String, Program) {
    loop {
        let depth = 1 + random.below(4);
        let when = random.condition_text(depth);
        let outputs: Vec<String> = (0..random.below(5)).map(|_| random.number_text(depth)).collect();
        let texts: Vec<&str> = outputs.iter().map(String::as_str).collect();
        // Some need more memory than there is.
        if let Ok(program) = Program::parse(&when, &texts, &layout()) {
            return (format!("{when} -> {}", outputs.join("; ")), program);
        }
    }
}

/// rbpf, as another implementation of the instructions.
struct Machine {
    code: Vec<u8>,
    memory: Box<[u64]>,
}

impl Machine {
    fn new(program: &Program) -> Self {
        let mut memory = vec![0; memory_bytes(program.slots).div_ceil(8)].into_boxed_slice();
        let target = RecordTarget::Machine { memory: memory.as_mut_ptr() as u64 };
        Self { code: Instruction::bytes(&generate_record(program, target)), memory }
    }

    fn handle(&mut self, program: &Program, now: i64, payload: &[u8], outputs: &mut Vec<i64>) -> Verdict {
        let mut event = vec![0; RECORD_HEADER];
        event[..8].copy_from_slice(&now.to_ne_bytes());
        event.extend(payload);
        let start = self.memory.as_mut_ptr() as u64;
        let mut machine = rbpf::EbpfVmMbuff::new(Some(&self.code)).unwrap();
        let bounds = event.as_ptr_range();
        let context: Vec<u8> = [bounds.start, bounds.end].iter().flat_map(|&p| (p as u64).to_ne_bytes()).collect();
        machine.register_allowed_memory(start..start + 8 * self.memory.len() as u64);
        machine.register_helper(93, |_, _, _, _, _| 0).unwrap();
        machine.register_helper(94, |_, _, _, _, _| 0).unwrap();
        let result = machine.execute_program(&event, &context).unwrap();
        if result == 0 {
            return Verdict::Short;
        }
        outputs.clear();
        let words = event[8..8 + 8 * MOST_OUTPUTS].chunks_exact(8).take(program.outputs.len());
        outputs.extend(words.map(|word| i64::from_ne_bytes(word.try_into().unwrap())));
        if result == 1 { Verdict::Dropped } else { Verdict::Passed }
    }
}

/// Runs random programs on random events through all there is.
fn compare(seed: u64, programs: usize, events: usize, with_kernel: bool) {
    let mut random = Random(seed);
    for number in 0..programs {
        let (text, program) = random_program(&mut random);
        let mut memory: Memory = program.memory();
        let mut machine = Machine::new(&program);
        // With and without a lock of its own.
        let load = if number % 2 == 0 { RecordProgram::load } else { RecordProgram::load_in_turn };
        let kernel = with_kernel.then(|| load(&program).unwrap_or_else(|error| panic!("{text}: {error}")));
        let mut now = 1_000 + random.below(1_000_000) as i64;
        for event in 0..events {
            now += random.below(20_000) as i64;
            let payload = random.payload();
            let mut expected = Vec::new();
            let verdict = program.handle(&mut memory, now, &payload, &mut expected);
            let mut found = Vec::new();
            let of_machine = machine.handle(&program, now, &payload, &mut found);
            assert_eq!((of_machine, &found), (verdict, &expected), "rbpf, event {event}, {payload:?} of {text}");
            if let Some(kernel) = &kernel {
                found.clear();
                let of_kernel = kernel.handle(now, &payload, &mut found).unwrap();
                assert_eq!((of_kernel, &found), (verdict, &expected), "kernel, event {event}, {payload:?} of {text}");
            }
        }
        if let Some(kernel) = &kernel {
            let counters = kernel.memory.counters().unwrap();
            let counts = [counters.count, counters.passed, counters.short];
            assert_eq!(counts, [memory.count, memory.passed, memory.short].map(|count| count as u64), "{text}");
        }
    }
}

fn has_bpf() -> bool {
    let program = Program::parse("true", &[], &Layout::default()).unwrap();
    RecordProgram::load(&program).is_ok()
}

#[test]
fn interpreter_and_rbpf_never_differ() {
    compare(0x5eed_0001, 3000, 16, false);
}

#[test]
fn interpreter_kernel_and_rbpf_never_differ() {
    if !has_bpf() {
        return skip("interpreter_kernel_and_rbpf_never_differ", "bpf(2) is not permitted here (run as root)");
    }
    compare(0x5eed_0002, 2000, 16, true);
}

/// Prints how long it takes from a text to a program in the kernel; the figure is for the reader, not asserted.
#[test]
fn a_condition_of_twenty_terms_is_loaded() {
    if !has_bpf() {
        return skip("a_condition_of_twenty_terms_is_loaded", "bpf(2) is not permitted here (run as root)");
    }
    let terms: Vec<String> = (0..20).map(|i| format!("u16be[{i}] > {}", i * 100)).collect();
    let text = terms.join(" && ");
    let load = |text: &str| {
        let began = std::time::Instant::now();
        let program = Program::parse(text, &["value * 2"], &layout()).unwrap();
        let loaded = RecordProgram::load(&program).unwrap();
        (began.elapsed(), loaded)
    };
    let mut times: Vec<_> = (0..101).map(|_| load(&text).0).collect();
    times.sort();
    println!("expression to program, 20 terms: median {:?}, longest {:?}", times[50], times[100]);
    let (_, loaded) = load(&text);
    assert_eq!(loaded.handle(1, &[0xff; 40], &mut Vec::new()).unwrap(), Verdict::Passed);
    assert_eq!(loaded.handle(1, &[0x00; 40], &mut Vec::new()).unwrap(), Verdict::Dropped);
}
