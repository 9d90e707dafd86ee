//! The machines are pure: no clock, socket, thread, file or entropy but what they are given.

use std::fs;
use std::path::Path;

/// The library is `no_std`, so the compiler itself keeps `std` out of it, as long as it says so and
/// nothing brings it back.
#[test]
fn the_library_has_no_std() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let root = fs::read_to_string(source.join("lib.rs")).unwrap();
    assert!(root.lines().any(|line| line == "#![no_std]"));
    let mut files = Vec::from([source]);
    let mut seen = 0;
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        seen += 1;
        let text = fs::read_to_string(&path).unwrap();
        for forbidden in ["extern crate std", "std::", "unsafe", "static mut", "asm!", "HashMap", "RandomState"] {
            let found = text.lines().find(|line| !line.trim_start().starts_with("//") && line.contains(forbidden));
            assert_eq!(found, None, "{}: {forbidden}", path.display());
        }
    }
    assert!(seen > 30, "{seen} files looked at");
}

/// The same for what it depends on: only crates that do without `std`, with no feature that asks for it.
#[test]
fn nothing_it_depends_on_brings_std() {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let (_, after) = manifest.split_once("[dependencies]").unwrap();
    let (dependencies, _) = after.split_once("[dev-dependencies]").unwrap();
    let names: Vec<_> = dependencies
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['.', ' ', '=']).next().filter(|name| !name.is_empty()))
        .collect();
    assert_eq!(names, ["aes", "ccm", "taut-time", "thiserror", "toml"]);
    let workspace = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml")).unwrap();
    assert!(workspace.contains("toml = { version = \"1.1\", default-features = false, features = [\"parse\"] }"));
    for name in ["aes", "ccm", "thiserror"] {
        let line = dependencies.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        assert!(line.contains("default-features = false"), "{line}");
    }
}
