use std::fmt::Write;

use serde::Serialize;
use taut_link::Error;
use taut_route::condition::{Field, LONGEST_PAYLOAD, Verdict};
use taut_route::route::{Host, Plan, Route};

use super::declare::DeclareArgs;
use super::show;
use crate::exit::Code;
use crate::{input, output};

/// What would run where and why, and what each route lacks for the kernel; with --try, what it would do
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    declare: DeclareArgs,
    /// Runs the interpreter on an event: a number for `value`, or hex:BYTES of a datagram; with
    /// @TIME since the first event
    #[arg(long = "try", value_name = "EVENT[@TIME]", allow_hyphen_values = true)]
    tries: Vec<String>,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

/// A route, checked.
#[derive(Serialize)]
struct Checked {
    name: String,
    from: String,
    when: String,
    to: Vec<Sent>,
    /// Places that will be tried, the first one first.
    runs: Vec<&'static str>,
    device: Option<String>,
    why: Vec<String>,
    /// What it lacks for the kernel.
    lacks: Vec<String>,
    /// Bytes that an event needs for all fields.
    payload_bytes: usize,
    /// Words of memory of its filters.
    memory_words: u16,
    tries: Vec<Tried>,
}

#[derive(Serialize)]
struct Sent {
    sink: String,
    send: String,
}

/// What an event would do.
#[derive(Serialize)]
struct Tried {
    event: String,
    verdict: &'static str,
    /// What each sink would be sent; none for the payload as it came. Empty unless it passes.
    sent: Vec<Option<i64>>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Code> {
    let routes = args.declare.routes()?;
    let host = Host::ask();
    let mut checked = Vec::new();
    for route in &routes {
        checked.push(describe(route, host.plan(route), try_all(route, &args.tries)?));
    }
    if args.json {
        show::json("route check", &checked)?;
    } else {
        output::print(&text(&checked)?)?;
    }
    Ok(Code::Ok)
}

fn describe(route: &Route, plan: Plan, tries: Vec<Tried>) -> Checked {
    let module = plan.module.iter().map(|place| place.name());
    let mut runs: Vec<&'static str> = module.chain(plan.places.iter().map(|place| place.name())).collect();
    if runs.is_empty() {
        runs.push("user");
    }
    let to = route.sinks.iter().map(|sink| Sent {
        sink: sink.target.to_string(),
        send: match (&sink.send, sink.output) {
            (Some(send), _) => send.clone(),
            (None, Some(_)) => "value".to_owned(),
            (None, None) => "the payload as it came".to_owned(),
        },
    });
    Checked {
        name: route.name.clone(),
        from: route.source.to_string(),
        when: route.when.clone(),
        to: to.collect(),
        runs,
        device: (!plan.device.is_empty()).then_some(plan.device),
        why: plan.why,
        lacks: plan.lacks,
        payload_bytes: route.program.payload_bytes,
        memory_words: route.program.slots,
        tries,
    }
}

fn text(checked: &[Checked]) -> anyhow::Result<String> {
    let mut text = String::new();
    for one in checked {
        writeln!(text, "{}: {} when {}", one.name, one.from, one.when)?;
        for Sent { sink, send } in &one.to {
            writeln!(text, "  sends {send} to {sink}")?;
        }
        let device = one.device.as_ref().map_or_else(String::new, |device| format!(" on {device}"));
        writeln!(text, "  runs in {}{device}: {}", one.runs.join(", else "), one.why.join("; "))?;
        for lack in &one.lacks {
            writeln!(text, "  lacks for the kernel: {lack}")?;
        }
        for Tried { event, verdict, sent } in &one.tries {
            let sent: Vec<String> = sent
                .iter()
                .map(|value| value.map_or_else(|| "payload".to_owned(), |value| value.to_string()))
                .collect();
            writeln!(text, "  {event}: {verdict}{}{}", if sent.is_empty() { "" } else { ", sends " }, sent.join(", "))?;
        }
    }
    Ok(text)
}

fn try_all(route: &Route, events: &[String]) -> anyhow::Result<Vec<Tried>> {
    let (mut memory, mut outputs) = (route.program.memory(), Vec::new());
    let mut tried = Vec::new();
    for text in events {
        let (payload, at_ns) = event(route, text)?;
        let verdict = route.program.handle(&mut memory, at_ns, &payload, &mut outputs);
        let sent = match verdict {
            Verdict::Passed => route.sinks.iter().map(|sink| sink.output.map(|output| outputs[output])).collect(),
            Verdict::Short | Verdict::Dropped => Vec::new(),
        };
        let verdict = match verdict {
            Verdict::Short => "short",
            Verdict::Dropped => "dropped",
            Verdict::Passed => "passed",
        };
        tried.push(Tried { event: text.clone(), verdict, sent });
    }
    Ok(tried)
}

/// The bytes of an event and its time.
fn event(route: &Route, text: &str) -> anyhow::Result<(Vec<u8>, i64)> {
    let wrong = |why: &str| Error::Input(format!("--try {text}: {why}"));
    let (what, time) = text.split_once('@').unwrap_or((text, "0ns"));
    let time = input::duration(time).map_err(|error| wrong(&error))?;
    // Well after the beginning, as times of a clock are.
    let at_ns = 1_000_000_000 + i64::try_from(time.as_nanos()).unwrap_or(i64::MAX / 2);
    if let Some(hex) = what.strip_prefix("hex:") {
        let digits: Vec<u32> = hex
            .chars()
            .map(|digit| digit.to_digit(16).ok_or_else(|| wrong("write two hexadecimal digits for each byte")))
            .collect::<Result<_, _>>()?;
        if !digits.len().is_multiple_of(2) || digits.len() > 2 * LONGEST_PAYLOAD {
            return Err(wrong("write two hexadecimal digits for each byte, of one Ethernet frame at most").into());
        }
        return Ok((digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect(), at_ns));
    }
    let value: i64 = what.parse().map_err(|_| wrong("write a number for `value`, or hex:BYTES"))?;
    let field: Field = route.value_field();
    let mut payload = vec![0; route.program.payload_bytes.max(field.end())];
    field.write(&mut payload, value);
    Ok((payload, at_ns))
}
