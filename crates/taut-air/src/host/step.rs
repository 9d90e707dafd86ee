//! How far a host is, from reset to an open channel.

use super::terms::{Plan, Wish};
use crate::role::Role;

/// What is being waited for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    Reset,
    BufferSize,
    Connection,
    Length,
    Phy,
    Channel,
    Done,
}

#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) plan: Plan,
    pub(super) step: Step,
    /// The link that is being set up.
    pub(super) next: usize,
}

impl Setup {
    pub(super) const fn new(plan: Plan) -> Self {
        Self { plan, step: Step::Reset, next: 0 }
    }

    pub(super) fn is_done(&self) -> bool {
        self.step == Step::Done
    }

    pub(super) const fn role(&self) -> Role {
        match self.plan {
            Plan::Peripheral => Role::Peripheral,
            Plan::Central(_) => Role::Central,
        }
    }

    pub(super) fn wish(&self) -> Option<Wish> {
        match &self.plan {
            Plan::Peripheral => None,
            Plan::Central(wishes) => wishes.get(self.next).copied(),
        }
    }
}
