//! Every `taut` of README, docs and help is a line that this `taut` takes: no page names an option that is not there.

use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;

use crate::Cli;

/// A line of a shell in words, cut where another command begins. What the shell would put in is `1`; what it would
/// read from or write to is left out.
fn commands(text: &str) -> Vec<Vec<String>> {
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

/// The arguments of `taut`, whoever runs it.
fn of_taut(command: &[String]) -> Option<&[String]> {
    let runs_others = |word: &str| {
        ["sudo", "env", "time", "nice", "then", "do", "{", "("].contains(&word)
            || (word.contains('=') && !word.starts_with('-'))
    };
    let at = command.iter().position(|word| !runs_others(word))?;
    let name = command[at].rsplit('/').next()?;
    (name == "taut").then(|| &command[at + 1..])
}

/// Shell blocks of a page, with the number of their first line.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, bool, String)> = None;
    for (index, line) in page.lines().enumerate() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(kind)) => open = Some((index + 2, matches!(kind, "sh" | "console"), String::new())),
            (Some(_), Some(_)) => {
                blocks.extend(open.take().filter(|(_, is_shell, _)| *is_shell).map(|(line, _, text)| (line, text)));
            }
            (Some((_, _, text)), None) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

/// Without the bodies of `<<END` documents, whose lines are no commands.
fn without_documents(block: &str) -> String {
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

/// Why this `taut` does not take these arguments, if it does not.
fn refusal(arguments: &[String]) -> Option<String> {
    // `PID` and the like stand for what a reader puts there.
    let is_blank = |word: &String| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
    let filled = arguments.iter().map(|word| if is_blank(word) { "1".to_owned() } else { word.clone() });
    let line = std::iter::once("taut".to_owned()).chain(filled);
    let error = Cli::command().try_get_matches_from(line).err()?;
    error.use_stderr().then(|| error.to_string().lines().next().unwrap_or_default().to_owned())
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = docs.filter(|path| path.extension().is_some_and(|kind| kind == "md")).collect();
    pages.push(root.join("README.md"));
    pages.sort();
    pages
}

#[test]
fn every_line_of_the_pages_is_taken() {
    let (mut seen, mut refused) = (0, Vec::new());
    for page in pages() {
        for (line, block) in blocks(&fs::read_to_string(&page).unwrap()) {
            for command in commands(&without_documents(&block)) {
                let Some(arguments) = of_taut(&command) else { continue };
                seen += 1;
                let why = refusal(arguments);
                let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
                refused.extend(why.map(|why| format!("{name}, block at line {line}: {}: {why}", command.join(" "))));
            }
        }
    }
    assert!(seen > 50, "{seen}");
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// The examples below the help of each command; what an example is for follows after two blanks.
#[test]
fn every_example_of_the_help_is_taken() {
    fn walk(command: &clap::Command, seen: &mut usize, refused: &mut Vec<String>) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = help.lines().filter_map(|line| line.strip_prefix("  "));
        for line in lines.filter(|line| line.starts_with("taut ") || line.starts_with("sudo taut ")) {
            for command in commands(line.split("  ").next().unwrap_or_default()) {
                let Some(arguments) = of_taut(&command) else { continue };
                *seen += 1;
                refused.extend(refusal(arguments).map(|why| format!("{line}: {why}")));
            }
        }
        command.get_subcommands().for_each(|one| walk(one, seen, refused));
    }
    let (mut seen, mut refused) = (0, Vec::new());
    walk(&Cli::command(), &mut seen, &mut refused);
    assert!(seen > 50, "{seen}");
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn lines_are_cut_as_a_shell_cuts_them() {
    let words = |text: &str| commands(text).iter().map(|command| command.join(" ")).collect::<Vec<_>>();
    assert_eq!(words("a 'b c' \"d $x\" # e\nf \\\n g"), ["a b c d 1", "f g"]);
    assert_eq!(words("a | sudo taut explain - >x 2>&1; c && d &"), ["a", "sudo taut explain -", "c", "d"]);
    assert_eq!(words("taut --pid $! \"$(command -v $(x y))\" $z-1"), ["taut --pid 1 1 1-1"]);
    assert_eq!(words("a 'it''s' b\\ c <in d"), ["a its b c d"]);
    let of = |text: &str| of_taut(&commands(text)[0]).map(<[String]>::to_vec);
    assert_eq!(of("sudo X=1 /usr/bin/taut echo"), Some(vec!["echo".to_owned()]));
    assert_eq!((of("tautology"), of("sudo")), (None, None));
    assert_eq!(without_documents("cat >x <<'END'\ntaut nonsense\nEND\ntaut echo x\n"), "cat >x \ntaut echo x\n");
    for odd in ["", "$", "$(", "'", "\\", "&", "2>", "a\\", "\"$", "é$é"] {
        let _ = commands(odd);
    }
}

#[test]
fn an_option_that_is_not_there_is_refused() {
    let refused = |line: &str| refusal(of_taut(&commands(line)[0]).unwrap());
    assert!(refused("taut echo 127.0.0.1 --siez 3").is_some_and(|why| why.contains("--siez")));
    assert!(refused("taut eco").is_some() && refused("taut echo").is_some());
    assert_eq!((refused("taut echo 127.0.0.1 --size 3"), refused("taut --help")), (None, None));
}
