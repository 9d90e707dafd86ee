//! Zip archives and captures of Solaris snoop: which file of an archive is read, and what damage comes to.

#[allow(dead_code, reason = "these tests use a part of it")]
mod packets;

use std::io::{Cursor, Read, Seek, Write};

use packets::files::{Zipped, snoop, zip};
use packets::pcap;
use proptest::prelude::*;
use taut_capture::{Ending, Error, LinkType, Member, Reader};

const AT: u64 = 1_700_000_000_123_456_000;

/// Times, lengths and link types of the packets, and how the reading ended.
type Seen = (Vec<(u64, usize, u16)>, Ending);

fn seen(reader: &mut Reader<'_>) -> Seen {
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        let LinkType(link) = packet.link;
        packets.push((packet.at.map_or(0, |at| at.as_nanos()), packet.bytes.len(), link));
    }
    (packets, reader.ending().clone())
}

fn read(file: &[u8]) -> (Seen, Option<Member>) {
    let mut reader = Reader::of_file(Cursor::new(file)).unwrap();
    let seen = seen(&mut reader);
    (seen, reader.member().cloned())
}

fn error(file: &[u8]) -> Error {
    Reader::of_file(Cursor::new(file)).err().expect("it is refused")
}

/// A capture of so many packets, each of so many bytes.
fn capture(packets: usize, length: usize) -> Vec<u8> {
    pcap(false, true, 101, &vec![(AT, vec![7; length]); packets])
}

fn deflated(name: &str, plain: &[u8]) -> Zipped {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(plain).unwrap();
    Zipped { packed: Some((8, encoder.finish().unwrap())), ..Zipped::stored(name, plain) }
}

#[test]
fn a_file_in_an_archive_is_read_as_if_it_stood_alone() {
    let file = capture(3000, 100);
    let whole = (vec![(AT, 100, 101); 3000], Ending::Complete);
    let stored = Zipped::stored("slow.pcap", &file);
    let packed = deflated("slow.pcap", &file);
    for one in [stored, packed] {
        for is_zip64 in [false, true] {
            for has_descriptor in [false, true] {
                let archive = zip(&[Zipped { is_zip64, has_descriptor, ..one.clone() }]);
                let (seen, member) = read(&archive);
                assert_eq!(seen, whole, "zip64 {is_zip64}, descriptor {has_descriptor}");
                assert_eq!(member.unwrap(), Member { name: "slow.pcap".into(), others: Vec::new(), other_count: 0 });
            }
        }
    }
    // A file of gzip in the archive; and whatever its name, if it is the only one.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&file).unwrap();
    assert_eq!(read(&zip(&[Zipped::stored("what", &gzip.finish().unwrap())])).0, whole);
    // A file that is no archive is read as ever.
    assert_eq!(read(&file), (whole, None));
}

/// Paths as phones have them: the log of now, wherever it stands, before older ones.
#[test]
fn of_a_bug_report_the_bluetooth_log_is_read() {
    let log = |packets| capture(packets, 10);
    let path = |name: &str| format!("FS/data/misc/bluetooth/logs/{name}");
    let files = |last: usize, now: usize| {
        zip(&[
            Zipped::stored("version.txt", b"2.0"),
            Zipped::stored("bugreport-oriole.txt", &[b'x'; 5000]),
            Zipped::stored(&path(""), b""),
            Zipped::stored(&path("btsnoop_hci.log.last"), &log(last)),
            deflated(&path("btsnoop_hci.log"), &log(now)),
            Zipped::stored("FS/data/log/bt/btsnoop_hci.log", &log(1)),
            Zipped::stored("slow.pcap", &log(9)),
        ])
    };
    let (seen, member) = read(&files(8, 5));
    let member = member.unwrap();
    assert_eq!((seen.0.len(), member.name.as_str(), member.other_count), (5, path("btsnoop_hci.log").as_str(), 3));
    assert_eq!(member.others, [&path("btsnoop_hci.log.last"), "FS/data/log/bt/btsnoop_hci.log", "slow.pcap"]);
    // Of two of the same name the longer one.
    let (seen, member) = read(&files(8, 0));
    assert_eq!((seen.0.len(), member.unwrap().name.as_str()), (1, "FS/data/log/bt/btsnoop_hci.log"));
    for name in ["btsnoop_hci.log.last", "btsnoop_hci.cfa", "BT_HCI_2024.cfa", "hci_snoop20240102.log"] {
        let archive = zip(&[
            Zipped::stored("main_entry.txt", b"bugreport.txt"),
            Zipped::stored(&path(name), &log(2)),
            // Bluetooth was just turned on: a header, and nothing yet.
            Zipped::stored(&path("btsnoop_hci.log"), b"btsnoop\0\0\0\0\x01\0\0\x03\xea"),
        ]);
        assert_eq!((read(&archive).0.0.len(), read(&archive).1.unwrap().name), (2, path(name)));
    }
}

