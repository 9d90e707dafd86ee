use taut_air::{Category, Limit, Outcome, Role, Scenario};

use crate::{Finding, Proof, Unit};

/// What may bind a link's throughput, seen in its scenario and ledger: to be confirmed by running the remedy.
#[derive(Clone, Debug)]
pub struct Suspect {
    /// Short name of the cause, as in [`Finding::cause`].
    pub cause: &'static str,
    /// The cause in a sentence.
    pub summary: String,
    /// Share of the time that speaks for it, 0 to 1.
    pub share: f64,
    /// What was seen, a sentence each, with figures.
    pub evidence: Vec<String>,
    /// What to do about it.
    pub remedy: String,
    /// Parameters with values that relieve it, to be tried in turn; the best counts.
    pub trials: Vec<Vec<(String, String)>>,
}

/// A run to be explained.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Its parameters.
    pub scenario: &'a Scenario,
    /// What it gave.
    pub outcome: &'a Outcome,
}

impl Suspect {
    /// The finding, once its remedy was run.
    pub fn confirmed(self, on: String, run: Run<'_>, proof: Proof) -> Finding {
        // What the SDUs of the shorter run would have taken less, each.
        let slower = run.outcome.duration_ns as f64 * (1.0 - proof.before_bps / proof.after_bps.max(1.0));
        Finding {
            cause: self.cause.to_owned(),
            summary: self.summary,
            on,
            share: self.share,
            share_of: Unit::Time,
            cost_ns: (slower.max(0.0) / run.outcome.counters.sdus_read.max(1) as f64) as u64,
            evidence: self.evidence,
            remedy: self.remedy,
            proof: Some(proof),
        }
    }
}

/// All that may bind a run, each with the changes that would relieve it.
pub fn suspects(run: Run<'_>) -> Vec<Suspect> {
    let all: [fn(&Seen<'_>) -> Option<Suspect>; 11] = [
        credit_window,
        interval,
        block_boundary,
        buffers,
        event_length,
        host_transport,
        wake_up,
        length,
        phy,
        mtu,
        loss,
    ];
    let seen = Seen(run);
    all.into_iter().filter_map(|suspect| suspect(&seen)).collect()
}

struct Seen<'a>(Run<'a>);

impl Seen<'_> {
    fn scenario(&self) -> &Scenario {
        self.0.scenario
    }

    fn share(&self, categories: &[Category]) -> f64 {
        let ns: u64 = categories.iter().map(|&category| self.0.outcome.ledger.get(category)).sum();
        ns as f64 / self.0.outcome.duration_ns.max(1) as f64
    }

    /// `41.2 % of the time no credit, 3.1 % credit in flight`.
    fn shares(&self, categories: &[Category]) -> String {
        let words = |&category: &Category| {
            let name = super::Line::of(category.name()).map_or_else(|| category.name(), |line| line.words);
            format!("{} {name}", percent(self.share(&[category])))
        };
        format!("of the time: {}", categories.iter().map(words).collect::<Vec<_>>().join(", "))
    }

    fn receiver(&self) -> Role {
        self.scenario().sender.other()
    }

    /// The limit with whole exchanges only.
    fn quantised(&self) -> (Limit, f64) {
        let limit = self.scenario().limit();
        (limit, limit.quantised_bps(self.scenario().ci))
    }
}

/// Less than this is not worth a word.
const LEAST_SHARE: f64 = 0.01;

fn credit_window(seen: &Seen<'_>) -> Option<Suspect> {
    const LINES: [Category; 2] = [Category::NoCredit, Category::CreditInFlight];
    let share = seen.share(&LINES);
    if share < LEAST_SHARE {
        return None;
    }
    let receiver = &seen.scenario().side(seen.receiver()).host;
    let credits = seen.0.outcome.negotiated.map_or(0, |agreed| agreed.initial_credits);
    Some(Suspect {
        cause: "credit_window",
        summary: "The receiver's credits run out: the sender waits for them although the air is free.".to_owned(),
        share,
        evidence: vec![
            seen.shares(&LINES),
            format!(
                "the receiver gives {} at first, for SDUs of {} bytes in PDUs of {}",
                credits_in_words(credits),
                receiver.mtu,
                seen.scenario().mps(seen.receiver())
            ),
        ],
        remedy: "Give the receiver a larger window: a kernel that computes credits from the receive buffer (Linux 6.10, or 6.1.93 \
            and 6.8.12 of the stable series), or on an older one a larger receiving MTU (BT_RCVMTU)."
            .to_owned(),
        trials: vec![trial("receiver.credits", "linux-recvbuf"), trial("receiver.mtu", "4096")],
    })
}

fn credits_in_words(credits: u16) -> String {
    if credits == 1 { "1 credit".to_owned() } else { format!("{credits} credits") }
}

