//! Sockets of Bluetooth: what they are, when all that was written has left, and how they get their names.

use taut_event::{ChannelEnd, LocalKind};

use super::*;

const BLUETOOTH: u64 = 31;

/// A record of a socket of this protocol, with so many bytes taken of its send buffer.
fn record(what: What, protocol: u64, result: i64, taken: u64) -> Made {
    let set = [(Known::Family, BLUETOOTH), (Known::Protocol, protocol), (Known::SendBytes, 1 + taken)];
    other(what, 5, 100, libc::SYS_sendto, result, &set)
}

#[test]
fn sockets_that_carry_data_of_programs_are_met_and_no_others() {
    for (protocol, kind) in [(0, LocalKind::L2cap), (2, LocalKind::Sco), (3, LocalKind::Rfcomm)] {
        let (mut follower, mut heard) = (follower(), Heard::default());
        tell_other(&mut follower, &mut heard, &record(What::SocketCall, protocol, 0, 0));
        let FlowKey::Local(key) = heard.flows[0] else { panic!("{:?}", heard.flows) };
        assert_eq!((key.kind, key.inode), (kind, 5));
        assert!(follower.others.has_bluetooth);
    }
    let (mut follower, mut heard) = (follower(), Heard::default());
    // A socket of the host controller interface.
    tell_other(&mut follower, &mut heard, &record(What::SocketCall, 1, 0, 0));
    tell_other(&mut follower, &mut heard, &record(What::SocketReturn, 1, 7, 0));
    assert_eq!((heard.flows.len(), heard.events.len(), follower.others.has_bluetooth), (0, 0, false));
}

#[test]
fn a_write_tells_its_call_and_what_has_not_left() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    tell_other(&mut follower, &mut heard, &record(What::SocketCall, 0, 0, 0));
    assert_eq!(heard.state().unsent_bytes, 0);
    let number = libc::SYS_sendto as u16;
    let begin = |heard: &Heard| heard.events.iter().any(|one| one.1 == Happened::Call(Call::Begin { number }));
    assert!(begin(&heard));
    tell_other(&mut follower, &mut heard, &record(What::SocketReturn, 0, 100, 300));
    assert_eq!((heard.state().unsent_bytes, heard.stamps().last()), (300, Some(&(Stamp::WriteEnd, 100))));
    // Refused with room: it is the channel that takes nothing.
    tell_other(&mut follower, &mut heard, &record(What::SocketCall, 0, 0, 300));
    tell_other(&mut follower, &mut heard, &record(What::SocketReturn, 0, -11, 300));
    assert!(!heard.state().send_buffer_full);
    assert_eq!(heard.events.last().unwrap().1, Happened::Call(Call::End { number, result: -11 }));
}

#[test]
fn a_socket_is_asked_for_until_it_has_its_name() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    tell_other(&mut follower, &mut heard, &record(What::SocketCall, 0, 0, 0));
    let unnamed = follower.others.unnamed();
    assert_eq!(unnamed.iter().map(|one| (one.process, one.inode)).collect::<Vec<_>>(), [(7, 5)]);
    let end = ChannelEnd {
        adapter: Some(1),
        handle: 64,
        own: [1; 6],
        peer: [2; 6],
        number: 0x85,
        cids: [64, 65],
        is_nonblocking: false,
    };
    follower.others.name(unnamed[0].address, end, Instant::from_nanos(500), &mut heard);
    assert_eq!(heard.events.last().unwrap().1, Happened::IsEnd(end));
    assert!(follower.others.unnamed().is_empty());
    // Another socket at the same place of memory.
    let set = [(Known::Family, BLUETOOTH), (Known::SendBytes, 1)];
    tell_other(&mut follower, &mut heard, &other(What::SocketCall, 6, 600, libc::SYS_sendto, 0, &set));
    assert_eq!((heard.closed, follower.others.unnamed()[0].inode), (1, 6));
}
