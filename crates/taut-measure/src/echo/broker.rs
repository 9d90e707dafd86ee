//! Why a path over a broker is slow: the same few messages again, with other acknowledgements.

use rustix::io::Errno;
use taut_link::wire::{AckPolicy, Work};
use taut_link::{Error, Link, Request, Result, Session, SocketOption, affinity, clock};
use taut_time::Duration;

use super::plan::{EchoPlan, EchoSubject};
use crate::interrupt::Interrupt;

/// Mean round trips in ns of the same messages, each round in turn and over new links.
#[derive(Clone, Debug, Default)]
pub struct BrokerTrial {
    /// As it was asked for.
    pub as_asked: Vec<u64>,
    /// With `TCP_NODELAY` at our end.
    pub nodelay: Vec<u64>,
    /// With that, and `TCP_QUICKACK` after each read at both ends of the test.
    pub prompt: Vec<u64>,
    /// What the broker says that it is.
    pub broker: Option<String>,
}

const ROUNDS: usize = 4;
const MESSAGES: u64 = 8;
/// A new connection is acknowledged at once for a while (16 segments of Linux): so many messages are sent first, or
/// until one is held.
const WARM_UP: u64 = 32;
/// Nobody minds less; as short as the shortest delayed ACK that Linux can be set to.
const HELD: Duration = Duration::from_millis(8);
const LONGEST: Duration = Duration::from_secs(2);

impl BrokerTrial {
    /// Whether round trips of which one in ten takes this long, in ns, are worth a trial.
    pub fn is_worth(p90_ns: u64) -> bool {
        u128::from(p90_ns) >= HELD.as_nanos()
    }

    /// Measures a subject in all three ways, some seconds long.
    ///
    /// # Errors
    /// A message was lost or a link failed: nothing can be told then.
    pub fn run(plan: &EchoPlan, subject: &EchoSubject, interrupt: &Interrupt) -> Result<Self> {
        let with = |options: &[SocketOption], acks| EchoSubject {
            options: [subject.options.as_slice(), options].concat(),
            acks,
            ..subject.clone()
        };
        let acks = if plan.plain { subject.acks } else { AckPolicy::Prompt };
        let nodelay = with(&[SocketOption::Nodelay(true)], subject.acks);
        let prompt = with(&[SocketOption::Nodelay(true), SocketOption::Quickack(true)], acks);
        let mut trial = Self { broker: Link::broker_of(&subject.endpoint), ..Self::default() };
        for _ in 0..ROUNDS {
            trial.as_asked.push(mean(plan, subject, interrupt)?);
            trial.nodelay.push(mean(plan, &nodelay, interrupt)?);
            trial.prompt.push(mean(plan, &prompt, interrupt)?);
        }
        Ok(trial)
    }
}

fn mean(plan: &EchoPlan, subject: &EchoSubject, interrupt: &Interrupt) -> Result<u64> {
    let _placed = affinity::on_core(subject.spot.core)?;
    let request = Request {
        endpoint: subject.endpoint.clone(),
        work: Work::Echo,
        acks: subject.acks,
        message_bytes: plan.message_bytes,
        duration: Duration::ZERO,
        options: subject.options.clone(),
        plain: plan.plain,
        timeout: LONGEST,
        core: subject.spot.peer_core,
    };
    let session = Session::open_unless(&request, interrupt)?;
    session.link().set_receive_timeout(Some(LONGEST))?;
    let mut message = vec![0xA5; plan.message_bytes];
    let mut buffer = vec![0; plan.message_bytes.max(64 * 1024)];
    let mut number = 0;
    let mut exchange = || {
        if interrupt.is_set() {
            return Err(Error::Interrupted { endpoint: subject.endpoint.to_string() });
        }
        number += 1;
        session.mark(&mut message, number);
        let began = clock::now();
        session.link().send(&message).map_err(|errno| session.link().error("send on", errno))?;
        loop {
            match session.link().receive(&mut buffer) {
                Ok(bytes) if session.numbering().number_of(&buffer[..bytes], number) == Some(number) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(session.link().error("receive on", errno)),
            }
            if clock::now().saturating_since(began) > LONGEST {
                return Err(session.link().error("receive on", Errno::TIMEDOUT));
            }
        }
        Ok(clock::now().saturating_since(began))
    };
    for _ in 0..WARM_UP {
        if exchange()? >= HELD {
            break;
        }
    }
    let mut sum = Duration::ZERO;
    for _ in 0..MESSAGES {
        sum += exchange()?;
    }
    Ok(u64::try_from(sum.as_nanos()).unwrap_or(u64::MAX) / MESSAGES)
}
