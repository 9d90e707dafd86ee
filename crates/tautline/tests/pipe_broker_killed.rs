//! Brokers that are killed while messages go over them, by seeds: the account adds up, and is what came out.

mod support;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use support::brokers::Broker;
use support::piped::{Ended, Pipe};

const TEST: &str = "however_a_broker_is_killed_the_account_adds_up";
const QUICK: &str = "set_tcp_nodelay true\nmax_queued_messages 0";

/// Numbers for a test that is to be the same each time (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % most
    }
}

/// What carries the messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Over {
    Mqtt { qos: u64, version: u64 },
    Nats,
    JetStream,
}

/// What the reader does while the broker is killed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    There,
    /// It is stopped (SIGSTOP) and goes on when the broker is there again.
    Stopped,
    /// It is stopped a moment after each piece that is written.
    Slow,
    /// It ends before, and another start of it comes when the broker is there again.
    Away,
}

/// What a seed says.
#[derive(Clone, Copy, Debug)]
struct Setting {
    over: Over,
    /// The broker remembers the reader by its name.
    is_lasting: bool,
    /// The broker keeps on its disk what it has.
    keeps: bool,
    fate: Fate,
}

impl Setting {
    fn draw(dice: &mut Dice) -> Self {
        let over = match dice.below(8) {
            6 => Over::Nats,
            7 => Over::JetStream,
            kind => Over::Mqtt { qos: kind % 3, version: 3 + 2 * (kind / 3) },
        };
        let is_lasting = dice.below(2) == 0 && over != Over::Nats;
        let keeps = dice.below(2) == 0;
        let fate = match dice.below(6) {
            0 => Fate::Stopped,
            1 => Fate::Slow,
            2 => Fate::Away,
            _ => Fate::There,
        };
        Self { over, is_lasting, keeps, fate }
    }

    fn broker(self) -> Option<Broker> {
        match self.over {
            Over::Nats => Broker::nats(TEST, ""),
            // In the directory in which it is started again.
            Over::JetStream => Broker::nats_with_store(TEST),
            Over::Mqtt { .. } => Broker::mosquitto(TEST, |directory| {
                let saves = "persistence true\nautosave_on_changes true\nautosave_interval 1";
                match self.keeps {
                    true => format!("{QUICK}\n{saves}\npersistence_location {}/", directory.display()),
                    false => QUICK.to_owned(),
                }
            }),
        }
    }

    /// The addresses of the writer and of the reader.
    fn addresses(self, port: u16) -> [String; 2] {
        let (writer, name) = match self.over {
            Over::Mqtt { qos, version } => {
                (format!("mqtt://127.0.0.1:{port}/a?qos={qos}&v={version}&buffer=300"), "&session=r")
            }
            Over::Nats => (format!("nats://127.0.0.1:{port}/a?buffer=300"), ""),
            Over::JetStream => {
                let store = if self.keeps { "file" } else { "memory" };
                (format!("nats://127.0.0.1:{port}/a?stream=S&create={store}&buffer=300"), "&reader=r")
            }
        };
        let reader = format!("{writer}{}", if self.is_lasting { name } else { "" });
        [writer, reader]
    }
}

/// What became of the messages of a run: `missing` is what no start of a reader has read.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    sent: u64,
    read: u64,
    dropped: u64,
    missing: u64,
    twice: u64,
}

/// A broker that is killed while messages go over it, whatever their reader does: the account adds up at both ends.
fn killed(seed: u64) -> Option<Sums> {
    let mut dice = Dice(seed);
    let setting = Setting::draw(&mut dice);
    let mut broker = setting.broker()?;
    let [to, from] = setting.addresses(broker.port);
    let mut reader = Some(Pipe::reader(&from));
    let mut writer = Pipe::writer(&to);
    let mut sent = 0;
    let mut write = |writer: &mut Pipe, reader: Option<&Pipe>, dice: &mut Dice, pieces: u64| {
        let slow = reader.filter(|_| setting.fate == Fate::Slow);
        for _ in 0..pieces {
            let count = 1 + dice.below(40);
            slow.iter().for_each(|slow| slow.signal(Signal::STOP));
            writer.write(sent..sent + count);
            sent += count;
            thread::sleep(Duration::from_millis(dice.below(20)));
            slow.iter().for_each(|slow| slow.signal(Signal::CONT));
        }
    };
    let before = 1 + dice.below(40);
    write(&mut writer, reader.as_ref(), &mut dice, before);
    let mut read = Vec::new();
    match setting.fate {
        Fate::Stopped => reader.iter().for_each(|reader| reader.signal(Signal::STOP)),
        Fate::Away => read.extend(reader.take().map(Pipe::stop)),
        Fate::There | Fate::Slow => {}
    }
    broker.kill();
    let away = dice.below(20);
    write(&mut writer, reader.as_ref(), &mut dice, away);
    broker.start_again();
    let reader = match reader {
        Some(mut reader) => {
            // One that is not stopped takes it for what it is.
            reader.signal(Signal::CONT);
            reader.wait_for("with the broker again");
            reader
        }
        None => Pipe::reader(&from),
    };
    let after = 1 + dice.below(40);
    write(&mut writer, Some(&reader), &mut dice, after);
    let wrote = writer.finish();
    read.push(reader.stop());
    let said: Vec<&str> = read.iter().map(|read| read.said.as_str()).collect();
    let said = format!("seed {seed}, {setting:?}, {from}:\n{}\n{}", wrote.said, said.join("\n"));
    assert_eq!(wrote.written("sent"), sent, "{said}");
    Some(added_up(setting, &wrote, &read, &said))
}

