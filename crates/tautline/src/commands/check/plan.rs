//! The file of a gate: TOML, with nothing unknown in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use taut_event::Direction;
use taut_link::Endpoint;
use toml::{Spanned, Value};

use crate::assertion::Assertion;
use crate::cause_limit::CauseLimit;
use crate::input;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    server: Option<Server>,
    workload: Option<BTreeMap<Spanned<String>, Value>>,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    findings: Findings,
    baseline: Option<Baseline>,
    trace: Option<Trace>,
    #[serde(default)]
    unknown: OnUnknown,
}

/// What is tested.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    #[serde(default)]
    pub(super) command: Vec<String>,
    /// It is ready when it has written a line with this in it; without it, when its endpoint takes a connection.
    pub(super) ready_line: Option<String>,
    #[serde(default = "patience", deserialize_with = "time")]
    pub(super) ready_within: Duration,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    #[serde(default, deserialize_with = "each")]
    assert: Vec<Assertion>,
    #[serde(default, deserialize_with = "bit_rate")]
    least_throughput: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Findings {
    #[serde(default, deserialize_with = "causes")]
    forbid: Vec<CauseLimit>,
    #[serde(default = "looking", deserialize_with = "time")]
    time: Duration,
}

impl Default for Findings {
    fn default() -> Self {
        Self { forbid: Vec::new(), time: looking() }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Baseline {
    file: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Trace {
    command: Vec<String>,
}

/// What a check that can't be told comes to.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(super) enum OnUnknown {
    #[default]
    Pass,
    Fail,
}

/// What a gate does.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) server: Option<Server>,
    pub(super) workload: Option<Workload>,
    pub(super) assert: Vec<Assertion>,
    /// Bits per second.
    pub(super) least_throughput: Option<f64>,
    pub(super) forbid: Vec<CauseLimit>,
    /// How long the causes are looked for.
    pub(super) looking: Duration,
    pub(super) baseline: Option<PathBuf>,
    pub(super) trace: Option<Vec<String>>,
    pub(super) unknown: OnUnknown,
}

/// A command that measures, and its options.
#[derive(Debug)]
pub(super) struct Workload {
    command: String,
    pub(super) endpoints: Vec<String>,
    options: Vec<(String, Value)>,
}

const WORKLOADS: [&str; 3] = ["echo", "pace", "stream"];
/// What the gate says itself.
const OWN: [(&str, &str); 5] = [
    ("assert", "write it under [limits]"),
    ("json", "leave it out"),
    ("html", "leave it out"),
    ("help", "leave it out"),
    ("every", "leave it out"),
];

impl Workload {
    pub(super) fn command(&self) -> &str {
        &self.command
    }

    /// The command line after `taut`, with the document on stdout.
    pub(super) fn line(&self) -> Vec<String> {
        let options = self.options.iter().flat_map(|(name, value)| option(name, value));
        [&self.command]
            .into_iter()
            .chain(&self.endpoints)
            .cloned()
            .chain(options)
            .chain(["--json".to_owned()])
            .collect()
    }

    /// The same for a look at who holds the data: one round of this time.
    pub(super) fn look_line(&self, time: Duration) -> Vec<String> {
        let kept = |name: &str| !["time", "rounds", "count", "perfetto"].contains(&name);
        let options = self.options.iter().filter(|(name, _)| kept(name)).flat_map(|(name, value)| option(name, value));
        let more = [format!("--time={}ms", time.as_millis()), "--rounds=1".to_owned(), "--json".to_owned()];
        [&self.command].into_iter().chain(&self.endpoints).cloned().chain(options).chain(more).collect()
    }

