use rustix::io::Errno;
use taut_link::{Error, Result, Session, SocketOption, clock};
use taut_time::{Duration, Framing, Instant, Timeline};

use super::peer::Peer;
use super::plan::{PacePlan, SETTLE};
use crate::interrupt::Interrupt;
use crate::observe::Observer;
use crate::tcp_facts::tcp_facts;
use taut_record::TcpFacts;

/// What one round gave.
pub(super) struct SentRound {
    pub(super) timeline: Timeline,
    pub(super) messages: u64,
    pub(super) segments: Option<u64>,
    pub(super) nagle: Option<bool>,
    pub(super) clock_uncertainty_ns: Option<u64>,
    pub(super) tcp: Option<TcpFacts>,
    pub(super) options: Vec<String>,
    /// Whether it is known what arrived, as far as the receiver tells at all.
    pub(super) is_told: bool,
    /// Whether the round came to its end.
    pub(super) complete: bool,
    /// Whether the peer was where it was asked to be.
    pub(super) is_placed: bool,
}

/// Sends one round over a new link. An error after the first message comes beside what was measured.
pub(super) fn send_round(plan: &PacePlan, peer: &Peer, interrupt: &Interrupt) -> Result<(SentRound, Option<Error>)> {
    let session = peer.open(plan, interrupt)?;
    let link = session.link();
    link.set_nonblocking(false)?;
    link.set_send_timeout(Some(Duration::from_secs(10)))?;
    clock::set_timer_slack(Duration::ZERO);
    if plan.fifo {
        clock::set_fifo_scheduling().map_err(|error| {
            Error::Unavailable(format!("SCHED_FIFO needs CAP_SYS_NICE or an RLIMIT_RTPRIO ({error}); leave --fifo out"))
        })?;
    }
    let segments_before = link.tcp_info().map(|info| info.data_segments_out);
    let mut observer = Observer::start(link, plan.message_bytes);
    let (messages, error) = send_on_schedule(plan, &session, &mut observer, interrupt);
    if plan.fifo {
        // Dropping a right that we hold does not fail.
        let _ = clock::set_default_scheduling();
    }
    let settled = settle(&session, &mut observer);
    let info = link.tcp_info();
    // Of one that did not go out whole a part may have.
    let at_most = messages.saturating_add(error.is_some().into()).saturating_mul(plan.message_bytes as u64);
    let report = peer.report(&session, at_most);
    let (nagle, options) =
        (link.endpoint().acknowledges().then(|| link.holds_small_writes()), SocketOption::in_force(link));
    let segments = match (info, segments_before) {
        (Some(info), Some(before)) => Some(info.data_segments_out.saturating_sub(before).into()),
        _ => (link.endpoint().framing() == Framing::Datagram).then_some(messages),
    };
    let clock_before = session.peer_clock();
    let is_placed = !matches!(peer, Peer::Server { .. }) || plan.spot.is_met([&session]);
    drop(session);
    let mut timeline = observer.into_timeline();
    let is_told = report.is_ok();
    let (clock_uncertainty_ns, collected) = match report {
        Ok(report) => (peer.place(&report, peer.clock_after(plan, clock_before)?, &mut timeline)?, Ok(())),
        Err(error) => (None, Err(error)),
    };
    let tcp = info.map(tcp_facts);
    let error = error.or_else(|| settled.and(collected).err());
    let complete = error.is_none() && !interrupt.is_set();
    let round = SentRound {
        messages,
        segments,
        nagle,
        clock_uncertainty_ns,
        tcp,
        options,
        timeline,
        is_told,
        complete,
        is_placed,
    };
    Ok((round, error))
}

