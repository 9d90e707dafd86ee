//! Programs at both ends of a path, and who held their data by the kernel's own state.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use taut_event::Holder;
use taut_link::{Link, SocketOption, TcpInfo};

use super::{Conditions, Path, RECEIVER, before_others};
use crate::support;

const PORT: u16 = 9;
const TIME: Duration = Duration::from_secs(2);

/// What the receiving program does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    Fast,
    /// Sleeps before each read of 16 KiB.
    Slow(Duration),
    /// Sleeps each time it has read so many bytes.
    Pausing(usize, Duration),
    /// Answers requests of so many bytes with so many, after thinking.
    Answering(usize, usize, Duration),
}

/// What the sending program does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sender {
    Bulk,
    /// A request in two writes; waits for the answer; pauses.
    TwoWrites(usize, usize),
    /// A request in one write; waits for the answer; pauses.
    Requests(usize, usize),
    /// Writes at a period.
    Periodic(usize, Duration),
    /// So many bytes, and the end.
    Once(usize),
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// One connection: its path, its programs and their sockets' options.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    pub(crate) conditions: Conditions,
    /// Of the sender's socket, between commas; Nagle's algorithm is on unless they say otherwise.
    pub(crate) options: String,
    /// The sender's; the kernel's own choice, unless given.
    pub(crate) congestion_control: Option<&'static str>,
    /// Whether the congestion window starts anew after a pause (`tcp_slow_start_after_idle`), as it does unless told.
    pub(crate) starts_anew: bool,
    pub(crate) receive_buffer: Option<usize>,
    pub(crate) sender: Sender,
    pub(crate) reader: Reader,
}

impl Traffic {
    /// Runs it: the sender's state in the kernel, and the captures at the sender and at the receiver.
    pub(crate) fn run(&self) -> Result<(Vec<Sample>, [Vec<u8>; 2]), String> {
        let path = Path::start(&self.conditions)?;
        Ok((self.run_over(&path), path.finish()))
    }

    /// The same over a router, behind which there is another way: the captures at the sender, on both sides of the
    /// router, and at the receiver.
    pub(crate) fn run_routed(&self, behind: &Conditions) -> Result<(Vec<Sample>, Vec<Vec<u8>>), String> {
        let path = Path::start_routed(&self.conditions, behind)?;
        Ok((self.run_over(&path), path.finish_all()))
    }

    fn run_over(&self, path: &Path) -> Vec<Sample> {
        let (reader, buffer, this) = (self.reader, self.receive_buffer, self.clone());
        let receiver = path.spawn(1, move || serve(reader, buffer));
        let samples = path.spawn(0, move || this.send()).join().unwrap();
        receiver.join().unwrap();
        samples
    }

    fn nodelay(&self) -> bool {
        self.options.contains("nodelay=on")
    }
}

pub(crate) type Sample = (Instant, TcpInfo);

fn serve(reader: Reader, receive_buffer: Option<usize>) {
    before_others();
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true).unwrap();
    if let Some(bytes) = receive_buffer {
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, bytes).unwrap();
    }
    let address: std::net::SocketAddrV4 = format!("0.0.0.0:{PORT}").parse().unwrap();
    rustix::net::bind(&socket, &address).unwrap();
    rustix::net::listen(&socket, 1).unwrap();
    let (mut stream, _) = TcpListener::from(socket).accept().unwrap();
    let mut buffer = vec![0; 256 << 10];
    let mut total = 0;
    loop {
        let most = if let Reader::Slow(pause) = reader {
            thread::sleep(pause);
            16 << 10
        } else {
            buffer.len()
        };
        let Ok(read @ 1..) = stream.read(&mut buffer[..most]) else { return };
        let before = total;
        total += read;
        match reader {
            Reader::Pausing(each, pause) if before / each != total / each => thread::sleep(pause),
            Reader::Answering(request, answer, think) if before / request != total / request => {
                thread::sleep(think);
                stream.write_all(&vec![b'r'; answer]).unwrap();
            }
            _ => {}
        }
    }
}

