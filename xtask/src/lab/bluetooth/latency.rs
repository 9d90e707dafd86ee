//! The table of paper 003: 32-byte echoes over RFCOMM and L2CAP beside TCP and UDP in the same
//! guest, on a clean medium and on one with seeded losses.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::super::guest::{GuestArgs, run_command};
use super::super::kernel::Series;
use super::super::pair::{self, Kind, PairArgs};
use super::baseband_log::{self, Figures, LATE_NS};
use crate::shell;

/// The scenario, from the root of the repository.
pub(super) const SCENARIO: &str = "scenarios/paper-003.toml";
/// Echoes over each kind of link, as in the paper; over that many links one after the other.
const ECHOES: u32 = 1000;
const ROUNDS: u32 = 5;
/// So often a link is asked for where packets are lost: a burst of losses may last as long as the kernel waits for one.
const TRIES: u32 = 3;
/// Losses in bursts, of 50 packets on average: while one lasts nothing comes through. A link of the
/// table meets about twenty: with a fifth of that, one run in six had none that holds an echo up,
/// by nothing but the number of instructions before it.
const LOSSES: [&str; 3] = ["burst.enter=0.005", "burst.exit=0.02", "burst.per=1"];
/// Quantiles of the paper's table.
const DECILES: std::ops::Range<u32> = 1..10;
/// Bar: the median of RFCOMM, basic rate, in ns; the paper has 7,940,530.
const RFCOMM_P50_NS: std::ops::RangeInclusive<u64> = 6_000_000..=8_500_000;

/// A kind of link, and where the server listens and is reached.
struct Link {
    name: &'static str,
    listen: String,
    connect: String,
    /// Over the simulated radio.
    on_air: bool,
}

fn links() -> Vec<Link> {
    let bluetooth = |name, kind: Kind| {
        let (listen, connect) = (kind.endpoint("hci1"), kind.endpoint("hci0"));
        Link { name, listen, connect, on_air: true }
    };
    let local = |name: &'static str| {
        let place = format!("{name}://127.0.0.1:9100");
        Link { name, listen: place.clone(), connect: place, on_air: false }
    };
    vec![
        local("tcp"),
        local("udp"),
        bluetooth("rfcomm", Kind::Rfcomm),
        bluetooth("l2cap-bredr", Kind::L2capBredr),
        bluetooth("l2cap-le", Kind::L2cap),
    ]
}

/// One line of the table.
pub(super) struct Row {
    pub(super) kernel: Series,
    /// Whether the medium loses packets.
    pub(super) lossy: bool,
    pub(super) link: &'static str,
    pub(super) echo: Value,
    /// How it ended, and why when it broke.
    pub(super) ended: Value,
    pub(super) missed: Vec<String>,
}

/// What a kernel's guest gave.
pub(super) struct Latencies {
    pub(super) rows: Vec<Row>,
    /// Links that did not come to be, or ended, where packets are lost.
    pub(super) failed: Vec<String>,
    /// On the air, clean and lossy.
    pub(super) air: [Figures; 2],
    pub(super) findings: Vec<Value>,
}

/// One guest measures all links, first on the clean medium.
pub(super) fn measure(kernel: Series) -> Result<Latencies> {
    let directory = tempfile::Builder::new().prefix("taut-lab-latency-").tempdir()?;
    let links = links();
    let mut script = String::from("set -e\n");
    for lossy in [false, true] {
        let pair = args(lossy);
        let out = format!("/out/{}", medium(lossy));
        let mut commands = String::from("{ :");
        for link in links.iter().filter(|link| link.on_air || !lossy) {
            let (name, connect) = (link.name, &link.connect);
            let echo = format!("taut echo '{connect}' --count {ECHOES} --rounds {ROUNDS} --json >{out}/{name}.json");
            // A link may fail where packets are lost, and that is a result.
            commands += &match lossy {
                false => format!("; {echo}"),
                true => format!(
                    "; tries=0; while [ $tries -lt {TRIES} ]; do tries=$((tries + 1)); {echo} 2>>{out}/{name}.told || true; \
                     if grep -q '\"p50\": *[0-9]' {out}/{name}.json; then break; fi; done; echo $tries >{out}/{name}.tries"
                ),
            };
        }
        commands += "; }";
        let listen: Vec<String> = links.iter().map(|link| link.listen.clone()).collect();
        script += &format!("mkdir {out}\n(\n{})\n", pair.around(&listen, &commands, Some(&out))?);
    }
    let guest = GuestArgs {
        files: args(false).files()?,
        out: Some(directory.path().to_owned()),
        timeout: Duration::from_secs(1800),
        ..GuestArgs::quiet(kernel, pair::MODULES.map(str::to_owned).to_vec())
    };
    let code = run_command(&guest, &["sh".to_owned(), "-c".to_owned(), script])?;
    if code != 0 {
        bail!("the echoes in the guest failed with exit code {code}");
    }
    collect(kernel, &links, directory.path())
}

