//! POSIX.1-2024, sentence by sentence: `programs/posix` has a function for each, which runs in a
//! process of its own with the library on both engines and with the C library. `docs/posix-aio.md`
//! has a table of them, which these tests hold to what is so.
//!
//! With `TAUTAIO_WRITE_TABLE` set the table is written anew.

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use support::process::{describe, run_limited};
use support::program::{NOT_HERE, built};
use support::{Library, root, skip};

/// Where a sentence is one by which the library does not go, on purpose: docs/posix-aio.md says why.
const DEPARTURES: [&str; 1] = ["aio_read.nonblocking"];

/// Rules by which the C library goes in some runs, and hangs in others.
const UNSTEADY: [&str; 1] = ["signals.safe"];

/// The table's column of each library.
const COLUMNS: [Library; 3] = [Library::Uring, Library::Epoll, Library::System];

const BEGIN: &str = "<!-- Written by the test: TAUTAIO_WRITE_TABLE=1 cargo test -p tautaio --test posix -->\n";

/// A sentence of the standard, or of tautaio(3) where the standard leaves it open.
struct Rule {
    /// Page and name.
    name: String,
    text: String,
    is_open: bool,
}

/// Whether a library goes by a rule, and what was said. None where this host does not tell.
struct Outcome {
    holds: Option<bool>,
    output: String,
}

#[test]
fn uring() {
    check(concat!(module_path!(), "::uring"), Library::Uring);
}

#[test]
fn epoll() {
    check(concat!(module_path!(), "::epoll"), Library::Epoll);
}

#[test]
fn libc() {
    check(concat!(module_path!(), "::libc"), Library::System);
}

#[test]
fn the_table_has_every_rule() {
    let Some(rules) = program(concat!(module_path!(), "::the_table_has_every_rule")).map(rules) else { return };
    if std::env::var_os("TAUTAIO_WRITE_TABLE").is_some() {
        return write_table(&rules);
    }
    let told = table();
    assert_eq!(told.len(), rules.len(), "rules in the table, and in the program");
    for rule in rules {
        let (text, cells) = told.get(&rule.name).unwrap_or_else(|| panic!("{} is not in the table", rule.name));
        assert_eq!(*text, rule.text, "{}", rule.name);
        if !rule.is_open && !DEPARTURES.contains(&rule.name.as_str()) {
            assert!(cells[0] && cells[1], "{}: the library has to go by what shall be", rule.name);
        }
        if rule.is_open {
            assert!(cells[0] && cells[1], "{}: the library has to hold what tautaio(3) promises", rule.name);
        }
    }
}

