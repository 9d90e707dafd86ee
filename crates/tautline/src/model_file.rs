//! `taut explain --model`: the scenario of a log as a file, and logs that have none.

use std::path::Path;

use taut_explain::{Direction, LinkModel};
use taut_link::Error;
use taut_report::ExplainedFile;

use crate::output;

/// Refuses what is no log of a Bluetooth host.
pub(crate) fn refuse_others(file: &ExplainedFile) -> anyhow::Result<()> {
    if file.explanation.worst.iter().any(|direction| direction.model.is_some()) {
        return Ok(());
    }
    let why = match () {
        () if file.hci_packets > 0 => "no data of a channel is in it",
        () if file.air_packets > 0 => "it is a sniffer's capture, which shows neither hosts nor controllers",
        () if file.explanation.directions > 0 => "it is no log of a Bluetooth host",
        () => "nothing in it can be explained",
    };
    let ask = "--model takes the log of a Bluetooth host (btsnoop) with a channel of LE that uses credits";
    Err(Error::Input(format!("{}: {why}; {ask}", file.file)).into())
}

/// Whether there is a scenario and it is written: the nearest one of the direction with most data, if a file is named.
pub(crate) fn write(files: &[ExplainedFile], to: Option<&Path>) -> bool {
    let all = files.iter().flat_map(|file| &file.explanation.worst);
    let modelled = all.filter_map(|direction| {
        let model = direction.model.as_ref()?;
        Some((direction, model, model.scenarios.first()?))
    });
    let Some((direction, model, nearest)) = modelled.max_by_key(|(direction, ..)| direction.bytes) else {
        anstream::eprintln!("taut: no direction could be modelled");
        return false;
    };
    let Some(path) = to else { return true };
    let written = output::write_file(path, &format!("{}{}", head(direction, model), nearest.toml));
    let is_written = output::is_done(written);
    if is_written {
        anstream::eprintln!("taut: wrote {}; taut air run {0} {}", output::shown(path), options(model));
    }
    is_written
}

fn head(direction: &Direction, model: &LinkModel) -> String {
    format!(
        "# The link of {} > {}, as far as its log tells it.\n# As it was run: taut air run FILE {}\n",
        direction.from,
        direction.to,
        options(model)
    )
}

fn options(model: &LinkModel) -> String {
    format!("--seed {} --time {}ns", model.seed, model.duration_ns)
}
