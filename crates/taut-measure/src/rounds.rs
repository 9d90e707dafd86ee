use taut_link::{Error, Result};

use crate::interrupt::Interrupt;
use crate::recording::Ended;

/// Measures round after round and keeps what there is when the user or the peer ends it early. A round that came to grief
/// midway hands over what it has beside its error.
///
/// # Errors
/// The first round gave nothing at all.
pub(crate) fn run<T>(
    rounds: usize,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(usize, usize),
    mut measure: impl FnMut() -> Result<(T, Option<Error>)>,
) -> Result<(Vec<T>, Ended)> {
    let mut measured = Vec::with_capacity(rounds);
    let mut ended = Ended::Complete;
    for round in 0..rounds {
        if interrupt.is_set() {
            break;
        }
        progress(round, rounds);
        let failure = match measure() {
            Ok((part, failure)) => {
                measured.push(part);
                failure
            }
            Err(error) if measured.is_empty() => return Err(error),
            Err(error) => Some(error),
        };
        if let Some(error) = failure {
            ended = Ended::PeerGone(error.to_string());
            break;
        }
    }
    if interrupt.is_set() {
        ended = Ended::Interrupted;
    }
    Ok((measured, ended))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone() -> Error {
        Error::Closed { endpoint: "x".to_owned(), when: "early" }
    }

    #[test]
    fn what_was_measured_before_the_peer_went_is_kept() {
        let mut turn = 0;
        let (measured, ended) = run(5, &Interrupt::default(), &mut |_, _| {}, || {
            turn += 1;
            if turn < 3 { Ok((turn, None)) } else { Ok((turn, Some(gone()))) }
        })
        .unwrap();
        assert_eq!(measured, [1, 2, 3]);
        assert!(matches!(ended, Ended::PeerGone(_)));
    }

    #[test]
    fn a_first_round_that_fails_is_an_error() {
        assert!(run::<()>(5, &Interrupt::default(), &mut |_, _| {}, || Err(gone())).is_err());
    }
}
