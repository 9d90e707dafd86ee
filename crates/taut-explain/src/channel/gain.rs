//! What each cause's remedy gives, found by running it: limits that hold one another (a window, an interval and
//! buffers at once) have no formula.

use taut_air::controller::Completion;
use taut_air::host::Latency;
use taut_air::l2cap::CreditPolicy;
use taut_air::transport::Transport;
use taut_air::{Phy, Pickup, Scenario, Side};

use super::facts::Facts;
use super::fit;
use super::model::USUAL_NS;

/// A link as it is, and what it carries.
#[derive(Debug)]
pub(super) struct Gains {
    scenario: Scenario,
    bps: f64,
}

impl Gains {
    pub(super) fn of(facts: &Facts<'_>) -> Option<Self> {
        let (scenario, bps) = fit::fit(facts)?;
        Some(Self { scenario, bps })
    }

    /// The part of the time, 0 to 1, that is saved when a cause is gone; `None` for a cause that the model does
    /// not know.
    pub(super) fn saved(&self, cause: &str) -> Option<f64> {
        let with = |change: &dyn Fn(&mut Scenario)| {
            let mut scenario = self.scenario.clone();
            change(&mut scenario);
            fit::rate(&scenario)
        };
        let sender = self.scenario.sender;
        let of_sender = |change: &dyn Fn(&mut Side)| with(&|all| change(all.side_mut(sender)));
        let longer = |all: &mut Scenario| all.side_mut(sender.other()).host.mtu = 4096;
        let mut rates: Vec<Option<f64>> = Vec::new();
        match cause {
            "credit_window" => {
                rates.push(with(&|all| all.side_mut(sender.other()).host.credits = CreditPolicy::LinuxRecvbuf));
                rates.push(with(&longer));
            }
            "controller" => {
                rates.push(with(&|all| {
                    all.side_mut(sender).packets_per_event = None;
                    all.loss.per = 0.0;
                }));
                rates.push(of_sender(&|side| side.pickup = Pickup::AtOnce));
            }
            "controller_buffers" => rates.push(of_sender(&|side| {
                side.acl_buffers = side.acl_buffers.max(16);
                side.nocp = Completion::Each;
            })),
            "interval_quantisation" => {
                rates.extend(USUAL_NS.iter().map(|&other| with(&|all| (all.ci, all.latency) = (other, 0))));
            }
            "phy" => rates.push(with(&|all| all.phy = Phy::Le2M)),
            "length" => rates.push(with(&|all| all.length = 251)),
            "mtu" => rates.push(with(&longer)),
            "sending_program" => rates.push(of_sender(&|side| {
                side.host.wakeup = Latency::default();
                side.host.block_work = Latency::default();
                side.transport = Transport::None;
            })),
            _ => return None,
        }
        let best = rates.into_iter().flatten().fold(self.bps, f64::max);
        Some(1.0 - self.bps / best.max(1.0))
    }
}
