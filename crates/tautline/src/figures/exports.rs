use anyhow::Context;
use taut_report::figures::{self, Family, Kind, Sample, Span, Unit, Value};
use taut_time::Duration;
use taut_web::{Page, Push, Pushed};

use super::args::ExportArgs;
use super::lines::Lines;

/// At the end, for what a receiver has not taken yet.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where figures go, opened.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    lines: Option<Lines>,
    page: Option<Page>,
    push: Option<Push>,
    is_failing: bool,
}

impl Exports {
    /// Opens all that is asked for, and says where it listens.
    pub(crate) fn open(args: &ExportArgs) -> anyhow::Result<Self> {
        let lines = args.jsonl.as_deref().map(Lines::open).transpose()?;
        let serve = |&address| {
            let forms = &[figures::TEXT, figures::PROTOBUF];
            let page = Page::serve(address, "/metrics", forms).with_context(|| format!("listen on {address}"))?;
            anstream::eprintln!("taut: metrics at http://{}/metrics", page.address());
            anyhow::Ok(page)
        };
        let page = args.prometheus.as_ref().map(serve).transpose()?;
        let push =
            |target: &taut_web::Target| Push::start(target.clone(), "application/json", figures::refused_by_otlp);
        let push = args.otlp.as_ref().map(push).transpose().context("start a thread")?;
        Ok(Self { lines, page, push, is_failing: false })
    }

    /// Writes the line of an interval.
    pub(crate) fn line(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.write(&line());
        }
    }

    /// Whether somebody may still want figures.
    pub(crate) fn are_wanted(&self) -> bool {
        self.page.is_some() || self.push.is_some() || !self.lines.as_ref().is_some_and(Lines::is_gone)
    }

    /// Lines that could not be written.
    pub(crate) fn lines_lost(&self) -> u64 {
        self.lines.as_ref().map_or(0, Lines::lost)
    }

    /// Hands on the sums after an interval; before the first one (`None`) to those alone who ask for them.
    pub(crate) fn sums(&mut self, mut families: Vec<Family<'_>>, span: Option<Span>) {
        let pushed = self.push.as_ref().map(Push::so_far);
        families.extend(self.losses(pushed.as_ref()));
        if let Some(page) = &self.page {
            page.renew(vec![figures::text(&families).into_bytes(), figures::protobuf(&families)]);
        }
        if let (Some(push), Some(span)) = (&self.push, span) {
            push.send(figures::otlp(&families, span).into_bytes());
        }
        if let Some(Pushed { failure, waiting, dropped, .. }) = pushed {
            // Once for each time that it begins.
            match (&failure, std::mem::replace(&mut self.is_failing, failure.is_some())) {
                (Some(why), false) => {
                    anstream::eprintln!("taut: --otlp: {why}; {waiting} intervals wait, {dropped} dropped so far");
                }
                (None, true) => anstream::eprintln!("taut: --otlp: taken again; {dropped} dropped so far"),
                _ => {}
            }
        }
    }

    /// What was to leave and did not.
    fn losses(&self, pushed: Option<&Pushed>) -> Option<Family<'static>> {
        let lines = self.lines.as_ref().map(|lines| ("jsonl", lines.lost()));
        let pushed = pushed.map(|pushed| ("otlp", pushed.dropped));
        let sample =
            |(to, lost): (&str, u64)| Sample { labels: vec![("to", to.to_owned())], value: Value::Number(lost as f64) };
        let samples: Vec<Sample<'_>> = lines.into_iter().chain(pushed).map(sample).collect();
        let help = "Intervals that could not be written, or that a receiver did not take.".to_owned();
        let family = Family { name: "lost_exports", help, kind: Kind::Counter, unit: Unit::Plain, samples };
        (!family.samples.is_empty()).then_some(family)
    }

    /// Waits a moment for a receiver, and says what is lost. Whether all has left.
    pub(crate) fn close(self) -> bool {
        let mut is_whole = true;
        let lost = self.lines_lost();
        if lost > 0 {
            let lines = if lost == 1 { "1 line" } else { &format!("{lost} lines") };
            anstream::eprintln!("taut: {lines} of --jsonl could not be written");
            is_whole = false;
        }
        if let Some(push) = self.push {
            let Pushed { taken, dropped, waiting, failure } = push.finish(PATIENCE);
            let lost = dropped + waiting as u64;
            if lost > 0 {
                let why = failure.map_or_else(String::new, |why| format!(": {why}"));
                anstream::eprintln!("taut: --otlp: {lost} of {} intervals were not taken{why}", taken + lost);
                is_whole = false;
            }
        }
        is_whole
    }
}
