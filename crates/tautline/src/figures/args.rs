use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use taut_link::Error;
use taut_time::Duration;
use taut_web::Target;

use crate::input;

/// Where figures go: the same for every command that has intervals.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Figures")]
pub(crate) struct ExportArgs {
    /// Append one JSON object a line to this file for each interval; `-` is stdout
    #[arg(long, value_name = "FILE")]
    pub(crate) jsonl: Option<PathBuf>,
    /// Serve the figures so far under /metrics as Prometheus reads them, on this port of loopback, or at ADDRESS:PORT
    #[arg(long, value_name = "PORT", value_parser = address)]
    pub(crate) prometheus: Option<SocketAddr>,
    /// Send the figures so far to a receiver of OpenTelemetry after each interval (OTLP/HTTP in JSON, without TLS):
    /// http://HOST:4318, to which /v1/metrics is added, or with a path
    #[arg(long, value_name = "URL", value_parser = target)]
    pub(crate) otlp: Option<Target>,
}

impl ExportArgs {
    /// Whether JSON lines go to stdout, so that nothing else may.
    pub(crate) fn take_stdout(&self) -> bool {
        self.jsonl.as_ref().is_some_and(|path| path.as_os_str() == "-")
    }
}

/// For commands that measure: without end, interval by interval.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Figures")]
pub(crate) struct IntervalArgs {
    /// Measure on and on, in intervals of this length, from 500ms to 1h; each has new links
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub(crate) every: Option<Duration>,
    /// Stop after this time
    #[arg(long = "for", visible_alias = "duration", value_name = "TIME", requires = "every",
          value_parser = input::positive_duration)]
    pub(crate) length: Option<Duration>,
    #[command(flatten)]
    pub(crate) exports: ExportArgs,
}

impl IntervalArgs {
    /// How long an interval is, if there are any.
    ///
    /// # Errors
    /// What goes with intervals stands without them, or what goes without them with them: names of options, and whether
    /// they are given.
    pub(crate) fn interval(&self, not_with_intervals: &[(&str, bool)]) -> Result<Option<Duration>, Error> {
        let Some(every) = self.every else {
            let ExportArgs { jsonl, prometheus, otlp } = &self.exports;
            let given =
                [("--jsonl", jsonl.is_some()), ("--prometheus", prometheus.is_some()), ("--otlp", otlp.is_some())];
            return match given.into_iter().find(|(_, is_given)| *is_given) {
                Some((name, _)) => {
                    Err(Error::Input(format!("{name} tells of intervals: add --every, such as --every 10s")))
                }
                None => Ok(None),
            };
        };
        match not_with_intervals.iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => Err(Error::Input(format!("{name} is of a run with an end: leave it or --every out"))),
            None => Ok(Some(every)),
        }
    }
}

/// A length that an interval may have.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let time = input::duration(text)?;
    let is_possible = (Duration::from_millis(500)..=Duration::from_secs(3600)).contains(&time);
    if is_possible { Ok(time) } else { Err("an interval has from 500ms to 1h".to_owned()) }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse().map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    port.or_else(|_| text.parse()).map_err(|_| "a port, or ADDRESS:PORT (127.0.0.1:9465, [::1]:9465)".to_owned())
}

fn target(text: &str) -> Result<Target, String> {
    let target = text.parse::<Target>().map_err(|error| error.to_string())?;
    Ok(target.or_path("/v1/metrics"))
}
