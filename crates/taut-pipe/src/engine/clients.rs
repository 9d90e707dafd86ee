//! Clients: taken from listeners, and told apart at sockets of messages.

use std::collections::VecDeque;
use std::sync::Arc;

use rustix::io::Errno;
use taut_time::Duration;

use super::pipes::Pipes;
use crate::end::{End, Form, LEFT};
use crate::open;
use crate::pipe::Phase;
use crate::report::Observer;

/// How long a listener rests when there is no descriptor or memory for a client.
const REST: Duration = Duration::from_millis(100);

impl Pipes {
    /// Takes the clients that wait at a listener of streams.
    pub(super) fn accept(&mut self, plan: usize, end: usize, observer: &mut dyn Observer) {
        let Some(listener) = self.plans[plan].listeners[end].clone() else { return };
        let is_second = end == 1 && self.plans[plan].plan.sides[0].listens;
        while self.plans[plan].listens(end) {
            if is_second && !self.is_waited_with(plan, observer) {
                return self.heed_listeners(plan);
            }
            let (link, from) = match listener.accept_from() {
                Ok(accepted) => accepted,
                Err(error) => {
                    if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
                    {
                        observer.note(&format!("{}: {error}; resting for {REST:?}", listener.endpoint()));
                        self.plans[plan].rest(end, self.now + REST);
                        self.heed_listeners(plan);
                    }
                    // Others are of one client that has gone already.
                    return;
                }
            };
            let name = open::client_name(&self.plans[plan].plan.sides[end].to_string(), from, &link);
            let opened = open::of_link(link, name).and_then(|mut open| {
                if let Some(role) = &self.plans[plan].tls[end] {
                    open.form = Form::Tls(role.begin("")?);
                }
                Ok(open)
            });
            let open = match opened {
                Ok(mut open) => {
                    open.is_client = true;
                    open
                }
                Err(error) => {
                    observer.note(&error.to_string());
                    continue;
                }
            };
            let parked = if is_second { self.plans[plan].parked.pop_front() } else { None };
            let slot = parked.unwrap_or_else(|| self.make(plan));
            let is_last = self.plans[plan].plan.options.once && (end == 1 || !self.plans[plan].plan.sides[1].listens);
            self.put(slot, end, open, observer);
            if is_last {
                self.plans[plan].forget_listeners(&self.poller);
                return;
            }
            self.heed_listeners(plan);
        }
    }

    /// Whether the first one of those that wait for a second client is still there; those before it
    /// that are not are given up. One that has closed its side is first only where there is no other.
    fn is_waited_with(&mut self, plan: usize, observer: &mut dyn Observer) -> bool {
        let slots = &mut self.slots;
        let is_whole = |slot: &usize| slots[*slot].pipe.as_mut().is_some_and(|pipe| pipe.who_left().is_none());
        let parked = &mut self.plans[plan].parked;
        if let Some(whole) = parked.iter().position(is_whole).and_then(|index| parked.remove(index)) {
            parked.push_front(whole);
        }
        while let Some(&slot) = self.plans[plan].parked.front() {
            if let Some(pipe) = &mut self.slots[slot].pipe
                && pipe.phase == Phase::Parked
                && !pipe.give_up_if_left(self.now)
            {
                return true;
            }
            self.plans[plan].parked.pop_front();
            self.look_again(slot, observer);
        }
        false
    }

    /// Gives each message at a socket of many clients to the pipe of its sender, a new one if need be.
    pub(super) fn sort_messages(&mut self, plan: usize, end: usize, observer: &mut dyn Observer) {
        let Some(listener) = self.plans[plan].listeners[end].clone() else { return };
        let now = self.now;
        let mut scratch = std::mem::take(&mut self.scratch);
        // A turn's worth; the level tells that there is more.
        for _ in 0..64 {
            let (bytes, peer) = match listener.receive_from(&mut scratch) {
                Ok(received) => received,
                Err(Errno::INTR) => continue,
                Err(_) => break,
            };
            let state = &mut self.plans[plan];
            let known = state.clients.get(&peer).copied();
            if known.is_none() && listener.is_own(&peer) {
                continue;
            }
            if known.is_none() && !state.has_room(state.plan.senders(end))
                || (known.is_none() && state.once_is_over(self.made))
            {
                state.refused += 1;
                if state.refused == 1 {
                    let most = match state.plan.senders(end) {
                        most if most < state.plan.options.clients => format!(" beside {most} programs (--children)"),
                        _ => String::new(),
                    };
                    observer.note(&format!("{}: no room for {peer}{most}; its messages are lost", listener.endpoint()));
                }
                continue;
            }
            let slot = known.unwrap_or_else(|| self.make(plan));
            if known.is_none() {
                let state = &mut self.plans[plan];
                state.clients.insert(peer.clone(), slot);
                let name = format!("{} from {peer}", state.plan.sides[end]);
                let limit = listener.endpoint().datagram_limit().unwrap_or(usize::MAX);
                let form = Form::Client { listener: Arc::clone(&listener), peer, inbox: VecDeque::new() };
                let mut open = End::new(name, form, None);
                open.write_limit = limit;
                open.halves = false;
                open.is_client = true;
                self.put(slot, end, open, observer);
            }
            if let Some(pipe) = &mut self.slots[slot].pipe {
                pipe.deliver(end, &scratch[..bytes], now);
            }
            self.queue(slot);
        }
        self.scratch = scratch;
    }

    /// Takes what is left at a socket of many clients, so that it is in their accounts.
    pub(super) fn take_last_messages(&mut self, plan: usize, end: usize, observer: &mut dyn Observer) {
        let now = self.now;
        let state = &self.plans[plan];
        let Some(listener) = &state.listeners[end] else { return };
        let mut strangers = 0_u64;
        for _ in 0..LEFT {
            let (bytes, peer) = match listener.receive_from(&mut self.scratch) {
                Ok(received) => received,
                Err(Errno::INTR) => continue,
                Err(_) => break,
            };
            match state.clients.get(&peer).and_then(|slot| self.slots[*slot].pipe.as_mut()) {
                Some(pipe) => {
                    pipe.deliver(end, &self.scratch[..bytes], now);
                }
                None => strangers += 1,
            }
        }
        if strangers > 0 {
            observer.note(&format!(
                "{}: {strangers} messages came too late for a pipe; they are lost",
                listener.endpoint()
            ));
        }
    }
}
