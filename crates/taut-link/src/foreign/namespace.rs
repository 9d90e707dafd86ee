//! Network namespaces (network_namespaces(7)) and the right to make them.
#![expect(unsafe_code, reason = "unshare is unsafe in rustix, for a flag that is not used here")]

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, LinkNameSpaceType, UnshareFlags};

use crate::{Error, Result};

/// A network namespace. It lives as long as this, a thread or a socket is in it.
#[derive(Debug)]
pub(crate) struct Namespace(OwnedFd);

impl Namespace {
    /// Moves the calling thread, and no other, into a new network namespace.
    pub(crate) fn create() -> Result<Self> {
        unshare(UnshareFlags::NEWNET).map_err(unavailable)?;
        let file = File::open("/proc/thread-self/ns/net").map_err(|error| {
            Error::Unavailable(format!("the foreign peer needs /proc/thread-self/ns/net: {error} (mount /proc)"))
        })?;
        Ok(Self(file.into()))
    }

    /// Moves the calling thread into this network namespace.
    pub(crate) fn enter(&self) -> Result<()> {
        rustix::thread::move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).map_err(unavailable)
    }
}

/// Makes sure of the right to create network namespaces. A process without it gets it in a new user namespace, in which
/// it then stays (user_namespaces(7)); the kernel grants that only while the process has a single thread.
pub(crate) fn acquire_right() -> Result<()> {
    let has_right = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN));
    if has_right {
        return Ok(());
    }
    let user = rustix::process::geteuid().as_raw();
    unshare(UnshareFlags::NEWUSER).map_err(no_user_namespace)?;
    // Only for the looks: without a mapping the rights are the same, but the process sees itself as "nobody".
    let _ = fs::write("/proc/self/uid_map", format!("{user} {user} 1"));
    Ok(())
}

fn unshare(what: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: the flags are NEWNET or NEWUSER, never FILES: the table of file descriptors stays shared by all threads.
    unsafe { rustix::thread::unshare_unsafe(what) }
}

fn unavailable(errno: Errno) -> Error {
    Error::Unavailable(format!(
        "the foreign peer needs a network namespace of its own: {errno} (run as root, or allow user namespaces: see \
         the sysctls user.max_user_namespaces, kernel.unprivileged_userns_clone and \
         kernel.apparmor_restrict_unprivileged_userns)"
    ))
}

fn no_user_namespace(errno: Errno) -> Error {
    match errno {
        Errno::INVAL => Error::Unavailable(
            "the foreign peer needs a user namespace, which a process with several threads can't move into (run as \
             root, or start it before any thread)"
                .into(),
        ),
        _ => unavailable(errno),
    }
}
