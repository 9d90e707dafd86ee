use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;

use taut_event::{
    Address, Call, Direction, Event, Flow, FlowId, FlowKey, Listening, LocalKey, Sink, Task, TaskId, VantageId, What,
    printable,
};
use taut_time::{ByteRange, Instant, Layer};

use super::line::{
    CLOSINGS, LARGEST, LOCAL, LONGEST, MARK, MOST_FLOWS, MOST_NAMES, READ, RELEASES, STAMPS, coverage, value_of,
};
use super::state::Numbers;
use super::{channel, link};
use crate::buffer::Buffer;
use crate::error::Error;
use crate::packet::Ending;

/// What a live trace saw.
pub struct Recorded<'a> {
    from: Buffer<Box<dyn Read + Send + 'a>>,
}

/// What such a file has beside events.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedEnd {
    /// When the trace ended; `None` if the file ends before it says so.
    pub at: Option<Instant>,
    /// What was last said of the trace: a JSON object, as it stands in the file.
    pub facts: Option<String>,
    /// Programs of threads, as they may be printed.
    pub programs: HashMap<u32, String>,
    /// The trace saw more, for which the file had no room.
    pub is_full: bool,
    /// Events read.
    pub events: u64,
    /// Bytes read, uncompressed.
    pub bytes: u64,
    /// How the reading ended.
    pub ending: Ending,
}

impl<'a> Recorded<'a> {
    pub(crate) const fn new(from: Buffer<Box<dyn Read + Send + 'a>>) -> Self {
        Self { from }
    }

    /// Hands over all flows and events. Flows that were open at the end are not closed. `tick` is called every few
    /// thousand lines.
    ///
    /// # Errors
    ///
    /// When the stream can't be read, or is of a version that is not read.
    pub fn read(self, sink: &mut impl Sink, mut tick: impl FnMut()) -> Result<RecordedEnd, Error> {
        let mut from = BufReader::new(self.from);
        let mut state = Reading { sink, at: 0, number: 0, open: HashMap::new(), end: RecordedEnd::new() };
        let (mut bytes, mut number) = (Vec::new(), 0_u64);
        loop {
            bytes.clear();
            let at = state.end.bytes;
            let read = match from.by_ref().take(LONGEST).read_until(b'\n', &mut bytes) {
                Ok(read) => read as u64,
                Err(error) => return state.ended_by(error),
            };
            let is_whole = bytes.pop_if(|last| *last == b'\n').is_some();
            if read == 0 || !is_whole && read < LONGEST {
                if read > 0 || state.end.at.is_none() {
                    state.end.ending = Ending::Truncated { at };
                }
                return Ok(state.end);
            }
            let damaged = |why: &str| Ending::Damaged { at, why: why.to_owned() };
            let line = match std::str::from_utf8(&bytes) {
                Ok(line) if is_whole => line,
                Ok(_) => {
                    state.end.ending = damaged("a line is longer than 1 MiB");
                    return Ok(state.end);
                }
                Err(_) => {
                    state.end.ending = damaged("a line is no text");
                    return Ok(state.end);
                }
            };
            state.number = number + 1;
            let taken = match (number, state.end.at) {
                (0, _) if line.strip_prefix(MARK).is_some_and(|version| READ.contains(&version)) => Ok(()),
                (0, _) => {
                    let form = "a recorded trace of another version of taut";
                    return Err(Error::NotYet { form, instead: "explain it with that version" });
                }
                (_, Some(_)) => Err("the trace has ended, and more comes behind it"),
                _ => state.line(line),
            };
            if let Err(why) = taken {
                state.end.ending = damaged(why);
                return Ok(state.end);
            }
            state.end.bytes += read;
            number += 1;
            if number.is_multiple_of(1 << 14) {
                tick();
            }
        }
    }
}

impl RecordedEnd {
    fn new() -> Self {
        Self {
            at: None,
            facts: None,
            programs: HashMap::new(),
            is_full: false,
            events: 0,
            bytes: 0,
            ending: Ending::Complete,
        }
    }
}

