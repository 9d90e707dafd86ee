//! The file of routes: TOML, with nothing unknown in it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use taut_link::{Error, Result};

use super::wish::Wish;

/// A route as written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    /// Its name.
    pub name: String,
    /// The source.
    pub from: String,
    /// The condition.
    #[serde(default = "always")]
    pub when: String,
    /// The sinks.
    #[serde(default)]
    pub to: Vec<SinkDeclaration>,
    /// Names of fields, each with its form and offset.
    #[serde(default)]
    pub fields: BTreeMap<String, String>,
    /// Where it is to run.
    #[serde(default)]
    pub place: Wish,
    /// A file for events that pass.
    pub log: Option<PathBuf>,
    /// Processor of its thread in user space.
    pub cpu: Option<usize>,
    /// SCHED_FIFO priority of its thread in user space.
    pub fifo: Option<u8>,
    /// Most replies a second.
    pub replies: Option<u32>,
}

/// A sink as written: its address alone, or with what is sent.
#[derive(Clone, Debug)]
pub struct SinkDeclaration {
    /// The address.
    pub sink: String,
    /// The expression.
    pub send: Option<String>,
}

fn always() -> String {
    "true".to_owned()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    route: Vec<Declaration>,
}

/// Parses a file of routes.
///
/// # Errors
/// [`Error::Input`] with line and column.
pub fn parse_file(text: &str) -> Result<Vec<Declaration>> {
    let file: File = toml::from_str(text).map_err(|error| Error::Input(error.to_string().trim_end().to_owned()))?;
    Ok(file.route)
}

impl<'de> Deserialize<'de> for SinkDeclaration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            sink: String,
            send: Option<String>,
        }

        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = SinkDeclaration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sink, such as \"udp://10.0.0.2:9000\" or { sink = \"reply\", send = \"value * 2\" }")
            }

            fn visit_str<E>(self, text: &str) -> std::result::Result<SinkDeclaration, E> {
                Ok(SinkDeclaration { sink: text.to_owned(), send: None })
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> std::result::Result<SinkDeclaration, M::Error> {
                let Table { sink, send } = Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(SinkDeclaration { sink, send })
            }
        }

        deserializer.deserialize_any(Either)
    }
}
