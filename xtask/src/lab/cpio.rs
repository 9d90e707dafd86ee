//! The archive that a kernel unpacks as its first file system: "newc" cpio (the kernel's
//! Documentation/driver-api/early-userspace/buffer-format.rst). Equal contents make equal bytes.

use std::collections::BTreeMap;

/// Files by their path in the guest, without a leading slash.
#[derive(Default)]
pub(super) struct Archive {
    entries: BTreeMap<String, Entry>,
}

struct Entry {
    /// File type and permissions (stat(2)).
    mode: u32,
    contents: Vec<u8>,
}

const DIRECTORY: u32 = 0o040_755;
const PLAIN: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

impl Archive {
    /// Adds a directory and those above it.
    pub(super) fn directory(&mut self, path: &str) {
        let path = path.trim_matches('/');
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends.filter(|&end| end > 0) {
            let entry = || Entry { mode: DIRECTORY, contents: Vec::new() };
            self.entries.entry(path[..end].to_owned()).or_insert_with(entry);
        }
    }

    /// Adds a file, replacing one of the same name.
    pub(super) fn file(&mut self, path: &str, contents: Vec<u8>) {
        self.add(path, PLAIN, contents);
    }

    /// Adds a file that can be executed.
    pub(super) fn program(&mut self, path: &str, contents: Vec<u8>) {
        self.add(path, PROGRAM, contents);
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, path: &str, target: &str) {
        self.add(path, LINK, target.into());
    }

    fn add(&mut self, path: &str, mode: u32, contents: Vec<u8>) {
        let path = path.trim_matches('/');
        if let Some((directory, _)) = path.rsplit_once('/') {
            self.directory(directory);
        }
        self.entries.insert(path.to_owned(), Entry { mode, contents });
    }

    /// The archive's bytes. A directory's name sorts before those of its files, so it is there when they come.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (inode, (name, entry)) in (1..).zip(&self.entries) {
            append(&mut bytes, inode, name, entry);
        }
        append(&mut bytes, 0, "TRAILER!!!", &Entry { mode: 0, contents: Vec::new() });
        bytes
    }
}

fn append(bytes: &mut Vec<u8>, inode: usize, name: &str, entry: &Entry) {
    let pad = |bytes: &mut Vec<u8>| bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend_from_slice(b"070701");
    let (links, owner, time, device, check) = (1, 0, 0, 0, 0);
    let fields = [
        inode,
        entry.mode as usize,
        owner,
        owner,
        links,
        time,
        entry.contents.len(),
        device,
        device,
        device,
        device,
        name.len() + 1,
        check,
    ];
    for field in fields {
        bytes.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    bytes.extend_from_slice(name.as_bytes());
    bytes.push(0);
    pad(bytes);
    bytes.extend_from_slice(&entry.contents);
    pad(bytes);
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::shell;

    #[test]
    fn busybox_unpacks_what_was_packed() {
        let mut archive = Archive::default();
        archive.program("bin/odd", b"12345".to_vec());
        archive.file("/etc/deep/er/file", vec![7; 4097]);
        archive.link("bin/link", "odd");
        archive.directory("empty/one");
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), archive.into_bytes()).unwrap();

        let directory = tempfile::tempdir().unwrap();
        // Where neither is there the lab can't run either, and its own tests say so.
        let Some(program) = ["cpio", "busybox"].iter().find_map(|name| shell::find(name)) else { return };
        let mut command = Command::new(&program);
        if program.ends_with("busybox") {
            command.arg("cpio");
        }
        command
            .args(["-i", "-d"])
            .current_dir(directory.path())
            .stdin(Stdio::from(fs::File::open(file.path()).unwrap()));
        assert!(command.stderr(Stdio::null()).status().unwrap().success());
        let read = |name: &str| fs::read(directory.path().join(name)).unwrap();
        assert_eq!(read("bin/odd"), b"12345");
        assert_eq!(read("bin/link"), b"12345");
        assert_eq!(read("etc/deep/er/file"), vec![7; 4097]);
        assert!(directory.path().join("empty/one").is_dir());
    }

    #[test]
    fn the_order_of_adding_makes_no_difference() {
        let build = |names: [&str; 2]| {
            let mut archive = Archive::default();
            names.iter().for_each(|name| archive.file(name, name.as_bytes().to_vec()));
            archive.into_bytes()
        };
        assert_eq!(build(["a/x", "b"]), build(["b", "a/x"]));
    }
}
