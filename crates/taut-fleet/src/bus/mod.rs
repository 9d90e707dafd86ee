//! A mesh over NATS: agents that dial out, and who gives them plans and gathers what they find.
//!
//! The servers keep four things, and no message of a measurement passes them.
//!
//! | name | what | age |
//! |---|---|---|
//! | KV `taut_agents` | who is there ([`message::Member`]), told every 30 s | 90 s |
//! | KV `taut_plan` | what each agent has to do ([`message::Orders`]); it is told on `taut.plan.AGENT` | – |
//! | KV `taut_lease` | who is alone on a host or in a rack | 30 s, prolonged by its holder |
//! | stream `TAUT` | what was found ([`message::Report`]), on `taut.result.AGENT` | 7 days |
//!
//! Whatever comes from there was written by somebody else: it is checked, and its size is bounded.

mod account;
mod agent;
mod assemble;
mod board;
mod gather;
mod greeting;
mod lease;
mod measure;
mod message;
mod name;
mod orders;
mod own;
mod rehearsal;
mod servers;
mod store;
mod tally;
mod unsent;
mod until;

pub use agent::{AgentEnded, AgentSettings, agent};
pub use gather::{GatherSettings, Gathered, gather};
pub use message::MOST_TIME;
pub use own::{Allowed, Hours, Network, Own};
pub use rehearsal::Rehearsal;
pub use servers::Servers;
pub use tally::AgentTally;
