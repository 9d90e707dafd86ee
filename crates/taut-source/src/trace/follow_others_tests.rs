//! Sockets and pipes that no state of TCP tells of.

use super::*;

#[test]
fn a_pipe_is_one_flow_and_a_write_to_it_is_there_to_be_read() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    let (write, read) = (libc::SYS_write, libc::SYS_read);
    tell_other(&mut follower, &mut heard, &other(What::PipeCall, 5, 100, write, 0, &[]));
    tell_other(&mut follower, &mut heard, &other(What::PipeReturn, 0, 200, write, 64, &[(Known::PipeHead, 1)]));
    let state = heard.state();
    assert_eq!((state.unread_bytes, state.send_buffer_full), (1, false));
    tell_other(&mut follower, &mut heard, &other(What::PipeCall, 5, 300, read, 0, &[(Known::PipeHead, 1)]));
    let empty = [(Known::PipeHead, 1), (Known::PipeTail, 1)];
    tell_other(&mut follower, &mut heard, &other(What::PipeReturn, 0, 400, read, 64, &empty));
    assert_eq!(heard.state().unread_bytes, 0);
    let stamps: Vec<Stamp> = heard.stamps().into_iter().map(|(stamp, _)| stamp).collect();
    assert_eq!(stamps, [Stamp::WriteBegin, Stamp::Received, Stamp::WriteEnd, Stamp::Read]);
    let FlowKey::Local(key) = heard.flows[0] else { panic!("{:?}", heard.flows) };
    assert_eq!((key.kind, key.inode, heard.flows.len()), (LocalKind::Pipe, 5, 1));
    // Counters wrap, and half of the room is what counts as full.
    let wrapped = [(Known::PipeHead, 3), (Known::PipeTail, u64::from(u32::MAX) - 4)];
    tell_other(&mut follower, &mut heard, &other(What::PipeCall, 5, 500, write, 0, &wrapped));
    assert_eq!((heard.state().unread_bytes, heard.state().send_buffer_full), (8, true));
    // Its reader may have emptied it before the write came back.
    let more_than_all = 100 * 4096;
    tell_other(&mut follower, &mut heard, &other(What::PipeReturn, 0, 550, write, more_than_all, &[]));
    assert_eq!((heard.state().unread_bytes, heard.state().send_buffer_full), (0, true));
    // Another pipe at the same place of memory.
    tell_other(&mut follower, &mut heard, &other(What::PipeCall, 6, 600, write, 0, &[]));
    assert_eq!((heard.flows.len(), heard.closed), (2, 1));
}

#[test]
fn a_unix_socket_that_no_call_was_seen_on_is_not_met_and_lost_records_are_a_gap() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    tell_other(&mut follower, &mut heard, &other(What::SocketReady, 0, 50, 0, 0, &[]));
    tell_other(&mut follower, &mut heard, &other(What::SocketReturn, 0, 60, libc::SYS_sendto, 9, &[]));
    assert_eq!((heard.flows.len(), heard.events.len()), (0, 0));
    tell_other(&mut follower, &mut heard, &other(What::SocketCall, 5, 100, libc::SYS_recvfrom, 0, &[]));
    tell_other(&mut follower, &mut heard, &other(What::SocketReady, 0, 150, 0, 0, &[(Known::ReceiveQueued, 1)]));
    let mut back = other(What::SocketReturn, 0, 200, libc::SYS_recvfrom, 9, &[]);
    tell_other(&mut follower, &mut heard, back.long(at::LOST, 3));
    assert!(heard.events.iter().any(|(_, what, _)| *what == Happened::Gap));
    // A refused write tells so, and its state.
    tell_other(&mut follower, &mut heard, &other(What::SocketCall, 5, 300, libc::SYS_sendto, 0, &[]).clone());
    let full = [(Known::SendBytes, 501)];
    let mut refused = other(What::SocketReturn, 0, 400, libc::SYS_sendto, -11, &full);
    tell_other(&mut follower, &mut heard, refused.long(at::LOST, 3));
    assert!(heard.state().send_buffer_full);
    let number = libc::SYS_sendto as u16;
    assert_eq!(heard.events.last().unwrap().1, Happened::Call(Call::End { number, result: -11 }));
}

/// It was the same socket before its program connected it.
#[test]
fn the_first_call_on_a_socket_of_udp_may_be_before_it_was_connected() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    for (inode, ns, peer) in [(5, 100, 0_u16), (5, 500, 53), (6, 900, 53)] {
        let ports = u64::from(peer.to_be()) | 4000 << 16;
        let set = [(Known::Family, 2), (Known::PortPair, ports)];
        tell_other(&mut follower, &mut heard, &other(What::SocketCall, inode, ns, libc::SYS_recvfrom, 0, &set));
        let expected = if inode == 5 { 100 } else { ns };
        assert_eq!(follower.others.first_call(inode), Some(Instant::from_nanos(expected)));
    }
    assert_eq!((heard.flows.len(), heard.closed), (3, 2));
}

/// Its first datagram gives it a port, and the answer comes to the same socket.
#[test]
fn a_socket_of_udp_that_had_no_port_is_one_flow() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    for (number, own) in [(libc::SYS_sendto, 0), (libc::SYS_recvfrom, 4000)] {
        let set = [(Known::Family, 2), (Known::PortPair, own << 16)];
        tell_other(&mut follower, &mut heard, &other(What::SocketCall, 5, 100, number, 0, &set));
        tell_other(&mut follower, &mut heard, &other(What::SocketReturn, 0, 200, number, 8, &set));
    }
    let FlowKey::Local(key) = heard.flows[0] else { panic!("{:?}", heard.flows) };
    assert_eq!((key.kind, key.ends, heard.flows.len()), (LocalKind::Udp, None, 1));
    assert_eq!(heard.stamps(), [(Stamp::WriteBegin, 0), (Stamp::WriteEnd, 8), (Stamp::Read, 8)]);
}

proptest! {
    #[test]
    fn no_record_is_too_wild(
        records in prop::collection::vec((1_u8..=20, prop::collection::vec(any::<u8>(), 0..500)), 0..20),
    ) {
        let (mut follower, mut heard) = (Follower::new(true, true, HashMap::new()), Heard::default());
        let (layout, others) = (plain(), plain_others());
        for (what, wild) in records {
            let mut made = Made::new(What::Queue, CLIENT).0;
            made.truncate(made.len() - wild.len() % 100);
            for (place, byte) in made.iter_mut().skip(at::RECEIVING as usize).zip(&wild) {
                *place = *byte;
            }
            made[at::WHAT as usize] = what;
            follower.take(&layout, Some(&others), &made, &mut heard);
            follower.take(&layout, Some(&others), &wild, &mut heard);
        }
        for (_, _, bytes) in &heard.events {
            prop_assert!(bytes.start <= bytes.end);
        }
    }
}
