//! The file of pipes: TOML, with nothing unknown in it.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer, de};
use taut_link::tls::TlsFiles;
use taut_link::{Error, Result};
use taut_time::Duration;

use crate::address::Side;
use crate::framing::Framing;
use crate::plan::{Options, Plan};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    pipe: Vec<Declaration>,
}

/// A pipe as written. What is left out is as on the command line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Declaration {
    name: Option<String>,
    #[serde(deserialize_with = "side")]
    a: Side,
    #[serde(deserialize_with = "side")]
    b: Side,
    #[serde(default)]
    framing: Framing,
    clients: Option<usize>,
    children: Option<usize>,
    #[serde(default, deserialize_with = "retries")]
    retry: u32,
    #[serde(default, deserialize_with = "time")]
    connect_timeout: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    idle: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    time: Option<Duration>,
    #[serde(default, deserialize_with = "bytes")]
    rate: Option<u64>,
    #[serde(default, deserialize_with = "time")]
    linger: Option<Duration>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    ca: Option<PathBuf>,
}

/// Reads the pipes of a configuration.
///
/// # Errors
/// [`Error::Input`] with line and column, or with the name of a pipe that makes no sense.
pub fn parse(text: &str) -> Result<Vec<Plan>> {
    let file: File = toml::from_str(text).map_err(|error| Error::Input(error.to_string().trim_end().to_owned()))?;
    let plans: Vec<Plan> =
        file.pipe.into_iter().enumerate().map(|(index, declaration)| declaration.plan(index)).collect::<Result<_>>()?;
    if plans.is_empty() {
        return Err(Error::Input("there is no [[pipe]] in it".to_owned()));
    }
    for (index, plan) in plans.iter().enumerate() {
        if plans[..index].iter().any(|other| other.name == plan.name) {
            return Err(Error::Input(format!("two pipes have the name {}", plan.name)));
        }
    }
    Ok(plans)
}

impl Declaration {
    fn plan(self, index: usize) -> Result<Plan> {
        let defaults = Options::default();
        let name = self.name.unwrap_or_else(|| format!("pipe{}", index + 1));
        let clients = self.clients.unwrap_or(defaults.clients);
        let children = self.children.unwrap_or(defaults.children);
        for (key, number) in [("clients", clients), ("children", children)] {
            if !(1..=20_000).contains(&number) {
                return Err(Error::Input(format!("{name}: {key} is from 1 to 20000")));
            }
        }
        let options = Options {
            framing: self.framing,
            clients,
            children,
            once: false,
            retries: self.retry,
            connect_timeout: self.connect_timeout.unwrap_or(defaults.connect_timeout),
            idle: self.idle,
            time: self.time,
            rate: self.rate,
            linger: self.linger.unwrap_or(defaults.linger),
            tls: TlsFiles { cert: self.cert, key: self.key, ca: self.ca },
        };
        let plan = Plan { name, sides: [self.a, self.b], options };
        plan.check()?;
        Ok(plan)
    }
}

fn side<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Side, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let time =
        humantime::parse_duration(&text).ok().filter(|time| !time.is_zero() && *time < Duration::from_secs(31_536_000));
    time.map(Some).ok_or_else(|| {
        de::Error::custom(format!("`{text}`: write a time with its unit, such as \"500ms\", \"10s\" or \"2min\""))
    })
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let factor = match &text[digits..] {
        "" | "B" => Some(1),
        "K" | "k" | "KiB" => Some(1 << 10),
        "M" | "MiB" => Some(1 << 20),
        "kB" | "KB" => Some(1_000),
        "MB" => Some(1_000_000),
        _ => None,
    };
    let value = factor.and_then(|factor: u64| text[..digits].parse::<u64>().ok()?.checked_mul(factor));
    let value = value.filter(|value| (1..=1 << 40).contains(value));
    value.map(Some).ok_or_else(|| {
        de::Error::custom(format!("`{text}`: write bytes a second as \"64KiB\", \"1MiB\" or \"1000000\""))
    })
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Times {
    Number(u32),
    Word(String),
}

fn retries<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<u32, D::Error> {
    match Times::deserialize(deserializer)? {
        Times::Number(number) => Ok(number),
        Times::Word(word) if word == "forever" => Ok(u32::MAX),
        Times::Word(word) => Err(de::Error::custom(format!("`{word}`: a number, or \"forever\""))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = r#"
[[pipe]]
name = "web"
a = "listen:tcp://127.0.0.1:8080"
b = "l2cap://00:AA:01:00:00:2F/225"
clients = 20
retry = "forever"
idle = "5min"

[[pipe]]
a = "tty:/dev/ttyS0?baud=115200"
b = "udp://127.0.0.1:9"
framing = "line"
rate = "64KiB"
"#;

    #[test]
    fn pipes_are_read_with_their_defaults() {
        let plans = parse(GOOD).unwrap();
        assert_eq!((plans[0].name.as_str(), plans[1].name.as_str()), ("web", "pipe2"));
        assert_eq!((plans[0].options.clients, plans[0].options.retries), (20, u32::MAX));
        assert_eq!(plans[0].options.idle, Some(Duration::from_secs(300)));
        assert_eq!((plans[1].options.framing, plans[1].options.rate), (Framing::Line, Some(65_536)));
        assert_eq!(plans[1].options.linger, Options::default().linger);
    }

    #[test]
    fn nothing_unknown_or_senseless_is_taken() {
        for (text, hint) in [
            ("", "pipe"),
            ("pipe = []", "no [[pipe]]"),
            ("[[pipe]]\na = 'stdio:'", "missing field `b`"),
            ("[[pipe]]\na = 'stdio:'\nb = 'tcp://h:1'\nretries = 1", "unknown field"),
            ("[[pipe]]\na = 'stdio:'\nb = 'http://h:1'", "tcp://HOST:PORT"),
            ("[[pipe]]\na = 'stdio:'\nb = 'tcp://h:1'\nidle = '5'", "unit"),
            ("[[pipe]]\na = 'stdio:'\nb = 'tcp://h:1'\nrate = '0'", "bytes a second"),
            ("[[pipe]]\na = 'stdio:'\nb = 'tcp://h:1'\nretry = 'often'", "forever"),
            ("[[pipe]]\na = 'stdio:'\nb = 'tcp://h:1'\nframing = 'line'", "same kind"),
            ("[[pipe]]\na = 'stdio:'\nb = 'stdio:'", "only one end"),
            ("[[pipe]]\na = 'stdio:'\nb = 'tcp://h:1'\nclients = 0", "from 1"),
            ("[[pipe]]\na = 'listen:udp://h:1'\nb = 'exec:x'\nchildren = 0", "children is from 1"),
            (
                "[[pipe]]\nname='x'\na='exec:a'\nb='tcp://h:1'\n[[pipe]]\nname='x'\na='exec:a'\nb='tcp://h:1'",
                "two pipes",
            ),
        ] {
            let message = parse(text).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(message.contains(hint), "{text}: {message}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}") {
            let _ = (parse(&text), parse(&format!("[[pipe]]\na = 'exec:x'\nb = {text}")));
        }
    }
}
