//! What an engine itself costs: a wait for a link that is ready already.

use taut_link::{Link, Listener, Result, clock};
use taut_time::Duration;

use super::EngineKind;
use taut_record::stats::Distribution;

/// Time of one wait of this engine, `waits` times measured: a byte is in the socket before each, so that nothing
/// but the engine's own way to find that out is in it. A blocking engine and one that spins have no such way.
///
/// # Errors
/// There is no loopback, or the engine can't be set up.
pub fn of(kind: EngineKind, waits: u32) -> Result<Distribution> {
    let listener = Listener::bind(&"tcp://127.0.0.1:0".parse()?)?;
    let link = Link::connect(listener.endpoint(), Duration::from_secs(1))?;
    let host = |error| taut_link::Error::Host { what: format!("measure the engine {kind}"), error };
    let peer = listener.accept().map_err(host)?;
    link.set_nonblocking(true)?;
    let mut engine = kind.build(&[&link]).map_err(host)?;
    let (mut times, mut ready, mut byte) = (Distribution::new(), Vec::new(), [0]);
    for _ in 0..waits {
        peer.send_all(&byte)?;
        let begin = clock::now();
        // As a loop does it that has met EAGAIN before.
        engine.drained(0);
        engine.wait(Some(begin + Duration::from_secs(1)), None, &mut ready).map_err(host)?;
        times.record(clock::now().saturating_since(begin));
        while link.receive_now(&mut byte).is_err() {}
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_tells_its_cost_and_those_that_ask_the_kernel_cost_more() {
        let median = |kind| of(kind, 300).unwrap().quantile(0.5);
        let nothing = median(EngineKind::Spin);
        assert!(EngineKind::ALL.into_iter().all(|kind| median(kind).is_some()));
        for kind in [EngineKind::Poll, EngineKind::Epoll, EngineKind::Tokio] {
            assert!(median(kind) > nothing, "{kind}");
        }
    }
}
