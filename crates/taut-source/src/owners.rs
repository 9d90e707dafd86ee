use std::collections::HashMap;
use std::os::fd::RawFd;
use std::{fs, io};

/// A program that has a socket open.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Owner {
    /// Its process.
    pub pid: i32,
    /// Its number for the socket.
    pub fd: RawFd,
    /// Its name (`/proc/PID/comm`), without control characters.
    pub name: String,
    /// Processes besides that have it open as well.
    pub others: u32,
}

/// An owner, and who was counted last.
#[derive(Clone, Debug)]
struct Entry {
    owner: Owner,
    last: i32,
}

/// Which program has which socket open. Of several, the one with the lowest process number.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    by_inode: HashMap<u32, Entry>,
    /// Processes whose descriptors may not be looked at.
    pub hidden: usize,
}

impl Owners {
    /// Looks through `/proc`, or at one process. What may not be looked at is counted.
    pub fn read(only: Option<i32>) -> Self {
        match only {
            Some(pid) => Self::of_processes(vec![pid]),
            None => Self::of_those(|_| true),
        }
    }

    /// Looks at those processes of `/proc`.
    pub(crate) fn of_those(is_one: impl Fn(i32) -> bool) -> Self {
        Self::of_processes(names("/proc").filter_map(|name| name.parse().ok()).filter(|pid| is_one(*pid)).collect())
    }

    fn of_processes(mut processes: Vec<i32>) -> Self {
        let mut owners = Self::default();
        processes.sort_unstable();
        for pid in processes {
            owners.process(pid);
        }
        owners
    }

    fn process(&mut self, pid: i32) {
        let directory = format!("/proc/{pid}/fd");
        // A process that has ended meanwhile has nothing to hide.
        let is_hidden = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        if fs::read_dir(&directory).is_err_and(|error| is_hidden(&error)) {
            self.hidden += 1;
            return;
        }
        let mut name = None;
        for number in names(&directory) {
            let target = match fs::read_link(format!("{directory}/{number}")) {
                Ok(target) => target,
                // The names may be seen and nothing else: the others are hidden, too.
                Err(error) if is_hidden(&error) => {
                    self.hidden += 1;
                    return;
                }
                Err(_) => continue,
            };
            let inode = target.to_str().and_then(|target| target.strip_prefix("socket:[")?.strip_suffix(']'));
            let (Some(inode), Ok(fd)) = (inode.and_then(|inode| inode.parse().ok()), number.parse()) else { continue };
            let name = name.get_or_insert_with(|| name_of(pid));
            let entry = self.by_inode.entry(inode).or_insert_with(|| {
                let owner = Owner { pid, fd, name: name.clone(), others: 0 };
                Entry { owner, last: pid }
            });
            // One process may have it open more than once.
            if entry.last != pid {
                entry.owner.others += 1;
                entry.last = pid;
            }
        }
    }

    /// Sockets with their owners.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &Owner)> {
        self.by_inode.iter().map(|(&inode, entry)| (inode, &entry.owner))
    }

    /// The owner of the socket with this inode.
    pub fn of(&self, inode: u32) -> Option<&Owner> {
        self.by_inode.get(&inode).map(|entry| &entry.owner)
    }
}

fn names(directory: &str) -> impl Iterator<Item = String> {
    fs::read_dir(directory).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok())
}

/// `/proc/PID/comm`, without control characters; empty where that may not be looked at, or there is no such process.
pub(crate) fn name_of(pid: i32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    taut_event::printable(String::from_utf8_lossy(&name).trim_end())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn an_own_socket_has_this_process_as_its_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = fs::metadata(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap();
        let pid = std::process::id() as i32;
        for owners in [Owners::read(None), Owners::read(Some(pid))] {
            let owner = owners.of(link.ino() as u32).unwrap();
            assert_eq!((owner.pid, owner.fd), (pid, listener.as_raw_fd()));
        }
        assert!(Owners::read(Some(-1)).by_inode.is_empty());
        let other = listener.try_clone().unwrap();
        assert_eq!(Owners::read(None).of(link.ino() as u32).unwrap().others, 0);
        // A child that inherited it, until its input ends.
        let file = std::process::Stdio::from(std::os::fd::OwnedFd::from(other));
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).stdout(file).spawn().unwrap();
        let others = Owners::read(None).of(link.ino() as u32).unwrap().others;
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(others, 1);
    }
}
