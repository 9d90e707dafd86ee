use taut_link::{Error, Result};

use crate::interrupt::Interrupt;
use taut_record::Ended;

/// The order in which `of` things that are compared take their turns in a round. Each round begins
/// with another one, and every second round runs backwards: so each stands before any other as often
/// as after it, and neither what drifts nor what one leaves behind for the next speaks for one side.
pub fn turns(round: usize, of: usize) -> impl Iterator<Item = usize> {
    let backwards = round % 2 == 1;
    (0..of).map(move |step| (if backwards { of - 1 - step } else { step } + round / 2) % of)
}

/// Measures round after round and keeps what there is when the user or the peer ends it early. A
/// round that came to grief midway hands over what it has beside its error.
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
            Err(_) if interrupt.is_set() => break,
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

    #[test]
    fn each_comes_before_every_other_as_often_as_after_it() {
        for of in 1..8 {
            let mut before = vec![vec![0; of]; of];
            for round in 0..2 * of {
                let order: Vec<usize> = turns(round, of).collect();
                for (step, &turn) in order.iter().enumerate() {
                    order[step + 1..].iter().for_each(|&later| before[turn][later] += 1);
                }
            }
            let pairs = (0..of).flat_map(|one| (0..of).map(move |other| (one, other))).filter(|(a, b)| a != b);
            for (one, other) in pairs {
                assert_eq!(before[one][other], of, "{of}: {one} {other}");
            }
            assert_eq!(
                (0..of).map(|step| turns(2 * step, of).next()).collect::<Vec<_>>(),
                (0..of).map(Some).collect::<Vec<_>>()
            );
        }
    }

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