fn args(lossy: bool) -> PairArgs {
    let mut args = PairArgs::of(&shell::root().join(SCENARIO), "");
    if lossy {
        args.set = LOSSES.map(str::to_owned).to_vec();
    }
    args
}

const fn medium(lossy: bool) -> &'static str {
    if lossy { "lossy" } else { "clean" }
}

fn collect(kernel: Series, links: &[Link], directory: &Path) -> Result<Latencies> {
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for lossy in [false, true] {
        for link in links.iter().filter(|link| link.on_air || !lossy) {
            let path = directory.join(medium(lossy)).join(format!("{}.json", link.name));
            let text = fs::read_to_string(&path).with_context(|| format!("no {} from the guest", path.display()))?;
            let (beside, name) =
                (|kind| fs::read_to_string(path.with_extension(kind)).unwrap_or_default(), kernel.name());
            let tries: u32 = beside("tries").trim().parse().unwrap_or(1);
            let why = || beside("told").trim().lines().last().unwrap_or("it says nothing").to_owned();
            if lossy && text.is_empty() {
                failed.push(format!("{}, Linux {name}: no link on the lossy medium: {}", link.name, why()));
                continue;
            }
            if tries > 1 {
                let (failures, why) = (tries - 1, why());
                failed.push(format!(
                    "{}, Linux {name}: {failures} tries without a link on the lossy medium: {why}",
                    link.name
                ));
            }
            let document: Value = serde_json::from_str(&text).context("taut echo printed no JSON")?;
            if document["ended"]["how"] != "complete" {
                let [how, why] = ["how", "why"].map(|key| document["ended"][key].as_str().unwrap_or("not told"));
                failed.push(format!("{}, Linux {name}: ended early on the lossy medium: {how}, {why}", link.name));
            }
            let ended = document["ended"].clone();
            let echo = document["results"][0].clone();
            if lossy && echo["rtt_ns"]["p50"].is_null() {
                // No link, and it is among those that failed.
                continue;
            }
            let mut row = Row { kernel, lossy, link: link.name, echo, ended, missed: Vec::new() };
            row.judge();
            rows.push(row);
        }
    }
    let air = |lossy| baseband_log::read(&directory.join(medium(lossy)).join("air.pcapng"));
    let air = [air(false)?, air(true)?];
    let mut findings = Vec::new();
    if let Some(index) = rows.iter().position(|row| row.link == "rfcomm" && row.lossy) {
        let clean = rows.iter().find(|row| row.link == "rfcomm" && !row.lossy);
        let finding = clean.and_then(|clean| finding(clean, &rows[index], &air));
        if finding.is_none() {
            rows[index].missed.push("the tail has no cause in the air log".to_owned());
        }
        findings.extend(finding);
    }
    Ok(Latencies { rows, failed, air, findings })
}

impl Row {
    pub(super) fn p50_ns(&self) -> Option<u64> {
        self.echo["rtt_ns"]["p50"].as_u64()
    }

    /// Share of the echoes that took longer than a limit in ms, losses included.
    pub(super) fn over(&self, limit_ms: u64) -> f64 {
        let table = self.echo["exceed"].as_array();
        let row = table.into_iter().flatten().find(|row| row["over_ns"] == limit_ms * 1_000_000);
        row.and_then(|row| row["share"].as_f64()).unwrap_or(f64::NAN)
    }

    /// The time that a share of the echoes stays below; `tenths` of all.
    pub(super) fn decile_ns(&self, tenths: u32) -> Option<u64> {
        let wanted = f64::from(tenths) / 10.0;
        self.curve().find(|(quantile, _)| (quantile - wanted).abs() < 1e-9).map(|(_, time)| time)
    }

    /// Quantiles and their times.
    pub(super) fn curve(&self) -> impl Iterator<Item = (f64, u64)> {
        let points = self.echo["curve"].as_array().into_iter().flatten();
        points.filter_map(|point| Some((point[0].as_f64()?, point[1].as_u64()?)))
    }

