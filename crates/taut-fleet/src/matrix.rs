//! A square of all pairs.

use std::collections::HashSet;

use crate::figure::Figure;
use crate::outcome::{MeshOutcome, PairOutcome, Reached, WorkOutcome};

/// Who measured whom, as a square: a row for each host that asks, a column for each that answers. Round trips that were
/// measured one way only fill the half below the diagonal, whoever asked.
#[derive(Clone, Debug)]
pub struct Matrix<'a> {
    /// Hosts by their numbers, those of one rack together.
    pub hosts: Vec<usize>,
    /// The cells of each row.
    pub rows: Vec<Vec<Cell<'a>>>,
}

/// A place of a matrix.
#[derive(Clone, Copy, Debug)]
pub enum Cell<'a> {
    /// Nobody measures that.
    Empty,
    /// It could not be measured, or was not.
    Missing(&'a PairOutcome),
    /// What was found.
    Pair(&'a PairOutcome),
}

impl<'a> Matrix<'a> {
    /// The square of one work.
    pub fn of(outcome: &MeshOutcome, work: &'a WorkOutcome) -> Self {
        let mut hosts: Vec<usize> = (0..outcome.hosts.len()).collect();
        hosts.sort_by_key(|&host| outcome.hosts[host].rack.as_deref());
        let mut place = vec![0; hosts.len()];
        hosts.iter().enumerate().for_each(|(at, &host)| place[host] = at);
        let mut rows = vec![vec![Cell::Empty; hosts.len()]; hosts.len()];
        let asked: HashSet<(usize, usize)> = work.pairs.iter().map(|pair| (pair.near, pair.far)).collect();
        let one_way = !work.pairs.iter().any(|pair| asked.contains(&(pair.far, pair.near)));
        for pair in &work.pairs {
            // A file may name hosts that it has not.
            let (Some(&near), Some(&far)) = (place.get(pair.near), place.get(pair.far)) else { continue };
            let half = one_way && work.figure != Figure::Throughput;
            let (row, column) = if half { (near.max(far), near.min(far)) } else { (near, far) };
            rows[row][column] = match pair.reached {
                Reached::Measured => Cell::Pair(pair),
                Reached::Failed(_) | Reached::NotRun(_) => Cell::Missing(pair),
            };
        }
        Self { hosts, rows }
    }
}
