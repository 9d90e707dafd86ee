//! Round trips of 32 bytes through a broker and back to the same connection, by other clients than `taut`: frames that
//! are there before they are sent, over a bare socket, and the clients that programs in Rust use.
//!
//! `broker-clients CLIENT HOST:PORT MILLISECONDS` prints the median in nanoseconds and how many there were.

mod bare;
mod libraries;

use std::env;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Bytes of one message.
const SIZE: usize = 32;
/// Round trips before those that count.
const WARM_UP: u64 = 300;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [client, address, milliseconds] = &arguments[..] else { bail!("usage: CLIENT HOST:PORT MILLISECONDS") };
    let mut trips = Trips::new(Duration::from_millis(milliseconds.parse().context("MILLISECONDS is no number")?));
    match client.as_str() {
        "bare-mqtt" => bare::mqtt(address, &mut trips)?,
        "bare-nats" => bare::nats(address, &mut trips)?,
        "rumqttc" => libraries::rumqttc(address, &mut trips)?,
        "async-nats" => libraries::async_nats(address, &mut trips)?,
        other => bail!("no client {other}"),
    }
    let (median, count) = trips.median()?;
    println!("{median} {count}");
    Ok(())
}

/// One round trip after the other, until their time is over.
struct Trips {
    time: Duration,
    end: Option<Instant>,
    sequence: u64,
    began: Instant,
    took: Vec<u64>,
}

impl Trips {
    fn new(time: Duration) -> Self {
        Self { time, end: None, sequence: 0, began: Instant::now(), took: Vec::with_capacity(1 << 20) }
    }

    /// The payload of the next one, which begins now; `None` when there are enough.
    fn next(&mut self) -> Option<[u8; SIZE]> {
        let mut payload = [0xA5; SIZE];
        payload[..8].copy_from_slice(&self.sequence.to_be_bytes());
        self.began = Instant::now();
        if self.sequence == WARM_UP {
            self.end = Some(self.began + self.time);
        }
        self.end.is_none_or(|end| self.began < end).then_some(payload)
    }

    /// It is back.
    fn came(&mut self, payload: &[u8]) -> Result<()> {
        let took = self.began.elapsed();
        ensure!(payload.len() == SIZE && payload[..8] == self.sequence.to_be_bytes(), "another message came back");
        if self.sequence >= WARM_UP {
            self.took.push(u64::try_from(took.as_nanos())?);
        }
        self.sequence += 1;
        Ok(())
    }

    fn median(mut self) -> Result<(u64, usize)> {
        ensure!(!self.took.is_empty(), "no message came back in time");
        self.took.sort_unstable();
        Ok((self.took[self.took.len() / 2], self.took.len()))
    }
}
