//! Links that stand still for want of credits which never come: known from what was negotiated, so
//! that nobody has to wait for long.

use taut_air::l2cap::{CreditPolicy, ReceiveBuffer};
use taut_link::{Link, SocketOption};
use taut_time::Duration;

/// `sizeof(struct sk_buff)` on 64 bits, in bytes.
const SK_BUFF: usize = 232;
/// A credit takes two connection intervals; after so many nothing is on its way any more.
const INTERVALS: u32 = 8;
/// The least that is waited.
const LEAST: Duration = Duration::from_secs(1);

/// What there was no answer to, when it was because of that.
pub(crate) const WHY: &str =
    "the stream: nothing moves, as the receiver's buffer (SO_RCVBUF) is too small for the credits of a whole SDU,";

/// How long to wait on a link before it counts as standing still, when the receiver's kernel can't
/// be expected to give the credits for messages of that length; `None` on any other link.
pub(crate) fn expected(link: &Link, down: bool, bytes: usize) -> Option<Duration> {
    if !link.endpoint().has_radio() {
        return None;
    }
    of_options(&SocketOption::in_force(link), down, bytes)
}

fn of_options(options: &[String], down: bool, bytes: usize) -> Option<Duration> {
    let text = |name: &str| options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str| text(name)?.parse::<usize>().ok();
    let names = if down {
        ["credit_rule", "rcvbuf", "rcv_mtu", "rcv_mps"]
    } else {
        ["peer_credit_rule", "peer_rcvbuf", "snd_mtu", "snd_mps"]
    };
    let [rule, buffer, mtu, mps] = names;
    text(rule).filter(|rule| *rule == "rcvbuf")?;
    let (size, mtu, mps) = (number(buffer)?, number(mtu)?, number(mps)?);
    let buffer = ReceiveBuffer { size, overhead: SK_BUFF, used: 0 };
    CreditPolicy::LinuxRecvbuf.stands_still(bytes.min(mtu), mtu, mps, buffer)?;
    let interval = Duration::from_micros(u64::try_from(number("connection_interval_us")?).ok()?);
    Some((interval * INTERVALS).max(LEAST))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(changes: &[&str], down: bool, bytes: usize) -> Option<Duration> {
        let base = [
            "connection_interval_us=15000",
            "rcvbuf=212992",
            "rcv_mtu=672",
            "rcv_mps=247",
            "credit_rule=rcvbuf",
            "snd_mtu=672",
            "snd_mps=247",
            "peer_credit_rule=rcvbuf",
        ];
        let options: Vec<String> = changes.iter().chain(&base).map(|option| (*option).to_owned()).collect();
        of_options(&options, down, bytes)
    }

    #[test]
    fn only_a_buffer_too_small_for_an_sdu_makes_impatient() {
        assert_eq!(of(&["peer_rcvbuf=4608"], false, 67_200), Some(LEAST));
        assert_eq!(of(&["rcvbuf=4608", "connection_interval_us=500000"], true, 67_200), Some(Duration::from_secs(4)));
        assert_eq!(of(&["peer_rcvbuf=4608"], false, 128), None);
        assert_eq!(of(&["peer_rcvbuf=9216"], false, 67_200), None);
        // A peer that tells nothing of its buffer.
        assert_eq!(of(&[], false, 67_200), None);
        assert_eq!(of(&["credit_rule=sdu", "rcvbuf=4608"], true, 67_200), None);
    }
}
