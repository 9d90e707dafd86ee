//! Zip archives, such as Android's bug reports: which of the files in one is the capture, and its bytes.
//!
//! Of the directory, which may be long, only one file and a few names are kept.

use std::cmp::Reverse;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::sync::{Arc, Mutex, PoisonError};

use flate2::bufread::DeflateDecoder;
use rawzip::{CompressionMethod, ErrorKind, RangeReader, ReaderAt, ZipArchiveEntryWayfinder, ZipLocator};

use crate::error::Error;

/// Where a file begins, and where the directory does in an archive without files.
const MAGIC: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];
/// Above this an archive is made to be slow.
const MOST_FILES: u64 = 1 << 20;
/// A log that is no longer has a header and no packet.
const BARE: u64 = 24;
/// So many names are told.
const NAMES: usize = 6;
const LONGEST_NAME: usize = 120;
/// What is inflated at once.
const STEP: usize = 256 << 10;

const NO_LOG: &str = ". Android keeps the log only if `Enable Bluetooth HCI snoop log` is on in the developer \
                      options: turn it on, turn Bluetooth off and on, and make another bug report";

/// The file of an archive that is read as a capture.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Member {
    /// Its path in the archive.
    pub name: String,
    /// Other files that are captures by their names: the first few.
    pub others: Vec<String>,
    /// How many of those there are.
    pub other_count: u64,
}

/// How well a name fits; what fits best is the smallest.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Fit {
    /// What Android calls the log of now.
    Android,
    /// Older logs of Android (`.last`), and what makers of phones call theirs (`hci_snoop….cfa`).
    Bluetooth,
    Capture,
}

struct Found {
    name: String,
    fit: Fit,
    is_bare: bool,
    size: u64,
    method: CompressionMethod,
    is_encrypted: bool,
    place: ZipArchiveEntryWayfinder,
}

/// The archive's file, for the directory and for the bytes of a file in it.
struct Shared<R>(Mutex<R>);

impl<R: Read + Seek> ReaderAt for Shared<R> {
    fn read_at(&self, to: &mut [u8], at: u64) -> io::Result<usize> {
        let mut from = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        from.seek(SeekFrom::Start(at))?;
        from.read(to)
    }
}

pub(crate) fn is_zip(begin: &[u8]) -> bool {
    MAGIC.iter().any(|magic| begin.starts_with(magic))
}

/// The bytes of the file in an archive that fits best, checked against their length and their checksum.
pub(crate) fn open<'a>(mut from: impl Read + Seek + Send + 'a) -> Result<(Box<dyn Read + Send + 'a>, Member), Error> {
    let mut buffer = vec![0; rawzip::MAX_CENTRAL_DIRECTORY_RECORD_SIZE];
    let length = from.seek(SeekFrom::End(0))?;
    let from = Arc::new(Shared(Mutex::new(from)));
    let archive = ZipLocator::new().locate_in_reader(from, &mut buffer, length).map_err(|(_, error)| damaged(error))?;
    let mut best: Option<Found> = None;
    let (mut names, mut others) = (Vec::new(), Vec::new());
    let (mut files, mut fitting, mut is_report) = (0_u64, 0_u64, false);
    let mut entries = archive.entries(&mut buffer);
    while let Some(entry) = entries.next_entry().map_err(damaged)? {
        if entry.is_dir() {
            continue;
        }
        files += 1;
        if files > MOST_FILES {
            return Err(not_yet("a zip archive with more than a million files"));
        }
        let path = entry.file_path();
        let name = readable(path.as_bytes());
        is_report |= name.starts_with("bugreport") || name.starts_with("dumpstate") || name == "main_entry.txt";
        if names.len() < NAMES {
            names.push(name.clone());
        }
        // One file in an archive is meant, whatever its name.
        let is_only = files == 1 && archive.entries_hint() == 1 && !is_report;
        let Some(fit) = fit(&name).or_else(|| is_only.then_some(Fit::Capture)) else { continue };
        fitting += 1;
        let size = entry.uncompressed_size_hint();
        let found = Found {
            is_bare: size <= BARE,
            method: entry.compression_method(),
            is_encrypted: entry.flags().is_encrypted(),
            place: entry.wayfinder(),
            name,
            fit,
            size,
        };
        let other = match &best {
            Some(known) if known.key() <= found.key() => Some(found.name),
            _ => best.replace(found).map(|known| known.name),
        };
        others.extend(other.filter(|_| others.len() < NAMES));
    }
    let Some(found) = best else {
        return Err(Error::NoMember { holds: list(&names, files), advice: if is_report { NO_LOG } else { "" } });
    };
    let entry = archive.get_entry(found.place).map_err(damaged)?;
    let (start, end) = entry.compressed_data_range();
    let stored = RangeReader::new(Arc::clone(archive.get_ref()), start..end);
    let bytes: Box<dyn Read + Send + 'a> = match found.method {
        _ if found.is_encrypted => return Err(not_yet("a zip archive whose capture is encrypted")),
        CompressionMethod::STORE => Box::new(stored),
        CompressionMethod::DEFLATE => Box::new(DeflateDecoder::new(BufReader::with_capacity(STEP, stored))),
        _ => return Err(not_yet("a zip archive whose capture is neither stored nor deflated")),
    };
    // What inflates to more than the directory says is damage, so a small file can't pose as a large one for long.
    let bytes = Box::new(entry.verifying_reader(bytes));
    Ok((bytes, Member { name: found.name, others, other_count: fitting - 1 }))
}

impl Found {
    /// What is the smallest is read: a log with packets before one without, then by name, then the longest.
    const fn key(&self) -> (bool, Fit, Reverse<u64>) {
        (self.is_bare, self.fit, Reverse(self.size))
    }
}

fn fit(path: &str) -> Option<Fit> {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    if name == "btsnoop_hci.log" {
        return Some(Fit::Android);
    }
    if name.starts_with("btsnoop") || name.starts_with("hci_snoop") || name.ends_with(".cfa") {
        return Some(Fit::Bluetooth);
    }
    let plain = [".gz", ".zst"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
    let is_capture = [".pcap", ".pcapng", ".cap", ".snoop", ".btsnoop"].iter().any(|end| plain.ends_with(end));
    is_capture.then_some(Fit::Capture)
}

/// A name as it may be printed: without what steers a terminal, and not endless.
pub(crate) fn readable(name: &[u8]) -> String {
    let name: String = String::from_utf8_lossy(name).chars().take(LONGEST_NAME).collect();
    taut_event::printable(&name).chars().take(LONGEST_NAME).collect()
}

fn list(names: &[String], files: u64) -> String {
    match files.saturating_sub(names.len() as u64) {
        _ if names.is_empty() => "nothing".to_owned(),
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

const fn not_yet(form: &'static str) -> Error {
    Error::NotYet { form, instead: "unpack it and name the capture in it" }
}

fn damaged(error: rawzip::Error) -> Error {
    let why = match error.into_kind() {
        ErrorKind::IO(error) => return Error::Read(error),
        ErrorKind::Eof | ErrorKind::MissingEndOfCentralDirectory => {
            "its directory is not whole; is the zip archive cut off?".to_owned()
        }
        other => format!("its zip archive is damaged: {other}"),
    };
    Error::Read(io::Error::new(io::ErrorKind::InvalidData, why))
}
