//! Whose turn it is on a bearer of ATT.

use taut_event::{Acl, Turn};

/// Whose turn it is, where a protocol takes turns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turns {
    /// By direction and kind: the question that went that way and has no answer yet. A request and an indication may
    /// be open at once (Core Specification, Vol 3, Part F, section 3.3.2).
    pub(super) asked: [[Option<Question>; 2]; 2],
    /// Whether the last one that went was an answer.
    pub(super) is_last_answer: [bool; 2],
    /// By direction: what the PDU does of which more packets are to come.
    under_way: [Option<Turn>; 2],
}

/// A question that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    /// When it was through.
    pub(super) since: u64,
    /// So many packets are in the controller up to its last one.
    pub(super) ahead: u64,
    /// Whether others may be there that the log lacks.
    pub(super) is_behind_hidden: bool,
}

impl Turns {
    /// What a packet ends, if it does: a PDU of several packets asks or answers with its last one.
    pub(super) fn done_by(&mut self, way: usize, acl: &Acl, begins: bool) -> Option<Turn> {
        if begins {
            self.under_way[way] = None;
        }
        let turn =
            if matches!(acl.turn, Turn::Free) { self.under_way[way].take().unwrap_or(acl.turn) } else { acl.turn };
        let is_whole = acl.ends_sdu || matches!(turn, Turn::Free | Turn::NotKnown);
        self.under_way[way] = (!is_whole).then_some(turn);
        is_whole.then_some(turn)
    }

    /// Whether more packets are to come of a PDU that goes this way.
    pub(super) fn is_under_way(&self, way: usize) -> bool {
        self.under_way[way].is_some()
    }

    /// Whether a question went this way and has no answer yet.
    pub(super) fn is_asked(&self, way: usize) -> bool {
        self.asked[way].iter().any(Option::is_some)
    }

    /// The question of the other way that can be answered first.
    pub(super) fn asked_of(&self, way: usize) -> Option<Question> {
        self.asked[1 - way].iter().flatten().min_by_key(|question| (question.ahead, question.since)).copied()
    }

    /// Whether nothing can go this way before something comes the other way.
    pub(super) fn is_peers(&self, way: usize) -> bool {
        self.is_asked(way) || self.is_last_answer[way] && !self.is_asked(1 - way)
    }
}

/// Which transaction a PDU belongs to that takes turns: 0 of a request, 1 of an indication.
pub(super) const fn transaction(turn: Turn) -> usize {
    matches!(turn, Turn::Indicates | Turn::Confirms) as usize
}
