//! Who is meant by a plan, and who of them is there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::message::Member;
use super::store::Store;
use crate::error::Error;
use crate::host::Host;
use crate::plan::Plan;
use crate::run::Progress;

/// Between two looks at who is there.
const AGAIN: Duration = Duration::from_millis(500);

/// The plan with its hosts, and the agents that are there. Those that are named have some time to come.
pub(super) async fn assemble(
    text: &str,
    store: &Store,
    stop: &AtomicBool,
    tell: &dyn Fn(&Progress),
) -> Result<(Plan, HashMap<String, Member>), Error> {
    let began = Instant::now();
    let mut is_told = false;
    loop {
        let (members, strange) = store.members(stop).await?;
        if strange > 0 && !is_told {
            tell(&Progress::Said(format!("{strange} entries of taut_agents are no agents of this version")));
        }
        is_told = true;
        // What is no host has been told apart when it was read.
        let hosts: Vec<Host> = members.iter().filter_map(|member| member.host().ok()).collect();
        let plan = Plan::parse_among(text, &hosts)?;
        let members: HashMap<String, Member> =
            members.into_iter().map(|member| (member.name.clone(), member)).collect();
        let all_there = plan.hosts.iter().all(|host| members.contains_key(&host.name));
        if all_there || began.elapsed() >= plan.patience || stop.load(Ordering::Relaxed) {
            return Ok((plan, members));
        }
        sleep(AGAIN).await;
    }
}
