//! What comes beside the usual: out of order, before anybody accepts, and when an end is closed.

use super::*;

const READ: i64 = libc::SYS_read;

fn gaps(heard: &Heard) -> usize {
    heard.events.iter().filter(|(_, what, _)| *what == Happened::Gap).count()
}

fn bytes(heard: &Heard, wanted: Stamp) -> u64 {
    heard.stamps().into_iter().filter(|(stamp, _)| *stamp == wanted).map(|(_, bytes)| bytes).sum()
}

/// A read up to there, of what has come up to `came`.
fn read(what: What, result: i64, to: u64, came: u64) -> Made {
    let mut made = Made::new(what, CLIENT);
    made.number(READ, result).set(Known::CopiedSeq, to).set(Known::RcvNxt, came);
    made
}

#[test]
fn what_came_out_of_order_is_read_without_a_gap_and_counts_once() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    tell(&mut follower, &mut heard, &read(What::Call, 0, 500, 500));
    for (seq, next) in [(510, 500), (500, 500)] {
        let mut came = Made::new(What::Receive, CLIENT);
        tell(&mut follower, &mut heard, came.set(Known::RcvNxt, next).segment(seq, 100, 10, 100));
    }
    tell(&mut follower, &mut heard, &read(What::Return, 20, 520, 520));
    // A segment that the kernel had no room for comes again.
    for _ in 0..2 {
        let mut came = Made::new(What::Receive, CLIENT);
        came.set(Known::RcvNxt, 520).set(Known::CopiedSeq, 520).segment(520, 100, 10, 100);
        tell(&mut follower, &mut heard, &came);
    }
    assert_eq!((gaps(&heard), bytes(&heard, Stamp::Received), bytes(&heard, Stamp::Read)), (0, 30, 20));
}

#[test]
fn the_end_of_the_peer_is_no_byte_and_leaves_nothing_behind() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    follower.want(ends(&plain(), &Made::new(What::Call, CLIENT).0[HEADER as usize..]).unwrap());
    tell(&mut follower, &mut heard, &read(What::Call, 0, 500, 500));
    let mut came = Made::new(What::Receive, CLIENT);
    tell(&mut follower, &mut heard, came.segment(500, 100, 10, 100));
    tell(&mut follower, &mut heard, &read(What::Return, 10, 510, 510));
    // It has closed its own side; the peer's FIN closes the other one, and the port was given back.
    let mut close = read(What::Close, 0, 510, 511);
    close.set(Known::State, 5).set(Known::PortPair, u64::from(80_u16.to_be()));
    tell(&mut follower, &mut heard, &close);
    assert_eq!((heard.closed, gaps(&heard), bytes(&heard, Stamp::Read)), (1, 0, 10));
    assert_eq!((follower.counts(), follower.by_ends.len(), follower.wanted.len()), ((0, 0), 0, 0));
    assert_eq!(follower.gone.len(), 1);
}

#[test]
fn what_is_left_in_a_closed_connection_is_read_to_its_end() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    tell(&mut follower, &mut heard, &read(What::Call, 0, 500, 500));
    let mut arrived = read(What::Arrived, 0, 500, 530);
    tell(&mut follower, &mut heard, arrived.set(Known::State, 5));
    let closed = |made: &mut Made| {
        made.set(Known::State, 7).set(Known::PortPair, u64::from(80_u16.to_be()));
    };
    let mut close = read(What::Close, 0, 500, 531);
    close.set(Known::State, 5).set(Known::PortPair, u64::from(80_u16.to_be()));
    tell(&mut follower, &mut heard, &close);
    assert_eq!((heard.closed, heard.state().unread_bytes), (0, 30));
    let mut back = read(What::Return, 20, 520, 531);
    closed(&mut back);
    tell(&mut follower, &mut heard, &back);
    assert_eq!((heard.closed, heard.state().unread_bytes), (0, 10));
    let mut again = read(What::Call, 0, 520, 531);
    closed(&mut again);
    tell(&mut follower, &mut heard, &again);
    // With the last bytes the FIN counts as read.
    let mut last = read(What::Return, 10, 531, 531);
    closed(&mut last);
    tell(&mut follower, &mut heard, &last);
    assert_eq!((heard.closed, heard.flows.len(), gaps(&heard)), (1, 1, 0));
    assert_eq!((bytes(&heard, Stamp::Received), bytes(&heard, Stamp::Read)), (30, 30));
    // Nobody is met by a call on what is over.
    let mut late = read(What::Call, 0, 531, 531);
    closed(&mut late);
    tell(&mut follower, &mut heard, &late);
    assert_eq!((follower.counts(), heard.flows.len()), ((0, 0), 1));
}

#[test]
fn what_comes_before_a_connection_is_accepted_is_told_when_it_is_known_whose_it_is() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    let mut opened = Made::new(What::Opened, CLIENT);
    tell(&mut follower, &mut heard, opened.set(Known::State, 3));
    for number in 0..100 {
        let mut came = Made::new(What::Receive, CLIENT);
        came.set(Known::RcvNxt, 500 + 10 * number).segment(500 + 10 * number as u32, 100, 10, 100);
        tell(&mut follower, &mut heard, &came);
    }
    assert_eq!((heard.flows.len(), heard.events.len()), (0, 0));
    tell(&mut follower, &mut heard, &read(What::Call, 0, 500, 1500));
    assert_eq!((heard.flows.len(), gaps(&heard), bytes(&heard, Stamp::Received)), (1, 0, 1000));
    // What came with the segment that opened it was told by nobody (`TCP_DEFER_ACCEPT`).
    let mut opened = Made::new(What::Opened, SERVER);
    tell(&mut follower, &mut heard, opened.set(Known::State, 3));
    let mut call = Made::new(What::Call, SERVER);
    tell(&mut follower, &mut heard, call.number(READ, 0).set(Known::RcvNxt, 540));
    assert_eq!((heard.flows.len(), gaps(&heard), bytes(&heard, Stamp::Received)), (2, 0, 1040));
}
