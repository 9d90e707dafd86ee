//! A command in one text: words between blanks, and quotes as a shell has them, but nothing that a
//! shell would evaluate.

/// Splits a command into words. `'…'` is literal; in `"…"` and outside a backslash takes the
/// meaning off the next character.
pub(crate) fn split(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next().ok_or("a ' is not closed")? {
                        '\'' => break,
                        inner => word.push(inner),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next().ok_or("a \" is not closed")? {
                        '"' => break,
                        '\\' => word.push(characters.next().ok_or("a \" is not closed")?),
                        inner => word.push(inner),
                    }
                }
            }
            '\\' => {
                let next = characters.next().ok_or("nothing stands after the last \\")?;
                word.get_or_insert_default().push(next);
            }
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

/// The text that [`split`] makes these words of.
pub(crate) fn join(words: &[String]) -> String {
    let is_plain = |c: char| !c.is_whitespace() && !"'\"\\".contains(c);
    let quoted = |word: &String| {
        if !word.is_empty() && word.chars().all(is_plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quotes_are_those_of_a_shell_and_nothing_is_evaluated() {
        assert_eq!(
            split(r#"sh -c 'a "b"' "c \" d" e\ f $HOME ''"#).unwrap(),
            ["sh", "-c", "a \"b\"", "c \" d", "e f", "$HOME", ""]
        );
        assert_eq!(split("  ").unwrap(), Vec::<String>::new());
        assert!(split("'a").is_err() && split("\"a").is_err() && split("a\\").is_err());
    }

    proptest! {
        #[test]
        fn words_joined_are_split_again(words in proptest::collection::vec("\\PC{0,8}", 0..5)) {
            prop_assert_eq!(split(&join(&words)).unwrap(), words);
        }
    }
}
