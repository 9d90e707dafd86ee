//! Threads that take results by `aio_waitcomplete`, in the ways a program may.

use std::time::{Duration, Instant};

use super::descriptor::{self, close};
use super::ffi::{self, Aiocb};
use super::ledger;
use super::random::Random;

/// Stands in `sigev_value` of a request that tells a taker to go.
const DISMISSED: u64 = u64::MAX;
/// And in that of a request whose owner takes the result itself.
pub(crate) const IGNORED: u64 = u64::MAX - 1;

/// Takes results until dismissed.
pub(crate) fn take(mut random: Random) {
    ledger::accept_signals();
    let completion = ffi::completion_fd();
    assert!(completion >= 0, "tautaio_completion_fd = {completion}");
    loop {
        let timeout = match random.below(3) {
            0 => None,
            1 => Some(Duration::from_micros(random.below(3000) as u64)),
            _ => {
                // Two takers may read it, so it is no promise; the time-out is for that.
                if descriptor::is_ready(completion, libc::POLLIN, 2) {
                    let mut count = [0; 8];
                    descriptor::read_now(completion, &mut count);
                }
                Some(Duration::ZERO)
            }
        };
        let (since, handled, begin) = (ledger::now(), ledger::handled(), Instant::now());
        let (request, value, error) = ffi::wait_complete(timeout);
        if request.is_null() {
            match error {
                libc::EAGAIN => {
                    let timeout = timeout.expect("a time-out without one");
                    assert!(begin.elapsed() >= timeout, "aio_waitcomplete timed out too early");
                }
                libc::EINTR => assert_ne!(handled, ledger::handled(), "EINTR without a handler"),
                other => panic!("aio_waitcomplete: value {value}, errno {other}"),
            }
            continue;
        }
        let ticket = ffi::value_of(request);
        if ticket == DISMISSED {
            assert_eq!(value, 1, "the last request");
            return;
        }
        if ticket != IGNORED {
            ledger::give(ticket, value, error, since);
        }
    }
}

/// Tells the takers to go, by requests that complete. These stay until the takers went.
pub(crate) fn dismiss(takers: usize) -> Box<[Aiocb]> {
    let [reader, writer] = descriptor::pipe();
    let mut byte = 0_u8;
    let mut requests: Box<[Aiocb]> = (0..takers).map(|_| Aiocb::empty()).collect();
    for request in &mut requests {
        (request.fd, request.buffer, request.length) = (writer, (&raw mut byte).cast(), 1);
        request.event.value = DISMISSED;
        ffi::write(request);
        while ffi::status(request) == libc::EINPROGRESS {
            descriptor::pause(100);
        }
    }
    close(reader);
    close(writer);
    requests
}

/// Every result was taken.
pub(crate) fn assert_nothing_left() {
    let (request, value, error) = ffi::wait_complete(Some(Duration::ZERO));
    assert!(
        request.is_null() && value == -1 && error == libc::EAGAIN,
        "aio_waitcomplete gave a request although all were returned: {request:?}, value {value}, errno {error}"
    );
}
