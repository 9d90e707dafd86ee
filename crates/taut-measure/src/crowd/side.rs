//! The host of one round: our own child, or one that a server keeps for us.

use taut_link::wire::Usage;
use taut_link::{CrowdRequest, CrowdSession, Endpoint, Result};
use taut_time::Duration;

use super::plan::{CrowdPlan, HostedBy, MESSAGE_BYTES};
use crate::interrupt::Interrupt;
use taut_serve::crowd::{CrowdEngine, HostOrder, HostProcess};

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
            HostedBy::Own { program, listen } => {
                let listen = listen.clone();
                let order = HostOrder { engine, connections, listen, from: None, core: plan.spot.peer_core };
                Ok(Self::Local(HostProcess::start(program, &order, interrupt)?))
            }
            HostedBy::At(endpoint) => {
                let request = CrowdRequest {
                    endpoint: endpoint.clone(),
                    engine: engine.number(),
                    connections,
                    message_bytes: MESSAGE_BYTES,
                    // No bound of ours: the host goes with the link, and the server has a bound of its own.
                    duration: Duration::ZERO,
                    timeout: ANSWER,
                    core: plan.spot.peer_core,
                };
                CrowdSession::open(&request, interrupt).map(|session| Self::Remote(Box::new(session)))
            }
        }
    }

    /// Whether the host is where the plan wants it.
    pub(super) fn is_placed(&self, plan: &CrowdPlan) -> bool {
        match self {
            Self::Local(_) => true,
            Self::Remote(session) => plan.spot.peer_core.is_none_or(|core| session.host_core() == Some(core)),
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
