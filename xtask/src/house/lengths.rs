//! How long a file and a line may be.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, LexError, Span, TokenStream, TokenTree};

use super::links::lines;

/// A file with more lines of code has a wall missing.
const MOST_LINES: usize = 500;

/// Columns of a line.
const MOST_COLUMNS: usize = 120;

/// What is too long in a file.
pub(super) fn too_long(file: &str, text: &str) -> Result<Vec<String>> {
    // A script's first line is no Rust; the lexer knows none.
    let tokens: TokenStream = text.parse().map_err(|error: LexError| anyhow!("{file}: {error}"))?;
    let mut lines = Lines::default();
    lines.add(tokens);
    let mut breaches = Vec::new();
    if lines.code.len() > MOST_LINES {
        breaches
            .push(format!("{file} has {} lines of code, more than {MOST_LINES}: is a wall missing?", lines.code.len()));
    }
    for (index, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > MOST_COLUMNS && !lines.text.contains(&(index + 1)) {
            breaches.push(format!("{file}:{} has {columns} columns, more than {MOST_COLUMNS}", index + 1));
        }
    }
    Ok(breaches)
}

/// README is read in a terminal, and to its end.
const MOST_README: (usize, usize) = (120, 100);
/// Languages of code blocks that hold what programs print.
const PRINTED: [&str; 2] = ["text", "json"];

/// What is too long in README, tables and all.
pub(super) fn too_long_readme(text: &str) -> Vec<String> {
    let (most_lines, most_columns) = MOST_README;
    let wide = text.lines().enumerate().map(|(index, line)| (index + 1, line.chars().count()));
    let wide = wide.filter(|(_, columns)| *columns > most_columns);
    let mut breaches: Vec<String> = wide
        .map(|(line, columns)| format!("README.md:{line} has {columns} columns, more than {most_columns}"))
        .collect();
    let lines = text.lines().count();
    if lines > most_lines {
        breaches.push(format!("README.md has {lines} lines, more than {most_lines}"));
    }
    breaches
}

/// Lines of a page that are wider than a terminal shows; tables and what programs print can't be folded.
pub(super) fn too_wide(file: &str, text: &str) -> Vec<String> {
    let (_, most_columns) = MOST_README;
    let own = lines(text).filter(|(_, _, language)| language.is_none_or(|language| !PRINTED.contains(&language)));
    let wide = own.map(|(number, line, _)| (number, line, line.chars().count()));
    let wide = wide.filter(|(_, line, columns)| *columns > most_columns && !line.trim_start().starts_with('|'));
    wide.map(|(number, _, columns)| format!("{file}:{number} has {columns} columns, more than {most_columns}"))
        .collect()
}

/// Lines of code that are no part of tests.
pub(crate) fn of_product(file: &str, text: &str) -> Result<usize> {
    let tokens: TokenStream = text.parse().map_err(|error: LexError| anyhow!("{file}: {error}"))?;
    let mut kept = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let marks_test = matches!(&token, TokenTree::Punct(sign) if sign.as_char() == '#')
            && matches!(tokens.peek(), Some(TokenTree::Group(group)) if group.stream().to_string() == "cfg (test)");
        if !marks_test {
            kept.push(token);
            continue;
        }
        // Up to the end of the item: its body, or a semicolon.
        let is_end = |token: &TokenTree| match token {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            TokenTree::Punct(sign) => sign.as_char() == ';',
            _ => false,
        };
        tokens.by_ref().find(is_end);
    }
    let mut lines = Lines::default();
    lines.add(kept.into_iter().collect());
    Ok(lines.code.len())
}

/// The lines of a file that hold code. Comments, those of the documentation too, and empty lines are none.
#[derive(Default)]
struct Lines {
    code: BTreeSet<usize>,
    /// Those with a part of a string. rustfmt lets them be long, since a message in pieces can't be searched for.
    text: BTreeSet<usize>,
}

