//! What repeats a sheet's rows and which options were in force, each said once for all rows that share it.

use super::label::Label;

/// What repeats a row, and the options it was measured with.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) label: Label,
    pub(crate) command: String,
    pub(crate) facts: Vec<String>,
}

/// Something that rows share.
pub(crate) struct Shared {
    /// The rows, in words.
    pub(crate) rows: String,
    pub(crate) what: String,
}

/// Each command once.
pub(crate) fn commands<'a>(about: impl IntoIterator<Item = &'a About>) -> Vec<Shared> {
    shared(about, |about| about.command.clone())
}

/// Each set of options once.
pub(crate) fn options<'a>(about: impl IntoIterator<Item = &'a About>) -> Vec<Shared> {
    shared(about, |about| about.facts.join(", "))
}

fn shared<'a>(about: impl IntoIterator<Item = &'a About>, what: impl Fn(&About) -> String) -> Vec<Shared> {
    let mut all: Vec<&Label> = Vec::new();
    let mut groups: Vec<(String, Vec<&Label>)> = Vec::new();
    for about in about {
        all.push(&about.label);
        let what = what(about);
        match groups.iter_mut().find(|(other, _)| *other == what) {
            Some((_, rows)) => rows.push(&about.label),
            None => groups.push((what, vec![&about.label])),
        }
    }
    let told = groups.into_iter().filter(|(what, _)| !what.is_empty());
    told.map(|(what, rows)| Shared { rows: in_words(&rows, &all), what }).collect()
}

/// Some rows of all in as few words as name them.
fn in_words(rows: &[&Label], all: &[&Label]) -> String {
    let detail = rows.first().map_or("", |label| label.detail.as_str());
    let names = || rows.iter().map(|label| label.name.as_str()).collect::<Vec<_>>().join("; ");
    let bearing_it = all.iter().filter(|label| label.detail == detail).count();
    match rows.len() {
        n if n == all.len() => "all rows".to_owned(),
        1 => rows[0].to_string(),
        _ if rows.iter().any(|label| label.detail != detail) => {
            rows.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        }
        _ if detail.is_empty() => names(),
        n if n == bearing_it => detail.to_owned(),
        _ => format!("{} ({detail})", names()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(name: &str, detail: &str, command: &str) -> About {
        let label = Label { name: name.to_owned(), detail: detail.to_owned() };
        About { label, command: command.to_owned(), facts: Vec::new() }
    }

    fn rows(about: &[About]) -> Vec<String> {
        commands(about).into_iter().map(|shared| shared.rows).collect()
    }

    #[test]
    fn rows_with_one_command_are_named_together() {
        assert_eq!(rows(&[about("a", "x", "1"), about("b", "y", "1")]), ["all rows"]);
        assert_eq!(rows(&[about("a", "x", "1"), about("b", "x", "1"), about("a", "y", "2")]), ["x", "a, y"]);
        assert_eq!(rows(&[about("a", "x", "1"), about("b", "x", "1"), about("c", "x", "2")]), ["a; b (x)", "c, x"]);
        assert_eq!(rows(&[about("a", "x", "1"), about("b", "y", "1"), about("c", "", "2")]), ["a, x; b, y", "c"]);
        assert!(options(&[about("a", "x", "1")]).is_empty());
    }
}
