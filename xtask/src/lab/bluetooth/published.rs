//! What the published program's blocks of 4096 bytes cost under Linux 5.10 at 7.5 ms: l2cat at both
//! ends, against its own writes of whole SDUs, and `taut stream` doing the same beside it; on the
//! published link and on that of the other measurements.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::super::guest::{GuestArgs, run_command};
use super::super::kernel::Series;
use super::super::pair;
use super::recording::throughput;
use super::{air_log, btmon};

/// The bar: the share of the rate that the blocks lose.
pub(super) const LOSS: std::ops::RangeInclusive<f64> = 0.08..=0.16;
/// The link that is drawn from the published figures, and the one of the other measurements: scenarios of `taut air`.
const SCENARIOS: [&str; 2] = [PUBLISHED, "two-nodes"];
const PUBLISHED: &str = "paper-000";
/// An SDU of the last 64 bytes of a block on the air, with the headers of L2CAP and of the SDU.
const TAIL: u8 = 70;
/// As l2cat prints it: kB are 1024 bytes.
const KILOBYTE_BITS: f64 = 8192.0;

/// Who writes, and how much at a time: the published block, or whole SDUs.
const CASES: [(Program, u32); 4] =
    [(Program::L2cat, 4096), (Program::L2cat, 672), (Program::Taut, 4096), (Program::Taut, 4032)];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Program {
    L2cat,
    Taut,
}

/// A measurement.
pub(super) struct Row {
    scenario: &'static str,
    program: Program,
    /// Bytes of a write.
    block: u32,
    bps: f64,
    /// The connection events around the end of a block, or any where there is none.
    pattern: String,
    /// What btmon can't make sense of, on both sides.
    complaints: Vec<String>,
}

impl Program {
    const fn name(self) -> &'static str {
        match self {
            Self::L2cat => "l2cat",
            Self::Taut => "taut",
        }
    }

    /// Both ends, as a shell's text. The sender is the peripheral, as published: l2cat's speed server
    /// writes 4096 bytes at a time; serving another program it writes what a read of 672 bytes brings.
    fn script(self, block: u32) -> String {
        let (server, client) = match self {
            Self::L2cat => {
                let server = match block {
                    4096 => "speed-server --no-advertise --once --bind $A1 133",
                    _ => "serve --no-advertise --one-shot --bind $A1 133 dd if=/dev/zero bs=67200",
                };
                (format!("l2cat {server}"), "l2cat speed-client --bind $A0 --time 4 $A1 133".to_owned())
            }
            Self::Taut => (
                "taut serve \"l2cap://$A1/133?adapter=hci1\"".to_owned(),
                format!(
                    "taut stream \"l2cap://$A1/133?adapter=hci0\" --direction down --block {block} --time 4s --rounds 1 --json"
                ),
            ),
        };
        // Neither tells when it listens; a second of virtual time is long.
        format!(
            "{server} >/tmp/server 2>&1 &\nserver=$!\nsleep 1\n{client} >$out/stdout\nkill $server 2>/dev/null; wait $server\n"
        )
    }

    fn bps(self, stdout: &str) -> Result<f64> {
        match self {
            Self::L2cat => l2cat_speed(stdout).with_context(|| format!("l2cat told no speed: {stdout}")),
            Self::Taut => serde_json::from_str(stdout)
                .map(|document| throughput(&document))
                .context("taut stream printed no JSON"),
        }
    }
}

/// `Received 228 kBytes in 6.0 seconds, speed is 38.1 kB/s`
fn l2cat_speed(stdout: &str) -> Option<f64> {
    let (_, speed) = stdout.rsplit_once("speed is ")?;
    speed.split_whitespace().next()?.parse::<f64>().ok().map(|kilobytes| kilobytes * KILOBYTE_BITS)
}