/// The sending itself: how many messages went out, and what ended it early.
fn send_on_schedule(
    plan: &PacePlan,
    session: &Session,
    observer: &mut Observer,
    interrupt: &Interrupt,
) -> (u64, Option<Error>) {
    let link = session.link();
    let mut message = vec![0xA5; plan.message_bytes];
    let each = plan.time / u32::try_from(plan.rounds.max(1)).unwrap_or(u32::MAX);
    let count = u64::try_from(each.as_nanos() / plan.period.as_nanos()).unwrap_or(u64::MAX).max(1);
    let period_ns = u64::try_from(plan.period.as_nanos()).unwrap_or(u64::MAX);
    // One period to fall into step: the first wake-up is not the first of its kind.
    let first = clock::now() + plan.period.min(Duration::from_millis(100));
    for sequence in 0..count {
        let intended = Instant::from_nanos(first.as_nanos().saturating_add(period_ns.saturating_mul(sequence)));
        if link.endpoint().has_broker()
            && let Err(error) = answer_broker(session, observer, intended, interrupt)
        {
            return (sequence, Some(error));
        }
        while !clock::sleep_until(intended) {
            if interrupt.is_set() {
                return (sequence, None);
            }
        }
        if interrupt.is_set() {
            return (sequence, None);
        }
        session.mark(&mut message, sequence);
        observer.intend(intended, message.len());
        if let Err(error) = write(session, observer, &message).and_then(|()| observer.drain(link)) {
            return (sequence, Some(error));
        }
        if let Err(error) = throw_away_answers(session) {
            return (sequence + 1, Some(error));
        }
    }
    (count, None)
}

fn write(session: &Session, observer: &mut Observer, message: &[u8]) -> Result<()> {
    let link = session.link();
    let mut rest = message;
    while !rest.is_empty() {
        let begin = clock::now();
        match link.send(rest) {
            Ok(sent) => {
                observer.wrote(link, sent, begin, clock::now());
                rest = &rest[sent..];
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let endpoint = link.endpoint().to_string();
                return Err(Error::Silent { endpoint, to: "what was sent: it reads nothing", after_ms: 10_000 });
            }
            Err(errno) => return Err(link.error("send on", errno)),
        }
    }
    Ok(())
}

/// A broker that waits for our next word would seem to hold what it may not pass on yet: with quality of service 2 a
/// message goes on when we have released it.
fn answer_broker(session: &Session, observer: &mut Observer, until: Instant, interrupt: &Interrupt) -> Result<()> {
    while !interrupt.is_set() {
        match session.link().wait_readable(until) {
            Ok(()) if clock::now() >= until => return Ok(()),
            Ok(()) => {
                // Timestamps that nobody takes end each wait (POLLERR).
                observer.drain(session.link())?;
                throw_away_answers(session)?;
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(()),
            Err(errno) => return Err(session.link().error("wait on", errno)),
        }
    }
    Ok(())
}

/// A plain echo server would stop reading if nobody read what it sends.
/// A datagram that nobody takes shows as an error here, and only once.
fn throw_away_answers(session: &Session) -> Result<()> {
    let link = session.link();
    let mut buffer = [0; 16 * 1024];
    loop {
        match link.receive_now(&mut buffer) {
            Ok(0) | Err(Errno::AGAIN) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(link.error("receive on", errno)),
        }
    }
}

/// Waits until what is still held has left and been acknowledged, or does not come any more.
fn settle(session: &Session, observer: &mut Observer) -> Result<()> {
    let deadline = clock::now() + SETTLE;
    let acks = session.link().endpoint().acknowledges() && observer.has_stamps();
    loop {
        observer.drain(session.link())?;
        if session.link().endpoint().has_broker() {
            throw_away_answers(session)?;
        }
        if !acks || observer.is_all_acked() || clock::now() >= deadline {
            break;
        }
        clock::sleep(Duration::from_millis(1));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::{PeerKind, run};
    use crate::placement::Spot;
    use taut_record::Ended;

    #[test]
    fn a_port_where_nobody_is_ends_the_sending() {
        let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("udp://{}", nobody.local_addr().unwrap()).parse().unwrap();
        drop(nobody);
        let plan = PacePlan {
            peer: PeerKind::Plain(endpoint),
            message_bytes: 64,
            period: Duration::from_millis(5),
            time: Duration::from_millis(100),
            rounds: 1,
            options: Vec::new(),
            exceed: Vec::new(),
            spot: Spot::default(),
            fifo: false,
            command: String::new(),
        };
        let outcome = run(&plan, &Interrupt::default(), &mut |_, _| {}).unwrap();
        assert!(matches!(&outcome.ended, Ended::PeerGone(why) if why.contains("refused")), "{:?}", outcome.ended);
        assert!(outcome.row.messages < 20, "{:?}", outcome.row);
    }
}
