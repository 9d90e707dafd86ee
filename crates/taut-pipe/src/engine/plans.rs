//! A plan at work: its listeners, and whether they are waited for.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use taut_link::tls::TlsRole;
use taut_link::{Listener, PeerAddress, Result};
use taut_time::{Framing as Edges, Instant};

use crate::address::Address;
use crate::end::Form;
use crate::pipe::Pipe;
use crate::plan::Plan;
use crate::poller::{Poller, Token};
use crate::sys;

/// Most threads that open ends for clients that have gone meanwhile: a connection that nobody
/// answers can't be called back, and whoever comes and goes would have any number of them.
const OPENING_FOR_NOBODY: usize = 64;

/// A plan at work.
pub(super) struct State {
    pub(super) plan: Plan,
    pub(super) tls: [Option<TlsRole>; 2],
    pub(super) listeners: [Option<Arc<Listener>>; 2],
    /// Whether the listener is waited for.
    listens: [bool; 2],
    /// Until when it rests, as there was no descriptor or memory for a client.
    rests: [Option<Instant>; 2],
    /// Pipes that there are.
    pub(super) open: usize,
    /// Threads that open ends for them, or for pipes whose client has gone meanwhile.
    pub(super) opening: usize,
    /// Those whose second end's client has not come yet.
    pub(super) parked: VecDeque<usize>,
    pub(super) clients: HashMap<PeerAddress, usize>,
    pub(super) refused: u64,
    /// Messages for which their listener's socket had no room, as far as they have been told of.
    dropped: u64,
}

impl State {
    pub(super) fn new(plan: Plan, passed: &mut impl Iterator<Item = OwnedFd>) -> Result<Self> {
        plan.check()?;
        let tls = plan.tls_roles()?;
        let mut listeners = [None, None];
        for (end, side) in plan.sides.iter().enumerate() {
            let endpoint = match &side.address {
                Address::Link(endpoint) | Address::Tls { endpoint, .. } if side.listens => endpoint,
                _ => continue,
            };
            let listener = match passed.next() {
                Some(socket) => Listener::adopt(endpoint, socket)?,
                None => Listener::bind(endpoint)?,
            };
            listener.set_nonblocking(true)?;
            listeners[end] = Some(Arc::new(listener));
        }
        let (listens, rests, parked, clients) = ([false; 2], [None; 2], VecDeque::new(), HashMap::new());
        Ok(Self { plan, tls, listeners, listens, rests, open: 0, opening: 0, parked, clients, refused: 0, dropped: 0 })
    }

    /// Waits for the listeners, or does not, as there is room for clients. `plan` is the number of this one.
    pub(super) fn heed_listeners(&mut self, plan: usize, poller: &Poller) {
        for end in [0, 1] {
            let Some(listener) = &self.listeners[end] else { continue };
            let is_second = end == 1 && self.plan.sides[0].listens;
            let has_room = if is_second { !self.parked.is_empty() } else { self.has_room(self.plan.options.clients) };
            // A socket of messages is read even when there is no room: what comes for those that
            // are served has to get through.
            let wanted = self.rests[end].is_none() && (has_room || self.has_messages(end));
            if wanted && !self.listens[end] {
                self.listens[end] = poller.add_level(listener.as_fd(), Token::Listener { plan, end }).is_ok();
            } else if !wanted && self.listens[end] {
                poller.remove(listener.as_fd());
                self.listens[end] = false;
            }
        }
    }

    /// Whether there is room for a client beside so many at once.
    pub(super) const fn has_room(&self, clients: usize) -> bool {
        self.open < clients && self.opening < clients.saturating_add(OPENING_FOR_NOBODY)
    }

    /// Whether clients of an end are taken now.
    pub(super) const fn listens(&self, end: usize) -> bool {
        self.listens[end]
    }

    /// Lets a listener rest until a time.
    pub(super) const fn rest(&mut self, end: usize, until: Instant) {
        self.rests[end] = Some(until);
    }

    /// Ends the rests that are over by now; whether there were any.
    pub(super) fn end_rests(&mut self, now: Instant) -> bool {
        let over = self.rests.iter_mut().filter_map(|rest| rest.take_if(|until| *until <= now));
        over.count() > 0
    }

    /// When the next rest is over.
    pub(super) fn rest_over(&self) -> Option<Instant> {
        self.rests.iter().flatten().min().copied()
    }

    /// Takes no clients any more.
    pub(super) fn forget_listeners(&mut self, poller: &Poller) {
        for end in [0, 1] {
            if let Some(listener) = self.listeners[end].take() {
                poller.remove(listener.as_fd());
                self.listens[end] = false;
            }
        }
    }

    /// Puts messages for which there was no room to the account of the client whose they were;
    /// where that is not known, says so.
    pub(super) fn tell_dropped(&mut self, pipe: &mut Pipe) -> Option<String> {
        let (end, listener) = pipe.ends.iter().enumerate().find_map(|(which, end)| match &end.as_ref()?.form {
            Form::Client { listener, .. } => Some((which, Arc::clone(listener))),
            _ => None,
        })?;
        let dropped = sys::dropped(listener.as_fd());
        let new = dropped.saturating_sub(std::mem::replace(&mut self.dropped, dropped));
        if self.clients.len() == 1 && self.refused == 0 {
            pipe.note_dropped(end, new);
            return None;
        }
        let endpoint = listener.endpoint();
        (new > 0).then(|| {
            format!("{endpoint}: {new} messages are lost: the socket had no room; whose they were is not known")
        })
    }

    pub(super) fn has_messages(&self, end: usize) -> bool {
        self.listeners[end].as_ref().is_some_and(|listener| listener.endpoint().framing() == Edges::Datagram)
    }

    /// With `once`, the first client is the only one.
    pub(super) const fn once_is_over(&self, pipes: u64) -> bool {
        self.plan.options.once && pipes > 0
    }
}
