//! How long after data came to a place an acknowledgement of it left there.

use std::collections::{HashMap, VecDeque};

use super::lane::Lane;

/// An acknowledgement of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    /// Nanoseconds from the segment to the first acknowledgement that covers it.
    pub(super) ns: u64,
    /// Segment and acknowledgement, among the sightings of the file.
    pub(super) numbers: [u32; 2],
}

/// Of each segment that came in order, for the first time, and was acknowledged: what else comes can't be
/// acknowledged before the segments ahead of it are there.
pub(super) fn answers(lane: &Lane) -> Vec<Answered> {
    let mut answers = Vec::new();
    let mut waiting: VecDeque<(i64, u64, u32)> = VecDeque::new();
    let mut told = lane.told.iter().peekable();
    let mut highest: Option<i64> = None;
    let mut acknowledged = i64::MIN;
    // Where one is missing, or came again, what is behind it waits until all is acknowledged.
    let mut blocked = i64::MIN;
    let mut hear = |number: u32, waiting: &mut VecDeque<(i64, u64, u32)>, acknowledged: &mut i64| {
        while let Some(told) = told.next_if(|told| told.number < number) {
            *acknowledged = (*acknowledged).max(told.to);
            while let Some((_, at, number)) = waiting.pop_front_if(|(to, ..)| *to <= told.to) {
                answers.push(Answered { ns: told.at.saturating_sub(at), numbers: [number, told.number] });
            }
        }
    };
    for sent in &lane.data {
        hear(sent.number, &mut waiting, &mut acknowledged);
        let end = highest.unwrap_or(sent.from).max(acknowledged);
        highest = Some(end.max(sent.to));
        if sent.from == end && acknowledged >= blocked {
            waiting.push_back((sent.to, sent.at, sent.number));
        } else if sent.from != end {
            waiting.retain(|(to, ..)| *to <= sent.from);
            blocked = end.max(sent.to);
        }
    }
    hear(u32::MAX, &mut waiting, &mut acknowledged);
    answers
}

/// The least time from a segment to an acknowledgement that it caused, if one is known that surely did not wait: what
/// comes behind a gap is acknowledged at once (RFC 5681, section 4.2), and only one segment can have caused it.
pub(super) fn least_loop(lane: &Lane, answers: &[Answered]) -> Option<u64> {
    let mut ends: HashMap<i64, (u64, u32)> = HashMap::new();
    let mut least: Option<u64> = None;
    let mut highest = i64::MIN;
    let mut data = lane.data.iter().peekable();
    for block in &lane.blocks {
        while let Some(sent) = data.next_if(|sent| sent.number < block.number) {
            ends.entry(sent.to).and_modify(|(_, times)| *times += 1).or_insert((sent.at, 1));
        }
        if block.to > highest {
            highest = block.to;
            if let Some(&(at, 1)) = ends.get(&block.to) {
                let ns = block.at.saturating_sub(at);
                least = Some(least.map_or(ns, |least| least.min(ns)));
            }
        }
    }
    let of_answers = answers.iter().map(|answered| answered.ns).min();
    least.map(|least| of_answers.map_or(least, |of_answers| least.min(of_answers)))
}
