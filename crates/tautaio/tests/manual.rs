//! tautaio(3) and `<tautaio.h>` against the library.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use support::{has, library, root, skip};

fn manual() -> String {
    std::fs::read_to_string(root().join("man/tautaio.3")).unwrap()
}

#[test]
fn the_manual_is_well_formed() {
    if !has("mandoc") {
        return skip(concat!(module_path!(), "::the_manual_is_well_formed"), "mandoc is not installed");
    }
    let output =
        Command::new("mandoc").args(["-Tlint", "-Wwarning"]).arg(root().join("man/tautaio.3")).output().unwrap();
    let complaints = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && complaints.is_empty(), "{complaints}");
}

#[test]
fn every_exported_name_is_in_the_manual() {
    let test = concat!(module_path!(), "::every_exported_name_is_in_the_manual");
    if !has("nm") {
        return skip(test, "nm (binutils) is not installed");
    }
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output().unwrap();
    let names = String::from_utf8(output.stdout).unwrap();
    let names: Vec<_> = names.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    assert!(names.contains(&"aio_read64") && names.contains(&"tautaio_completion_fd"), "{names:?}");
    let manual = manual();
    // The manual speaks of names for large files as a whole.
    for name in names.iter().map(|name| name.trim_end_matches("64")) {
        let named = |line: &str| {
            let mut words = line.split_whitespace();
            matches!(words.next(), Some(".Fn" | ".Xr")) && words.next() == Some(name)
        };
        assert!(manual.lines().any(named), "{name}");
    }
}

#[test]
fn every_variable_of_the_environment_is_in_the_manual() {
    let mut variables = BTreeSet::new();
    collect_variables(&root().join("crates/taut-aio/src"), &mut variables);
    assert!(variables.contains("TAUTAIO_ENGINE"), "{variables:?}");
    // It is in no library that is shipped.
    assert!(variables.remove("TAUTAIO_PANIC"));
    let manual = manual();
    for variable in variables {
        assert!(manual.contains(&format!(".It Ev {variable}\n")), "{variable}");
    }
}

/// Names in the source that begin as those of the library's variables do.
fn collect_variables(directory: &Path, variables: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_variables(&path, variables);
            continue;
        }
        let source = std::fs::read_to_string(&path).unwrap();
        for rest in source.split("TAUTAIO_").skip(1) {
            let name: String = rest.chars().take_while(|char| char.is_ascii_uppercase() || *char == '_').collect();
            variables.insert(format!("TAUTAIO_{name}"));
        }
    }
}
