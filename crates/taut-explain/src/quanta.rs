//! Times that are built into systems, by which waits are known. A time alone proves nothing: what is named is a set of
//! waits whose middle half lies within what a timer allows, and where a program may have such a timer, too, that is
//! said.

use crate::tcp::Spread;

const MS: u64 = 1_000_000;
/// Fewer waits are chance.
const LEAST_WAITS: u64 = 5;

/// Delays of acknowledgements. Linux waits for 40 ms at least (`TCP_DELACK_MIN`, include/net/tcp.h), rounded up to its
/// tick, which is 1 to 10 ms long; Windows for 50 ms in newer versions and 200 ms in older ones (`DelayedAckTimeout` of
/// Set-NetTCPSetting, `TcpDelAckTicks`), BSD for up to 200 ms; 500 ms is the most that RFC 1122 allows (4.2.3.2).
const ACKS: [(std::ops::Range<u64>, &str); 4] = [
    (36 * MS..47 * MS, "the delayed-ACK timer of Linux (40 ms and its tick)"),
    (47 * MS..54 * MS, "a delayed-ACK timer: 50 ms of newer Windows, or 40 ms of a Linux with a tick of 10 ms"),
    (170 * MS..230 * MS, "the delayed-ACK timer of BSD and older Windows (200 ms)"),
    (490 * MS..530 * MS, "a delayed-ACK timer of 500 ms, the longest that RFC 1122 allows"),
];

/// Whose timer so many delays of acknowledgements look like, by the quarters of them.
pub(crate) fn ack_timer([low, high]: [u64; 2]) -> Option<&'static str> {
    ACKS.into_iter().find(|(range, _)| range.contains(&low) && range.contains(&high)).map(|(_, name)| name)
}

/// Times of peers' answers, each with what has such a timer on the peer's way to an answer: the shortest and the
/// longest that counts. 1 s is the initial timeout of RFC 6298, 3 s that of RFC 2988; 5 s is `RES_TIMEOUT` of glibc
/// (resolv.h).
const ANSWERS: [(std::ops::Range<u64>, &str); 6] = [
    (39 * MS..47 * MS, "40 ms, Linux's delayed ACK (of a hop behind the peer)"),
    (49 * MS..54 * MS, "50 ms, the delayed ACK of newer Windows (of a hop behind the peer)"),
    (
        199 * MS..212 * MS,
        "200 ms, Linux's least retransmission timeout, TCP_CORK, or the delayed ACK of older Windows (on a hop behind \
         the peer)",
    ),
    (1000 * MS..1030 * MS, "1 s, a connection of the peer whose SYN is sent again (RFC 6298)"),
    (3000 * MS..3060 * MS, "3 s, a connection of the peer whose SYN is sent again (RFC 2988, or 1 s and 2 s)"),
    (5000 * MS..5060 * MS, "5 s, a name that the peer looks up (glibc's resolver)"),
];

/// What the times of a peer's answers are as long as.
pub(crate) fn of_answers(answers: &Spread) -> Option<&'static str> {
    let count = answers.count();
    if count < LEAST_WAITS {
        return None;
    }
    let (low, high) = (answers.at(count / 4 + 1)?, answers.at(count - count / 4)?);
    ANSWERS.into_iter().find(|(range, _)| range.contains(&low) && range.contains(&high)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(of: impl IntoIterator<Item = u64>) -> Option<&'static str> {
        let mut spread = Spread::default();
        of.into_iter().for_each(|us| spread.add(us * 1000));
        of_answers(&spread)
    }

    #[test]
    fn a_timer_is_named_by_the_middle_half() {
        assert!(ack_timer([40 * MS, 44 * MS]).unwrap().contains("Linux (40 ms"));
        assert!(ack_timer([50 * MS, 51 * MS]).unwrap().contains("50 ms of newer Windows, or 40 ms"));
        assert!(ack_timer([199 * MS, 201 * MS]).unwrap().contains("older Windows"));
        for (ms, name) in [(41, "40 ms"), (50, "50 ms"), (201, "200 ms"), (1001, "1 s"), (3001, "3 s"), (5005, "5 s")] {
            assert!(answers((0..9).map(|n| ms * 1000 + n * 100)).unwrap().starts_with(name), "{ms}");
        }
        // A few others beside are no matter.
        assert!(answers([41_000, 41_200, 43_000, 40_100, 42_000, 300, 90_000]).is_some());
    }

    #[test]
    fn what_varies_has_the_same_median_and_no_name() {
        assert_eq!(ack_timer([25 * MS, 61 * MS]), None);
        assert_eq!(ack_timer([30 * MS, 31 * MS]), None);
        assert_eq!(answers((0..40).map(|n| 20_000 + n * 1_100)), None);
        assert_eq!(answers((0..40).map(|n| 30_000 + n)), None);
        // No timer is early, and few are chance.
        assert_eq!(answers([38_000; 20]), None);
        assert_eq!(answers([41_000; 4]), None);
    }
}
