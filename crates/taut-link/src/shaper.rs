//! A server asked to receive the links that follow in another way.

use taut_time::Duration;

use crate::wire::{AckPolicy, Frame, Shape, Shaped, Work};
use crate::{Endpoint, Interrupt, Request, Result, Session};

/// A link by which the server's receiving is changed. It is put back when this is dropped, unless a
/// shape said to keep it.
#[derive(Debug)]
pub struct Shaper {
    session: Session,
}

impl Shaper {
    /// Opens that link. It keeps the connection below it up, and so its interval, between the links that are shaped.
    ///
    /// # Errors
    /// The peer is not there, is no server of the tests, or does not let its links be shaped.
    pub fn open(endpoint: &Endpoint, timeout: Duration) -> Result<Self> {
        let request = Request {
            endpoint: endpoint.clone(),
            work: Work::Shape,
            acks: AckPolicy::System,
            message_bytes: 1,
            duration: Duration::ZERO,
            options: Vec::new(),
            plain: false,
            timeout,
            core: None,
        };
        let (session, _) = Session::greet(&request, &Interrupt::default())?;
        Ok(Self { session })
    }

    /// Has links that are opened from now on received so.
    ///
    /// # Errors
    /// The server went away or broke the protocol.
    pub fn shape(&self, shape: Shape) -> Result<Shaped> {
        match self.session.ask(&Frame::Shape(shape), "the shape of links")? {
            Frame::Shaped(shaped) => Ok(shaped),
            _ => Err(self.session.broke_protocol("the answer to the shape is not one")),
        }
    }

    /// The link itself.
    pub const fn session(&self) -> &Session {
        &self.session
    }
}
