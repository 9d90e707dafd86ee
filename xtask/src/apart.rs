//! Tests that need a build of their own: the model checker's, and the stress under the sanitizers.

use std::time::Duration;

use anyhow::Result;

use crate::shell;
use crate::stress::SANITIZERS;
use crate::test::{Job, Kind, Work};

/// Preemptions that the model checker considers in one execution. loom's own advice: most errors need no more.
const PREEMPTIONS: &str = "3";
/// Time for each model, in seconds. They need much less.
const MODEL_SECONDS: &str = "120";
/// Time of the stress with each engine.
const STRESS: Duration = Duration::from_secs(5);

/// A job for each build.
///
/// # Errors
/// Cargo does not say where it builds.
pub(crate) fn jobs() -> Result<Vec<Job>> {
    let stress = |sanitizer| Work::Stress(sanitizer, STRESS);
    let sanitizers = SANITIZERS.map(|it| job(&format!("sanitizer::{}", it.name()), stress(it)));
    Ok(std::iter::once(job("taut-aio::loom", model_checker()?)).chain(sanitizers).collect())
}

fn job(name: &str, work: Work) -> Job {
    Job { name: name.to_owned(), kind: Kind::Apart, work }
}

/// The models of taut-aio's synchronisation.
fn model_checker() -> Result<Work> {
    let mut command = shell::cargo();
    command.args(["test", "--locked", "--release", "--package", "taut-aio", "--test", "loom"]);
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", shell::target_dir()?.join("loom"));
    command.env("LOOM_MAX_PREEMPTIONS", PREEMPTIONS).env("LOOM_MAX_DURATION", MODEL_SECONDS);
    Ok(Work::Command(command))
}
