//! The file that events are logged to.

use std::io::Write;

use taut_link::{Error, Result};

use super::sink;
use crate::route::Route;

/// The file of a route's log, if it has one.
pub(super) fn open_log(route: &Route) -> Result<Option<Box<dyn Write + Send>>> {
    let Some(path) = route.log.as_deref() else { return Ok(None) };
    let failed = |error| Error::Io { operation: "log to", endpoint: path.display().to_string(), error };
    sink::append(path).map(Some).map_err(failed)
}
