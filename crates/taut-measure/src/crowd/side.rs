//! The host of one round: our own child, or one that a server keeps for us.

use taut_link::wire::Usage;
use taut_link::{CrowdSession, Endpoint, Result};
use taut_time::Duration;

use super::plan::{CrowdPlan, MESSAGE_BYTES, Server};
use super::process::HostProcess;
use super::{CrowdEngine, HostOrder};
use crate::interrupt::Interrupt;

/// A crowd host with what is needed to reach it. Ends when dropped.
pub(super) enum Side {
    Local(HostProcess),
    Remote(Box<CrowdSession>),
}

/// Longest wait for an answer of a server.
const ANSWER: Duration = Duration::from_secs(15);

impl Side {
    pub(super) fn start(
        plan: &CrowdPlan,
        engine: CrowdEngine,
        connections: usize,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        match &plan.server {
            Server::Own { program, listen } => {
                let listen = listen.clone();
                let order = HostOrder { engine, connections, listen, from: None, core: plan.server_core };
                Ok(Self::Local(HostProcess::start(program, &order, interrupt)?))
            }
            Server::At(endpoint) => {
                // No bound of ours: the host goes with the link, and the server has a bound of its own.
                let duration = Duration::ZERO;
                let engine = engine.number();
                CrowdSession::open(endpoint, engine, connections, MESSAGE_BYTES, duration, ANSWER, interrupt)
                    .map(|session| Self::Remote(Box::new(session)))
            }
        }
    }

    pub(super) const fn endpoint(&self) -> &Endpoint {
        match self {
            Self::Local(host) => host.endpoint(),
            Self::Remote(session) => session.place(),
        }
    }

    pub(super) fn wait_ready(&mut self, interrupt: &Interrupt) -> Result<()> {
        match self {
            Self::Local(host) => Ok(host.wait_ready(interrupt)?),
            Self::Remote(session) => session.wait_ready(),
        }
    }

    pub(super) fn usage(&self) -> Result<Usage> {
        match self {
            Self::Local(host) => host.usage(),
            Self::Remote(session) => session.usage(),
        }
    }
}
