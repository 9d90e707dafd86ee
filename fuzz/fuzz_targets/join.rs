//! Any bytes are two captures of the same connections, which are put on one timeline or not.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use libfuzzer_sys::fuzz_target;
use taut_event::{Address, SackBlock, SegmentFlags, TimestampOption};
use taut_explain::join::{DatagramSighting, Sighting, Sightings, join};
use taut_time::Instant;

fuzz_target!(|data: &[u8]| {
    let mut files = [Sightings::new(), Sightings::new()];
    let mut times = [0_u64; 2];
    let mut frames = [0; 2];
    let mut packets = data.chunks_exact(10);
    for packet in packets.by_ref() {
        let [kind, wait, seq, ack, length, number, stamp, left, right, flags] = *packet else { return };
        // Most packets are in both files, at the second place a little later or sooner.
        for file in 0..2 {
            if kind & (1 << file) != 0 {
                continue;
            }
            let is_turned = kind & 4 != 0;
            let way = 50_000 * file as u64;
            times[file] = times[file].wrapping_add(u64::from(wait) << (flags >> 4));
            let at = if is_turned { times[file].wrapping_sub(way) } else { times[file].wrapping_add(way) };
            frames[file] += 1;
            let end =
                |last: u8| Address { ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), port: 1 + u16::from(kind >> 6) };
            let (from, to) = if is_turned { (end(2), end(1)) } else { (end(1), end(2)) };
            if flags & 8 != 0 {
                let kept = [seq, ack, left, right];
                files[file].add_datagram(&DatagramSighting {
                    at: Instant::from_nanos(at),
                    frame: frames[file],
                    from,
                    to: if kind & 8 != 0 { Address { port: 53, ..to } } else { to },
                    payload: u32::from(length >> file),
                    kept: &kept[..kept.len().min(length.into())].repeat(6)[..],
                    identification: (number != 0).then_some(number.into()),
                    transaction: (kind & 32 != 0).then_some(stamp.into()),
                });
                continue;
            }
            // Near the end of the numbers, and sometimes far from each other.
            let place = |byte: u8| u32::from(byte).wrapping_mul(if kind & 8 != 0 { 100 } else { 0x0200_0001 });
            let block = SackBlock { from: place(left), to: place(right), is_duplicate: kind & 32 != 0 };
            files[file].add(&Sighting {
                at: Instant::from_nanos(at),
                frame: frames[file],
                from,
                to,
                sequence: place(seq).wrapping_sub(1000),
                acknowledgement: place(ack).wrapping_sub(1000),
                flags: SegmentFlags(flags),
                payload: u32::from(length) * 50,
                window: 100,
                identification: (number != 0).then_some(number.into()),
                timestamps: (stamp != 0).then_some(TimestampOption { value: stamp.into(), echo: 1 }),
                sack: (kind & 16 != 0).then_some(block),
                permits_sack: stamp & 1 != 0,
            });
        }
    }
    let [reference, other] = &files;
    for (reference, other) in [(reference, other), (other, reference), (reference, reference)] {
        let Ok(joined) = join(reference, other) else { continue };
        for way in [&joined.there, &joined.back] {
            let losses = &way.losses;
            assert!(losses.repeated <= losses.segments && losses.between.segments <= losses.segments, "{losses:?}");
            let named = [&losses.between, &losses.beyond, &losses.beyond_or_needless, &losses.needless];
            let datagrams = &way.datagrams;
            assert!(datagrams.between.segments <= datagrams.datagrams, "{datagrams:?}");
            assert!(named.iter().all(|lost| lost.first.len() as u64 == lost.segments.min(8)), "{losses:?}");
        }
        if std::ptr::eq(reference, other) {
            let between = joined.there.losses.between.segments + joined.back.losses.between.segments;
            assert_eq!(between, 0, "{joined:?}");
        }
    }
});