impl Traffic {
    /// Sends for a while, with the kernel's state meanwhile.
    fn send(&self) -> Vec<Sample> {
        before_others();
        // One that had another at its connect is paced ever after.
        std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno").unwrap();
        std::fs::write("/proc/sys/net/ipv4/tcp_slow_start_after_idle", u8::from(self.starts_anew).to_string()).unwrap();
        let endpoint = format!("tcp://{RECEIVER}:{PORT}").parse().unwrap();
        let begin = Instant::now();
        let link = loop {
            match Link::connect(&endpoint, Duration::from_secs(5)) {
                Ok(link) => break link,
                Err(error) => assert!(begin.elapsed() < Duration::from_secs(10), "{error}"),
            }
            thread::sleep(ms(50));
        };
        let options = if self.options.is_empty() { "nodelay=off" } else { &self.options };
        let options: Vec<SocketOption> = options.split(',').map(|option| option.parse().unwrap()).collect();
        link.set_options(&options).unwrap();
        if let Some(name) = self.congestion_control {
            rustix::net::sockopt::set_tcp_congestion(&link, name).unwrap();
        }
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let sampler = scope.spawn(|| {
                let mut samples = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    samples.extend(link.tcp_info().map(|info| (Instant::now(), info)));
                    thread::sleep(ms(1));
                }
                samples
            });
            drive(&link, self.sender);
            let end = Instant::now() + Duration::from_secs(2);
            let is_busy = |info: TcpInfo| info.unacked_segments + info.unsent_bytes > 0;
            while Instant::now() < end && link.tcp_info().is_some_and(is_busy) {
                thread::sleep(ms(2));
            }
            stop.store(true, Ordering::Relaxed);
            sampler.join().unwrap()
        })
    }
}

fn drive(link: &Link, sender: Sender) {
    let (begin, block) = (Instant::now(), vec![b'x'; 64 << 10]);
    let mut answer = vec![0; 64 << 10];
    let mut turn = 0;
    while begin.elapsed() < TIME {
        match sender {
            Sender::Bulk => link.send_all(&block).unwrap(),
            Sender::Once(bytes) => return link.send_all(&vec![b'x'; bytes]).unwrap(),
            Sender::Periodic(bytes, period) => {
                link.send_all(&vec![b'x'; bytes]).unwrap();
                turn += 1;
                thread::sleep((begin + turn * period).saturating_duration_since(Instant::now()));
            }
            Sender::TwoWrites(bytes, back) => {
                link.send_all(&block[..40]).unwrap();
                link.send_all(&block[40..bytes]).unwrap();
                link.receive_exact(&mut answer[..back], "the answer").unwrap();
                thread::sleep(ms(20));
            }
            Sender::Requests(bytes, back) => {
                link.send_all(&block[..bytes]).unwrap();
                link.receive_exact(&mut answer[..back], "the answer").unwrap();
                thread::sleep(ms(10));
            }
        }
    }
}

pub(crate) type Shares = BTreeMap<&'static str, f64>;

