//! From bytes to the JSON values of events.

use std::cell::Cell;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use taut_event::Sink;

use super::counts::{LONGEST, NEWLINE, SEPARATOR};
use super::log::Log;
use crate::error::Error;
use crate::packet::Ending;

/// A sequence of JSON texts, each behind a separator: the first one is about the trace, the others are events.
pub(super) fn sequence<S: Sink>(from: impl Read, log: &mut Log<'_, S>) -> Result<Ending, Error> {
    texts(BufReader::new(from), SEPARATOR, 0, true, log)
}

/// The texts from this byte on, which have this between them.
fn texts<S: Sink>(
    mut from: impl BufRead,
    between: u8,
    mut at: u64,
    mut is_first: bool,
    log: &mut Log<'_, S>,
) -> Result<Ending, Error> {
    let mut text = Vec::new();
    loop {
        text.clear();
        let begin = at;
        let read = from.by_ref().take(LONGEST).read_until(between, &mut text);
        let read = match read {
            Ok(read) => read as u64,
            Err(error) => return ended_by(error, begin),
        };
        at += read;
        log.counts.bytes = at;
        if read == 0 {
            return Ok(Ending::Complete);
        }
        let is_whole = text.pop_if(|last| *last == between).is_some();
        if !is_whole && read == LONGEST {
            log.counts.damaged += 1;
            loop {
                let (skipped, found) = match from.fill_buf() {
                    Ok([]) => return Ok(Ending::Truncated { at: begin }),
                    Ok(ahead) => match ahead.iter().position(|byte| *byte == between) {
                        Some(index) => (index + 1, true),
                        None => (ahead.len(), false),
                    },
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return ended_by(error, begin),
                };
                from.consume(skipped);
                at += skipped as u64;
                if found {
                    break;
                }
            }
            continue;
        }
        // A separator may be missing between some, or be there beside the ends of lines.
        let text = text.strip_prefix(&[SEPARATOR]).unwrap_or(&text);
        for value in serde_json::Deserializer::from_slice(text).into_iter::<Value>() {
            match value {
                Ok(value) if is_first => {
                    is_first = false;
                    log.version(&value)?;
                    log.check_version()?;
                    log.begin();
                    log.trace(&value["trace"])?;
                }
                Ok(value) => log.event(&value)?,
                Err(error) if error.is_eof() && !is_whole => return Ok(Ending::Truncated { at: begin }),
                Err(_) => log.counts.damaged += 1,
            }
        }
    }
}

/// What an error of reading says of the file. One of decompression ends it, and so does an overlong event.
fn ended_by(error: io::Error, at: u64) -> Result<Ending, Error> {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Ok(Ending::Truncated { at }),
        io::ErrorKind::InvalidData => Ok(Ending::Damaged { at, why: error.to_string() }),
        _ => Err(error.into()),
    }
}

/// One JSON object with all traces; or one that is only about the trace, and its events on the lines behind it.
pub(super) fn object<S: Sink>(mut from: impl Read, log: &mut Log<'_, S>) -> Result<Ending, Error> {
    let mark = b"\xef\xbb\xbf";
    let mut begin = Vec::new();
    from.by_ref().take(mark.len() as u64).read_to_end(&mut begin)?;
    let mut at = 0;
    if begin == mark {
        at = mark.len() as u64;
        begin.clear();
    }
    let from = io::Cursor::new(begin).chain(from);
    let meter = Meter { left: Cell::new(LONGEST), at: Cell::new(at) };
    let mut metered = Metered { from: BufReader::new(from), meter: &meter };
    let mut json = serde_json::Deserializer::from_reader(&mut metered);
    let result = At { log, meter: &meter, place: Place::File }.deserialize(&mut json);
    let at = meter.at.get();
    log.counts.bytes = at;
    if let Some(refused) = log.refused.take() {
        return Err(refused);
    }
    match result {
        Ok(()) if log.has_list => nothing_more(metered.from, at),
        Ok(()) => {
            log.check_version()?;
            log.begin_unless_begun();
            texts(metered.from, NEWLINE, at, false, log)
        }
        Err(error) if error.is_io() => ended_by(error.into(), at),
        Err(error) if error.is_eof() => Ok(Ending::Truncated { at }),
        Err(error) => Ok(Ending::Damaged { at, why: error.to_string() }),
    }
}

