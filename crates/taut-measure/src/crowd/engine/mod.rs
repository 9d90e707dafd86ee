//! The engines of a crowd host, each as a competent programmer would write an echo server with it. All read a readable link
//! once and write back what came, so that what differs is how they learn of it. To add one, write a file here and name it
//! in [`CrowdEngine`].

mod echo;
mod epoll;
mod poll;
mod tokio;
mod uring;

use std::io;

use taut_link::Link;

use super::CrowdEngine;

/// Bytes that one read takes at most.
const BUFFER_BYTES: usize = 256;

/// Serves the links until all of them are closed. Calls `ready` when it waits for all of them.
///
/// # Errors
/// The engine can't be set up, or its waiting call fails.
pub(super) fn run(engine: CrowdEngine, links: Vec<Link>, ready: &mut dyn FnMut()) -> io::Result<()> {
    match engine {
        CrowdEngine::Poll => poll::run(&links, ready),
        CrowdEngine::Epoll => epoll::run(&links, ready),
        CrowdEngine::Tokio => tokio::run(links, ready),
        CrowdEngine::Uring => uring::run(links, ready),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}
