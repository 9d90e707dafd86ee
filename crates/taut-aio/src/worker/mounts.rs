//! Which file systems wait for somebody else: a server, a program.
//!
//! The kernel has io_uring wait for some of them within the submitting system call, which would
//! hold up everything else.

use std::collections::HashMap;

use crate::system;

/// File systems by device.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    distant: HashMap<(u32, u32), bool>,
}

impl Mounts {
    /// Whether a device's file system waits for somebody else. Asks the kernel's list of mounts and
    /// not the file system.
    pub(crate) fn is_distant(&mut self, device: (u32, u32)) -> bool {
        // A file system on a disk has the disk's number.
        if device.0 != 0 {
            return false;
        }
        *self.distant.entry(device).or_insert_with(|| {
            // Not by std or the C library: their `close` is our own hook, which would wait for this thread.
            let mounts = system::read_file(c"/proc/self/mountinfo").unwrap_or_default();
            // Of another namespace, or no descriptor left: nothing is known, so nothing is risked.
            type_of(&String::from_utf8_lossy(&mounts), device).is_none_or(waits_for_others)
        })
    }
}

/// The type of the file system that a device number belongs to (proc_pid_mountinfo(5)).
fn type_of(mounts: &str, (major, minor): (u32, u32)) -> Option<&str> {
    let device = format!("{major}:{minor}");
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&device))?;
    line.split_once(" - ")?.1.split(' ').next()
}

fn waits_for_others(kind: &str) -> bool {
    const THOSE: [&str; 9] = ["fuse", "nfs", "cifs", "smb3", "9p", "ceph", "virtiofs", "afs", "autofs"];
    THOSE.iter().any(|prefix| kind.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
25 1 254:0 / / rw,relatime - ext4 /dev/root rw
31 25 0:24 / /dev/shm rw,nosuid master:3 - tmpfs tmpfs rw,size=1k
40 25 0:41 /a /mnt/slow\\040one rw shared:4 master:1 - fuse.sshfs host:/ rw
";

    #[test]
    fn the_kind_of_a_device_is_found() {
        assert_eq!(type_of(MOUNTS, (0, 24)), Some("tmpfs"));
        assert_eq!(type_of(MOUNTS, (0, 41)), Some("fuse.sshfs"));
        assert_eq!(type_of(MOUNTS, (0, 2)), None);
        assert_eq!(type_of("", (0, 24)), None);
    }

    #[test]
    fn only_some_wait_for_others() {
        assert!(waits_for_others("fuse.sshfs") && waits_for_others("nfs4") && waits_for_others("cifs"));
        assert!(!waits_for_others("tmpfs") && !waits_for_others("overlay") && !waits_for_others("btrfs"));
        assert!(!Mounts::default().is_distant((8, 1)));
    }
}
