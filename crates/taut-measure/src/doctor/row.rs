use taut_record::CheckRow;

/// A row from what was found, or from that and what to do about it.
pub(super) fn check(what: &str, needed_for: &str, outcome: Result<String, (String, &str)>) -> CheckRow {
    let (works, found, remedy) = match outcome {
        Ok(found) => (true, found, None),
        Err((found, remedy)) => (false, found, Some(remedy.to_owned())),
    };
    CheckRow { what: what.to_owned(), works, needed_for: needed_for.to_owned(), found, remedy }
}
