//! The processes of a systemd unit, from its control group.

use std::fs;
use std::path::{Path, PathBuf};

use crate::output;

const CONTROL_GROUPS: &str = "/sys/fs/cgroup";
/// Levels of control groups that are looked through: `user.slice/user-1000.slice/user@1000.service/app.slice/…`.
const DEEPEST: usize = 8;

/// All processes of the unit, those of groups beneath it included; why there are none, for the user.
pub(super) fn processes(unit: &str) -> Result<Vec<i32>, String> {
    let name = if unit.contains('.') { unit.to_owned() } else { format!("{unit}.service") };
    let is_name = !name.contains('/') && !name.starts_with('.');
    let group = is_name.then(|| find(Path::new(CONTROL_GROUPS), &name, DEEPEST)).flatten();
    let name = output::printable(&name);
    let group = group.ok_or_else(|| {
        format!("there is no control group of a unit {name} here: is it running? (systemctl status {name})")
    })?;
    let mut found = Vec::new();
    collect(&group, DEEPEST, &mut found);
    found.sort_unstable();
    found.dedup();
    if found.is_empty() { Err(format!("the unit {name} has no process")) } else { Ok(found) }
}

fn beneath(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect();
    found.sort();
    found
}

fn find(directory: &Path, name: &str, levels: usize) -> Option<PathBuf> {
    let all = beneath(directory);
    if let Some(found) = all.iter().find(|path| path.file_name().is_some_and(|last| last == name)) {
        return Some(found.clone());
    }
    if levels == 0 { None } else { all.iter().find_map(|path| find(path, name, levels - 1)) }
}

fn collect(group: &Path, levels: usize, found: &mut Vec<i32>) {
    let processes = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    found.extend(processes.lines().filter_map(|line| line.trim().parse::<i32>().ok()).filter(|&pid| pid > 0));
    if levels > 0 {
        beneath(group).iter().for_each(|group| collect(group, levels - 1, found));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_found_at_any_level_with_what_is_beneath_it() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("system.slice/system-web.slice/web@1.service");
        fs::create_dir_all(group.join("worker")).unwrap();
        fs::write(group.join("cgroup.procs"), "12\n7\n0\n").unwrap();
        fs::write(group.join("worker/cgroup.procs"), "30\nx\n").unwrap();
        let found = find(root.path(), "web@1.service", DEEPEST).unwrap();
        assert_eq!(found, group);
        let mut processes = Vec::new();
        collect(&found, DEEPEST, &mut processes);
        assert_eq!(processes, [12, 7, 30]);
        assert_eq!(find(root.path(), "web.service", DEEPEST), None);
        assert!(find(root.path(), "web@1.service", 1).is_none());
    }

    #[test]
    fn what_is_no_unit_is_told_with_what_to_do() {
        for name in ["there-is-no-such-unit", "../etc", "a/b.service"] {
            assert!(processes(name).unwrap_err().contains("systemctl status"), "{name}");
        }
        assert!(processes("a\nb\u{1b}[2J").unwrap_err().chars().all(|c| !c.is_control()));
    }
}
