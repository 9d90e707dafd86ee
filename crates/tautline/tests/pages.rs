//! The shell blocks of README and docs are run as they stand there, as a reader would: what does not end by itself gets
//! Ctrl-C. A block, or a line of it, that can't be run says why in the page's source ([`blocks`]).

#[path = "pages_support/blocks.rs"]
mod blocks;
#[path = "pages_support/cut.rs"]
mod cut;
#[path = "pages_support/files.rs"]
mod files;
#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../../taut-capture/tests/packets/mod.rs"]
mod packets;
#[path = "explain_support/requests.rs"]
mod requests;
#[path = "pages_support/stage.rs"]
mod stage;
mod support;
mod trace_support;

use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use blocks::Block;
use files::files;
use stage::Stage;
use support::{has, is_root, skip};
use trace_support::may_trace;

/// Blocks at once: most of them wait, and with more of them one keeps another from being up in its time.
const AT_ONCE: usize = 4;
/// Seconds before Ctrl-C: whoever wants no more of it.
const TIME: u32 = 3;
/// What a block may call that is not everywhere.
const PROGRAMS: [&str; 6] = ["mosquitto", "nats-server", "openssl", "python3", "curl", "ip"];

/// How often `taut` stands in it.
fn calls(text: &str) -> usize {
    let commands = cut::commands(&cut::without_documents(text));
    commands.iter().filter(|command| cut::of("taut", command).is_some()).count()
}

/// What is wrong with it.
fn play(stage: &Stage, block: &Block) -> Option<String> {
    let text = block.runs()?;
    let begin = Instant::now();
    let played = stage.play(&text);
    println!("{}: {:.1} s", block.place(), begin.elapsed().as_secs_f64());
    let complaint = played.complaint.or_else(|| {
        let calls = calls(&text);
        (played.began < calls)
            .then(|| format!("taut was started {} times, and stands there {calls} times", played.began))
    });
    complaint.map(|complaint| format!("{}:\n{text}{complaint}\n", block.place()))
}

#[test]
fn the_blocks_of_the_pages_run() {
    const NAME: &str = "the_blocks_of_the_pages_run";
    if !is_root() {
        return skip(NAME, "networks of their own take root");
    }
    if let Some(missing) = PROGRAMS.iter().find(|program| !has(program)) {
        return skip(NAME, &format!("there is no {missing}"));
    }
    if !may_trace(NAME) {
        return;
    }
    // `PAGES=trace.md` is for who writes a page.
    let only = std::env::var("PAGES").unwrap_or_default();
    let mut blocks = blocks::all();
    // The tasks are run by tasks.rs, which looks at the answers as well.
    blocks.retain(|block| block.page != "tasks.md" && block.place().contains(&only));
    let stage = Stage::new(files(), TIME);
    let next = Mutex::new(blocks.iter());
    let complaints = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let block = next.lock().unwrap().next();
                    let Some(block) = block else { break };
                    // Not within the lock: the others would wait for it.
                    let complaint = play(&stage, block);
                    complaints.lock().unwrap().extend(complaint);
                }
            });
        }
    });
    let complaints = complaints.into_inner().unwrap();
    assert!(complaints.is_empty(), "{} blocks do not run:\n{}", complaints.len(), complaints.join("\n"));
    let run = blocks.iter().filter_map(Block::runs).map(|text| calls(&text)).sum::<usize>();
    let all = blocks.iter().map(|block| calls(&block.text)).sum::<usize>();
    println!("{run} of {all} lines of taut in {} blocks were run", blocks.len());
    assert!(!only.is_empty() || run > 70, "{run} of {all}");
}