fn interval(seen: &Seen<'_>) -> Option<Suspect> {
    let ci = seen.scenario().ci;
    let (limit, quantised) = seen.quantised();
    let usual =
        [7_500_000, 10_000_000, 11_250_000, 12_500_000, 15_000_000, 20_000_000, 30_000_000, 50_000_000, 100_000_000];
    let trials: Vec<_> =
        usual.iter().filter(|&&other| other != ci).map(|&other| trial("ci", &milliseconds(other))).collect();
    let mut evidence = vec![format!(
        "{} of {} of air time: whole exchanges allow {} of the channel's limit",
        per_event(&limit, ci),
        milliseconds(ci),
        percent(quantised / limit.bps().max(1.0))
    )];
    evidence.push(seen.shares(&[Category::DoesNotFit, Category::NoCredit, Category::CreditInFlight]));
    Some(Suspect {
        cause: "interval_quantisation",
        summary: "The connection interval cuts the flow: what misses one event waits for the next anchor.".to_owned(),
        share: seen.share(&[Category::DoesNotFit, Category::CreditInFlight]),
        evidence,
        remedy:
            "Choose another connection interval: debugfs conn_min_interval and conn_max_interval of the central before \
            connecting, or a connection parameter update."
                .to_owned(),
        trials,
    })
}

/// `3 full exchanges of 2468 us fit into an event`.
fn per_event(limit: &Limit, ci: u64) -> String {
    let cycle = limit.cycle(limit.pdus().max().unwrap_or_default());
    format!("{} full exchanges of {} us fit into an event", ci / cycle.max(1), cycle / 1000)
}

fn block_boundary(seen: &Seen<'_>) -> Option<Suspect> {
    let scenario = seen.scenario();
    let mtu = u32::from(scenario.side(seen.receiver()).host.mtu);
    let block = scenario.side(scenario.sender).host.block;
    let rest = block % mtu;
    if rest == 0 || block < mtu {
        return None;
    }
    let blocks = seen.0.outcome.throughput_bps / 8.0 / f64::from(block);
    Some(Suspect {
        cause: "block_boundary",
        summary: format!(
            "Each block of {block} bytes ends in an SDU of {rest} bytes, which breaks the rhythm of full ones."
        ),
        share: seen.share(&[Category::NoCredit, Category::CreditInFlight]),
        evidence: vec![
            format!("{block} = {} x {mtu} + {rest} bytes, {blocks:.1} blocks a second", block / mtu),
            format!(
                "the short SDU takes a PDU, its exchange and a credit of its own: {} us of air",
                exchange_us(scenario, rest)
            ),
        ],
        remedy: "Write blocks that are a multiple of the channel's MTU.".to_owned(),
        trials: vec![trial("sender.block", &(block / mtu * mtu).to_string())],
    })
}

/// Air time of the exchanges of one SDU.
fn exchange_us(scenario: &Scenario, sdu: u32) -> u64 {
    let limit = Limit { sdu: sdu as usize, ..scenario.limit() };
    limit.pdus().map(|pdu| limit.cycle(pdu)).sum::<u64>() / 1000
}

fn buffers(seen: &Seen<'_>) -> Option<Suspect> {
    let share = seen.share(&[Category::ControllerBuffer]);
    let side = seen.scenario().side(seen.scenario().sender);
    (share >= LEAST_SHARE).then(|| Suspect {
        cause: "buffers",
        summary:
            "The sender's controller has too few buffers, tells too late that they are free, or takes data up too late."
                .to_owned(),
        share,
        evidence: vec![
            seen.shares(&[Category::ControllerBuffer]),
            format!(
                "{} ACL buffers of {} bytes, completed packets reported `{}`, data taken up `{}`",
                side.acl_buffers,
                side.acl_size,
                seen.scenario().get("sender.nocp").unwrap_or_default(),
                seen.scenario().get("sender.pickup").unwrap_or_default()
            ),
        ],
        remedy: "Another adapter, or another firmware: the host can't change its controller's buffers.".to_owned(),
        trials: vec![
            trial("sender.acl_buffers", "16"),
            trial("sender.nocp", "each"),
            vec![setting("sender.acl_buffers", "16"), setting("sender.nocp", "each"), setting("sender.tx_slots", "0")],
            trial("sender.pickup", "at-once"),
        ],
    })
}

fn event_length(seen: &Seen<'_>) -> Option<Suspect> {
    let share = seen.share(&[Category::EventClosedEarly]);
    (share >= LEAST_SHARE).then(|| {
        let of = |name: &str| seen.scenario().get(name).unwrap_or_default();
        Suspect {
            cause: "event_length",
            summary: "Connection events close although the sender has data and there is time for it.".to_owned(),
            share,
            evidence: vec![
                seen.shares(&[Category::EventClosedEarly]),
                format!(
                    "longest event {}, PDUs in an event {}, descriptors {} (central/peripheral)",
                    of("event_length"),
                    of("packets_per_event"),
                    of("tx_slots")
                ),
            ],
            remedy:
                "Ask for a longer connection event where the controller lets one (minimum and maximum CE length of LE \
                Connection Update), get the data to the controller before the event, or take another adapter."
                    .to_owned(),
            trials: vec![
                vec![setting("event_length", "none"), setting("packets_per_event", "none"), setting("tx_slots", "0")],
                trial("sender.transport", "none"),
            ],
        }
    })
}

