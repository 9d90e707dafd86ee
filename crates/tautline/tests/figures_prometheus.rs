//! Figures read back out of the real Prometheus, and the rules and the dashboard for it.

mod figures_support;
mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use figures_support::{QUANTILES, known, near};
use serde_json::Value;
use support::{Serve, free_port, has, skip, taut, text, wait_for_tcp, words};
use taut_record::Ended;
use taut_record::stats::Quantile;
use taut_report::figures::{self, IntervalDocument, IntervalRow, IntervalSums, RowTimes};
use taut_web::Page;

/// A Prometheus of the test's own, in a directory of its own; ended when dropped.
struct Prometheus {
    child: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Prometheus {
    /// Scrapes that address twice a second; `None`, and the test counted as skipped, where there is none.
    fn start(test: &str, scraped: &str, native: bool) -> Option<Self> {
        if !has("prometheus") {
            skip(test, "prometheus is not installed");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let port = free_port();
        let path = directory.path().join("prometheus.yml");
        let configuration = format!(
            "global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}\n\
             scrape_configs: [{{job_name: taut, static_configs: [{{targets: ['{scraped}']}}]}}]\n"
        );
        std::fs::write(&path, configuration).unwrap();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", path.display()));
        command.arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        if native {
            command.arg("--enable-feature=native-histograms");
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let prometheus = Self { child, port, _directory: directory };
        wait_for_tcp(([127, 0, 0, 1], port).into());
        Some(prometheus)
    }

    /// The only value of an expression, once it has one. The busiest machine has its first scrape by then.
    fn value(&self, expression: &str) -> f64 {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(value) = self.try_value(expression) {
                return value;
            }
            assert!(Instant::now() < deadline, "no value of {expression}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn try_value(&self, expression: &str) -> Option<f64> {
        let url = format!("http://127.0.0.1:{}/api/v1/query", self.port);
        let mut answer = ureq::get(&url).query("query", expression).call().ok()?;
        let answer: Value = answer.body_mut().read_json().unwrap();
        let result = answer["data"]["result"].as_array()?;
        assert!(result.len() <= 1, "{answer:#}");
        // "+Inf" is a number to Rust as well.
        Some(result.first()?["value"][1].as_str()?.parse().unwrap())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn percentiles_read_back_are_the_recordings() {
    let test = "percentiles_read_back_are_the_recordings";
    let (known, sums) = known();
    let forms = &[figures::TEXT, figures::PROTOBUF];
    let page = Page::serve(([127, 0, 0, 1], 0).into(), "/metrics", forms).unwrap();
    let families = sums.families();
    page.renew(vec![figures::text(&families).into_bytes(), figures::protobuf(&families)]);
    let scraped = page.address().to_string();
    let Some(native) = Prometheus::start(test, &scraped, true) else { return };
    let Some(classic) = Prometheus::start(test, &scraped, false) else { return };
    for (endpoint, times) in &known {
        let of = format!("{{endpoint=\"{endpoint}\"}}");
        let count = native.value(&format!("histogram_count(taut_round_trip_seconds{of})"));
        assert_eq!(count as u64, times.messages(), "{endpoint}");
        assert_eq!(classic.value(&format!("taut_round_trip_seconds_count{of}")) as u64, times.messages(), "{endpoint}");
        for q in QUANTILES {
            let exact = times.quantile(q).map_or(0.0, Quantile::as_f64) / 1e9;
            let found = native.value(&format!("histogram_quantile({q}, taut_round_trip_seconds{of})"));
            assert!(near(found, exact, 0.011), "{endpoint} {q}: {found} for {exact}");
            println!("{endpoint} {q}: {found:.6e} s for {exact:.6e} s, {:+.2} %", 100.0 * (found / exact - 1.0));
            // Of few buckets it is as coarse as these, and what is lost lies at the last bound.
            let found = classic.value(&format!("histogram_quantile({q}, taut_round_trip_seconds_bucket{of})"));
            assert!(near(found, exact.min(64.0), 0.42), "{endpoint} {q}: {found} for {exact}");
            if [0.5, 0.9, 0.99, 0.999].contains(&q) {
                let gauge = format!("taut_last_round_trip_seconds{{endpoint=\"{endpoint}\",quantile=\"{q}\"}}");
                for prometheus in [&native, &classic] {
                    let found = prometheus.value(&gauge);
                    assert!(near(found, exact, 1e-9), "{gauge}: {found} for {exact}");
                }
            }
        }
        let sum = native.value(&format!("histogram_sum(taut_round_trip_seconds{of})"));
        let mean = times.mean().unwrap() as f64 / 1e9;
        assert!(near(sum / times.count() as f64, mean, 0.001), "{endpoint}: {sum}");
    }
    // Two endpoints added up are what both together are.
    let mut both = known[0].1.clone();
    both.add(&known[1].1);
    let found = native
        .value("histogram_quantile(0.5, sum(taut_round_trip_seconds{endpoint=~\"tcp://fast:9100|mqtt://broker/x\"}))");
    // Half of all messages: at the edge between the two.
    let exact = both.quantile(0.5).unwrap().as_f64() / 1e9;
    assert!(near(found, exact, 0.011), "{found} for {exact}");
}

/// The program itself, from its measurement to the query.
#[test]
fn taut_echo_is_scraped_and_its_first_line_read_back() {
    let test = "taut_echo_is_scraped_and_its_first_line_read_back";
    if !has("prometheus") {
        return skip(test, "prometheus is not installed");
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lines");
    let (server, port) = (Serve::start("tcp://127.0.0.1:0"), free_port());
    // What is served for three seconds is of the first interval alone, and is scraped by then.
    let prometheus = Prometheus::start(test, &format!("127.0.0.1:{port}"), true).unwrap();
    let line = format!(
        "echo {} --rate 500 --place free --every 3s --prometheus {port} --jsonl {}",
        server.endpoint(0),
        file.display()
    );
    let mut child = taut().args(words(&line)).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    for metric in ["taut_round_trip_seconds", "taut_response_seconds"] {
        let of_first = |expression: &str| {
            // At whatever time this is asked, it is of the scrape in which one interval was there.
            let range = format!("(({expression}) and on() (taut_intervals_total == 1))");
            prometheus.value(&format!("last_over_time({range}[30s:500ms])"))
        };
        let found: Vec<f64> = [0.5, 0.99].map(|q| of_first(&format!("histogram_quantile({q}, {metric})"))).to_vec();
        let lines = std::fs::read_to_string(&file).unwrap();
        let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        let key = if metric.contains("response") { "response_ns" } else { "rtt_ns" };
        let row = &first["results"][0][key];
        assert!(row["count"].as_u64().unwrap() > 500, "{first:#}");
        for (found, exact) in found.iter().zip([&row["p50"], &row["p99"]]) {
            let exact = exact.as_u64().map_or(f64::INFINITY, |nanos| nanos as f64 / 1e9);
            assert!(near(*found, exact, 0.011), "{metric}: {found} for {exact}");
        }
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
}

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

fn promtool(arguments: &[&str], directory: &Path) -> (bool, String) {
    let output = Command::new("promtool").args(arguments).current_dir(directory).output().unwrap();
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

/// Names of our figures in an expression.
fn names(expression: &str) -> Vec<&str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("taut_")).collect()
}

#[test]
fn rules_are_what_promtool_takes_and_each_stands_where_it_must_and_nowhere_else() {
    if !has("promtool") {
        return skip("rules_are_what_promtool_takes", "promtool (of the package prometheus) is not installed");
    }
    let directory = tempfile::tempdir().unwrap();
    let rules = packaging().join("prometheus/taut.rules.yml");
    std::fs::copy(&rules, directory.path().join("rules.yml")).unwrap();
    let (is_fine, told) = promtool(&["check", "rules", "rules.yml"], directory.path());
    assert!(is_fine && told.contains("7 rules found"), "{told}");
    // Of each a series for which it stands, and a twin for which it does not.
    let cases = r#"
rule_files: [rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'up{job="taut",instance="gone"}', values: '0x40'}
      - {series: 'up{job="taut",instance="there"}', values: '1x40'}
      - {series: 'taut_messages_total{endpoint="lossy"}', values: '0+1000x40'}
      - {series: 'taut_lost_messages_total{endpoint="lossy"}', values: '0+20x40'}
      - {series: 'taut_messages_total{endpoint="fine"}', values: '0+1000x40'}
      - {series: 'taut_lost_messages_total{endpoint="fine"}', values: '0+5x40'}
      - {series: 'taut_messages_total{endpoint="idle"}', values: '7x40'}
      - {series: 'taut_lost_messages_total{endpoint="idle"}', values: '7x40'}
      - {series: 'taut_unfinished_intervals_total{endpoint="away"}', values: '0+1x40'}
      - {series: 'taut_unfinished_intervals_total{endpoint="here"}', values: '3x40'}
      - {series: 'taut_last_round_trip_seconds{endpoint="slow",quantile="0.99"}', values: '0.001x25 0.005x15'}
      - {series: 'taut_last_round_trip_seconds{endpoint="as usual",quantile="0.99"}', values: '0.005x40'}
      - {series: 'taut_last_round_trip_seconds{endpoint="lossy",quantile="0.99"}', values: '0.001x25 Inf Inf Inf Inf Inf Inf Inf Inf Inf Inf Inf Inf Inf Inf Inf'}
      - {series: 'taut_lost_exports_total{instance="a",to="otlp"}', values: '0+1x40'}
      - {series: 'taut_lost_exports_total{instance="a",to="jsonl"}', values: '2x40'}
      - {series: 'taut_route_lost_total{route="loses"}', values: '0+1x40'}
      - {series: 'taut_route_lost_total{route="lost once"}', values: '9x40'}
      - {series: 'taut_worst_share{program="p",service="s",cause="unread"}', values: '0.5x40'}
      - {series: 'taut_worst_share{program="q",service="s",cause="unread"}', values: '0.1x40'}
    promql_expr_test:
      - expr: count by (alertname, endpoint, instance, to, program, route) (ALERTS{alertstate="firing"})
        eval_time: 40m
        exp_samples:
          - {labels: '{alertname="TautDown",instance="gone"}', value: 1}
          - {labels: '{alertname="TautLosesMessages",endpoint="lossy"}', value: 1}
          - {labels: '{alertname="TautPeerAway",endpoint="away"}', value: 1}
          - {labels: '{alertname="TautSlow",endpoint="slow"}', value: 1}
          - {labels: '{alertname="TautExportsLost",instance="a",to="otlp"}', value: 1}
          - {labels: '{alertname="TautRouteLoses",route="loses"}', value: 1}
          - {labels: '{alertname="TautConnectionsLoseTime",program="p"}', value: 1}
"#;
    std::fs::write(directory.path().join("cases.yml"), cases).unwrap();
    let (is_fine, told) = promtool(&["test", "rules", "cases.yml"], directory.path());
    assert!(is_fine, "{told}");
}

#[test]
fn the_dashboard_asks_for_what_there_is_in_words_that_prometheus_takes() {
    if !has("promtool") {
        return skip("the_dashboard_asks_for_what_there_is", "promtool (of the package prometheus) is not installed");
    }
    let dashboard = std::fs::read_to_string(packaging().join("grafana/taut.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let expressions: Vec<String> = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap())
        .map(|target| target["expr"].as_str().unwrap())
        .map(|expression| expression.replace("$__rate_interval", "1m").replace("$endpoint", ".*"))
        .collect();
    assert!(expressions.len() >= panels.len() && panels.len() >= 7, "{expressions:?}");
    let directory = tempfile::tempdir().unwrap();
    let rules: Vec<Value> = expressions
        .iter()
        .enumerate()
        .map(|(number, expression)| serde_json::json!({ "record": format!("panel:{number}"), "expr": expression }))
        .collect();
    // JSON is YAML.
    let rules = serde_json::json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    std::fs::write(directory.path().join("rules.yml"), rules.to_string()).unwrap();
    let (is_fine, told) = promtool(&["check", "rules", "rules.yml"], directory.path());
    assert!(is_fine, "{told}");

    // Both files ask for nothing that no command serves.
    let (known, sums) = known();
    let mut served: BTreeSet<String> = BTreeSet::new();
    let mut note = |text: &str| {
        served
            .extend(text.lines().filter_map(|line| Some(line.strip_prefix("# TYPE ")?.split(' ').next()?.to_owned())));
    };
    note(&figures::text(&sums.families()));
    let mut others = IntervalSums::since(0);
    let all = Some(&known[0].1);
    let row = IntervalRow {
        response_ns: known[0].1.summary(),
        delivery_ns: known[0].1.summary(),
        bytes: Some(1),
        lost_bytes: Some(1),
        throughput_bps: Some(1.0),
        ..IntervalRow::default()
    };
    let document = IntervalDocument {
        format_version: taut_record::FORMAT_VERSION,
        command: "pace".to_owned(),
        interval: 0,
        began_unix_ns: 0,
        duration_ns: 1,
        ended: Ended::Complete,
        lines_lost: 0,
        results: vec![row],
    };
    others.add(&document, &[RowTimes { round_trip: None, response: all, delivery: all }]);
    note(&figures::text(&others.families()));
    note(&figures::text(&taut_report::WatchMetrics::default().families()));
    note(&figures::text(&figures::route_families(&[])));
    served.insert("taut_lost_exports_total".to_owned());
    let rules = std::fs::read_to_string(packaging().join("prometheus/taut.rules.yml")).unwrap();
    let asked =
        rules.lines().filter(|line| !line.trim_start().starts_with('#')).chain(expressions.iter().map(String::as_str));
    let mut count = 0;
    for name in asked.flat_map(names) {
        assert!(served.contains(name), "{name} is in none of {served:?}");
        count += 1;
    }
    assert!(count > 15);
}

/// Each panel, query and unit is one of Grafana's own schema, and nothing is in it that it does not know.
#[test]
fn the_dashboard_is_what_grafana_s_own_schema_takes() {
    let program = match support::go::built("dashboard") {
        Ok(program) => program,
        Err(why) => return skip("the_dashboard_is_what_grafana_s_own_schema_takes", &why),
    };
    let read = |file: &Path| {
        let output = Command::new(&program).arg(file).output().unwrap();
        (output.status.success(), text(&output.stderr))
    };
    let file = packaging().join("grafana/taut.json");
    let (is_fine, said) = read(&file);
    assert!(is_fine, "{said}");
    // It would say so.
    let directory = tempfile::tempdir().unwrap();
    let wrong = directory.path().join("wrong.json");
    std::fs::write(&wrong, std::fs::read_to_string(&file).unwrap().replace("\"expr\"", "\"exprr\"")).unwrap();
    let (is_fine, said) = read(&wrong);
    assert!(!is_fine && said.contains("unexpected field 'exprr'"), "{said}");
}
