//! What is started on a host for one measurement, and what its document says; the same however it gets there.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde_json::Value;
use taut_record::Ended;

use crate::figure::Measured;
use crate::reply::{cut, recording};
use crate::work::{Kind, Transport, Work};

/// Pairs of one work that are looked into, the worst ones.
pub(crate) const MOST_EXPLAINED: usize = 8;
/// How long a look takes.
pub(crate) const LOOK: Duration = Duration::from_secs(3);
/// Handshakes and time-outs of a measurement, beyond what it is meant to take.
pub(crate) const MARGIN: Duration = Duration::from_secs(10);

pub(crate) const NO_DOCUMENT: &str = "it printed no document";

/// Words after `taut` for a server that ends with its stdin.
pub(crate) fn server(transports: &[Transport], at: SocketAddr) -> Vec<String> {
    let endpoints = transports.iter().map(|transport| format!("{}://{at}", transport.name()));
    ["serve", "--json", "--while-stdin-open"].map(str::to_owned).into_iter().chain(endpoints).collect()
}

/// Where a server listens, as the one who asks writes it.
pub(crate) fn endpoint(transport: Transport, address: &str, port: u16) -> String {
    let name = transport.name();
    match address.parse::<IpAddr>() {
        Ok(address) => format!("{name}://{}", SocketAddr::new(address, port)),
        Err(_) => format!("{name}://{address}:{port}"),
    }
}

/// Words after `taut` that measure.
pub(crate) fn measure(work: &Work, endpoint: String) -> Vec<String> {
    let mut arguments = vec![work.kind.name().to_owned(), endpoint];
    let mut option = |text: String| arguments.push(text);
    match work.kind {
        Kind::Echo { messages, size, rate, timeout } => {
            option(format!("--count={messages}"));
            option(format!("--size={size}"));
            option(format!("--timeout={}us", timeout.as_micros().max(1)));
            rate.into_iter().for_each(|rate| option(format!("--rate={rate}")));
        }
        Kind::Stream { time } => option(format!("--time={}us", time.as_micros().max(1))),
    }
    ["--rounds=1", "--place=free", "--json"].into_iter().for_each(|text| option(text.to_owned()));
    arguments
}

/// Words after `taut` that look into a pair.
pub(crate) fn look(period: Duration, endpoint: String) -> Vec<String> {
    let (time, period) = (format!("--time={}s", LOOK.as_secs()), format!("--period={}us", period.as_micros()));
    let rest = ["--rounds=1", "--place=free", "--json"].map(str::to_owned);
    ["pace".to_owned(), endpoint, time, period].into_iter().chain(rest).collect()
}

/// What the document of a measurement says.
pub(crate) fn measured(document: &Value) -> Result<Measured, String> {
    let recording = recording(document)?;
    match &recording.ended {
        Ended::Complete => Measured::of(&recording),
        Ended::Interrupted => Err("it was interrupted over there".to_owned()),
        Ended::PeerGone(why) | Ended::Failed(why) => Err(cut(why)),
    }
}
