//! Packets that a controller may have and the log lacks: when they are, and when they are no longer.

use super::*;

const OTHER: u8 = 0x41;

/// LE Connection Complete of another handle, and Disconnection Complete.
fn other_begins(log: &mut Log) {
    log.event(&[&LE_LINK[..5], &[OTHER], &LE_LINK[6..]].concat());
}

fn other_ends(log: &mut Log) {
    log.event(&[4, 0x05, 4, 0, OTHER, 0, 8]);
}

/// A Write Command on it.
fn other_sends(log: &mut Log) {
    log.packet(false, &[2, OTHER, 0, 7, 0, 3, 0, 4, 0, 0x52, 1, 0]);
}

/// LE Read Buffer Size.
fn takes(log: &mut Log, packets: u8) {
    log.event(&[4, 0x0e, 7, 1, 0x02, 0x20, 0, 251, 0, packets]);
}

/// What a channel that was told of a loss or of hidden packets has to go by.
fn last_told(log: &Log) -> Option<L2cap> {
    let mut told = log.told.0.iter().rev();
    told.find(|what| matches!(what, L2cap::Hidden { .. } | L2cap::Lost)).copied()
}

#[test]
fn what_was_sent_to_a_link_that_is_over_hides_nothing_for_ever() {
    let mut log = Log::new();
    takes(&mut log, 3);
    log.event(&LE_LINK);
    other_begins(&mut log);
    other_ends(&mut log);
    log.frame += 5_000;
    other_sends(&mut log);
    log.sends();
    log.completed(1);
    assert_eq!(hidden(&log), L2cap::Hidden { of_link: false, of_any: true });
    log.frame += 41_000;
    log.sends();
    assert_eq!(hidden(&log), NONE_HIDDEN);
    // Nor does it have a buffer.
    let is_full = |log: &Log| log.told.0.contains(&L2cap::Buffers { in_use: 3, of: 3 });
    log.told.0.clear();
    log.completed(1);
    (0..2).for_each(|_| log.sends());
    assert!(!is_full(&log));
    log.sends();
    assert!(is_full(&log));
}

/// Some hosts log events in another thread than what they send.
#[test]
fn what_comes_just_behind_the_end_of_its_link_begins_none() {
    let mut log = Log::new();
    log.event(&LE_LINK);
    other_begins(&mut log);
    other_ends(&mut log);
    other_sends(&mut log);
    log.sends();
    assert_eq!((hidden(&log), log.counts.flows), (NONE_HIDDEN, 1));
    // What comes from the peer does.
    log.packet(true, &[2, OTHER, 0x20, 7, 0, 3, 0, 4, 0, 0x1b, 1, 0]);
    other_sends(&mut log);
    assert_eq!(log.counts.flows, 2);
}

/// A link is seen first with a packet that takes the last buffer.
#[test]
fn a_channel_that_begins_with_the_last_buffer_is_told_that_nothing_is_hidden() {
    let mut log = Log::new();
    takes(&mut log, 2);
    log.event(&LE_LINK);
    log.sends();
    log.completed(1);
    log.lost = 1;
    log.acl(true, false, &[1, 0, 0x41, 0, 9]);
    log.frame += 2_000;
    log.sends();
    assert_eq!(hidden(&log), NONE_HIDDEN);
    other_sends(&mut log);
    assert_eq!(last_told(&log), Some(NONE_HIDDEN));
}

/// More is through than went, while another link has all buffers.
#[test]
fn a_channel_that_lacks_packets_while_all_buffers_are_taken_is_told_that_nothing_is_hidden() {
    let mut log = Log::new();
    takes(&mut log, 2);
    log.event(&LE_LINK);
    other_begins(&mut log);
    log.sends();
    log.completed(1);
    (0..2).for_each(|_| other_sends(&mut log));
    log.completed(1);
    assert_eq!((losses(&log), last_told(&log)), (1, Some(NONE_HIDDEN)));
}

#[test]
fn a_pdu_that_shows_a_loss_and_takes_the_last_buffer_hides_nothing() {
    let mut log = enhanced(None);
    log.completed(1);
    takes(&mut log, 1);
    log.acl(false, false, &[2, 0, 0x50, 0, 0x11, 0x11]);
    log.event(&[4, 0x0e, 4, 1, 0, 0, 0]);
    assert_eq!((losses(&log), last_told(&log)), (1, Some(NONE_HIDDEN)));
}

/// LE Connection Complete with an interval of a second and a latency of 3.
#[test]
fn how_long_an_event_may_take_is_known_behind_several_losses() {
    for idle in [0, 6_000] {
        let mut log = Log::new();
        log.event(&[&LE_LINK[..15], &[0x20, 3, 3, 0], &LE_LINK[19..]].concat());
        log.sends();
        log.completed(1);
        for lost in 1..=2 {
            log.frame += idle;
            log.lost = lost;
            log.acl(true, false, &[1, 0, 0x41, 0, 9]);
        }
        log.frame += 3_000;
        log.acl(true, false, &[1, 0, 0x41, 0, 9]);
        assert_eq!(hidden(&log), ALL_HIDDEN, "{idle}");
        log.frame += 3_000;
        log.acl(true, false, &[1, 0, 0x41, 0, 9]);
        assert_eq!(hidden(&log), NONE_HIDDEN, "{idle}");
    }
}