    /// The port of its first endpoint, if that is TCP: only that can be traced.
    pub(super) fn tcp_port(&self) -> Option<u16> {
        let endpoint: Endpoint = self.endpoints.first()?.parse().ok()?;
        matches!(endpoint, Endpoint::Tcp(_)).then(|| endpoint.to_string().rsplit(':').next()?.parse().ok())?
    }
}

/// As it stands on a command line; `false` is as if it were not there.
fn option(name: &str, value: &Value) -> Option<String> {
    Some(match value {
        Value::Boolean(true) => format!("--{name}"),
        Value::Boolean(false) => return None,
        value => format!("--{name}={}", scalars(value).join(",")),
    })
}

fn scalars(value: &Value) -> Vec<String> {
    match value {
        Value::Array(values) => values.iter().flat_map(scalars).collect(),
        Value::String(text) => vec![text.clone()],
        Value::Integer(number) => vec![number.to_string()],
        Value::Float(number) => vec![number.to_string()],
        Value::Boolean(on) => vec![on.to_string()],
        // Refused before.
        Value::Datetime(_) | Value::Table(_) => Vec::new(),
    }
}

/// Reads a file; what is wrong with it in words, with the line. `cli` is the whole of `taut`. A server named on the
/// command line stands for that in the file.
pub(super) fn parse(path: &Path, text: &str, server: &[String], cli: &clap::Command) -> Result<Plan, String> {
    let wrong = |why: String| format!("{}: {why}", path.display());
    let file: File = toml::from_str(text).map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
    let workload = file.workload.map(|table| workload(path, text, table, cli)).transpose()?;
    if workload.is_none() && file.trace.is_none() {
        return Err(wrong("there is neither a [workload] nor a [trace] in it".to_owned()));
    }
    if workload.is_none() && (!file.limits.assert.is_empty() || file.baseline.is_some()) {
        return Err(wrong("[limits] and [baseline] are about a [workload], and there is none".to_owned()));
    }
    if file.limits.least_throughput.is_some() && workload.as_ref().is_some_and(|one| one.command != "stream") {
        return Err(wrong("limits.least_throughput is about the workload stream".to_owned()));
    }
    if !file.limits.assert.is_empty() && workload.as_ref().is_some_and(|one| one.command == "stream") {
        return Err(wrong("limits.assert is about times of messages: for stream write least_throughput".to_owned()));
    }
    if file.trace.as_ref().is_some_and(|trace| trace.command.is_empty()) {
        return Err(wrong("trace.command is empty".to_owned()));
    }
    if file.trace.is_some() && workload.is_none() && file.findings.forbid.is_empty() {
        return Err(wrong("[trace] checks the causes of [findings] forbid, and there are none".to_owned()));
    }
    let checks_nothing = file.limits.assert.is_empty()
        && file.limits.least_throughput.is_none()
        && file.findings.forbid.is_empty()
        && file.baseline.is_none();
    if checks_nothing {
        return Err(wrong("it checks nothing: write [limits], [findings] or [baseline]".to_owned()));
    }
    let server = match (file.server, server) {
        (None, []) => None,
        (Some(server), []) if server.command.is_empty() => {
            return Err(wrong("server.command is missing, and there is none after -- either".to_owned()));
        }
        (server, []) => server,
        (Some(server), given) => Some(Server { command: given.to_vec(), ..server }),
        (None, given) => Some(Server { command: given.to_vec(), ready_line: None, ready_within: patience() }),
    };
    let needs_line = workload.as_ref().is_none_or(|one| !one.endpoints.first().is_some_and(|end| takes_a_call(end)));
    if needs_line && server.as_ref().is_some_and(|server| server.ready_line.is_none()) {
        let text = "server.ready_line is missing: only of tcp: and unix: endpoints can be told when they are ready";
        return Err(wrong(text.to_owned()));
    }
    Ok(Plan {
        server,
        workload,
        assert: file.limits.assert,
        least_throughput: file.limits.least_throughput,
        forbid: file.findings.forbid,
        looking: file.findings.time,
        baseline: file.baseline.map(|baseline| baseline.file),
        trace: file.trace.map(|trace| trace.command),
        unknown: file.unknown,
    })
}

fn takes_a_call(endpoint: &str) -> bool {
    matches!(endpoint.parse(), Ok(Endpoint::Tcp(_) | Endpoint::Unix(_)))
}

fn workload(
    path: &Path,
    text: &str,
    table: BTreeMap<Spanned<String>, Value>,
    cli: &clap::Command,
) -> Result<Workload, String> {
    let mut table: Vec<(Spanned<String>, Value)> = table.into_iter().collect();
    table.sort_by_key(|(name, _)| name.span().start);
    let line_of = |name: &Spanned<String>| text[..name.span().start].matches('\n').count() + 1;
    let at = |name: &Spanned<String>, why: &str| {
        format!("{}: line {}: workload.{}: {why}", path.display(), line_of(name), name.get_ref())
    };
    let mut workload = Workload { command: String::new(), endpoints: Vec::new(), options: Vec::new() };
    let mut options = Vec::new();
    for (name, value) in table {
        match name.get_ref().as_str() {
            "command" => match value.as_str().filter(|command| WORKLOADS.contains(command)) {
                Some(command) => command.clone_into(&mut workload.command),
                None => return Err(at(&name, "write echo, pace or stream")),
            },
            "endpoint" => match &value {
                Value::String(_) | Value::Array(_) => workload.endpoints = scalars(&value),
                _ => return Err(at(&name, "write an endpoint, or a list of them")),
            },
            _ => options.push((name, value)),
        }
    }
    if workload.command.is_empty() {
        return Err(format!("{}: workload.command is missing: echo, pace or stream", path.display()));
    }
    let known: Vec<String> = cli
        .find_subcommand(&workload.command)
        .into_iter()
        .flat_map(clap::Command::get_arguments)
        .flat_map(|argument| {
            // The names that it had before, too.
            argument.get_long().into_iter().chain(argument.get_all_aliases().unwrap_or_default())
        })
        .map(str::to_owned)
        .collect();
    for (name, value) in &options {
        let option = name.get_ref().replace('_', "-");
        if let Some((_, what)) = OWN.iter().find(|(own, _)| *own == option) {
            return Err(at(name, what));
        }
        if !known.contains(&option) {
            return Err(at(name, &format!("`taut {}` has no option --{option}", workload.command)));
        }
        if matches!(value, Value::Table(_) | Value::Datetime(_)) {
            return Err(at(name, "write a text, a number, true, false, or a list of them"));
        }
        workload.options.push((option, value.clone()));
    }
    let line = ["taut".to_owned()].into_iter().chain(workload.line());
    if let Err(error) = cli.clone().try_get_matches_from(line) {
        let said = error.to_string();
        // Up to the usage, which is another program's here: what is missing stands in lines of its own.
        let lines: Vec<&str> = said.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
        let first = lines.join(" ").trim_start_matches("error: ").to_owned();
        let named = options.iter().find(|(name, _)| first.contains(&format!("--{}", name.get_ref().replace('_', "-"))));
        return Err(
            named.map_or_else(|| format!("{}: workload: {first}", path.display()), |(name, _)| at(name, &first))
        );
    }
    Ok(workload)
}

const fn patience() -> Duration {
    Duration::from_secs(10)
}

const fn looking() -> Duration {
    Duration::from_secs(2)
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let time = input::positive_duration(&text).map_err(de::Error::custom)?;
    Ok(Duration::from_nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
}

fn each<'de, D: Deserializer<'de>, T: FromStr<Err = String>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(de::Error::custom)).collect()
}

