//! Routes: declared by the user, checked, and planned.

mod address;
mod file;
mod in_module;
mod line;
mod plan;
mod wish;

use std::collections::BTreeMap;
use std::path::PathBuf;

use taut_link::{Error, Result};

use crate::condition::{Field, Layout, MOST_OUTPUTS, Program, ProgramError};

pub use address::{SOURCES, Source, TARGETS, Target};
pub use file::{Declaration, SinkDeclaration, parse_file};
pub(crate) use in_module::module_spec;
pub use line::{Access, Bias, Edge, GpioEdges, GpioLine, InputEvents, Serial};
pub(crate) use plan::kernel_spec;
pub use plan::{Host, Plan};
pub use wish::Wish;

/// Most routes of one process.
pub const MOST_ROUTES: usize = 1000;
/// Most replies of a route in a second, unless the user says otherwise.
pub const MOST_REPLIES: u32 = 100_000;
/// Most sinks of one route.
pub const MOST_SINKS: usize = 64;

/// A route that has been checked: it can run, at least in user space.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name.
    pub name: String,
    /// Where events come from.
    pub source: Source,
    /// The condition as written.
    pub when: String,
    /// Condition and outputs.
    pub program: Program,
    /// Where what passes goes.
    pub sinks: Vec<Sink>,
    /// Where the user wants it to run.
    pub wish: Wish,
    /// A file to which events that pass are logged, as lines of JSON.
    pub log: Option<PathBuf>,
    /// Where `value` is.
    value: Field,
    /// The output with the source's `value`, for the log.
    pub logged: Option<usize>,
    /// Processor of its thread in user space.
    pub cpu: Option<usize>,
    /// SCHED_FIFO priority of its thread in user space.
    pub fifo: Option<u8>,
    /// Most replies a second.
    pub replies: u32,
}

/// A sink with what is sent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sink {
    /// Where.
    pub target: Target,
    /// The expression as written.
    pub send: Option<String>,
    /// The program's output that is sent; none for the payload as it came.
    pub output: Option<usize>,
}

impl Route {
    /// Checks a declaration.
    ///
    /// # Errors
    /// [`Error::Input`] says which part is wrong, and what could stand there.
    pub fn compile(declaration: &Declaration) -> Result<Self> {
        let name = declaration.name.clone();
        let wrong = |what: String| Error::Input(format!("route {name}: {what}"));
        let is_name = !name.is_empty()
            && name.len() <= 64
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if !is_name {
            return Err(Error::Input(format!(
                "`{name}` can't name a route: write up to 64 letters, digits, - _ and ."
            )));
        }
        let source: Source = declaration.from.parse().map_err(|error| wrong(format!("from: {error}")))?;
        let layout = layout(&source, &declaration.fields).map_err(|error| wrong(format!("fields: {error}")))?;
        if declaration.to.len() > MOST_SINKS {
            return Err(wrong(format!("{} sinks; at most {MOST_SINKS}", declaration.to.len())));
        }
        let mut texts: Vec<&str> = Vec::new();
        let mut output = |text| {
            // What is sent in several places is evaluated once: with the same memory it would give the same.
            let known = texts.iter().position(|known| *known == text);
            known.unwrap_or_else(|| {
                texts.push(text);
                texts.len() - 1
            })
        };
        let mut sinks = Vec::new();
        for sink in &declaration.to {
            let target: Target = sink.sink.parse().map_err(|error| wrong(format!("to: {error}")))?;
            if target == Target::Reply && !matches!(source, Source::Udp(_)) {
                return Err(wrong("to: `reply` answers datagrams; the source has to be udp://".to_owned()));
            }
            let forwards = sink.send.is_none() && source.has_datagrams() && target.takes_datagrams();
            let output = (!forwards).then(|| output(sink.send.as_deref().unwrap_or("value")));
            sinks.push(Sink { target, send: sink.send.clone(), output });
        }
        let parse = |texts: &[&str]| Program::parse(&declaration.when, texts, &layout);
        let mut program = parse(&texts).map_err(|error| match error {
            ProgramError::Output { index, error } => {
                let send = texts.get(index).copied().unwrap_or_default();
                wrong(format!("send `{send}`: {error}"))
            }
            ProgramError::TooManyOutputs(count) => {
                wrong(format!("{count} different expressions are sent or logged; at most {MOST_OUTPUTS}"))
            }
            error @ ProgramError::When(_) => wrong(error.to_string()),
        })?;
        // The log tells the value, unless that would make datagrams too short that are not.
        let value = layout.get("value").ok_or_else(|| wrong("there is no `value`".to_owned()))?;
        let has_value = !source.has_datagrams() || value.end() <= program.payload_bytes;
        let mut logged = None;
        if declaration.log.is_some() && has_value && texts.len() < MOST_OUTPUTS {
            logged = Some(texts.len());
            texts.push("value");
            program = parse(&texts).map_err(|error| wrong(error.to_string()))?;
        }
        Ok(Self {
            source,
            when: declaration.when.clone(),
            program,
            sinks,
            wish: declaration.place,
            log: declaration.log.clone(),
            logged,
            value,
            cpu: declaration.cpu,
            fifo: declaration.fifo,
            replies: declaration.replies.unwrap_or(MOST_REPLIES),
            name,
        })
    }

    /// Where `value` is in the bytes of an event.
    pub const fn value_field(&self) -> Field {
        self.value
    }

    /// Checks all declarations, and that they do not stand in each other's way.
    ///
    /// # Errors
    /// As [`compile`](Self::compile); and when two have one name or one source.
    pub fn compile_all(declarations: &[Declaration]) -> Result<Vec<Self>> {
        if declarations.is_empty() || declarations.len() > MOST_ROUTES {
            return Err(Error::Input(format!("{} routes; from 1 to {MOST_ROUTES}", declarations.len())));
        }
        let mut routes: Vec<Self> = Vec::new();
        let mut names = BTreeMap::new();
        let mut sources = BTreeMap::new();
        for declaration in declarations {
            let route = Self::compile(declaration)?;
            if names.insert(route.name.clone(), ()).is_some() {
                return Err(Error::Input(format!("two routes are named {}", route.name)));
            }
            let place = route.source.place();
            if let Some(other) = place.clone().and_then(|place| sources.insert(place, route.name.clone())) {
                let (name, place) = (&route.name, place.unwrap_or_default());
                let text =
                    format!("routes {other} and {name} both take from {place}: make them one with several sinks");
                return Err(Error::Input(text));
            }
            routes.push(route);
        }
        Ok(routes)
    }
}

fn layout(source: &Source, fields: &BTreeMap<String, String>) -> std::result::Result<Layout, String> {
    if !source.has_datagrams() && !fields.is_empty() {
        return Err(format!("{source} has a `value` and no other fields"));
    }
    let mut layout = source.layout();
    for (name, field) in fields {
        layout.declare(name, field.parse::<Field>()?)?;
    }
    Ok(layout)
}

#[cfg(test)]
mod tests;
