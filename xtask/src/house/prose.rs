//! How pages are written, as far as a machine can see it: sentences that a reader takes in at once, and no word that
//! tells him nothing.

use super::links::lines;

/// Words of a sentence. A list says the same in less, and has no limit but that of its items.
const MOST_WORDS: usize = 40;

/// They praise, soothe or fill. ("Just" is none of them: it is a time in "just after".)
const EMPTY: [&str; 16] = [
    "actually",
    "basically",
    "easily",
    "easy",
    "in order to",
    "leverage",
    "note that",
    "obviously",
    "of course",
    "please",
    "powerful",
    "quite",
    "really",
    "seamless",
    "simply",
    "utilize",
];

/// What a page says in too many words.
pub(super) fn wordy(file: &str, text: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    for Paragraph { line, text, is_table } in paragraphs(text) {
        let plain = without_code(&text);
        breaches.extend(empty(&plain).map(|word| format!("{file}:{line}: `{word}` tells the reader nothing")));
        let own = without_asides(&plain);
        let words = sentences(&own).into_iter().map(|sentence| sentence.split_whitespace().count());
        let long = words.filter(|&words| words > MOST_WORDS && !is_table);
        breaches
            .extend(long.map(|words| format!("{file}:{line}: a sentence of {words} words, more than {MOST_WORDS}")));
    }
    breaches
}

/// The same of what the program says of itself, where sentences are of another kind.
pub(super) fn wordy_help(file: &str, text: &str) -> Vec<String> {
    let lines = text.lines().enumerate();
    let found = lines.flat_map(|(index, line)| empty(line).map(move |word| (index + 1, word)).collect::<Vec<_>>());
    found.map(|(line, word)| format!("{file}:{line}: `{word}` tells the reader nothing")).collect()
}

struct Paragraph {
    /// Its first line, from 1.
    line: usize,
    text: String,
    is_table: bool,
}

/// Paragraphs, items of lists, headings and rows of tables; no blocks of code and no comments.
fn paragraphs(text: &str) -> Vec<Paragraph> {
    let mut paragraphs: Vec<Paragraph> = Vec::new();
    let mut goes_on = None;
    for (number, line, _) in lines(text).filter(|(_, _, language)| language.is_none()) {
        let start = line.trim_start();
        if start.is_empty() || start.starts_with("<!--") {
            goes_on = None;
            continue;
        }
        let digits = start.trim_start_matches(|c: char| c.is_ascii_digit());
        let is_numbered = digits.len() < start.len() && digits.starts_with(". ");
        let is_new = is_numbered || ["- ", "* ", "#", "|"].iter().any(|mark| start.starts_with(mark));
        match paragraphs.last_mut() {
            // A line of code between them ends the one before.
            Some(last) if !is_new && goes_on == Some(number) => {
                last.text.push(' ');
                last.text.push_str(start);
            }
            _ => paragraphs.push(Paragraph { line: number, text: start.to_owned(), is_table: start.starts_with('|') }),
        }
        goes_on = Some(number + 1);
    }
    paragraphs
}

/// With an `x` for what stands in backticks.
fn without_code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts.map(|(index, part)| if index % 2 == 0 { part } else { "x" }).collect()
}

/// Without what stands in parentheses, such as the target of a link.
fn without_asides(text: &str) -> String {
    let mut depth = 0_usize;
    let kept = text.chars().filter(|c| {
        let is_inside = depth > 0;
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        !is_inside && *c != '('
    });
    kept.collect()
}

/// Parts up to a mark that ends a sentence, or could.
fn sentences(text: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut from = 0;
    for (at, _) in text.match_indices(['.', '?', '!', ':', ';']) {
        if text[at + 1..].starts_with(' ') {
            sentences.push(&text[from..=at]);
            from = at + 1;
        }
    }
    sentences.push(&text[from..]);
    sentences
}

/// Which of [`EMPTY`] are in it, as whole words.
fn empty(text: &str) -> impl Iterator<Item = &'static str> + use<> {
    let words = text.to_lowercase().replace(|c: char| !c.is_alphanumeric() && c != '\'', " ");
    let words = format!(" {} ", words.split_whitespace().collect::<Vec<_>>().join(" "));
    EMPTY.into_iter().filter(move |word| words.contains(&format!(" {word} ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_has_forty_words_at_most() {
        let sentence = |words: usize| format!("{}end.", "word ".repeat(words - 1));
        assert!(wordy("a.md", &format!("{} {}\n", sentence(40), sentence(40))).is_empty());
        let broken = sentence(41).replacen("word ", "word\n", 3);
        assert_eq!(wordy("a.md", &format!("# A\n\n{broken}\n")), ["a.md:3: a sentence of 41 words, more than 40"]);
        // Items of a list, rows of tables, code and asides are not of the sentence before them.
        let list = format!("{}\n- {}\n1. {}\n", sentence(30), sentence(30), sentence(30));
        let more = format!("{}\n```text\n{}\n```\n| {} |\n", sentence(30), sentence(50), sentence(50));
        let asides = format!("{} ({}) [a](b c d) `{}`\n", "word ".repeat(35), sentence(30), sentence(30));
        assert_eq!(wordy("a.md", &[list, more, asides].concat()), [""; 0]);
    }

    #[test]
    fn a_word_that_says_nothing_is_named() {
        let told = |text: &str| wordy("a.md", text);
        assert_eq!(told("It is\n*simply* there.\n"), ["a.md:1: `simply` tells the reader nothing"]);
        assert_eq!(
            told("| of\tcourse |\n\n- Please do"),
            ["a.md:1: `of course` tells the reader nothing", "a.md:3: `please` tells the reader nothing",]
        );
        assert_eq!(told("`simply`, uneasy, just after\n```sh\nreally\n```\n<!-- really -->\n"), [""; 0]);
        assert_eq!(wordy_help("h", "a\n  -x  quite so"), ["h:2: `quite` tells the reader nothing"]);
    }
}
