//! A collector of OpenTelemetry: its own receiver and exporter, built from Go modules that are pinned.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use taut_record::stats::{ExponentialHistogram, SCALE};

use crate::support::{free_port, go, skip, wait_for_tcp};

/// A collector that writes what it takes to files; ended when dropped.
pub(crate) struct Collector {
    program: PathBuf,
    child: Option<Child>,
    port: u16,
    starts: usize,
    directory: tempfile::TempDir,
}

impl Collector {
    /// `None`, and the test counted as skipped, where it can't be built.
    pub(crate) fn start(test: &str) -> Option<Self> {
        let program =
            go::built("collector").map_err(|why| skip(test, &format!("no collector of OpenTelemetry: {why}"))).ok()?;
        let directory = tempfile::tempdir().unwrap();
        let mut collector = Self { program, child: None, port: free_port(), starts: 0, directory };
        collector.start_again();
        Some(collector)
    }

    /// Starts it at the same port, with another file.
    pub(crate) fn start_again(&mut self) {
        self.starts += 1;
        let settings = self.directory.path().join("settings.yaml");
        let file = self.file(self.starts);
        let text = format!(
            "receivers: {{otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:{}'}}}}}}}}\n\
             exporters: {{file: {{path: '{}', flush_interval: 50ms}}}}\n\
             service:\n  telemetry: {{metrics: {{level: none}}}}\n  \
             pipelines: {{metrics: {{receivers: [otlp], exporters: [file]}}}}\n",
            self.port,
            file.display()
        );
        fs::write(&settings, text).unwrap();
        let said = File::create(self.directory.path().join("said")).unwrap();
        let mut command = Command::new(&self.program);
        command.arg("--config").arg(&settings).stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        self.child = Some(command.spawn().unwrap());
        wait_for_tcp(([127, 0, 0, 1], self.port).into());
    }

    /// SIGTERM: it writes what it has taken.
    pub(crate) fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let status = child.wait().unwrap();
        let said = fs::read_to_string(self.directory.path().join("said")).unwrap();
        assert!(status.success(), "{status}: {said}");
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn file(&self, start: usize) -> PathBuf {
        self.directory.path().join(format!("taken-{start}"))
    }

    /// The requests that it has taken so far, of all its starts, as it has written them: whole lines.
    pub(crate) fn taken(&self) -> Vec<Value> {
        let mut taken = Vec::new();
        for start in 1..=self.starts {
            let text = fs::read_to_string(self.file(start)).unwrap_or_default();
            let whole = &text[..text.rfind('\n').map_or(0, |at| at + 1)];
            taken.extend(whole.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
        }
        taken
    }

    /// Waits until it has taken so many.
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Value> {
        let begin = Instant::now();
        loop {
            let taken = self.taken();
            if taken.len() >= count {
                return taken;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{} of {count} requests", taken.len());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// All metrics of that name in a request.
pub(crate) fn metrics<'a>(request: &'a Value, name: &str) -> Vec<&'a Value> {
    let each = |value: &'a Value, key: &str| value[key].as_array().into_iter().flatten();
    let scopes = each(request, "resourceMetrics").flat_map(|resource| each(resource, "scopeMetrics"));
    scopes.flat_map(|scope| each(scope, "metrics")).filter(|metric| metric["name"] == name).collect()
}

/// An attribute of a point.
pub(crate) fn attribute<'a>(point: &'a Value, key: &str) -> Option<&'a str> {
    let attributes = point["attributes"].as_array()?;
    attributes.iter().find(|one| one["key"] == key)?["value"]["stringValue"].as_str()
}

/// A point of an exponential histogram, as the collector has it.
#[derive(Debug, PartialEq)]
pub(crate) struct Histogram {
    pub(crate) count: u64,
    pub(crate) sum_s: f64,
    zeros: u64,
    scale: i64,
    offset: i64,
    buckets: Vec<u64>,
}

impl Histogram {
    /// What is 0 may be left out.
    pub(crate) fn of(point: &Value) -> Self {
        let whole = |value: &Value| match value {
            Value::Null => 0,
            Value::String(text) => text.parse().unwrap(),
            value => value.as_i64().unwrap_or_else(|| panic!("{value}")),
        };
        let positive = &point["positive"];
        let buckets = positive["bucketCounts"].as_array().into_iter().flatten();
        Self {
            count: whole(&point["count"]).cast_unsigned(),
            sum_s: point["sum"].as_f64().unwrap_or(0.0),
            zeros: whole(&point["zeroCount"]).cast_unsigned(),
            scale: whole(&point["scale"]),
            offset: whole(&positive["offset"]),
            buckets: buckets.map(|count| whole(count).cast_unsigned()).collect(),
        }
    }

    /// The time at that rank, in seconds: in the middle of its bucket, as far as a factor goes.
    pub(crate) fn quantile_s(&self, q: f64) -> f64 {
        // A product like 0.07 * 100 lies a hair above the whole number that it is.
        let rank = (q * self.count as f64 * (1.0 - 2.0 * f64::EPSILON)).ceil().max(1.0) as u64;
        let (mut below, base) = (self.zeros, 2_f64.powf(2_f64.powi(-(self.scale as i32))));
        if rank <= below {
            return 0.0;
        }
        for (number, count) in self.buckets.iter().enumerate() {
            below += count;
            if rank <= below {
                return base.powf((self.offset + number as i64) as f64 + 0.5);
            }
        }
        f64::INFINITY
    }

    /// Whether it has in each bucket what that one has.
    pub(crate) fn is(&self, exact: &ExponentialHistogram) -> bool {
        let last = self.offset + self.buckets.len() as i64;
        // OpenTelemetry gives a bucket the number of its lower bound, which is one less.
        let mine = |index: i32| {
            let number = i64::from(index) - 1;
            (self.offset..last).contains(&number).then(|| self.buckets[(number - self.offset) as usize])
        };
        let (all, each) = (self.zeros + self.buckets.iter().sum::<u64>(), exact.buckets());
        let sums = [self.zeros, self.count, all] == [exact.zeros(), exact.count(), exact.count()];
        sums && self.scale == i64::from(SCALE) && each.into_iter().all(|(index, count)| mine(index) == Some(count))
    }
}