/// Both ends say the same, and it is what came out.
fn added_up(setting: Setting, wrote: &Ended, read: &[Ended], said: &str) -> Sums {
    let (sent, dropped) = (wrote.written("sent"), wrote.written("dropped_here"));
    let readers = wrote.broker()["written"]["readers"].as_array().unwrap();
    let of = |reader: &serde_json::Value, key: &str| reader[key].as_u64().unwrap();
    // Each start has a name of its own unless the broker knows it by one.
    let names = if setting.is_lasting { 1 } else { read.len() };
    assert_eq!(readers.len(), names, "{said}");
    for reader in readers {
        assert_eq!(of(reader, "confirmed_by_reader") + dropped + of(reader, "missing"), sent, "{said}");
    }
    // What two starts of the same reader have read is confirmed once.
    let all: BTreeSet<&String> = read.iter().flat_map(|read| &read.lines).collect();
    let mut told: Vec<u64> = readers.iter().map(|reader| of(reader, "confirmed_by_reader")).collect();
    let mut heard: Vec<u64> = read.iter().map(|read| read.heard("read")).collect();
    if setting.is_lasting {
        heard = vec![all.len() as u64];
    }
    told.sort_unstable();
    heard.sort_unstable();
    assert_eq!(told, heard, "{said}");
    for one in read {
        let distinct: BTreeSet<&String> = one.lines.iter().collect();
        assert_eq!((distinct.len(), one.lines.len() as u64), (one.lines.len(), one.heard("read")), "{said}");
        assert!(one.lines.iter().all(|line| line.parse::<u64>().is_ok_and(|number| number < sent)), "{said}");
        assert_eq!(one.code, Some(if one.heard("missing") > 0 { 1 } else { 130 }), "{said}");
    }
    // The last one was there to the end.
    let last = read.last().unwrap();
    assert_eq!(last.heard("dropped_there"), dropped, "{said}");
    assert_eq!(last.heard("read") + last.heard("missing") + last.heard("before") + dropped, sent, "{said}");
    let missing = readers.iter().map(|reader| of(reader, "missing")).max().unwrap();
    assert_eq!(wrote.code, Some(i32::from(missing + dropped > 0)), "{said}");
    let acknowledges = !matches!(setting.over, Over::Nats | Over::Mqtt { qos: 0, .. });
    if acknowledges && last.heard("missing") > 0 {
        let passed = last.heard("passed_over") > 0;
        assert_eq!(last.causes(), if passed { vec!["broker_dropped"] } else { Vec::new() }, "{said}");
    }
    let twice = read.iter().map(|read| read.heard("twice")).sum();
    let read = all.len() as u64;
    Sums { sent, read, dropped, missing: sent - dropped - read, twice }
}

/// `TAUT_BROKER_SEEDS`: how many, in place of 24, or 60 in the long form; from `TAUT_SEED` on.
#[test]
fn however_a_broker_is_killed_the_account_adds_up() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seeds = number("TAUT_BROKER_SEEDS").unwrap_or_else(|| if support::long() { 60 } else { 24 });
    let first = number("TAUT_SEED").unwrap_or(1);
    let (next, all) = (AtomicU64::new(first), Mutex::new((0, 0, Sums::default())));
    // Each waits more than it works.
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
                        break;
                    }
                    let Some(sums) = killed(seed) else { continue };
                    let mut all = all.lock().unwrap();
                    let (runs, lossy, so_far) = &mut *all;
                    *runs += 1;
                    *lossy += u64::from(sums.missing > 0);
                    for (sum, more) in [
                        (&mut so_far.sent, sums.sent),
                        (&mut so_far.read, sums.read),
                        (&mut so_far.dropped, sums.dropped),
                        (&mut so_far.missing, sums.missing),
                        (&mut so_far.twice, sums.twice),
                    ] {
                        *sum += more;
                    }
                }
            });
        }
    });
    let (runs, lossy, sums) = all.into_inner().unwrap();
    println!("{runs} seeds, in {lossy} of which messages are missing: {sums:?}");
}