/// `CAUSE=SHARE%`, or a cause alone, which may have 1 %.
fn causes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<CauseLimit>, D::Error> {
    let known = || {
        let mut known: Vec<&str> = taut_explain::trace::causes(Direction::Forward).collect();
        known.extend(
            taut_explain::trace::causes(Direction::Backward).filter(|cause| !known.contains(cause)).collect::<Vec<_>>(),
        );
        known
    };
    let parse = |text: &String| {
        let with_share = if text.contains('=') { text.clone() } else { format!("{text}=1%") };
        CauseLimit::parse(&with_share, known).map_err(de::Error::custom)
    };
    Vec::<String>::deserialize(deserializer)?.iter().map(parse).collect()
}

/// `100Mbit/s`, in bits per second.
fn bit_rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "bit/s" => 1.0,
        "kbit/s" => 1e3,
        "Mbit/s" => 1e6,
        "Gbit/s" => 1e9,
        _ => f64::NAN,
    };
    let rate = number.parse::<f64>().unwrap_or(f64::NAN) * factor;
    if rate > 0.0 && rate.is_finite() {
        return Ok(Some(rate));
    }
    Err(de::Error::custom(format!("`{text}`: write a rate such as 100Mbit/s (bit/s, kbit/s, Mbit/s, Gbit/s)")))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Plan, String> {
        parse(Path::new("a.toml"), text, &[], &crate::Cli::command())
    }

    const WHOLE: &str = "[server]\ncommand = ['./s']\n[workload]\ncommand = 'echo'\nendpoint = '127.0.0.1:7'\nplain = true\n\
        size = 64\nengine = ['poll', 'epoll']\ntime = '2s'\n[limits]\nassert = ['p50<5ms']\n[findings]\n\
        forbid = ['nagle_delayed_ack', 'loss=5%']\n";

    #[test]
    fn a_file_becomes_a_command_line() {
        let plan = read(WHOLE).unwrap();
        let workload = plan.workload.unwrap();
        let line = "echo 127.0.0.1:7 --plain --size=64 --engine=poll,epoll --time=2s --json";
        assert_eq!(workload.line().join(" "), line);
        let line = "echo 127.0.0.1:7 --plain --size=64 --engine=poll,epoll --time=500ms --rounds=1 --json";
        assert_eq!(workload.look_line(Duration::from_millis(500)).join(" "), line);
        assert_eq!(workload.tcp_port(), Some(7));
        assert_eq!(plan.forbid.iter().map(|one| one.share).collect::<Vec<_>>(), [0.01, 0.05]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let echo = "[workload]\ncommand = 'echo'\nendpoint = '127.0.0.1'\n";
        let limits = "[limits]\nassert = ['p50<5ms']\n";
        let cases = [
            (String::new(), "neither a [workload] nor a [trace]"),
            (echo.to_owned(), "it checks nothing"),
            (format!("{echo}siez = 3\n{limits}"), "line 4: workload.siez: `taut echo` has no option --siez"),
            (format!("{echo}size = 'big'\n{limits}"), "line 4: workload.size: "),
            (format!("{echo}assert = 'p50<1ms'\n{limits}"), "line 4: workload.assert: write it under [limits]"),
            (format!("{echo}size = {{ a = 1 }}\n{limits}"), "line 4: workload.size: write a text"),
            (
                format!("[workload]\ncommand = 'crowd'\n{limits}"),
                "line 2: workload.command: write echo, pace or stream",
            ),
            (format!("[workload]\nendpoint = 'x'\n{limits}"), "workload.command is missing"),
            (format!("[workload]\ncommand = 'echo'\n{limits}"), "not provided: <ENDPOINT>"),
            (format!("{echo}[limits]\nassert = ['p50<5']\n"), "`p50<5`"),
            (format!("{echo}[limit]\n"), "unknown field `limit`"),
            (format!("{echo}[findings]\nforbid = ['nagel']\n"), "`nagel` is no cause"),
            (format!("{echo}[limits]\nleast_throughput = '1Gbit/s'\n"), "about the workload stream"),
            (format!("[server]\ncommand = []\n{echo}{limits}"), "server.command is missing"),
            (
                format!(
                    "[server]\ncommand = ['s']\n{}{limits}",
                    echo.replace("127", "udp://127").replace("1'", "1:1'")
                ),
                "ready_line is missing",
            ),
            ("[trace]\ncommand = ['true']\n".to_owned(), "there are none"),
            ("[trace]\ncommand = []\n".to_owned(), "trace.command is empty"),
            ("x".to_owned(), "TOML parse error at line 1"),
        ];
        for (text, part) in cases {
            let told = read(&text).unwrap_err();
            assert!(told.starts_with("a.toml: ") && told.contains(part), "{text}: {told}");
        }
    }

    #[test]
    fn an_option_may_have_the_name_that_it_had_before() {
        for name in ["deadline", "exceed"] {
            let text = WHOLE.replace("size = 64", &format!("size = 64\n{name} = ['1ms', '5ms']"));
            let line = read(&text).unwrap().workload.unwrap().line().join(" ");
            assert!(line.contains(&format!("--{name}=1ms,5ms")), "{line}");
        }
    }

    #[test]
    fn a_throughput_has_its_unit() {
        let stream = |rate: &str| {
            format!("[workload]\ncommand = 'stream'\nendpoint = 'x'\n[limits]\nleast_throughput = '{rate}'\n")
        };
        assert_eq!(read(&stream("1.5Gbit/s")).unwrap().least_throughput, Some(1.5e9));
        for wrong in ["1", "Gbit/s", "-1Gbit/s", "0bit/s", "1GB/s", "infbit/s"] {
            assert!(read(&stream(wrong)).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,60}", at in 0..WHOLE.len()) {
            let _ = read(&text);
            let _ = read(&format!("{}{text}{}", &WHOLE[..at], &WHOLE[at..]));
        }
    }
}
