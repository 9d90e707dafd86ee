//! Routes as the user gives them: a file, or one of flags.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use taut_link::Error;
use taut_route::route::{Declaration, Route, SinkDeclaration, Wish, parse_file};

use crate::input;

/// Where a route is to run.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum PlaceArg {
    Auto,
    Kernel,
    XdpNative,
    XdpGeneric,
    Tc,
    #[value(name = "hardirq")]
    HardIrq,
    Kthread,
    User,
}

#[derive(Debug, clap::Args)]
pub(super) struct DeclareArgs {
    /// A file of routes (TOML); - reads stdin
    #[arg(value_name = "FILE", conflicts_with_all = ["from", "when", "to", "send", "field", "name", "place", "log", "cpu", "fifo", "replies"])]
    file: Option<PathBuf>,
    /// Where events come from
    #[arg(long, value_name = "SOURCE", required_unless_present = "file")]
    from: Option<String>,
    /// Whether an event passes
    #[arg(long, value_name = "CONDITION", default_value = "true")]
    when: String,
    /// Where what passes goes; repeat it for more sinks
    #[arg(long, value_name = "SINK")]
    to: Vec<String>,
    /// What is sent instead: once for all sinks, or as often as --to ("-" for the payload or value as it came)
    #[arg(long, value_name = "EXPRESSION", allow_hyphen_values = true)]
    send: Vec<String>,
    /// A field of the datagrams, such as level=u16be@2
    #[arg(long, value_name = "NAME=FORM@OFFSET")]
    field: Vec<String>,
    /// Name of the route
    #[arg(long, value_name = "NAME", default_value = "route")]
    name: String,
    /// Where it is to run; auto is the kernel where that can be and no packet filter is in use
    #[arg(long, value_name = "PLACE", default_value = "auto")]
    place: PlaceArg,
    /// Log events that pass, as lines of JSON; - is stdout
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Processor of the route's thread in user space
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// SCHED_FIFO priority of that thread
    #[arg(long, value_name = "1-99", value_parser = clap::value_parser!(u8).range(1..=99))]
    fifo: Option<u8>,
    /// Most replies a second; what would be more is lost [default: 100000]
    #[arg(long, value_name = "N")]
    replies: Option<u32>,
}

impl DeclareArgs {
    /// The file of routes.
    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The routes, checked.
    pub(super) fn routes(&self) -> anyhow::Result<Vec<Route>> {
        let declarations = match &self.file {
            Some(path) => {
                let text = if path.as_os_str() == "-" {
                    std::io::read_to_string(std::io::stdin()).context("read stdin")?
                } else {
                    input::text_of(path).map_err(|error| Error::Input(format!("read {}: {error}", path.display())))?
                };
                parse_file(&text).map_err(|error| Error::Input(format!("{}: {error}", path.display())))?
            }
            None => vec![self.declaration()?],
        };
        Ok(Route::compile_all(&declarations)?)
    }

    fn declaration(&self) -> anyhow::Result<Declaration> {
        let wrong = |text: String| anyhow::Error::from(Error::Input(text));
        let send = |index: usize| match self.send.as_slice() {
            [] => None,
            [one] => Some(one),
            many => many.get(index),
        };
        if self.send.len() > 1 && self.send.len() != self.to.len() {
            let (sends, sinks) = (self.send.len(), self.to.len());
            return Err(wrong(format!("{sends} times --send for {sinks} sinks: write it once, or once for each --to")));
        }
        let sink = |(index, sink): (usize, &String)| SinkDeclaration {
            sink: sink.clone(),
            send: send(index).filter(|send| *send != "-").cloned(),
        };
        let fields: Result<BTreeMap<String, String>, _> = self
            .field
            .iter()
            .map(|field| {
                let (name, form) = field
                    .split_once('=')
                    .ok_or_else(|| wrong(format!("--field {field}: write NAME=FORM@OFFSET, such as level=u16be@2")))?;
                Ok::<_, anyhow::Error>((name.to_owned(), form.to_owned()))
            })
            .collect();
        Ok(Declaration {
            name: self.name.clone(),
            from: self.from.clone().unwrap_or_default(),
            when: self.when.clone(),
            to: self.to.iter().enumerate().map(sink).collect(),
            fields: fields?,
            place: match self.place {
                PlaceArg::Auto => Wish::Auto,
                PlaceArg::Kernel => Wish::Kernel,
                PlaceArg::XdpNative => Wish::XdpNative,
                PlaceArg::XdpGeneric => Wish::XdpGeneric,
                PlaceArg::Tc => Wish::Tc,
                PlaceArg::HardIrq => Wish::HardIrq,
                PlaceArg::Kthread => Wish::Kthread,
                PlaceArg::User => Wish::User,
            },
            log: self.log.clone(),
            cpu: self.cpu,
            fifo: self.fifo,
            replies: self.replies,
        })
    }
}
