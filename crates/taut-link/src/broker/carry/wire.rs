//! A client and its socket, which does not wait, with TLS between them where that is wanted.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use socket2::Socket;

use crate::broker::client::Client;
use crate::broker::secured::{CLOSED, CUT, Secured};
use crate::tls::Tls;

#[derive(Debug)]
pub(super) struct Wire {
    pub(super) socket: Socket,
    pub(super) client: Box<dyn Client>,
    guard: Guard,
    /// Why TLS could not begin.
    refusal: Option<String>,
}

/// What is between the two.
#[derive(Debug)]
enum Guard {
    Nothing,
    /// TLS finds out who is there.
    Greeting(Tls),
    Tls(Box<Secured>),
}

/// What a look at the socket has brought.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Came {
    /// Something, or a reason to look once more.
    Some,
    /// Nothing more for now.
    Nothing,
    /// Nothing any more, and what the broker did.
    Over(&'static str),
}

impl Wire {
    pub(super) fn new(socket: Socket, client: Box<dyn Client>) -> Self {
        Self { socket, client, guard: Guard::Nothing, refusal: None }
    }

    /// Has TLS begin before anything more is said.
    pub(super) fn begin(&mut self, tls: Tls) {
        self.guard = Guard::Greeting(tls);
    }

    /// Hands the client what the socket has, at most as much as there is room for in `input`.
    pub(super) fn receive(&mut self, input: &mut [u8]) -> Came {
        if let Guard::Greeting(tls) = &mut self.guard {
            return match tls.greet(self.socket.as_fd()) {
                Ok(true) => {
                    if let Guard::Greeting(tls) = std::mem::replace(&mut self.guard, Guard::Nothing) {
                        self.guard = Guard::Tls(Box::new(Secured::new(tls)));
                    }
                    self.client.secured();
                    // What may have come with the last of it.
                    self.take(&[])
                }
                Ok(false) => Came::Nothing,
                Err(error) => {
                    self.client.fail(&format!("and we fail at TLS: {error}"));
                    self.refusal = Some(error.to_string());
                    Came::Nothing
                }
            };
        }
        match rustix::net::recv(&self.socket, &mut *input, RecvFlags::DONTWAIT) {
            Ok((bytes @ 1.., _)) => self.take(&input[..bytes]),
            Err(Errno::AGAIN) => Came::Nothing,
            Err(Errno::INTR) => Came::Some,
            Ok(_) | Err(_) => Came::Over(self.how_it_closed()),
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Came {
        let Guard::Tls(secured) = &mut self.guard else {
            self.client.handle(bytes);
            return Came::Some;
        };
        match secured.take(bytes) {
            Ok(Some(plain)) => self.client.handle(&plain),
            Ok(None) => return Came::Over(CLOSED),
            Err(why) => {
                self.client.fail(&why);
                // The alert that says so to the broker.
                let _ = self.send();
            }
        }
        Came::Some
    }

    /// The end of the connection in words: one with TLS is to end with what TLS has for it.
    fn how_it_closed(&self) -> &'static str {
        match &self.guard {
            Guard::Tls(secured) if !secured.has_ended() => CUT,
            _ => CLOSED,
        }
    }

    /// Whether something waits to be written.
    pub(super) fn has_output(&mut self) -> bool {
        let own = match &mut self.guard {
            Guard::Tls(secured) => secured.has_records().unwrap_or(true),
            Guard::Nothing | Guard::Greeting(_) => false,
        };
        own || !self.client.output().is_empty()
    }

    /// Writes once; how many bytes of the client's the kernel has taken with that, in records where there is TLS.
    ///
    /// # Errors
    /// As send(2).
    pub(super) fn send(&mut self) -> rustix::io::Result<usize> {
        let before = self.client.output().len();
        match &mut self.guard {
            Guard::Nothing => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let sent = rustix::net::send(&self.socket, self.client.output(), flags)?;
                self.client.wrote(sent);
            }
            Guard::Greeting(_) => return Err(Errno::AGAIN),
            Guard::Tls(secured) => drop(secured.send(&self.socket, &mut *self.client, SendFlags::DONTWAIT)?),
        }
        Ok(before - self.client.output().len())
    }

    /// Nothing more comes from us: TLS says so, where there is any.
    pub(super) fn say_end(&mut self) {
        if let Guard::Tls(secured) = &mut self.guard {
            secured.say_end();
        }
    }

    /// Tells the broker's kernel so.
    ///
    /// # Errors
    /// As shutdown(2).
    pub(super) fn shut(&self) -> rustix::io::Result<()> {
        rustix::net::shutdown(&self.socket, Shutdown::Write)
    }

    /// Why TLS could not begin; it is told once.
    pub(super) fn take_refusal(&mut self) -> Option<String> {
        self.refusal.take()
    }
}
