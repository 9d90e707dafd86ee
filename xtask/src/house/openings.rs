//! Whether the page of each part begins with lines to copy.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::links::lines;

/// The pages of the parts: measure, explain, AIO, routes, pipes, the model and the lab of Bluetooth, fleets.
const PARTS: [&str; 8] = [
    "docs/measuring.md",
    "docs/explain.md",
    "docs/posix-aio.md",
    "docs/routes.md",
    "docs/pipe.md",
    "docs/air.md",
    "docs/lab.md",
    "docs/mesh.md",
];

/// Lines of a page in which its block of a shell has to begin.
const FIRST: usize = 8;
/// Lines of that block.
const LEAST: usize = 3;

/// The pages that do not.
pub(super) fn without(root: &Path) -> Result<Vec<String>> {
    let mut breaches = Vec::new();
    for page in PARTS {
        let text = fs::read_to_string(root.join(page)).with_context(|| format!("read {page}"))?;
        if !has_one(&text) {
            breaches.push(format!("{page} has no block of {LEAST} lines of a shell in its first {FIRST} lines"));
        }
    }
    Ok(breaches)
}

fn has_one(text: &str) -> bool {
    let of_a_shell = lines(text).filter(|(_, _, language)| matches!(language, Some("sh" | "console")));
    let numbers: Vec<usize> = of_a_shell.map(|(number, _, _)| number).collect();
    let Some(&first) = numbers.first() else { return false };
    let in_one_block = numbers.iter().zip(first..).take_while(|(number, next)| *number == next).count();
    // The block's first line is the mark.
    first <= FIRST + 1 && in_one_block >= LEAST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_begins_with_three_lines_of_a_shell() {
        let page = |before: usize, kind: &str, lines: &str| {
            format!("# A page\n{}```{kind}\n{lines}```\nwords\n```sh\nd\ne\nf\n```\n", "\n".repeat(before))
        };
        assert!(has_one(&page(1, "sh", "a\nb\nc\n")) && has_one(&page(FIRST - 2, "console", "a\nb\nc\n")));
        assert!(!has_one(&page(FIRST - 1, "sh", "a\nb\nc\n")), "too late");
        assert!(!has_one(&page(1, "sh", "a\nb\n")), "too few");
        assert!(!has_one(&page(1, "text", "a\nb\nc\n")), "no lines of a shell");
        assert!(!has_one("# A page\n\nwords\n"));
    }
}
