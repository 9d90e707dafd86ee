//! The shell blocks of README and docs, and why one of them, or a line of it, is not run.
//!
//! `<!-- not run: REASON -->` in the line before a block stands for all of it, `<!-- not run, lines 1 3: REASON -->`
//! for these lines of it. Readers of the page do not see it.
#![allow(dead_code, reason = "each of those who share it uses a part of it")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A block of a page.
pub(crate) struct Block {
    /// `trace.md`.
    pub(crate) page: String,
    /// Of its first line in the page, from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
    /// Why it is not run, by line, from 1; 0 is all of it.
    pub(crate) not_run: BTreeMap<usize, String>,
}

impl Block {
    /// Where it is, for a message.
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }

    /// What of it is to be run; nothing where that is nothing.
    pub(crate) fn runs(&self) -> Option<String> {
        let lines = self.text.lines().enumerate().filter(|(index, _)| !self.not_run.contains_key(&(index + 1)));
        let text: String = lines.map(|(_, line)| format!("{line}\n")).collect();
        (!self.not_run.contains_key(&0) && !text.trim().is_empty()).then_some(text)
    }
}

/// The blocks of README and of all pages of docs.
pub(crate) fn all() -> Vec<Block> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|path| path.join("docs/SUMMARY.md").is_file());
    let root = root.expect("the pages are in the tree");
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = docs.filter(|path| path.extension().is_some_and(|kind| kind == "md")).collect();
    pages.push(root.join("README.md"));
    pages.sort();
    let blocks = pages.iter().flat_map(|page| {
        let name = page.file_name().unwrap_or_default().to_string_lossy();
        of_page(&name, &fs::read_to_string(page).unwrap()).unwrap_or_else(|wrong| panic!("{wrong}"))
    });
    blocks.collect()
}

/// The blocks of one page.
///
/// # Errors
/// A remark without a reason, a line or a block that it could be of.
fn of_page(page: &str, text: &str) -> Result<Vec<Block>, String> {
    let mut blocks = Vec::new();
    let mut remark: Option<(usize, BTreeMap<usize, String>)> = None;
    let mut open: Option<(bool, Block)> = None;
    for (index, line) in text.lines().enumerate() {
        let wrong = |why: &str| format!("{page}:{}: {why}", index + 1);
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(kind)) => {
                let is_shell = matches!(kind, "sh" | "console");
                let not_run = match remark.take() {
                    Some(_) if !is_shell => return Err(wrong("`not run` stands before a block of no shell")),
                    Some((_, remark)) => remark,
                    None => BTreeMap::new(),
                };
                let block = Block { page: page.to_owned(), line: index + 2, text: String::new(), not_run };
                open = Some((is_shell, block));
            }
            (Some((_, block)), Some(_)) => {
                let last = block.not_run.keys().max().copied().unwrap_or_default();
                if last > block.text.lines().count() {
                    return Err(wrong(&format!("the block has no line {last}")));
                }
                blocks.extend(open.take().filter(|(is_shell, _)| *is_shell).map(|(_, block)| block));
            }
            (Some((_, block)), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {
                if let Some((at, _)) = &remark {
                    return Err(format!("{page}:{at}: `not run` does not stand before a block"));
                }
                if let Some(said) = line.strip_prefix("<!-- not run") {
                    remark = Some((index + 1, reasons(said).map_err(|why| wrong(&why))?));
                }
            }
        }
    }
    match remark {
        Some((at, _)) => Err(format!("{page}:{at}: `not run` does not stand before a block")),
        None => Ok(blocks),
    }
}

/// Of what follows on `<!-- not run`.
fn reasons(said: &str) -> Result<BTreeMap<usize, String>, String> {
    let said = said.strip_suffix("-->").ok_or("a `not run` has to end in its line")?;
    let (lines, reason) = said.split_once(':').ok_or("`not run` needs a colon and a reason")?;
    if reason.split_whitespace().count() < 2 {
        return Err("`not run` needs a reason".to_owned());
    }
    let lines = match lines.strip_prefix(", line").map(|lines| lines.trim_start_matches('s')) {
        None if lines.is_empty() => vec![0],
        None => return Err(format!("`{lines}` is not `, line 2` or `, lines 2 4`")),
        Some(lines) => {
            let number = |word: &str| word.parse().ok().filter(|line| *line > 0);
            let lines: Option<Vec<usize>> = lines.split_whitespace().map(number).collect();
            lines.filter(|lines| !lines.is_empty()).ok_or("a line is a number from 1")?
        }
    };
    Ok(lines.into_iter().map(|line| (line, reason.trim().to_owned())).collect())
}

#[test]
fn a_block_is_run_unless_it_says_why_not() {
    let page = "a\n\n<!-- not run, lines 1 3: it takes a radio -->\n```sh\na\nb\nc\n```\n```text\nd\n```\n```sh\ne\n```\n\
                <!-- not run: another host is needed -->\n```sh\nf\n```\n";
    let blocks = of_page("p.md", page).unwrap();
    let runs: Vec<_> = blocks.iter().map(|block| (block.place(), block.runs())).collect();
    let expected = [("p.md:5", Some("b\n")), ("p.md:13", Some("e\n")), ("p.md:17", None)];
    assert_eq!(runs, expected.map(|(place, text)| (place.to_owned(), text.map(str::to_owned))));
}

#[test]
fn a_remark_without_reason_line_or_block_is_wrong() {
    let wrong = |text: &str| of_page("p.md", text).err().unwrap_or_else(|| panic!("{text} is taken"));
    let before = |said: &str| wrong(&format!("<!-- not run{said}\n```sh\na\n```\n"));
    for (said, why) in [
        (": -->", "a reason"),
        (" because -->", "a colon"),
        (": a reason that", "end in its line"),
        (", line x: no number -->", "a number from 1"),
        (", line 0: no number -->", "a number from 1"),
        (", line 2: it is short -->", "no line 2"),
        (" here: for no reason -->", "is not `, line 2`"),
    ] {
        assert!(before(said).contains(why), "{said}: {}", before(said));
    }
    for text in ["<!-- not run: far away -->\n\n```sh\na\n```\n", "<!-- not run: at the end -->\n"] {
        assert!(wrong(text).starts_with("p.md:1: `not run` does not"), "{}", wrong(text));
    }
    assert!(wrong("<!-- not run: a text only -->\n```text\na\n```\n").contains("of no shell"));
}
