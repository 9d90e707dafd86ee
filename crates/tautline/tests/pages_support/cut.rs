//! Lines of a shell, cut as a shell cuts them, without running them.
#![allow(dead_code, reason = "each of those who share it uses a part of it")]

/// A line of a shell in words, cut where another command begins. What the shell would put in is `1`; what it would
/// read from or write to is left out.
pub(crate) fn commands(text: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut redirected = false;
    let mut rest = text;
    let mut quote = None;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c == '$' && quote != Some('\'') {
            rest = after_variable(rest);
            word.get_or_insert_default().push('1');
            continue;
        }
        match (quote, c) {
            (Some(mark), _) if c == mark => quote = None,
            (None, '\'' | '"') => {
                word.get_or_insert_default();
                quote = Some(c);
            }
            (None, '\\') => {
                let next = rest.chars().next().unwrap_or('\n');
                rest = rest.get(next.len_utf8()..).unwrap_or_default();
                if next != '\n' {
                    word.get_or_insert_default().push(next);
                }
            }
            (None, '#') if word.is_none() => rest = &rest[rest.find('\n').unwrap_or(rest.len())..],
            (None, ' ' | '\t' | '\n' | '|' | ';' | '&' | '<' | '>') => {
                // The number in `2>file`.
                let numbers = matches!(c, '<' | '>') && word.as_ref().is_some_and(|word| word.parse::<u8>().is_ok());
                if let Some(done) = word.take().filter(|_| !numbers)
                    && !std::mem::take(&mut redirected)
                {
                    commands.last_mut().expect("there is one").push(done);
                }
                match c {
                    '<' | '>' => {
                        redirected = true;
                        rest = rest.trim_start_matches(['>', '&']).trim_start_matches(' ');
                    }
                    '\n' | '|' | ';' | '&' => {
                        commands.push(Vec::new());
                        redirected = false;
                    }
                    _ => {}
                }
            }
            _ => word.get_or_insert_default().push(c),
        }
    }
    commands.last_mut().expect("there is one").extend(word.filter(|_| !redirected));
    commands.retain(|command| !command.is_empty());
    commands
}

/// What follows on a variable's name, or on `$(…)`.
fn after_variable(rest: &str) -> &str {
    if !rest.starts_with('(') {
        let name = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        // `$!` and the like.
        return &rest[name.max(usize::from(rest.starts_with(['!', '$', '?', '@'])))..];
    }
    let mut depth = 0;
    for (at, c) in rest.char_indices() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if depth == 0 {
            return &rest[at + 1..];
        }
    }
    ""
}

/// The arguments of a program, whoever runs it.
pub(crate) fn of<'a>(program: &str, command: &'a [String]) -> Option<&'a [String]> {
    let runs_others = |word: &str| {
        ["sudo", "env", "time", "nice", "then", "do", "{", "("].contains(&word)
            || (word.contains('=') && !word.starts_with('-'))
    };
    let at = command.iter().position(|word| !runs_others(word))?;
    let name = command[at].rsplit('/').next()?;
    (name == program).then(|| &command[at + 1..])
}

/// Without the bodies of `<<END` documents, whose lines are no commands.
pub(crate) fn without_documents(block: &str) -> String {
    let mut kept = String::new();
    let mut end: Option<String> = None;
    for line in block.lines() {
        match &end {
            Some(mark) if line.trim() == mark => end = None,
            Some(_) => {}
            None => {
                let line = line.strip_prefix("$ ").unwrap_or(line);
                let (command, mark) = line.split_once("<<").map_or((line, None), |(before, mark)| (before, Some(mark)));
                end = mark.map(|mark| mark.trim_matches(['\'', '"', '-', ' ']).to_owned());
                kept.push_str(command);
                kept.push('\n');
            }
        }
    }
    kept
}

#[test]
fn lines_are_cut_as_a_shell_cuts_them() {
    let words = |text: &str| commands(text).iter().map(|command| command.join(" ")).collect::<Vec<_>>();
    assert_eq!(words("a 'b c' \"d $x\" # e\nf \\\n g"), ["a b c d 1", "f g"]);
    assert_eq!(words("a | sudo taut explain - >x 2>&1; c && d &"), ["a", "sudo taut explain -", "c", "d"]);
    assert_eq!(words("taut --pid $! \"$(command -v $(x y))\" $z-1"), ["taut --pid 1 1 1-1"]);
    assert_eq!(words("a 'it''s' b\\ c <in d"), ["a its b c d"]);
    let arguments = |text: &str| of("taut", &commands(text)[0]).map(<[String]>::to_vec);
    assert_eq!(arguments("sudo X=1 /usr/bin/taut echo"), Some(vec!["echo".to_owned()]));
    assert_eq!((arguments("tautology"), arguments("sudo")), (None, None));
    assert_eq!(without_documents("cat >x <<'END'\ntaut nonsense\nEND\ntaut echo x\n"), "cat >x \ntaut echo x\n");
    for odd in ["", "$", "$(", "'", "\\", "&", "2>", "a\\", "\"$", "é$é"] {
        let _ = commands(odd);
    }
}