fn host_transport(seen: &Seen<'_>) -> Option<Suspect> {
    let share = seen.share(&[Category::HostTransport]);
    (share >= LEAST_SHARE).then(|| Suspect {
        cause: "host_transport",
        summary: "The data is too long on its way between host and controller.".to_owned(),
        share,
        evidence: vec![
            seen.shares(&[Category::HostTransport]),
            format!("the transport is {}", seen.scenario().get("transport").unwrap_or_default()),
        ],
        remedy: "A faster host transport: a higher baud rate, or an adapter on USB.".to_owned(),
        trials: vec![trial("transport", "uart(3000000)"), trial("transport", "usb(125us)")],
    })
}

fn wake_up(seen: &Seen<'_>) -> Option<Suspect> {
    let share = seen.share(&[Category::WakeUp]);
    (share >= LEAST_SHARE).then(|| {
        let of = |name: &str| seen.scenario().get(name).unwrap_or_default();
        Suspect {
            cause: "wake_up",
            summary: "The writing program is woken too late, or takes too long.".to_owned(),
            share,
            evidence: vec![
                seen.shares(&[Category::WakeUp]),
                format!("the writer wakes up in {}, has its next block in {}", of("sender.wakeup"), of("sender.block_work")),
            ],
            remedy: "A release build, the next block ready before it is asked for, a runtime or thread that wakes up sooner."
                .to_owned(),
            trials: vec![vec![
                setting("sender.wakeup", "20us"),
                setting("sender.block_work", "0"),
                setting("sender.send", "10us"),
            ]],
        }
    })
}

fn length(seen: &Seen<'_>) -> Option<Suspect> {
    let length = seen.scenario().length;
    (length < 251).then(|| Suspect {
        cause: "length",
        summary: format!("PDUs carry {length} bytes at most: overhead and pauses take the air."),
        share: seen.share(&[Category::Headers, Category::Ifs, Category::EmptyPolls]),
        evidence: vec![seen.shares(&[Category::Payload, Category::Headers, Category::Ifs, Category::EmptyPolls])],
        remedy: "Data length extension to 251 bytes (LE Set Data Length), where both controllers have it.".to_owned(),
        trials: vec![trial("length", "251")],
    })
}

fn phy(seen: &Seen<'_>) -> Option<Suspect> {
    let scenario = seen.scenario();
    (scenario.phy != taut_air::Phy::Le2M).then(|| Suspect {
        cause: "phy",
        summary: format!("A PDU takes twice or more the time on LE {} that it would on LE 2M.", scenario.phy.name()),
        share: seen.share(&[Category::Payload, Category::Headers]),
        evidence: vec![seen.shares(&[Category::Payload, Category::Headers, Category::Ifs])],
        remedy: "LE 2M, where both controllers have it and the distance allows it (LE Set PHY).".to_owned(),
        trials: vec![trial("phy", "2m")],
    })
}

fn mtu(seen: &Seen<'_>) -> Option<Suspect> {
    let (limit, mtu) = (seen.scenario().limit(), seen.scenario().side(seen.receiver()).host.mtu);
    let longer = Limit { sdu: 4096, ..limit };
    // The last PDU of each SDU is not full.
    (limit.bps() < 0.98 * longer.bps()).then(|| Suspect {
        cause: "mtu",
        summary: format!("SDUs of {mtu} bytes leave the last PDU of each partly empty."),
        share: seen.share(&[Category::Headers, Category::Ifs]),
        evidence: vec![format!(
            "PDUs of one SDU: {} bytes, {} of what SDUs of 4096 bytes would carry",
            limit.pdus().map(|pdu| pdu.to_string()).collect::<Vec<_>>().join(" + "),
            percent(limit.bps() / longer.bps())
        )],
        remedy: "A larger MTU of the receiver (BT_RCVMTU), or one that fills whole PDUs.".to_owned(),
        trials: vec![trial("receiver.mtu", "4096")],
    })
}

fn loss(seen: &Seen<'_>) -> Option<Suspect> {
    let share = seen.share(&[Category::Retransmission]);
    (share > 0.0).then(|| Suspect {
        cause: "loss",
        summary: "PDUs are lost on the air: they are sent again, and an event ends with the second error in a row.".to_owned(),
        share,
        evidence: vec![seen.shares(&[Category::Retransmission])],
        remedy: "Less distance or interference, channels without it (LE Set Host Channel Classification), LE Coded where it is \
            distance. The throughput here is that of the same link without loss."
            .to_owned(),
        trials: vec![vec![
            setting("ber", "0"),
            setting("per", "0"),
            setting("burst.enter", "0"),
            setting("interference.period", "0"),
        ]],
    })
}

fn setting(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

fn trial(name: &str, value: &str) -> Vec<(String, String)> {
    vec![setting(name, value)]
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn milliseconds(ns: u64) -> String {
    format!("{}ms", ns as f64 / 1e6)
}
