//! Tests that need a build of their own: the model checker's, and the stress under the sanitizers.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::shell;
use crate::stress::{ENGINES, NOT_HERE, Program, SANITIZERS, Sanitizer};
use crate::test::{Results, stream};

/// Preemptions that the model checker considers in one execution. loom's own advice: most errors need no more.
const PREEMPTIONS: &str = "3";
/// Time for each model, in seconds. They need much less.
const MODEL_SECONDS: &str = "120";

/// Runs those that the filter names and adds them to the results; gives whether all went well.
pub(crate) fn run(quick: bool, filter: Option<&str>, results: &mut Results) -> Result<bool> {
    let wanted = |name: &str| filter.is_none_or(|filter| name.contains(filter));
    let mut ok = true;
    if wanted("loom") {
        ok &= model_checker(results)?;
    }
    for sanitizer in SANITIZERS {
        let name = format!("sanitizer::{}", sanitizer.name());
        if wanted(&name) {
            ok &= under(sanitizer, &name, quick, results)?;
        }
    }
    Ok(ok)
}

fn model_checker(results: &mut Results) -> Result<bool> {
    println!("\nthe models of taut-aio's synchronisation");
    let mut command = shell::cargo();
    command.args(["test", "--locked", "--release", "--package", "taut-aio", "--test", "loom"]);
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", shell::target_dir()?.join("loom"));
    command.env("LOOM_MAX_PREEMPTIONS", PREEMPTIONS).env("LOOM_MAX_DURATION", MODEL_SECONDS);
    let (of_models, success) = stream(&mut command)?;
    results.add(of_models);
    Ok(success)
}

fn under(sanitizer: Sanitizer, name: &str, quick: bool, results: &mut Results) -> Result<bool> {
    println!("\nlibtautaio under the {} sanitizer", sanitizer.name());
    if !sanitizer.is_there() {
        results.skip(name, "this Rust has no such sanitizer for this machine");
        return Ok(true);
    }
    let program = Program::sanitized(sanitizer)?;
    let time = Duration::from_secs(if quick { 2 } else { 5 });
    let mut ok = true;
    for engine in ENGINES {
        let name = format!("{name}::{}", engine.name());
        let mut command = program.command(engine);
        command.env("TAUT_STRESS_SECONDS", time.as_secs().to_string()).env_remove("TAUTAIO_LOG");
        let status = command.status().with_context(|| format!("cannot run `{}`", shell::line(&command)))?;
        if status.code() == Some(NOT_HERE) {
            results.skip(&name, &format!("the engine {} can't be had here", engine.name()));
        } else if status.success() {
            println!("test {name} ... ok");
            results.pass();
        } else {
            println!("test {name} ... FAILED ({status})");
            results.fail();
            ok = false;
        }
    }
    Ok(ok)
}