/// What stands behind the object would be left out untold.
fn nothing_more(mut from: impl BufRead, mut at: u64) -> Result<Ending, Error> {
    loop {
        let ahead = match from.fill_buf() {
            Ok([]) => return Ok(Ending::Complete),
            Ok(ahead) => ahead,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return ended_by(error, at),
        };
        let blank = ahead.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let is_all = blank == ahead.len();
        from.consume(blank);
        at += blank as u64;
        if !is_all {
            return Ok(Ending::Damaged { at, why: "more stands behind the end of the log".to_owned() });
        }
    }
}

/// How much has been read, and how much more may be before the next event is handed over.
struct Meter {
    left: Cell<u64>,
    at: Cell<u64>,
}

struct Metered<'m, R> {
    from: R,
    meter: &'m Meter,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let left = self.meter.left.get();
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(to.len());
        if most == 0 && !to.is_empty() {
            let why = format!("an event, or what stands between them, is longer than {LONGEST} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let read = self.from.read(&mut to[..most])?;
        self.meter.left.set(left - read as u64);
        self.meter.at.set(self.meter.at.get() + read as u64);
        Ok(read)
    }
}

/// Where in the object the reading is.
#[derive(Clone, Copy)]
enum Place {
    File,
    Traces,
    Trace,
    Events,
}

struct At<'l, 'm, 's, S> {
    log: &'l mut Log<'s, S>,
    meter: &'m Meter,
    place: Place,
}

impl<'de, S: Sink> DeserializeSeed<'de> for At<'_, '_, '_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        match self.place {
            Place::File | Place::Trace => from.deserialize_map(self),
            Place::Traces | Place::Events => from.deserialize_seq(self),
        }
    }
}

impl<'de, S: Sink> Visitor<'de> for At<'_, '_, '_, S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.place {
            Place::File => "an object with traces",
            Place::Traces => "a list of traces",
            Place::Trace => "a trace",
            Place::Events => "a list of events",
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { log, meter, place } = self;
        if matches!(place, Place::Trace) {
            log.begin();
        }
        while let Some(key) = map.next_key::<String>()? {
            let further = match (place, key.as_str()) {
                (Place::File, "traces") => Some(Place::Traces),
                (Place::File, "trace") => Some(Place::Trace),
                (Place::Trace, "events") => Some(Place::Events),
                _ => None,
            };
            if let Some(place) = further {
                map.next_value_seed(At { log: &mut *log, meter, place })?;
                continue;
            }
            let refused = match (place, key.as_str()) {
                (Place::File, "qlog_version" | "qlog_format" | "file_schema" | "serialization_format")
                | (Place::Trace, "vantage_point" | "common_fields") => {
                    let value: Value = map.next_value()?;
                    let object = Value::Object([(key, value)].into_iter().collect());
                    if matches!(place, Place::File) { log.version(&object) } else { log.trace(&object) }
                }
                _ => map.next_value::<IgnoredAny>().map(|_| Ok(()))?,
            };
            if let Err(error) = refused {
                log.refused = Some(error);
                return Err(A::Error::custom("refused"));
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Self { log, meter, place } = self;
        log.has_list = true;
        loop {
            meter.left.set(LONGEST);
            match place {
                Place::Traces => {
                    let seed = At { log: &mut *log, meter, place: Place::Trace };
                    if list.next_element_seed(seed)?.is_none() {
                        return Ok(());
                    }
                }
                _ => match list.next_element::<Value>()? {
                    Some(event) => {
                        if let Err(error) = log.event(&event) {
                            log.refused = Some(error);
                            return Err(A::Error::custom("refused"));
                        }
                    }
                    None => return Ok(()),
                },
            }
        }
    }
}