struct Reading<'s, S> {
    sink: &'s mut S,
    /// Time of the event before.
    at: u64,
    /// The line, counted from 1.
    number: u64,
    /// Flows that are open, each with its last state.
    open: HashMap<u32, Numbers>,
    end: RecordedEnd,
}

const NOT_A_NUMBER: &str = "a number of a line is none, or is missing";

impl<S: Sink> Reading<'_, S> {
    /// What an error of reading says of the file. One of decompression ends it.
    fn ended_by(mut self, error: io::Error) -> Result<RecordedEnd, Error> {
        let at = self.end.bytes;
        self.end.ending = match error.kind() {
            io::ErrorKind::UnexpectedEof => Ending::Truncated { at },
            io::ErrorKind::InvalidData => Ending::Damaged { at, why: error.to_string() },
            _ => return Err(error.into()),
        };
        Ok(self.end)
    }

    fn line(&mut self, line: &str) -> Result<(), &'static str> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut fields = rest.split(' ');
        match word {
            "f" => self.flow(&mut fields),
            "z" => self.close(&mut fields),
            "m" => {
                self.end.facts = Some(rest.to_owned());
                Ok(())
            }
            "p" => self.name(rest),
            "x" => {
                self.end.is_full = true;
                Ok(())
            }
            "." => {
                let at = number(fields.next())?;
                if at > LARGEST {
                    return Err("the time of the end can't be");
                }
                self.end.at = Some(Instant::from_nanos(at));
                ended(&mut fields)
            }
            _ => self.event(word, &mut fields),
        }
    }

    fn flow<'t>(&mut self, fields: &mut impl Iterator<Item = &'t str>) -> Result<(), &'static str> {
        let id: u32 = number(fields.next())?;
        if id >= MOST_FLOWS || self.open.contains_key(&id) {
            return Err("a flow has a number that is too large, or that an open one has");
        }
        let bits = fields.next().and_then(|bits| u32::from_str_radix(bits, 16).ok());
        let coverage = bits.and_then(coverage).ok_or("a flow has no coverage that is known")?;
        let from_start = match fields.next() {
            Some("s") => true,
            Some("-") => false,
            _ => return Err("a flow does not say whether its begin was seen"),
        };
        let kind = fields.next().ok_or("a flow has no kind")?;
        let key = if kind == "tcp" {
            FlowKey::Tcp(address(fields.next())?, address(fields.next())?)
        } else if kind == "channel" {
            FlowKey::L2cap(channel::read_key(fields).ok_or("a channel has a name that can't be")?)
        } else if kind == "link" {
            FlowKey::Link(link::read_key(fields).ok_or("a link has a name that can't be")?)
        } else {
            let kind =
                LOCAL.into_iter().find(|known| known.name() == kind).ok_or("a flow has no kind that is known")?;
            let inode = number(fields.next())?;
            let ends = match fields.next() {
                None => None,
                own => Some((address(own)?, address(fields.next())?)),
            };
            FlowKey::Local(LocalKey { kind, inode, ends })
        };
        ended(fields)?;
        self.open.insert(id, Numbers::default());
        self.sink.flow(FlowId(id), &Flow { key, from_start, coverage });
        Ok(())
    }

    fn close<'t>(&mut self, fields: &mut impl Iterator<Item = &'t str>) -> Result<(), &'static str> {
        let id: u32 = number(fields.next())?;
        let why = value_of(&CLOSINGS, fields.next().unwrap_or_default()).ok_or("a flow ends for no reason")?;
        ended(fields)?;
        self.open.remove(&id).ok_or("a flow that is not open ends")?;
        self.sink.close(FlowId(id), why);
        Ok(())
    }

    fn name(&mut self, rest: &str) -> Result<(), &'static str> {
        let (thread, name) = rest.split_once(' ').ok_or("a thread has no name")?;
        let thread = number(Some(thread))?;
        let name: String = serde_json::from_str(name).map_err(|_| "a thread's name is no JSON string")?;
        if self.end.programs.len() < MOST_NAMES {
            self.end.programs.insert(thread, printable(&name));
        }
        Ok(())
    }

    fn event<'t>(&mut self, word: &str, fields: &mut impl Iterator<Item = &'t str>) -> Result<(), &'static str> {
        const UNKNOWN: &str = "a line begins with a word that is not known";
        let mut marks = word.chars();
        let (letter, arrow) = marks.next().zip(marks.next()).ok_or(UNKNOWN)?;
        let direction = match (arrow, marks.next()) {
            ('>', None) => Direction::Forward,
            ('<', None) => Direction::Backward,
            _ => return Err(UNKNOWN),
        };
        let id: u32 = number(fields.next())?;
        let before = *self.open.get(&id).ok_or("an event is of a flow that is not open")?;
        let step: i64 = number(fields.next())?;
        let at = self.at.checked_add_signed(step).filter(|at| *at <= LARGEST).ok_or("an event's time can't be")?;
        let who = match fields.next() {
            Some("-") => None,
            thread => Some(TaskId(number(thread)?)),
        };
        let mut bytes = ByteRange::default();
        let mut layer = Layer::Socket;
        let what = match letter {
            'h' => {
                let (what, range) = channel::read_event(fields).ok_or("an event of a channel can't be")?;
                (bytes, layer) = (range, Layer::Driver);
                What::L2cap(what)
            }
            'j' => {
                let (waiting, backlog) = (number(fields.next())?, number(fields.next())?);
                What::Listens(Listening { waiting, backlog })
            }
            'y' => {
                layer = Layer::Driver;
                What::Hci(link::read_event(fields).ok_or("an event of a link can't be")?)
            }
            'n' => What::IsEnd(channel::read_end(fields).ok_or("the channel of a socket can't be")?),
            'c' => What::Call(Call::Begin { number: number(fields.next())? }),
            'C' => What::Call(Call::End { number: number(fields.next())?, result: number(fields.next())? }),
            'w' => What::Task(Task::Slept),
            'k' => What::Task(Task::Woken),
            't' => What::Task(Task::Ran { waited_ns: number(fields.next())? }),
            'v' => What::Task(Task::TimedOut { waited_ns: number(fields.next())? }),
            'u' => What::Task(Task::Polled { waited_ns: number(fields.next())? }),
            'g' => What::Gap,
            'W' => What::Awaits,
            'A' => What::Accepted,
            'M' => What::IsPath,
            'o' => {
                let word = fields.next().unwrap_or_default();
                What::Released(value_of(&RELEASES, word).ok_or("what let bytes go is not known")?)
            }
            'q' => {
                let now = Numbers::read(fields.next().unwrap_or_default(), before);
                let read = now.and_then(|now| Some((now, now.state()?)));
                let (now, state) = read.ok_or("a socket's state can't be")?;
                self.open.insert(id, now);
                What::State(state)
            }
            letter => {
                let stamp = value_of(&STAMPS, letter).ok_or(UNKNOWN)?;
                let (start, length): (u64, u64) = (number(fields.next())?, number(fields.next())?);
                let end = start.checked_add(length).filter(|end| *end <= LARGEST);
                // One call or segment has no more.
                let end = end.filter(|_| length <= u32::MAX.into()).ok_or("an event's bytes can't be")?;
                bytes = ByteRange::new(start, end);
                What::Reached(stamp)
            }
        };
        ended(fields)?;
        self.at = at;
        self.end.events += 1;
        self.sink.event(&Event {
            at: Instant::from_nanos(at),
            seen_by: VantageId(0),
            flow: FlowId(id),
            direction,
            layer,
            what,
            bytes,
            who,
            // A packet of a link may be looked up.
            place: if matches!(what, What::Hci(_)) { self.number } else { 0 },
        });
        Ok(())
    }
}

fn number<T: std::str::FromStr>(field: Option<&str>) -> Result<T, &'static str> {
    field.and_then(|field| field.parse().ok()).ok_or(NOT_A_NUMBER)
}

fn address(field: Option<&str>) -> Result<Address, &'static str> {
    let address: SocketAddr = field.and_then(|field| field.parse().ok()).ok_or("an address can't be read")?;
    Ok(Address { ip: address.ip(), port: address.port() })
}

fn ended<'t>(fields: &mut impl Iterator<Item = &'t str>) -> Result<(), &'static str> {
    if fields.next().is_none() { Ok(()) } else { Err("a line has more than it should") }
}
