//! What the repetitions of published experiments share.

use taut_explain::Finding;
use taut_link::Endpoint;
use taut_link::wire::Work;
use taut_measure::Interrupt;
use taut_measure::placement::{self, Spot};
use taut_record::{Ended, FigureUnit, PublishedFigure, PublishedRow, Row};
use taut_report::Document;
use taut_report::table::{self, Style};
use taut_time::Duration;

use crate::exit::Code;
use crate::kept::Kept;
use crate::output::{self, OutputArgs};
use crate::run::Run;

/// How a repetition is printed.
#[derive(Debug, clap::Args)]
pub(super) struct Output {
    #[command(flatten)]
    output: OutputArgs,
}

/// A repetition under way: what has been measured, and what of it stands beside what was published.
pub(super) struct Experiment {
    run: Run,
    pub(super) interrupt: Interrupt,
    pub(super) rows: Vec<Row>,
    pub(super) findings: Vec<Finding>,
    pub(super) kept: Kept,
    pub(super) published: Option<PublishedRow>,
    ended: Ended,
}

/// Measures, and prints both. A part that fails leaves what was measured before.
pub(super) fn run(
    command: &'static str,
    Output { output }: Output,
    measure: fn(&mut Experiment) -> anyhow::Result<()>,
) -> anyhow::Result<Code> {
    let run = Run::start(command)?;
    let mut experiment = Experiment {
        interrupt: run.interrupt.clone(),
        run,
        rows: Vec::new(),
        findings: Vec::new(),
        kept: Kept::default(),
        published: None,
        ended: Ended::Complete,
    };
    measure(&mut experiment)?;
    let Experiment { mut run, interrupt, mut rows, findings, kept, published, ended } = experiment;
    run.kept = kept;
    // Behind what it is made from: the events that were kept name their rows by number.
    rows.extend(published.map(|row| Row::Published(Box::new(row))));
    let ended = if interrupt.is_set() { Ended::Interrupted } else { ended };
    let document = Document::new(run.finish(ended, rows), findings);
    output.emit_as(&document, || {
        let style = output::style();
        table::published(&document, Style { width: Some(style.width.unwrap_or(WIDTH).min(WIDTH)), ..style })
    })
}

/// Columns that a line has at most.
const WIDTH: u16 = 100;

impl Experiment {
    /// How far the part is that is expected to take so long, after others.
    pub(super) fn progress(
        &self,
        what: &str,
        before: Duration,
        part: Duration,
        all: Duration,
    ) -> impl FnMut(usize, usize) + use<> {
        self.run.progress_in_time(what, before, part, all)
    }

    /// Notes how a part ended; false when no other is to follow.
    pub(super) fn goes_on(&mut self, ended: Ended) -> bool {
        if self.ended == Ended::Complete {
            self.ended = ended;
        }
        self.ended == Ended::Complete && !self.interrupt.is_set()
    }

    /// Where both ends run: on two processors, where they can be had.
    pub(super) fn apart(&self, endpoint: &Endpoint, work: Work) -> anyhow::Result<Spot> {
        let spots = placement::of_peers(None, None, &[endpoint], work, false, &self.interrupt)?;
        Ok(spots.into_iter().flatten().next_back().unwrap_or_default())
    }
}

/// A figure that was published, and ours.
pub(super) fn figure(
    figure: impl Into<String>,
    unit: FigureUnit,
    published: f64,
    here: Option<f64>,
) -> PublishedFigure {
    PublishedFigure { figure: figure.into(), unit, published: Some(published), published_in_words: None, here }
}

/// A figure that was not published, or in words only.
pub(super) fn figure_of_ours(
    figure: impl Into<String>,
    unit: FigureUnit,
    published: Option<&str>,
    here: Option<f64>,
) -> PublishedFigure {
    let published_in_words = published.map(ToOwned::to_owned);
    PublishedFigure { figure: figure.into(), unit, published: None, published_in_words, here }
}
