//! Many connections, a read pending on each, few of them active: the case that the library is made for.

use std::ffi::c_int;

use super::descriptor::{self, close};
use super::operation::Operation;
use super::random;
use super::reuse;
use super::round::{Context, Episode};

struct Connection {
    ours: c_int,
    peers: c_int,
    /// Always there, but between two of them.
    read: Option<Operation>,
}

/// Connections that wait.
pub(crate) struct Crowd {
    connections: Vec<Connection>,
    budget: usize,
}

impl Crowd {
    pub(crate) fn new(context: &mut Context<'_>) -> Self {
        let count = context.random.between(20, 300);
        let connections = (0..count)
            .map(|_| {
                let [ours, peers] = descriptor::socket_pair(libc::SOCK_STREAM);
                Connection { ours, peers, read: Some(Self::wait(context, ours)) }
            })
            .collect();
        Self { connections, budget: context.random.between(20, 300) }
    }

    fn wait(context: &mut Context<'_>, fd: c_int) -> Operation {
        let mut read = Operation::read(context, fd, 64, 0, false);
        read.submit(context);
        read
    }

    /// A message to some, an answer from each by a request, and the next read.
    fn exchange(&mut self, context: &mut Context<'_>) {
        let active = context.random.between(1, 10);
        let mut messages = Vec::new();
        for _ in 0..active {
            let place = context.random.below(self.connections.len());
            if messages.iter().any(|(other, _)| *other == place) {
                continue;
            }
            let mut bytes = vec![0; context.random.between(1, 64)];
            random::fill(&mut bytes, context.random.next());
            let sent = descriptor::write_now(self.connections[place].peers, &bytes);
            assert_eq!(sent, Some(bytes.len()), "a write to a socket that is empty");
            messages.push((place, bytes));
        }
        for (place, bytes) in messages {
            let connection = &mut self.connections[place];
            let Some(read) = connection.read.take() else { panic!("a connection without a read") };
            let read = reuse::complete(context, read);
            assert_eq!(read.outcome.error, 0, "a read in a crowd");
            let count = read.outcome.value.unsigned_abs();
            assert!(read.buffer.bytes()[..count] == bytes[..], "another message than was sent");
            let ours = connection.ours;
            let mut write = Operation::write(context, ours, count, 0, false);
            write.submit(context);
            connection.read = Some(Self::wait(context, ours));
            let write = reuse::complete(context, write);
            assert_eq!(write.outcome.value.unsigned_abs(), count, "a write beside a read that waits");
            let mut answer = [0; 64];
            let peers = self.connections[place].peers;
            assert!(descriptor::is_ready(peers, libc::POLLIN, 10_000), "no answer");
            assert_eq!(descriptor::read_now(peers, &mut answer), Some(Ok(count)), "an answer");
            assert!(answer[..count] == *write.buffer.bytes(), "another answer than was written");
        }
        self.budget = self.budget.saturating_sub(active);
    }

    /// All of them still wait.
    fn check(&self) {
        for connection in &self.connections {
            if let Some(read) = &connection.read {
                assert!(!read.is_complete(), "a read without data is complete: {read:?}");
            }
        }
    }
}

impl Episode for Crowd {
    fn step(&mut self, context: &mut Context<'_>) {
        if context.random.percent(80) { self.exchange(context) } else { self.check() }
    }

    fn is_over(&self) -> bool {
        self.budget == 0
    }

    fn wind_up(&mut self, context: &mut Context<'_>) {
        for Connection { ours, peers, read } in self.connections.drain(..) {
            let Some(mut read) = read else { continue };
            let expected = if context.random.percent(50) {
                read.may_end();
                close(ours);
                assert!(read.is_complete(), "in flight after close: {read:?}");
                libc::ECANCELED
            } else {
                close(peers);
                0
            };
            let read = reuse::complete(context, read);
            assert_eq!(read.outcome.error, expected, "the last read of a connection");
            assert!(read.outcome.value <= 0, "bytes from a connection that is closed");
            close(if expected == 0 { ours } else { peers });
        }
    }

    fn describe(&self) -> String {
        format!("crowd of {}", self.connections.len())
    }
}
