//! docs/recording.svg, which the README shows, is what the commands in it print today, but for the figures.
//!
//! `TAUT_RECORD=1 cargo test --release -p tautline --test recording` records it again.

mod support;
mod trace_support;

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use trace_support::may_trace;

/// Characters in a line.
const COLUMNS: usize = 100;
/// After that time it begins again.
const LENGTH: Duration = Duration::from_secs(20);
/// Times at which the commands have been typed.
const TYPED: [Duration; 2] = [Duration::from_millis(500), Duration::from_millis(2500)];
/// Size of a character and of a line, in pixels.
const CHARACTER: f64 = 7.25;
const LINE: usize = 17;
/// Room around the text, in pixels.
const EDGE: usize = 14;

/// A line, and when it stood there.
struct Line {
    at: Duration,
    text: String,
}

/// A slow program, ended when dropped.
struct Slow(Child);

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn taut(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taut"));
    command.args(arguments).env("COLUMNS", COLUMNS.to_string()).env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

/// Sends each line with its time until the end of the text.
fn follow(text: impl Read + Send + 'static, from: Instant, lines: mpsc::Sender<Line>) {
    thread::spawn(move || {
        for text in BufReader::new(text).lines().map_while(Result::ok) {
            let _ = lines.send(Line { at: from.elapsed(), text });
        }
    });
}

/// Runs both commands, and has all that they print.
fn record() -> Vec<Line> {
    let typed = |number: usize, command: &str| Line { at: TYPED[number], text: format!("# taut {command}") };
    let mut all = vec![typed(0, "demo &")];
    let mut slow = Slow(taut(&["demo"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut printed = BufReader::new(slow.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let process = slow.0.id().to_string();
    // Two lines of what it says are enough: the others are commands to try.
    for text in printed.by_ref().take(2) {
        all.push(Line { at: TYPED[0] + Duration::from_millis(100), text });
    }
    thread::spawn(move || printed.for_each(drop));

    let arguments = ["trace", "--pid", &process, "--try", "nodelay"];
    all.push(typed(1, &arguments.join(" ")));
    let begin = Instant::now();
    let mut trace = taut(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (sender, lines) = mpsc::channel();
    follow(trace.stderr.take().unwrap(), begin, sender.clone());
    follow(trace.stdout.take().unwrap(), begin, sender);
    all.extend(lines.iter().map(|line| Line { at: TYPED[1] + line.at, ..line }));
    assert!(trace.wait().unwrap().success());
    all
}

/// The picture: each line appears at its time.
fn draw(lines: &[Line]) -> String {
    let width = (COLUMNS as f64 * CHARACTER) as usize + 2 * EDGE;
    let height = lines.len() * LINE + 2 * EDGE;
    let mut times: Vec<u128> = lines.iter().map(|line| line.at.as_millis()).collect();
    times.dedup();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\">\n\
         <title>taut trace finds why a program waits, and proves the cure</title>\n\
         <style>\n\
         text {{ font: 12px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #d8dee9; white-space: \
         pre }}\n\
         .typed {{ fill: #88c0d0 }} .says {{ fill: #ebcb8b }}\n\
         @media (prefers-reduced-motion: no-preference) {{\n"
    );
    let length = LENGTH.as_secs_f64();
    for at in &times {
        let percent = *at as f64 / 10.0 / length;
        let _ = writeln!(
            svg,
            "@keyframes t{at} {{ 0% {{ opacity: 0 }} {percent:.2}% {{ opacity: 1 }} }} .t{at} {{ animation: t{at} \
             {length}s step-end infinite }}"
        );
    }
    let _ = write!(svg, "}}\n</style>\n<rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#20242c\"/>\n");
    for (number, line) in lines.iter().enumerate() {
        let y = EDGE + number * LINE + LINE - 5;
        let says = ["FOUND", "CHANGE", "TRIED", "PROVEN"];
        let kind = match line.text.trim_start().split([' ', ':']).next() {
            Some("#") => " typed",
            Some(word) if says.contains(&word) => " says",
            _ => "",
        };
        let text = line.text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let at = line.at.as_millis();
        let _ =
            writeln!(svg, "<text class=\"t{at}{kind}\" x=\"{EDGE}\" y=\"{y}\" xml:space=\"preserve\">{text}</text>");
    }
    svg + "</svg>\n"
}

/// The lines of a picture.
fn drawn(svg: &str) -> Vec<String> {
    let inside = |line: &str| {
        let (_, text) = line.strip_prefix("<text ")?.strip_suffix("</text>")?.split_once('>')?;
        Some(text.replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&"))
    };
    svg.lines().filter_map(inside).collect()
}

/// Without the paragraphs of events that were missed: so it is on some virtual machines, now and then.
fn without_gaps(lines: &[String]) -> Vec<&String> {
    let mut is_gap = false;
    let mut left = Vec::new();
    for line in lines {
        is_gap |= ["Events were missed ", "The kernel left out "].iter().any(|of| line.trim_start().starts_with(of));
        if !is_gap {
            left.push(line);
        }
        is_gap &= !line.ends_with('.');
    }
    left
}

/// The rows of a breakdown that every run has; a busy machine has more, and they may be large.
const ROWS: [&str; 2] = ["sending program (sender)", "Nagle's algorithm (sender)"];

/// What they say, without figures: other rows and how often what let go are left out. Broken lines are joined.
fn words(lines: &[String]) -> Vec<String> {
    let is_row = |line: &str| line.ends_with(" times") || line.split_whitespace().nth(1) == Some("others");
    let is_other = |line: &str| is_row(line) && !ROWS.iter().any(|row| line.trim_start().starts_with(row));
    let is_evidence = |line: &str| line.starts_with("    ");
    let said = without_gaps(lines).into_iter().filter(|line| !is_other(line) && !is_evidence(line));
    let is_figure = |word: &str| word.contains(|c: char| c.is_ascii_digit());
    let is_unit = |word: &str| matches!(word.trim_matches(['(', ')', ',', '.']), "ns" | "µs" | "ms" | "s" | "B" | "kB");
    said.flat_map(|line| line.split_whitespace())
        .filter(|word| !is_figure(word) && !is_unit(word))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_recording_is_what_the_commands_print() {
    if !may_trace("the_recording_is_what_the_commands_print") {
        return;
    }
    let file: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recording.svg");
    let now = record();
    if env::var_os("TAUT_RECORD").is_some() {
        fs::write(&file, draw(&now)).unwrap();
    }
    let then = drawn(&fs::read_to_string(&file).unwrap());
    let now: Vec<String> = now.into_iter().map(|line| line.text).collect();
    assert_eq!(words(&then), words(&now), "TAUT_RECORD=1 records it again:\n{}\n\n{}", then.join("\n"), now.join("\n"));
    assert!(now.iter().any(|line| line.contains("PROVEN")), "{now:#?}");
}

/// In a terminal, or read aloud, README has no picture: what that shows stands there in five lines, too.
#[test]
fn what_the_readme_shows_in_words_is_in_the_recording() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let lines = drawn(&fs::read_to_string(root.join("docs/recording.svg")).unwrap());
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let shown = readme.split_once("```text\n").and_then(|(_, rest)| rest.split_once("```")).unwrap().0;
    assert_eq!(shown.lines().count(), 5, "{shown}");
    let mut recorded = lines.iter();
    for line in shown.lines() {
        assert!(recorded.any(|recorded| recorded.starts_with(line)), "not in docs/recording.svg, or not there: {line}");
    }
}