#[test]
fn an_archive_that_can_not_be_read_says_why_and_what_to_do() {
    let says = |archive: &[u8]| error(archive).to_string();
    let nothing = says(&zip(&[]));
    assert!(nothing.contains("it holds nothing"), "{nothing}");
    let report: Vec<_> = (0..9).map(|n| Zipped::stored(&format!("bugreport-{n}.txt"), b"x")).collect();
    let report = says(&zip(&report));
    assert!(report.contains("bugreport-5.txt and 3 more") && report.contains("developer options"), "{report}");
    let other = says(&zip(&[Zipped::stored("a\x1b[31m.txt", b"x"), Zipped::stored("b.jpg", b"x")]));
    assert!(other.contains("it holds a\\u{1b}[31m.txt, b.jpg") && !other.contains("developer"), "{other}");
    let file = Zipped::stored("a.pcap", &capture(5, 10));
    let is_encrypted = true;
    assert!(says(&zip(&[Zipped { is_encrypted, ..file.clone() }])).contains("encrypted"));
    let packed = Some((14, vec![1, 2, 3]));
    assert!(says(&zip(&[Zipped { packed, ..file.clone() }])).contains("neither stored nor deflated"));
    let whole = zip(&[file]);
    assert!(says(&whole[..whole.len() - 9]).contains("cut off"), "{}", says(&whole[..whole.len() - 9]));
    assert!(says(&zip(&[Zipped::stored("a.pcap", b"What is this?")])).contains("no capture of packets"));
    // From a pipe the directory at the end can't be had.
    let piped = Reader::new(Cursor::new(&whole)).err().expect("it is refused").to_string();
    assert!(piped.contains("from a pipe"), "{piped}");
}

/// What inflates to more than the directory says, or to something else, ends the reading where that shows.
#[test]
fn a_file_that_is_not_what_the_directory_says_is_damaged() {
    let bomb = deflated("a.pcap", &capture(1, 30_000_000));
    let said = Zipped { packed: bomb.packed.clone(), ..Zipped::stored("a.pcap", &capture(1, 100)) };
    let refused = error(&zip(&[said])).to_string();
    assert!(refused.contains("size"), "{refused}");
    let mut archive = zip(&[Zipped::stored("a.pcap", &capture(30_000, 100))]);
    let length = archive.len();
    archive[length / 2] ^= 1;
    let ((packets, ending), _) = read(&archive);
    assert!(!packets.is_empty(), "what comes before the end of the file is read");
    assert!(matches!(&ending, Ending::Damaged { why, .. } if why.contains("checksum")), "{ending:?}");
}

#[test]
fn snoop_of_solaris_with_padding_and_without() {
    let packets = vec![(AT, vec![1; 61]), (AT + 1_000_000_000, vec![2; 1514])];
    for (link, padding) in [(4, 3), (0, 0), (4, 200)] {
        let file = snoop(link, padding, &packets);
        let mut reader = Reader::new(Cursor::new(&file)).unwrap();
        let whole = (vec![(AT, 61, 1), (AT + 1_000_000_000, 1514, 1)], Ending::Complete);
        assert_eq!(seen(&mut reader), whole, "padding {padding}");
        assert_eq!((reader.lost_by_capture(), reader.resolution().as_micros()), (1, 1));
        assert_eq!(read(&file[..file.len() - padding]).0, whole);
        assert_eq!(
            read(&file[..file.len() - padding - 1]).0.1,
            Ending::Truncated { at: 16 + 24 + 61 + padding as u64 }
        );
    }
    assert!(error(&snoop(8, 0, &packets)).to_string().contains("editcap"));
    let mut file = snoop(4, 0, &packets);
    file[16 + 8..16 + 12].copy_from_slice(&80_u32.to_be_bytes());
    assert!(matches!(read(&file).0.1, Ending::Damaged { at: 16, .. }));
}

/// What is read of a stream at most, for each byte of the archive: deflate has no more.
const MOST_INFLATED: u64 = 1100;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever stands in a file: no panic, an end, and no packet from nowhere.
    #[test]
    fn any_bytes_are_read_to_an_end(
        which in 0..4_usize,
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        kept in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let file = capture(3, 20);
        let mut bytes = match which {
            0 => snoop(4, 2, &[(AT, vec![1; 30]), (AT, vec![2; 30])]),
            1 => zip(&[Zipped::stored("x.txt", b"x"), Zipped::stored("a.pcap", &file)]),
            2 => zip(&[Zipped { is_zip64: true, has_descriptor: true, ..deflated("btsnoop_hci.log", &file) }]),
            _ => zip(&[]),
        };
        for (place, byte) in places {
            *place.get_mut(&mut bytes) = byte;
        }
        if is_cut {
            bytes.truncate(kept.index(bytes.len()));
        }
        if let Ok(mut reader) = Reader::of_file(Cursor::new(&bytes)) {
            while let Ok(Some(packet)) = reader.next_packet() {
                prop_assert!(packet.bytes.len() as u64 <= bytes.len() as u64 * MOST_INFLATED);
            }
            prop_assert!(reader.position() <= bytes.len() as u64 * MOST_INFLATED);
        }
    }
}

/// An archive of many files costs time, and of memory only what is told.
#[test]
fn a_long_directory_is_walked_with_little_memory() {
    let many: Vec<_> = (0..20_000).map(|n| Zipped::stored(&format!("{n}.pcap"), b"")).collect();
    let archive = zip(&many);
    let mut reads = Counting { from: Cursor::new(&archive), read: 0 };
    let error = Reader::of_file(&mut reads).err().expect("they are all empty");
    assert!(matches!(error, Error::Empty), "{error}");
    assert!(reads.read < 2 * archive.len() as u64, "{} of {} bytes", reads.read, archive.len());
}

struct Counting<R> {
    from: R,
    read: u64,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let read = self.from.read(to)?;
        self.read += read as u64;
        Ok(read)
    }
}

impl<R: Seek> Seek for Counting<R> {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        self.from.seek(to)
    }
}
