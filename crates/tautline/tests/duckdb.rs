//! The statements of docs/duckdb.md, run by the real DuckDB on lines that were just written.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Serve, skip, taut, text, tools};

const TEST: &str = "the_statements_of_the_page_say_what_the_lines_say";
const VERSION: &str = "1.4.1";

/// Runs each file that is named, and prints columns and rows of each as a line of JSON.
const SCRIPT: &str = r#"
import duckdb, json, sys
database = duckdb.connect()
for name in sys.argv[1:]:
    answer = database.execute(open(name).read())
    columns = [column[0] for column in answer.description or []]
    rows = [dict(zip(columns, row)) for row in answer.fetchall()] if columns else []
    print(json.dumps({"columns": columns, "rows": rows}, default=str))
"#;

/// A Python that has DuckDB, in the user's cache; made where it is not there. `None`, and the test counted as skipped,
/// where that can't be.
fn python() -> Option<PathBuf> {
    let place = tools().join(format!("duckdb-{VERSION}"));
    let python = place.join("bin/python");
    let has_it = || {
        let ask = format!("import duckdb; assert duckdb.__version__ == '{VERSION}'");
        let mut command = Command::new(&python);
        command.args(["-c", &ask]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if has_it() {
        return Some(python);
    }
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(&place);
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:"]).arg(format!("duckdb=={VERSION}"));
    for (what, command) in [("no venv of Python", &mut make), ("no DuckDB from PyPI", &mut install)] {
        let why = match command.stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => continue,
            Ok(output) => {
                // What is missing, Python says on stdout.
                let said = text(&output.stdout) + &text(&output.stderr);
                said.trim().lines().last().unwrap_or("it says nothing").to_owned()
            }
            Err(error) => error.to_string(),
        };
        skip(TEST, &format!("{what}: {why}"));
        return None;
    }
    assert!(has_it(), "DuckDB {VERSION} was installed and is not there");
    Some(python)
}

/// The blocks of SQL of the page, by the headings that they stand under.
fn statements() -> Vec<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/duckdb.md");
    let page = fs::read_to_string(page).unwrap();
    let mut found: Vec<(String, String)> = Vec::new();
    let (mut heading, mut is_open) = ("", false);
    for line in page.lines() {
        match line {
            "```sql" => {
                is_open = true;
                found.push((heading.to_owned(), String::new()));
            }
            "```" => is_open = false,
            line if is_open => found.last_mut().unwrap().1.push_str(&format!("{line}\n")),
            line => heading = line.strip_prefix("## ").unwrap_or(heading),
        }
    }
    found
}

/// Lines of two paths, of which each loses its peer after some intervals.
fn write_lines(path: &Path) -> Vec<Value> {
    let mut server = Serve::start("tcp://127.0.0.1:0 udp://127.0.0.1:0");
    let mut child = taut()
        .arg("echo")
        .args(&server.endpoints)
        .args(["--place", "free", "--timeout", "200ms", "--every", "500ms", "--jsonl"])
        .arg(path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let wait_for = |count: usize| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while fs::read_to_string(path).map_or(0, |text| text.matches('\n').count()) < count {
            assert!(Instant::now() < deadline, "{} has not {count} lines", path.display());
            thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for(3);
    server.kill();
    wait_for(6);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Of a pair in an interval: messages, lost ones and the p99 in µs, infinite where it falls on a lost one.
struct One {
    pair: String,
    messages: u64,
    lost: u64,
    p99_us: Option<f64>,
    is_complete: bool,
}

fn rows_of(lines: &[Value]) -> Vec<One> {
    let rows = lines.iter().flat_map(|line| line["results"].as_array().unwrap());
    let one = |row: &Value| {
        let messages = row["messages"].as_u64().unwrap();
        let p99_us = row["rtt_ns"]["p99"].as_f64().map_or(f64::INFINITY, |ns| ns / 1e3);
        One {
            pair: row["endpoint"].as_str().unwrap().to_owned(),
            messages,
            lost: row["lost"].as_u64().unwrap(),
            p99_us: (messages > 0).then_some(p99_us),
            is_complete: row["complete"].as_bool().unwrap(),
        }
    };
    rows.map(one).collect()
}

/// Python writes what is infinite as `Infinity`, which is no JSON.
fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap())
}

#[test]
fn the_statements_of_the_page_say_what_the_lines_say() {
    let Some(python) = python() else { return };
    let directory = tempfile::tempdir().unwrap();
    let rows = rows_of(&write_lines(&directory.path().join("echo.jsonl")));
    assert!(rows.iter().any(|row| !row.is_complete) && rows.iter().any(|row| row.is_complete));

    let statements = statements();
    let names: Vec<String> = (0..statements.len()).map(|number| format!("{number}.sql")).collect();
    for (name, (_, sql)) in names.iter().zip(&statements) {
        fs::write(directory.path().join(name), sql).unwrap();
    }
    let output = Command::new(python).current_dir(&directory).args(["-c", SCRIPT]).args(&names).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout).replace("-Infinity", "\"-inf\"").replace("Infinity", "\"inf\"");
    let answers: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let headings: Vec<&str> = statements.iter().map(|(heading, _)| heading.as_str()).collect();
    let expected = [
        "A row for each pair and interval",
        "A percentile by hour",
        "The worst intervals",
        "Loss by pair",
        "When a pair was not measured",
    ];
    assert_eq!((headings.as_slice(), answers.len()), (&expected[..], expected.len()), "{printed}");
    let of = |number: usize| answers[number]["rows"].as_array().unwrap();

    // An hour may have begun meanwhile.
    let mut by_pair: BTreeMap<&str, Vec<&One>> = BTreeMap::new();
    rows.iter().for_each(|row| by_pair.entry(row.pair.as_str()).or_default().push(row));
    assert_eq!(by_pair.len(), 2);
    for (pair, rows) in &by_pair {
        let hours: Vec<&Value> = of(1).iter().filter(|row| row["pair"] == *pair).collect();
        let intervals: u64 = hours.iter().map(|row| row["intervals"].as_u64().unwrap()).sum();
        assert_eq!(intervals, rows.len() as u64, "{printed}");
        let worst = hours.iter().map(|row| number(&row["worst_p99_us"])).fold(0.0, f64::max);
        assert_eq!(worst, rows.iter().filter_map(|row| row.p99_us).fold(0.0, f64::max), "{printed}");
        let usual = number(&hours[0]["usual_p99_us"]);
        assert!(rows.iter().any(|row| row.p99_us == Some(usual)), "{usual} of {pair}: {printed}");

        let loss = of(3).iter().find(|row| row["pair"] == *pair).unwrap();
        let sums = [rows.iter().map(|row| row.messages).sum::<u64>(), rows.iter().map(|row| row.lost).sum()];
        assert_eq!([&loss["messages"], &loss["lost"]].map(number), sums.map(|sum| sum as f64), "{loss}");
        let percent = 100.0 * sums[1] as f64 / sums[0] as f64;
        assert!((number(&loss["lost_percent"]) - percent).abs() < 1e-9, "{loss}");
    }

    let mut worst: Vec<f64> = rows.iter().filter_map(|row| row.p99_us).collect();
    worst.sort_by(|a, b| b.total_cmp(a));
    worst.truncate(10);
    assert_eq!(of(2).iter().map(|row| number(&row["p99_us"])).collect::<Vec<_>>(), worst, "{printed}");
    assert_eq!(of(4).len(), rows.iter().filter(|row| !row.is_complete).count(), "{printed}");
    assert!(of(4).iter().any(|row| row["how"] == "peer_gone"), "{printed}");
}