    fn judge(&mut self) {
        let p50_ns = self.p50_ns();
        if p50_ns.is_none() {
            self.missed.push("no echo came back".to_owned());
        }
        if self.link != "rfcomm" {
            return;
        }
        let late = self.over(50);
        if self.lossy && late <= 0.0 {
            self.missed.push("no echo is over 50 ms although packets are lost".to_owned());
        }
        if !self.lossy {
            if !p50_ns.is_some_and(|p50| RFCOMM_P50_NS.contains(&p50)) {
                self.missed.push(format!("p50 is {} ns, not 6 to 8.5 ms", p50_ns.unwrap_or(0)));
            }
            if late != 0.0 {
                self.missed.push(format!("{:.1} % over 50 ms on a clean medium", late * 100.0));
            }
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let deciles: Vec<_> = DECILES.map(|tenths| self.decile_ns(tenths)).collect();
        json!({
            "kernel": self.kernel.name(), "medium": medium(self.lossy), "link": self.link,
            "sent": self.echo["sent"], "lost": self.echo["lost"], "rtt_ns": self.echo["rtt_ns"],
            "deciles_ns": deciles, "exceed": self.echo["exceed"], "rounds": self.echo["rounds"],
            "options": self.echo["options"], "ended": self.ended, "missed": self.missed,
        })
    }
}

/// What makes the tail: packets of the baseband that did not come through for as long as the late echoes took.
fn finding(clean: &Row, lossy: &Row, [quiet, noisy]: &[Figures; 2]) -> Option<Value> {
    let late = (lossy.over(50) * f64::from(ECHOES)).round() as u64;
    if late == 0 || noisy.late == 0 || quiet.late > 0 || clean.over(50) > 0.0 {
        return None;
    }
    let ms = |ns: u64| format!("{:.2} ms", ns as f64 / 1e6);
    let p50 = ms(lossy.p50_ns()?);
    // Where echoes are lost there is no longest: it took at least as long as the packet that took longest.
    let longest_ns = lossy.echo["rtt_ns"]["max"].as_u64().unwrap_or(noisy.longest_ns);
    let lost = lossy.echo["lost"].as_u64().filter(|lost| *lost > 0);
    let lost = lost.map_or_else(String::new, |lost| format!(", {lost} of them lost"));
    let longest = ms(longest_ns);
    Some(json!({
        "cause": "baseband_retransmission",
        "summary": format!("{late} of {ECHOES} echoes over RFCOMM waited for data that the baseband had to send again"),
        "on": format!("rfcomm, Linux {}, {}", lossy.kernel.name(), LOSSES.join(" ")),
        "share": lossy.over(50),
        "cost_ns": longest_ns.saturating_sub(lossy.p50_ns()?),
        "evidence": [
            format!("{late} echoes took longer than {}, the longest {longest}{lost}; the median is {p50}, as without losses ({})",
                ms(LATE_NS), ms(clean.p50_ns()?)),
            format!("the air has {} data packets of RFCOMM and L2CAP over BR/EDR, sent again {} times; {} took longer than {} to get through",
                noisy.packets, noisy.again, noisy.late, ms(LATE_NS)),
            format!("the one that took longest needed {} and was sent {} times", ms(noisy.longest_ns), noisy.longest_times),
            format!("without losses {} data packets were sent again {} times, and none took longer than {}",
                quiet.packets, quiet.again, ms(quiet.longest_ns)),
        ],
        "remedy": "fewer losses (another place, another channel map) or a bound to the waiting: an automatic flush timeout gives a \
                   late message up instead of holding back all behind it, over L2CAP with BT_FLUSHABLE; RFCOMM has no such choice",
    }))
}

/// The table as text.
pub(super) fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "kernel  medium  link          p10 ms   p50 ms   p90 ms   p99 ms   max ms  >50 ms %  >100 %  >200 %  >300 %  lost\n",
    );
    let ms = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.3}", ns as f64 / 1e6));
    for row in rows {
        let of = |name: &str| ms(row.echo["rtt_ns"][name].as_u64());
        text += &format!(
            "{:<7} {:<7} {:<12} {:>7}  {:>7}  {:>7}  {:>7}  {:>7}  {:>8.1}  {:>6.1}  {:>6.1}  {:>6.1}  {:>4}\n",
            row.kernel.name(),
            medium(row.lossy),
            row.link,
            ms(row.decile_ns(1)),
            of("p50"),
            of("p90"),
            of("p99"),
            of("max"),
            row.over(50) * 100.0,
            row.over(100) * 100.0,
            row.over(200) * 100.0,
            row.over(300) * 100.0,
            row.echo["lost"],
        );
        for missed in &row.missed {
            text += &format!("  MISSED  {missed}\n");
        }
    }
    text
}

impl Latencies {
    pub(super) fn is_met(&self) -> bool {
        self.rows.iter().all(|row| row.missed.is_empty())
    }
}

impl Figures {
    pub(super) fn to_json(self, kernel: Series, lossy: bool) -> Value {
        json!({
            "kernel": kernel.name(), "medium": medium(lossy), "data_packets": self.packets, "sent_again": self.again,
            "polls": self.polls, "longest_ns": self.longest_ns, "longest_times": self.longest_times, "late": self.late,
        })
    }
}
