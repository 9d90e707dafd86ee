use super::terms::Completion;

/// What is known of a controller's buffers and habits.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Name for scenarios.
    pub name: &'static str,
    /// ACL buffers.
    pub acl_buffers: u16,
    /// Bytes in each.
    pub acl_size: u16,
    /// When it reports completed packets.
    pub completion: Completion,
    /// Most data PDUs sent in one event.
    pub packets_per_event: Option<u16>,
    /// Where the figures come from, and what in them is assumed.
    pub source: &'static str,
}

/// Controllers by name.
pub const PROFILES: [Profile; 6] = [
    Profile {
        name: "ideal",
        acl_buffers: 64,
        acl_size: 251,
        completion: Completion::Each,
        packets_per_event: None,
        source: "no limit of its own",
    },
    Profile {
        name: "intel-ax200",
        acl_buffers: 3,
        acl_size: 251,
        completion: Completion::Each,
        packets_per_event: None,
        source: "LE buffers 3 x 251: linux-bluetooth mailing list, 2020-11-12 and 2021-11-01; the rest is assumed",
    },
    Profile {
        name: "cyw20704",
        acl_buffers: 8,
        acl_size: 251,
        completion: Completion::Each,
        packets_per_event: None,
        source: "LE buffers 8 x 251: raspberrypi/pico-sdk issue 1342; the rest is assumed",
    },
    Profile {
        name: "cyw43439-old",
        acl_buffers: 8,
        acl_size: 251,
        completion: Completion::Each,
        packets_per_event: Some(1),
        source: "one packet per interval before a firmware update: raspberrypi/pico-sdk issue 1342; the buffers are assumed",
    },
    Profile {
        name: "macos",
        acl_buffers: 8,
        acl_size: 251,
        completion: Completion::Each,
        packets_per_event: Some(5),
        source: "about five PDUs per event: danahern/nrf_tests, zephyr_workspace/SUMMARY.md; the buffers are assumed",
    },
    Profile {
        name: "btvirt",
        acl_buffers: 1,
        acl_size: 192,
        completion: Completion::Each,
        packets_per_event: None,
        source: "ACL buffers 1 x 192: BlueZ emulator/btdev.c",
    },
];

/// Sleep clock accuracy classes (Vol 6, Part B, 2.3.3.1), worst case of each in ppm.
const ACCURACIES: [u32; 8] = [500, 250, 150, 100, 75, 50, 30, 20];

/// The class that a declared accuracy falls into.
pub(super) fn accuracy_class(ppm: u16) -> u8 {
    ACCURACIES.iter().rposition(|&limit| u32::from(ppm) <= limit).unwrap_or(0) as u8
}

pub(super) const fn accuracy_of_class(class: u8) -> u32 {
    ACCURACIES[(class & 7) as usize]
}
