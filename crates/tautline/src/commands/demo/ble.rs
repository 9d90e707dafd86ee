use taut_measure::air::{self, Excerpt};
use taut_record::{FigureUnit, PublishedRow, Row};
use taut_time::Duration;

use super::experiment::{Experiment, figure, figure_of_ours};
use super::published::published;
use crate::{findings, scenario};

/// Virtual time of each link.
const AIR_TIME: Duration = Duration::from_secs(30);
/// The published intervals: the first and the last two are named in the article.
const INTERVALS: [&str; 5] = ["112.5ms", "50ms", "25ms", "12.5ms", "7.5ms"];
/// What all of it is expected to take in real time.
const ALL: Duration = Duration::from_secs(5);

pub(super) fn measure(experiment: &mut Experiment) -> anyhow::Result<()> {
    let there = published()?.ble;
    let mut progress = experiment.progress("five connection intervals", Duration::ZERO, ALL, ALL);
    let mut rates: Vec<(&str, f64)> = Vec::new();
    for (done, ci) in INTERVALS.into_iter().enumerate() {
        progress(done, INTERVALS.len());
        let plan = scenario::plan(scenario::DEFAULT, &[("ci".to_owned(), ci.to_owned())], AIR_TIME, scenario::SEED)?;
        let mut excerpt = Excerpt::of(24);
        let mut outcome = air::run(&plan, &experiment.interrupt, &mut excerpt)?;
        // The published stutter is in the shortest interval: that one is drawn, and explained by what relieves it.
        if ci == "7.5ms" {
            outcome.row.excerpt = excerpt.finish();
            experiment.findings.extend(findings::of_air(&plan, &outcome, &experiment.interrupt));
        }
        let is_whole = experiment.goes_on(outcome.ended);
        if is_whole {
            rates.push((ci, outcome.row.throughput_bps));
        }
        experiment.rows.push(Row::Air(Box::new(outcome.row)));
        if !is_whole {
            break;
        }
    }
    let rate = |interval: &str| rates.iter().find(|(ci, _)| *ci == interval).map(|(_, bps)| *bps);
    let ratio = |interval: &str| Some(rate(interval)? / rate(INTERVALS[0])?.max(1.0));
    let published_bps = there.rate_at_7_5_ms_kbps * 1e3;
    let mut figures = vec![
        figure("throughput at an interval of 7.5 ms", FigureUnit::Bps, published_bps, rate("7.5ms")),
        figure("112.5 ms to 50 ms: how it grows", FigureUnit::Number, there.ratio_112_5_to_50, ratio("50ms")),
        figure("112.5 ms to 7.5 ms: how it grows", FigureUnit::Number, there.ratio_112_5_to_7_5, ratio("7.5ms")),
    ];
    // The proven changes, each by itself: what the model says that the article did not try.
    figures.extend(experiment.findings.iter().filter_map(|finding| {
        let proof = finding.proof.as_ref()?;
        let name = format!("7.5 ms with {} ({})", proof.change, finding.cause);
        Some(figure_of_ours(name, FigureUnit::Bps, None, Some(proof.after_bps)))
    }));
    experiment.published = Some(PublishedRow {
        experiment: "Throughput of Bluetooth LE".to_owned(),
        there: there.there,
        here: "a model of that link in virtual time (scenarios/paper-000.toml): nothing of it was on the air".to_owned(),
        figures,
        meaning: "A shorter interval gives more until the sender waits for credits, which come an interval late: then only more \
                  credits, or larger blocks, fill the air that is idle."
            .to_owned(),
        command: format!("taut air sweep {} --vary ci={} --time 60s", scenario::DEFAULT, INTERVALS.join(",")),
    });
    Ok(())
}
