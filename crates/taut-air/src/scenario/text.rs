//! A scenario as TOML: tables `link`, `medium`, `both`, `central`, `peripheral`, and `name`.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::ScenarioError;
use super::parameter::{self, PARAMETERS, Target};
use super::terms::Scenario;
use crate::role::Role;

pub(super) fn read(scenario: &mut Scenario, text: &str) -> Result<(), ScenarioError> {
    let root = DeTable::parse(text).map_err(|error| {
        ScenarioError::at(text, error.span().map_or(0, |span| span.start), error.message().to_owned())
    })?;
    // `both` before the sides, whatever their order in the text: what is said of one side alone is the exception.
    let mut tables: Vec<_> = in_order(root.get_ref());
    tables.sort_by_key(|(key, _)| matches!(key.get_ref().as_ref(), "central" | "peripheral"));
    for (key, value) in tables {
        let name = key.get_ref().as_ref();
        let targets: &[Target] = match name {
            "name" => {
                let name = value.get_ref().as_str();
                scenario.name = name
                    .ok_or_else(|| ScenarioError::at(text, value.span().start, "`name` takes a text".to_string()))?
                    .to_owned();
                continue;
            }
            "link" => &[Target::Link],
            "medium" => &[Target::Medium],
            "both" => &[Target::Side(Role::Central), Target::Side(Role::Peripheral)],
            "central" => &[Target::Side(Role::Central)],
            "peripheral" => &[Target::Side(Role::Peripheral)],
            _ => {
                let message = format!(
                    "`{name}` is not known here; there are: name, [link], [medium], [both], [central], [peripheral]"
                );
                return Err(ScenarioError::at(text, key.span().start, message));
            }
        };
        let Some(table) = value.get_ref().as_table() else {
            return Err(ScenarioError::at(text, value.span().start, format!("`{name}` is a table: write [{name}]")));
        };
        read_table(scenario, text, table, targets, "")?;
    }
    Ok(())
}

/// What is not as in a scenario of which nothing is said.
pub(super) fn write(scenario: &Scenario) -> String {
    let usual = Scenario::default();
    let mut text = String::new();
    if scenario.name != usual.name {
        // A basic string of TOML, in which all but control characters and two others stand for themselves.
        let name: String = scenario.name.chars().filter(|sign| !sign.is_control() && !"\\\"".contains(*sign)).collect();
        text.push_str(&format!("name = \"{name}\"\n"));
    }
    let tables = [
        ("link", Target::Link),
        ("medium", Target::Medium),
        ("central", Target::Side(Role::Central)),
        ("peripheral", Target::Side(Role::Peripheral)),
    ];
    for (table, target) in tables {
        // A profile stands for other parameters, each of which has its own line.
        let all =
            PARAMETERS.iter().filter(|parameter| parameter.scope == target.scope() && parameter.name != "profile");
        let lines: Vec<String> = all
            .filter_map(|parameter| {
                let own = parameter::value_of(scenario, parameter, target)?;
                let is_usual = parameter::value_of(&usual, parameter, target).is_some_and(|usual| usual == own);
                (!is_usual).then(|| format!("{} = '{own}'\n", parameter.name))
            })
            .collect();
        if !lines.is_empty() {
            text.push_str(&format!("\n[{table}]\n{}", lines.concat()));
        }
    }
    text
}

fn in_order<'a, 'i>(table: &'a DeTable<'i>) -> Vec<(&'a Spanned<toml::de::DeString<'i>>, &'a Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    // A profile is what other values refine.
    entries.sort_by_key(|(key, _)| key.get_ref().as_ref() != "profile");
    entries
}

fn read_table(
    scenario: &mut Scenario,
    text: &str,
    table: &DeTable<'_>,
    targets: &[Target],
    prefix: &str,
) -> Result<(), ScenarioError> {
    for (key, value) in in_order(table) {
        let name = format!("{prefix}{}", key.get_ref());
        if let Some(inner) = value.get_ref().as_table() {
            read_table(scenario, text, inner, targets, &format!("{name}."))?;
            continue;
        }
        for &target in targets {
            let parameter =
                parameter::find(&name, target.scope()).map_err(|error| error.found_at(text, key.span().start))?;
            let literal = literal(value.get_ref())
                .ok_or_else(|| ScenarioError::at(text, value.span().start, parameter.expects("a list or a date")))?;
            parameter::apply(scenario, parameter, target, &literal)
                .map_err(|error| error.found_at(text, value.span().start))?;
        }
    }
    Ok(())
}

/// A value as `--set` would have it.
fn literal(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(integer) if integer.radix() == 10 => Some(integer.as_str().to_owned()),
        DeValue::Integer(integer) => {
            i64::from_str_radix(integer.as_str(), integer.radix()).ok().map(|number| number.to_string())
        }
        DeValue::Float(float) => Some(float.as_str().to_owned()),
        DeValue::Boolean(boolean) => Some(boolean.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}
