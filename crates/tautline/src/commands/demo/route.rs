use anyhow::Context;
use taut_record::{FigureUnit, PublishedRow, RouteRow, Row};
use taut_route::bench::Plan;
use taut_time::Duration;

use super::experiment::{Experiment, figure};
use super::published::published;
use crate::commands::route::bench::{self, Paths};

const ROUNDS: usize = 5;
/// What all of it is expected to take.
const ALL: Duration = Duration::from_secs(12);

pub(super) fn measure(experiment: &mut Experiment) -> anyhow::Result<()> {
    let there = published()?.route;
    let (sensor_core, route_core) = bench::cores();
    let (gap, timeout) = (Duration::from_micros(100), Duration::from_millis(20));
    let plan = Plan { events: 500, gap, timeout, sensor_core, route_core, fifo: None };
    let paths = Paths { sinks: &[1], others: 0, names: &[] };
    let command = format!("taut route bench --over udp --sinks 1 --others 0 --events 500 --rounds {ROUNDS}");
    let mut progress = experiment.progress("from a sensor to its sink", Duration::ZERO, ALL, ALL);
    let (rows, ended) = bench::udp_rows(&plan, &paths, Some(ROUNDS), &command, &experiment.interrupt, &mut progress)
        .context("the direct path takes root: sudo taut demo route")?;
    experiment.goes_on(ended);
    let routes: Vec<&RouteRow> =
        rows.iter().filter_map(|row| if let Row::Route(row) = row { Some(&**row) } else { None }).collect();
    let p50 = |row: &RouteRow| row.times().and_then(|times| times.p50.time()).map(|ns| ns as f64);
    let of = |path: &str| routes.iter().find(|row| row.path == path).and_then(|row| p50(row));
    let (naive, kept) = (of("naive"), of("kept-open"));
    let in_kernel = routes.iter().filter(|row| !["naive", "kept-open"].contains(&row.path.as_str()));
    let kernel = in_kernel.filter_map(|row| p50(row)).min_by(f64::total_cmp);
    let ratio = |one: Option<f64>| Some(one? / kept?.max(1.0));
    let (open_close, kept_there, kernel_there) =
        (there.open_close_us * 1e3, there.kept_open_us * 1e3, there.kernel_us * 1e3);
    experiment.published = Some(PublishedRow {
        experiment: "The direct path from a sensor to an output".to_owned(),
        there: there.there,
        here: "from a datagram's sending to the last notification between network namespaces, p50, the sensor's own sending \
               and receiving included"
            .to_owned(),
        figures: vec![
            figure("opened and closed for each event", FigureUnit::Ns, open_close, naive),
            figure("kept open", FigureUnit::Ns, kept_there, kept),
            figure("in the kernel (here the quickest of its places)", FigureUnit::Ns, kernel_there, kernel),
            figure("opened and closed, to kept open", FigureUnit::Number, open_close / kept_there, ratio(naive)),
            figure("in the kernel, to kept open", FigureUnit::Number, kernel_there / kept_there, ratio(kernel)),
        ],
        meaning: "What is saved is the wake-up of a thread and its system calls: the condition runs where the event arrives. \
                  The times are of two different things; the ratios can be compared."
            .to_owned(),
        command,
    });
    experiment.rows.extend(rows);
    Ok(())
}
