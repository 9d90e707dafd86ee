//! What waits for the program, and what it is not told of.

use super::*;

type Members<'a> = &'a [(Known, u64)];

/// The program has asked to be told only of so many bytes (`SO_RCVLOWAT`), or has read an urgent byte by itself.
#[test]
fn what_the_program_is_not_told_of_does_not_wait_for_it() {
    const FIN: (Known, u64) = (Known::State, 8);
    let least = |bytes| (Known::ReceiveLeast, bytes);
    let cases: [(u64, Members<'_>, u32); 10] = [
        (50, &[least(1)], 50),
        (50, &[least(1000)], 0),
        (1000, &[least(1000)], 1000),
        // No more come: the peer's FIN counts as a byte.
        (51, &[least(1000), FIN], 50),
        (1, &[], 1),
        // It has come; it was read; it was announced only; others stand before it.
        (1, &[(Known::UrgentData, 0x163)], 0),
        (1, &[(Known::UrgentData, 0x400)], 0),
        (1, &[(Known::UrgentData, 0x200)], 1),
        (3, &[(Known::UrgentData, 0x163)], 3),
        (0, &[least(1)], 0),
    ];
    for (came, members, unread) in cases {
        let (mut follower, mut heard) = (follower(), Heard::default());
        let mut read = Made::new(What::Call, CLIENT);
        read.set(Known::RcvNxt, 500 + came).number(libc::SYS_read, 0);
        members.iter().for_each(|(known, value)| _ = read.set(*known, *value));
        tell(&mut follower, &mut heard, &read);
        assert_eq!(heard.state().unread_bytes, unread, "{came} {members:?}");
    }
}