/// Measures all in one guest.
pub(super) fn measure() -> Result<Vec<Row>> {
    let directory = tempfile::Builder::new().prefix("taut-lab-published-").tempdir()?;
    let cases = || SCENARIOS.into_iter().flat_map(|scenario| CASES.map(|(program, block)| (scenario, program, block)));
    let name = |scenario: &str, program: Program, block: u32| format!("{scenario}-{}-{block}", program.name());
    let mut script = String::from("A0=00:AA:01:00:00:00 A1=00:AA:01:01:00:00\n");
    for (scenario, program, block) in cases() {
        script += &format!(
            "out=/out/{}; mkdir $out\ntaut air attach {scenario} --set ci=7.5ms --on --json --pcapng $out/air.pcapng --btsnoop $out \
             >/tmp/radio &\nradio=$!\nuntil grep -qs adapters /tmp/radio; do sleep 0.1; done\n{}kill -INT $radio; wait $radio; \
             rm /tmp/radio\n",
            name(scenario, program, block),
            program.script(block)
        );
    }
    let guest = GuestArgs {
        l2cat: true,
        out: Some(directory.path().to_owned()),
        ..GuestArgs::quiet(Series::V5_10, pair::MODULES.map(str::to_owned).to_vec())
    };
    let code = run_command(&guest, &["sh".to_owned(), "-c".to_owned(), script])?;
    if code != 0 {
        bail!("the measurements with l2cat failed with exit code {code}");
    }
    cases()
        .map(|(scenario, program, block)| {
            row(scenario, program, block, &directory.path().join(name(scenario, program, block)))
        })
        .collect()
}

fn row(scenario: &'static str, program: Program, block: u32, out: &Path) -> Result<Row> {
    let path = out.join("stdout");
    let stdout = fs::read_to_string(&path).with_context(|| format!("no {} from the guest", path.display()))?;
    let events = air_log::read(&out.join("air.pcapng"))?;
    let mut complaints = Vec::new();
    for side in ["central", "peripheral"] {
        let listing = btmon::Listing::read(&out.join(format!("{side}.btsnoop")))?;
        complaints.extend(listing.complaints().into_iter().map(str::to_owned));
    }
    let pattern = if block == 4096 { air_log::excerpt_from(&events, 5, TAIL) } else { air_log::excerpt(&events, 5) };
    Ok(Row { scenario, program, block, bps: program.bps(&stdout)?, pattern, complaints })
}

/// What a program's blocks lose on a link against its own writes of whole SDUs, as a share of their rate.
fn loss(rows: &[Row], scenario: &str, program: Program) -> Option<f64> {
    let rate = |published: bool| {
        let is_it = |row: &&Row| (row.scenario, row.program) == (scenario, program) && (row.block == 4096) == published;
        rows.iter().find(is_it).map(|row| row.bps)
    };
    Some(1.0 - rate(true)? / rate(false)?)
}

/// The bar's figure: the published program on the published link.
pub(super) fn published_loss(rows: &[Row]) -> Option<f64> {
    loss(rows, PUBLISHED, Program::L2cat)
}

impl Row {
    pub(super) fn is_met(&self) -> bool {
        self.complaints.is_empty()
    }

    pub(super) fn to_json(&self) -> Value {
        json!({ "scenario": self.scenario, "program": self.program.name(), "block_bytes": self.block, "throughput_bps": self.bps,
                "pattern": self.pattern, "btmon_complaints": self.complaints })
    }
}

/// As people read them.
pub(super) fn table(rows: &[Row]) -> String {
    let mut text = String::from("scenario   program  block  kb/s   loss    around a block's last 64 bytes\n");
    for row in rows {
        let loss = loss(rows, row.scenario, row.program).filter(|_| row.block == 4096);
        let loss = loss.map_or_else(|| "-".to_owned(), |loss| format!("{:.1} %", loss * 100.0));
        text += &format!(
            "{:<9}  {:<7}  {:>5}  {:>5.1}  {:<6}  {}\n",
            row.scenario,
            row.program.name(),
            row.block,
            row.bps / 1e3,
            loss,
            row.pattern
        );
        row.complaints.iter().for_each(|complaint| text += &format!("  MISSED  btmon: {complaint}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(program: Program, block: u32, bps: f64) -> Row {
        Row { scenario: PUBLISHED, program, block, bps, pattern: String::new(), complaints: Vec::new() }
    }

    #[test]
    fn l2cats_speed_is_read() {
        let stdout =
            "41.4 kB/s             \r                  \nReceived 492 kBytes in 12.0 seconds, speed is 41.0 kB/s\n";
        assert_eq!(l2cat_speed(stdout), Some(335_872.0));
        assert_eq!(l2cat_speed("Connected with\n"), None);
    }

    #[test]
    fn a_program_is_held_against_itself() {
        let rows = [row(Program::L2cat, 4096, 80.0), row(Program::L2cat, 672, 100.0), row(Program::Taut, 4096, 50.0)];
        assert!((published_loss(&rows).unwrap() - 0.2).abs() < 1e-9);
        assert_eq!(loss(&rows, PUBLISHED, Program::Taut), None);
        assert!(table(&rows).contains("20.0 %"));
    }
}
