//! Whether links of the documentation lead somewhere: to a file of the tree, and to a heading in it.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Links of a page that lead nowhere, each with its line. `file` is relative to `root`. Links to other sites are not
/// followed.
pub(super) fn dead(root: &Path, file: &Path, text: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    for (line, target) in links(text) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
        let beside = root.join(file.parent().unwrap_or_else(|| Path::new("")));
        let whole = if path.is_empty() { root.join(file) } else { beside.join(path) };
        let breach = |what: &str| format!("{}:{line}: the link to {target} leads nowhere: {what}", file.display());
        if !whole.exists() {
            breaches.push(breach("there is no such file"));
            continue;
        }
        let Some(anchor) = anchor.filter(|_| whole.extension().is_some_and(|extension| extension == "md")) else {
            continue;
        };
        let there = fs::read_to_string(&whole).unwrap_or_default();
        if !anchors(if path.is_empty() { text } else { &there }).iter().any(|known| known == anchor) {
            breaches.push(breach("there is no such heading"));
        }
    }
    breaches
}

/// Lines that are no code block, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    lines(text).filter(|(_, _, language)| language.is_none()).map(|(number, line, _)| (number, line))
}

/// All lines with their numbers, those of a code block with its language; its first and last line are left out.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str, Option<&str>)> {
    let mut fence: Option<(&str, &str)> = None;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let start = line.trim_start();
        match fence {
            Some((mark, _)) if start.starts_with(mark) => {
                fence = None;
                None
            }
            None if start.starts_with("```") || start.starts_with("~~~") => {
                fence = Some(start.split_at(3));
                None
            }
            _ => Some((index + 1, line, fence.map(|(_, language)| language))),
        }
    })
}

/// Targets of `[text](target)`, also of `[text][name]` by the line that defines the name, with the number of their
/// line. What is in code is none.
pub(crate) fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        if let Some((_, target)) = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
            found.extend(target.split_whitespace().next().map(|target| (number, target)));
        }
        // Every second part is within backticks.
        let mut code = false;
        let mut from = 0;
        for (at, character) in line.char_indices() {
            if character == '`' {
                code = !code;
            }
            if code || at < from || !line[at..].starts_with("](") {
                continue;
            }
            let Some(length) = line[at + 2..].find(')') else { continue };
            from = at + 2 + length;
            found.extend(line[at + 2..from].split_whitespace().next().map(|target| (number, target)));
        }
    }
    found
}

/// What the headings of a page are called in links: small letters, blanks as dashes, no signs; the second of two alike
/// has a number.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut anchors = Vec::new();
    for (_, line) in prose(text) {
        let Some(heading) = line.strip_prefix('#').map(|rest| rest.trim_start_matches('#')) else { continue };
        let Some(heading) = heading.strip_prefix(' ') else { continue };
        let kept = heading.trim().chars().filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect();
        let before = seen.entry(name.clone()).or_default();
        anchors.push(if *before == 0 { name } else { format!("{name}-{before}") });
        *before += 1;
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_of_code() {
        let text = "a [b](c.md) and `[d](e.md)` [f](g.md#h \"title\")\n```sh\n[i](j.md)\n```\n[k]: l.md\n";
        assert_eq!(links(text), [(1, "c.md"), (1, "g.md#h"), (5, "l.md")]);
        for odd in ["](", "[a](", "`](`](", "[](", "ä](ö)", "```", "[]: "] {
            let _ = links(odd);
        }
    }

    #[test]
    fn headings_have_the_names_that_links_use() {
        let text = "# Who holds it? `taut trace`\n## Two\n```\n# none\n```\n### Two\n#no heading\n";
        assert_eq!(anchors(text), ["who-holds-it-taut-trace", "two", "two-1"]);
    }

    #[test]
    fn what_leads_nowhere_is_told() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("docs")).unwrap();
        fs::write(directory.path().join("docs/b.md"), "# Here\n").unwrap();
        fs::write(directory.path().join("c.png"), "").unwrap();
        let dead = |text: &str| dead(directory.path(), Path::new("docs/a.md"), text);
        fs::write(directory.path().join("docs/a.md"), "").unwrap();
        assert!(dead("# Mine\n[x](b.md#here) [y](../c.png) [z](#mine) [w](https://nowhere/x)").is_empty());
        assert_eq!(
            dead("\n[x](b.md#there) [y](d.md)\n[z](#mine)"),
            [
                "docs/a.md:2: the link to b.md#there leads nowhere: there is no such heading",
                "docs/a.md:2: the link to d.md leads nowhere: there is no such file",
                "docs/a.md:3: the link to #mine leads nowhere: there is no such heading",
            ]
        );
    }
}
