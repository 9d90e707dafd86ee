//! The tasks of docs/tasks.md and of the first screen, done as they stand there: the commands are read from the page
//! and from `taut`, and what they print has to have the answer that the page promises.

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

use std::fs;

use blocks::Block;
use files::files;
use stage::{Played, Stage};
use support::{has, is_root, run, skip, text};
use trace_support::may_trace;

/// Seconds in which each of them ends by itself.
const TIME: u32 = 120;

/// What is wrong where a task is to be done, by its number; 4711 is a slow program without more ado.
const STAGED: [(usize, &str); 3] = [
    (2, "taut demo >demo.log &\nuntil grep -q ' 01 ' /proc/net/tcp; do sleep 0.1; done\n"),
    (4, "ip address add 10.0.0.3/32 dev lo\n"),
    (9, "python3 device.py &\nuntil [ -e line ]; do sleep 0.1; done\n"),
];
/// A device at a serial line, which says in capitals what it is told.
const DEVICE: &str = "import os, pty, tty
ours, theirs = pty.openpty()
tty.setraw(theirs)
os.symlink(os.ttyname(theirs), 'line')
while told := os.read(ours, 64):
    os.write(ours, told.upper())
";

/// A task of the page.
struct Task<'a> {
    /// From 1.
    number: usize,
    block: &'a Block,
    /// What has to be printed.
    answers: Vec<&'a str>,
}

/// Each with its answers: what stands in backticks in the sentence that begins with `**Answer**`, but for options.
fn tasks<'a>(page: &'a str, blocks: &'a [Block]) -> Vec<Task<'a>> {
    let sections: Vec<&str> = page.split("\n## ").skip(1).collect();
    assert_eq!(sections.len(), blocks.len(), "a block for each task");
    let tasks = sections.iter().zip(blocks).enumerate().map(|(index, (section, block))| {
        assert!(section.starts_with(&format!("{}. ", index + 1)), "{section}");
        let answer = section.split_once("**Answer**: ").unwrap_or_else(|| panic!("no answer: {section}")).1;
        let sentence = answer.split(". ").next().unwrap_or_default();
        let answers = sentence.split('`').skip(1).step_by(2).filter(|word| !word.starts_with("--")).collect();
        Task { number: index + 1, block, answers }
    });
    tasks.collect()
}

fn page() -> String {
    fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tasks.md")).unwrap()
}

fn blocks_of_the_page() -> Vec<Block> {
    blocks::all().into_iter().filter(|block| block.page == "tasks.md").collect()
}

fn stage() -> Stage {
    let files = files();
    fs::write(files.path().join("device.py"), DEVICE).unwrap();
    Stage::new(files, TIME)
}

/// Whether all of it can be done here.
fn is_possible(test: &str) -> bool {
    if !is_root() {
        skip(test, "networks of their own take root");
        return false;
    }
    if let Some(missing) = ["ip", "python3"].iter().find(|program| !has(program)) {
        skip(test, &format!("there is no {missing}"));
        return false;
    }
    may_trace(test)
}

#[test]
fn ten_tasks_are_done_in_two_commands_each() {
    if !is_possible("ten_tasks_are_done_in_two_commands_each") {
        return;
    }
    let (page, blocks, stage) = (page(), blocks_of_the_page(), stage());
    let mut complaints = Vec::new();
    for task in tasks(&page, &blocks) {
        let lines = task.block.runs().expect("none is left out").replace("/dev/ttyUSB0", "$PWD/line");
        let staged = STAGED.iter().find(|(number, _)| *number == task.number).map_or("", |(_, staged)| *staged);
        let Played { complaint, told, .. } = stage.play(&format!("{staged}{lines}"));
        let missing: Vec<_> = task.answers.iter().filter(|answer| !told.contains(**answer)).collect();
        if let Some(complaint) = complaint {
            complaints.push(format!("{}:\n{complaint}", task.block.place()));
        } else if !missing.is_empty() {
            complaints.push(format!("{}: nothing of {missing:?} is in\n{told}", task.block.place()));
        }
        if task.number == 9 && !told.contains("STATUS") {
            complaints.push(format!("{}: the device was not heard\n{told}", task.block.place()));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}

/// Else a page without answers would have none that is wrong.
#[test]
fn the_page_has_ten_tasks_with_two_commands_that_readme_names() {
    let readme = include_str!("../../../README.md");
    let (page, blocks) = (page(), blocks_of_the_page());
    let tasks = tasks(&page, &blocks);
    assert_eq!(tasks.len(), 10);
    for task in &tasks {
        let place = task.block.place();
        let commands = cut::commands(&task.block.text);
        let calls: Vec<&[String]> = commands.iter().filter_map(|command| cut::of("taut", command)).collect();
        assert!((1..=2).contains(&calls.len()), "{place}: {} commands", calls.len());
        for call in &calls {
            assert!(readme.contains(&format!("`taut {}", call[0])), "{place}: README does not name taut {}", call[0]);
        }
        // That of the serial line is what its device says.
        assert!(task.number == 9 || !task.answers.is_empty(), "{place}: no answer in words");
    }
    assert_eq!(tasks[0].answers, ["FOUND nagle_delayed_ack", "PROVEN"]);
}

/// `taut serve` on the one host, and on the other what its first screen says.
#[test]
fn what_the_first_screen_says_of_two_hosts_works() {
    if !is_possible("what_the_first_screen_says_of_two_hosts_works") {
        return;
    }
    let screen = text(&run("").stdout);
    let commands: Vec<&str> = screen.lines().filter_map(|line| Some(line.split_once("  taut ")?.1)).collect();
    let serve = commands.iter().find(|command| command.starts_with("serve ")).expect("a line for HOST");
    let others: Vec<&&str> = commands.iter().filter(|command| command.ends_with(" HOST")).collect();
    assert_eq!(others.len(), 3, "{screen}");
    let mut block = format!("taut {serve} &\n");
    // Not an address of loopback: those are on this host alone.
    others.iter().for_each(|command| block.push_str(&format!("taut {}\n", command.replace("HOST", "10.0.0.2"))));
    let played = stage().play(&block);
    assert_eq!((played.complaint, played.began), (None, 4), "{}", played.told);
    for part in ["Round trips", "Settings tried", "Periodic sending"] {
        assert!(played.told.contains(part), "{part}: {}", played.told);
    }
}
