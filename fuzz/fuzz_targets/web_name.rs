//! Whatever path is asked for, what is opened lies beneath the directory, and no part of its name is hidden.
#![no_main]

use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::{fs, os};

use libfuzzer_sys::fuzz_target;
use taut_web::{Name, Resource, Tree};

static TREE: LazyLock<(PathBuf, Tree)> = LazyLock::new(|| {
    let outer = std::env::temp_dir().join(format!("taut-fuzz-name-{}", std::process::id()));
    let site = outer.join("site");
    fs::create_dir_all(site.join("a/b")).unwrap();
    for name in ["e", "site/a/b/c", "site/c", "site/.d", "site/a/.d"] {
        fs::write(outer.join(name), name).unwrap();
    }
    for (target, name) in
        [("..", "up"), ("/", "a/root"), ("../../e", "a/e"), ("../c", "a/in"), ("/proc/self/cwd", "cwd")]
    {
        let _ = os::unix::fs::symlink(target, site.join(name));
    }
    (site.canonicalize().unwrap(), Tree::open(&site).unwrap())
});

fuzz_target!(|path: &str| {
    let Ok(name) = Name::parse(path) else { return };
    for segment in name.segments() {
        assert!(!segment.is_empty() && segment[0] != b'.' && !segment.contains(&b'/') && !segment.contains(&0));
    }
    let (root, tree) = &*TREE;
    if let Ok(Resource::File(file)) = tree.find(&name.path()) {
        let opened = fs::read_link(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())).unwrap();
        assert!(opened.starts_with(root), "{path:?} is {}", opened.display());
    }
});