impl Lines {
    fn add(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(sign) if sign.as_char() == '#' => {
                    if matches!(tokens.peek(), Some(TokenTree::Punct(bang)) if bang.as_char() == '!') {
                        tokens.next();
                    }
                    if !matches!(tokens.peek(), Some(token) if is_documentation(token, sign.span())) {
                        self.code.insert(sign.span().start().line);
                        continue;
                    }
                    tokens.next();
                }
                TokenTree::Group(group) => {
                    self.code.extend([group.span_open().start().line, group.span_close().end().line]);
                    self.add(group.stream());
                }
                token => {
                    let lines = token.span().start().line..=token.span().end().line;
                    self.code.extend(lines.clone());
                    if matches!(&token, TokenTree::Literal(literal) if literal.to_string().contains('"')) {
                        self.text.extend(lines);
                    }
                }
            }
        }
    }
}

/// A comment of the documentation is lexed as an attribute, all parts of which have the place of the whole comment.
fn is_documentation(token: &TokenTree, sign: Span) -> bool {
    let TokenTree::Group(group) = token else { return false };
    group.delimiter() == Delimiter::Bracket
        && group.span().start() == sign.start()
        && matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(name)) if name == "doc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_no_product() {
        let text =
            "use a;\n\n/// A.\nfn f() {}\n#[cfg(test)]\nuse b;\n#[cfg(test)]\nmod tests {\n    use c;\n}\nfn g() {}\n";
        assert_eq!(of_product("a.rs", text).unwrap(), 3);
    }

    #[test]
    fn only_lines_with_code_count() {
        let code = "//! A file.\n\n/// A thing\n/// of two lines.\n#[inline]\nfn thing() {\n    /* a\n    remark */\n    let text = \"a\nb\"; // why\n\n}\n";
        let mut lines = Lines::default();
        lines.add(code.parse().unwrap());
        assert_eq!(lines.code.into_iter().collect::<Vec<_>>(), [5, 6, 9, 10, 12]);
    }

    #[test]
    fn a_file_may_have_as_many_lines_of_code_and_no_more() {
        let comments = "// A comment.\n\n".repeat(MOST_LINES);
        let full = "fn f() {}\n".repeat(MOST_LINES);
        assert_eq!(too_long("a.rs", &format!("{comments}{full}")).unwrap(), Vec::<String>::new());
        let breaches = too_long("a.rs", &format!("{comments}{full}fn g() {{}}\n")).unwrap();
        assert_eq!(breaches, ["a.rs has 501 lines of code, more than 500: is a wall missing?"]);
    }

    #[test]
    fn a_long_line_is_a_breach_but_for_strings() {
        let wide = "x".repeat(MOST_COLUMNS);
        let breaches = |line: String| too_long("a.rs", &format!("fn f() {{}}\n{line}\n")).unwrap();
        assert_eq!(breaches(format!("// {wide}")), ["a.rs:2 has 123 columns, more than 120"]);
        assert_eq!(breaches(format!("/// {wide}\nfn g() {{}}")).len(), 1);
        assert_eq!(breaches(format!("fn {wide}() {{}}")).len(), 1);
        assert_eq!(breaches(format!("const A: &str = \"{wide}\";")), Vec::<String>::new());
        // Columns are characters.
        assert_eq!(breaches(format!("// {}", "é".repeat(117))), Vec::<String>::new());
    }

    #[test]
    fn what_can_be_folded_is_not_wider_than_a_page() {
        let wide = "word ".repeat(25);
        let page = format!("{wide}\n\n```text\n{wide}\n```\n\n| {wide} |\n```sh\n{wide}\n```\n");
        let breach = |line: u32| format!("a.md:{line} has 125 columns, more than 100");
        assert_eq!(too_wide("a.md", &page), [breach(1), breach(9)]);
    }

    #[test]
    fn a_readme_fits() {
        let (most_lines, most_columns) = MOST_README;
        let line = "ä".repeat(most_columns) + "\n";
        assert!(too_long_readme(&line.repeat(most_lines)).is_empty());
        assert_eq!(too_long_readme(&format!("\nä{line}")), ["README.md:2 has 101 columns, more than 100"]);
        assert_eq!(too_long_readme(&"\n".repeat(most_lines + 1)), ["README.md has 121 lines, more than 120"]);
    }
}