fn shares(parts: impl Iterator<Item = (&'static str, f64)>) -> Shares {
    let mut shares = Shares::new();
    parts.for_each(|(group, seconds)| *shares.entry(group).or_default() += seconds);
    let whole: f64 = shares.values().sum();
    shares.values_mut().for_each(|share| *share /= whole);
    shares
}

/// Who held the data, by the kernel's own state.
pub(crate) fn truth(samples: &[Sample], traffic: &Traffic) -> Shares {
    let seconds = samples.windows(2).map(|pair| (pair[1].0 - pair[0].0).as_secs_f64());
    shares(holders(samples, traffic).into_iter().zip(seconds))
}

/// The same, between each two samples.
pub(crate) fn holders(samples: &[Sample], traffic: &Traffic) -> Vec<&'static str> {
    let is_bulk = matches!(traffic.sender, Sender::Bulk | Sender::Once(_));
    let nodelay = traffic.nodelay();
    let group = |before: &TcpInfo, now: &TcpInfo| {
        let in_flight = u64::from(now.unacked_segments) * u64::from(now.send_mss_bytes);
        // Recovery and Loss of `enum tcp_ca_state` (linux/tcp.h), or a probe of the tail on its way.
        let is_repairing = now.congestion_state >= 3 || now.repeated_segments > 0;
        if now.window_probes > 0 || now.receive_window_limited > before.receive_window_limited {
            "window"
        } else if is_repairing {
            "loss"
        } else if now.unsent_bytes == 0 {
            if is_bulk { "network" } else { "program" }
        } else if now.send_window_bytes.is_some_and(|window| in_flight + u64::from(now.send_mss_bytes) > window.into())
        {
            "window"
        } else if now.unacked_segments < now.congestion_window_segments
            && now.unsent_bytes < now.send_mss_bytes
            && !nodelay
        {
            "nagle"
        } else {
            "network"
        }
    };
    // What the kernel counts in ticks it counts late, so a window's time is that of the count, not of the sample.
    let mut parts: Vec<_> = samples
        .windows(2)
        .map(|pair| {
            let [(_, before), (_, now)] = pair else { unreachable!() };
            group(before, now)
        })
        .collect();
    // What a repetition waited for shows only once it leaves: since the last thing that happened before.
    for end in 1..samples.len() {
        let [before, now] = [&samples[end - 1].1, &samples[end].1];
        if now.retransmitted_segments > before.retransmitted_segments {
            let quiet = samples[..end].iter().rev().take_while(|(_, info)| {
                info.data_segments_out == before.data_segments_out && info.bytes_acked == before.bytes_acked
            });
            let begin = end - quiet.count();
            parts[begin..end].iter_mut().filter(|part| **part != "window").for_each(|part| *part = "loss");
        }
    }
    parts
}

pub(crate) fn said(direction: &Value) -> Shares {
    let held = direction["breakdown"].as_array().unwrap().iter().filter_map(|held| {
        let holder = Holder::ALL.into_iter().find(|holder| held["holder"] == holder.name()).unwrap();
        Some((group(holder)?, held["held_ns"].as_f64().unwrap()))
    });
    shares(held)
}

/// What the kernel's state tells of a holder; nothing of what is before the data and behind it.
pub(crate) fn group(holder: Holder) -> Option<&'static str> {
    Some(match holder {
        Holder::Handshake | Holder::Delivery => return None,
        Holder::SendingProgram | Holder::PeerTurn | Holder::Cork => "program",
        Holder::Nagle => "nagle",
        Holder::ReceiveWindow | Holder::ReceivingProgram => "window",
        Holder::LossRecovery | Holder::RetransmissionTimeout | Holder::TailLossProbe => "loss",
        Holder::NotKnown => "not known",
        _ => "network",
    })
}

pub(crate) fn explain(capture: &[u8]) -> Value {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(capture).unwrap();
    let document = support::run_json(&format!("explain {}", file.path().display()));
    let directions = document["files"][0]["worst"].as_array().unwrap();
    directions.iter().find(|direction| direction["to"] == receiver()).unwrap().clone()
}

/// As a direction has it.
pub(crate) fn receiver() -> String {
    format!("{RECEIVER}:{PORT}")
}

/// Keeps a capture in the directory `TAUT_KEEP`, where that is set.
pub(crate) fn keep(name: &str, capture: &[u8]) {
    if let Some(directory) = std::env::var_os("TAUT_KEEP") {
        std::fs::write(std::path::Path::new(&directory).join(format!("{name}.pcap")), capture).unwrap();
    }
}

pub(crate) fn in_words(shares: &Shares) -> String {
    let words: Vec<String> = shares.iter().map(|(group, share)| format!("{group} {:.0}", share * 100.0)).collect();
    words.join(" ")
}

/// The share of the time on which two agree.
pub(crate) fn alike(one: &Shares, other: &Shares) -> f64 {
    one.iter().map(|(group, share)| share.min(other.get(group).copied().unwrap_or_default())).sum()
}
