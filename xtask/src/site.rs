//! `cargo xtask site`: README and docs as pages for a browser, by mdBook, with a report of a stall made here and now.
//!
//! `docs/SUMMARY.md` has the pages in their order. The site has the places of the tree, so links are as they are there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::house::links::links;
use crate::{shell, tools};

/// Version of mdBook that is built when it is missing.
const MDBOOK: &str = "0.5.4";
/// The list of pages.
const SUMMARY: &str = "docs/SUMMARY.md";
/// The page around the report.
const REPORT: &str = "# A report

`taut demo nagle --html report.html` made [this page](report.html) when the site was built. Each bar is a
message, from the time at which it was due until it was read.

<iframe src=\"report.html\" title=\"The report\" style=\"width: 100%; height: 80vh; border: 0\"></iframe>
";

/// Builds it in `target/site/html`.
pub(crate) fn run() -> Result<ExitCode> {
    let mdbook = tools::ensure("mdbook", MDBOOK)?;
    let (root, site) = (shell::root(), shell::target_dir()?.join("site"));
    let source = site.join("src");
    if source.exists() {
        fs::remove_dir_all(&source).with_context(|| format!("cannot remove {}", source.display()))?;
    }
    fs::create_dir_all(&source)?;
    let summary = read(&root, Path::new(SUMMARY))?;
    let pages = pages(&summary);
    let mut files: BTreeSet<PathBuf> = pages.iter().cloned().collect();
    for page in &pages {
        files.extend(beside(page, &read(&root, page)?));
    }
    for file in files {
        let to = source.join(&file);
        to.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::copy(root.join(&file), &to).with_context(|| format!("cannot copy {}", file.display()))?;
    }
    fs::write(source.join("SUMMARY.md"), from_root(&summary) + "- [A report, made with this site](live.md)\n")?;
    fs::write(source.join("live.md"), REPORT)?;
    fs::copy(root.join("docs/book.toml"), site.join("book.toml"))?;
    let mut report = shell::cargo();
    report.args(["run", "--release", "--locked", "--", "demo", "nagle", "--html"]).arg(source.join("report.html"));
    shell::run(&mut report)?;
    let pages = site.join("html");
    shell::run(Command::new(mdbook).args(["build", "--dest-dir"]).arg(&pages).arg(&site))?;
    println!("{}", pages.join("index.html").display());
    Ok(ExitCode::SUCCESS)
}

/// Pages of the documentation that the site would not have.
///
/// # Errors
/// The list of pages can't be read.
pub(crate) fn left_out() -> Result<Vec<String>> {
    let root = shell::root();
    let listed = pages(&read(&root, Path::new(SUMMARY))?);
    let there = shell::output(Command::new("git").args(["ls-files", "docs/*.md", "*.md"]).current_dir(&root))?;
    let missing = |file: &&str| {
        let is_page =
            Path::new(file).parent().is_some_and(|parent| parent == Path::new("docs") || parent == Path::new(""));
        is_page && *file != SUMMARY && !listed.contains(Path::new(file))
    };
    Ok(there.lines().filter(missing).map(|file| format!("{file} is not in {SUMMARY}")).collect())
}

fn read(root: &Path, file: &Path) -> Result<String> {
    fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {}", file.display()))
}

/// Pages of the list, by their places in the tree.
fn pages(summary: &str) -> BTreeSet<PathBuf> {
    beside(Path::new(SUMMARY), summary).collect()
}

/// What a page links to in the tree.
fn beside(page: &Path, text: &str) -> impl Iterator<Item = PathBuf> {
    let directory = page.parent().unwrap_or_else(|| Path::new("")).to_owned();
    let targets = links(text).into_iter().map(|(_, target)| target.split('#').next().unwrap_or_default().to_owned());
    let local = targets.filter(|target| !target.is_empty() && !target.contains(':'));
    local.map(move |target| plain(&directory.join(target))).collect::<Vec<_>>().into_iter()
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            other => plain.push(other),
        }
    }
    plain
}

/// The list as it is at the root of the tree, where mdBook wants it.
fn from_root(summary: &str) -> String {
    let mut text = summary.to_owned();
    for (_, target) in links(summary) {
        let place = plain(&Path::new("docs").join(target));
        text = text.replace(&format!("]({target})"), &format!("]({})", place.display()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# Summary\n\n[Tautline](../README.md)\n\n- [A host](watch.md)\n- [It](../kernel/x/README.md)\n";

    #[test]
    fn pages_have_their_places_in_the_tree() {
        let expected = ["README.md", "docs/watch.md", "kernel/x/README.md"].map(PathBuf::from);
        assert_eq!(pages(LIST), BTreeSet::from(expected));
        let text = from_root(LIST);
        assert!(text.contains("(README.md)") && text.contains("(docs/watch.md)"), "{text}");
        assert!(text.contains("(kernel/x/README.md)"), "{text}");
    }

    #[test]
    fn what_a_page_links_to_comes_with_it() {
        let text = "[a](../man/a.3), [b](trace.md#top), [c](#here), [d](https://example.org), ![e](e.png)\n";
        let found: Vec<PathBuf> = beside(Path::new("docs/x.md"), text).collect();
        assert_eq!(found, ["man/a.3", "docs/trace.md", "docs/e.png"].map(PathBuf::from));
    }

    #[test]
    fn each_page_of_the_documentation_is_in_the_list() {
        assert_eq!(left_out().unwrap(), Vec::<String>::new());
    }
}
