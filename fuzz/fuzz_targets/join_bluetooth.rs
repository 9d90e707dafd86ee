//! Any bytes are two files of links of Bluetooth, which are put on one timeline or not.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_event::{Direction, LeHeader, LePdu};
use taut_explain::join::{Crossings, OnAir, join_bluetooth};
use taut_time::Instant;

fuzz_target!(|data: &[u8]| {
    let mut files = [Crossings::new(), Crossings::new()];
    let mut times = [1_000_000_000_u64; 2];
    for (number, op) in data.chunks_exact(6).enumerate() {
        let [kind, wait, which, value, shape, length] = *op else { return };
        for file in 0..2 {
            // Most of it is in both files.
            if which & (1 << file) != 0 {
                continue;
            }
            times[file] = times[file].wrapping_add(u64::from(wait) << (shape & 15));
            add(&mut files[file], (Instant::from_nanos(times[file]), number as u64 + 1), [kind, value, shape, length]);
        }
    }
    files.iter_mut().for_each(Crossings::finish);
    let [reference, other] = &files;
    for (reference, other) in [(reference, other), (other, reference), (reference, reference)] {
        let Ok(joined) = join_bluetooth(reference, other) else { continue };
        for way in &joined.bluetooth.expect("it is of Bluetooth").ways {
            let Some(split) = way.in_controller else { continue };
            assert_eq!(split.parts().iter().map(|(_, ns)| ns).sum::<u64>(), split.held_ns);
        }
    }
});

fn add(file: &mut Crossings, place: (Instant, u64), [kind, value, shape, length]: [u8; 4]) {
    let link = (0, u16::from(shape >> 6));
    let flow = u32::from(shape >> 6);
    let mut payload = [value; 64];
    payload[..4].copy_from_slice(&[length & 63, 0, 4, 0]);
    let payload = &payload[..usize::from(length & 63)];
    match kind & 15 {
        0 => file.connected(link, [Some(true), Some(false), None][usize::from(value) % 3], [1; 6]),
        1 => file.disconnected(link),
        2 => file.reset(0),
        3 => file.lost(),
        4 => file.completed(place, link, value.into()),
        5 => file.air_link(flow, (value & 1 == 0).then_some([[2; 6], [1; 6]])),
        6 => file.air_over(flow),
        7 => file.air_encrypted(flow, value & 1 == 0),
        8..=10 => {
            file.acl(place, link, kind & 16 != 0, kind & 32 == 0, payload, payload.len() + usize::from(kind >> 6));
        }
        _ => {
            let header = LeHeader {
                is_control: value & 1 != 0,
                continues: value & 2 != 0,
                sn: value & 4 != 0,
                nesn: value & 8 != 0,
                md: value & 16 != 0,
                length: length & 63,
            };
            let pdu = LePdu {
                header: (value & 64 == 0).then_some(header),
                hash: value.into(),
                air_ns: 100_000,
                phy: 1,
                begins_event: kind & 16 != 0,
                is_after_hole: kind & 64 != 0,
                unseen_events: u16::from(kind >> 7),
            };
            let way = if kind & 32 == 0 { Direction::Forward } else { Direction::Backward };
            file.air_pdu(place, flow, way, &pdu, OnAir { payload, is_deciphered: value & 128 != 0 });
        }
    }
}