/// What a library does is what the table says.
fn check(test: &str, library: Library) {
    if std::env::var_os("TAUTAIO_WRITE_TABLE").is_some() {
        return;
    }
    if let Some(reason) = library.refused() {
        return skip(test, &reason);
    }
    let Some(program) = program(test) else { return };
    if library == Library::System && !document().contains(&format!("| {} |\n", c_library())) {
        return skip(test, &format!("the table tells of another C library than {}", c_library()));
    }
    let column = COLUMNS.iter().position(|&other| other == library).unwrap();
    let told = table();
    let is_steady = |rule: &Rule| library != Library::System || !UNSTEADY.contains(&rule.name.as_str());
    let rules: Vec<_> = rules(program).into_iter().filter(is_steady).collect();
    let expected = |rule: &Rule| told.get(&rule.name).is_none_or(|(_, cells)| cells[column]);
    let mut wrong = String::new();
    for (rule, outcome) in rules.iter().zip(run_all(program, &rules, library, expected)) {
        match outcome.holds {
            None => skip(&format!("{test} {}", rule.name), "this host does not tell"),
            Some(holds) if holds != expected(rule) => {
                writeln!(wrong, "{}: {}\n    holds: {holds}. {}", rule.name, rule.text, outcome.output.trim()).unwrap();
            }
            Some(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{library:?} does not do what docs/posix-aio.md says:\n{wrong}");
}

fn program(test: &str) -> Option<&'static Path> {
    let program = built("posix");
    if program.is_none() {
        skip(test, "there is no C compiler (cc)");
    }
    program
}

fn rules(program: &Path) -> Vec<Rule> {
    let output = Command::new(program).arg("--list").output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let rule = |line: &str| {
        let [line, kind, page, name, text] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let rule = Rule { name: format!("{page}.{name}"), text: text.to_owned(), is_open: kind == "open" };
        ((page.to_owned(), line.parse::<u32>().unwrap()), rule)
    };
    // By page, and in each as they stand in the source.
    let rules: BTreeMap<_, _> = lines.lines().map(rule).collect();
    rules.into_values().collect()
}

/// Tries all rules, several at a time, since most of them wait; in a process each.
fn run_all(program: &Path, rules: &[Rule], library: Library, expected: impl Fn(&Rule) -> bool + Sync) -> Vec<Outcome> {
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        while let Some(rule) = rules.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = run(program, rule, library, expected(rule));
            outcomes.lock().unwrap().insert(&rule.name, outcome);
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
    let mut outcomes = outcomes.into_inner().unwrap();
    rules.iter().map(|rule| outcomes.remove(&rule.name).unwrap()).collect()
}

fn run(program: &Path, rule: &Rule, library: Library, expected: bool) -> Outcome {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut command = Command::new(program);
    library.preload(&mut command);
    let (page, name) = rule.name.split_once('.').unwrap();
    command.args([page, name]).current_dir(directory.path()).env_remove("TAUTAIO_LOG");
    // What waits in vain does so for ever; the machine may be busy for what does not.
    let patience = if expected { 60 } else { 1 };
    command.env("TRY_PATIENCE", patience.to_string());
    let (status, output) = run_limited(&mut command, Duration::from_secs(patience + 5));
    let holds = (status.code() != Some(NOT_HERE)).then(|| status.success());
    Outcome { holds, output: format!("{}\n{output}", describe(status)) }
}

#[test]
fn the_library_is_in_use() {
    let test = concat!(module_path!(), "::the_library_is_in_use");
    let Some(program) = program(test) else { return };
    for library in COLUMNS {
        let mut command = Command::new(program);
        library.preload(&mut command);
        let output = command.arg("--provider").output().unwrap();
        let provider = String::from_utf8(output.stdout).unwrap();
        assert_eq!(provider.trim() == support::library().as_os_str(), library != Library::System, "{provider}");
    }
}

fn path() -> PathBuf {
    root().join("docs/posix-aio.md")
}

fn document() -> String {
    std::fs::read_to_string(path()).unwrap()
}

/// As the table's heading has it: `glibc 2.36`.
fn c_library() -> String {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

/// The text of each rule of the document, and which libraries go by it.
fn table() -> BTreeMap<String, (String, [bool; 3])> {
    let text = document();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let (name, rest) = row.split_once("` | ").unwrap();
        let [text, cells @ ..]: [&str; 4] =
            rest.trim_end_matches(" |").split(" | ").collect::<Vec<_>>().try_into().unwrap();
        (name.to_owned(), (text.to_owned(), cells.map(|cell| cell == "yes")))
    })
    .collect()
}

/// Tries everything, and writes the tables at the document's end.
fn write_table(rules: &[Rule]) {
    let program = built("posix").unwrap();
    let outcomes = COLUMNS.map(|library| run_all(program, rules, library, |_| true));
    let mut text = document();
    text.truncate(text.find(BEGIN).unwrap());
    text += BEGIN;
    for (heading, is_open) in [("What POSIX says shall be", false), ("What POSIX leaves open", true)] {
        write!(text, "\n## {heading}\n\n| rule | | io_uring | epoll | {} |\n|---|---|---|---|---|\n", c_library())
            .unwrap();
        for (index, rule) in rules.iter().enumerate().filter(|(_, rule)| rule.is_open == is_open) {
            let mut cells = outcomes.each_ref().map(|outcomes| match outcomes[index].holds {
                Some(true) => "yes",
                Some(false) => "no",
                None => panic!("{}: this host does not tell, so it can't write the table", rule.name),
            });
            if UNSTEADY.contains(&rule.name.as_str()) {
                cells[2] = "not always";
            }
            writeln!(text, "| `{}` | {} | {} |", rule.name, rule.text, cells.join(" | ")).unwrap();
        }
    }
    std::fs::write(path(), text).unwrap();
}
