//! The engines of a crowd host, each as a competent programmer would write an echo server with it.
//! All read a readable link once and write back what came, so that what differs is how they learn
//! of it. To add one, write a file here and name it in [`CrowdEngine`].

mod aio;
mod buffer;
mod echo;
mod epoll;
mod poll;
mod tokio;
mod uring;

use std::io;

use taut_aio::Provider;
use taut_link::Link;

use super::CrowdEngine;

/// Threads of glibc's pool besides one for each link.
const SPARE_THREADS: usize = 50;

/// Serves the links until they are closed; all of them live as long as their host. Calls `ready`
/// when it waits for all of them.
///
/// # Errors
/// The engine can't be set up, or its waiting call fails.
pub(super) fn run(engine: CrowdEngine, links: Vec<Link>, ready: &mut dyn FnMut()) -> io::Result<()> {
    match engine {
        CrowdEngine::Poll => poll::run(&links, ready),
        CrowdEngine::Epoll => epoll::run(&links, ready),
        CrowdEngine::Tokio => tokio::run(links, ready),
        CrowdEngine::Uring => uring::run(links, ready),
        CrowdEngine::AioSignal => aio::by_signal(Provider::Taut, links, ready),
        CrowdEngine::AioSuspend => aio::by_suspend(links, ready),
        CrowdEngine::AioWait => aio::by_queue(links, ready),
        CrowdEngine::GlibcAio => aio::by_signal(Provider::System, links, ready),
        CrowdEngine::GlibcAioThreads => {
            taut_aio::configure_system_pool(links.len() + SPARE_THREADS);
            aio::by_signal(Provider::System, links, ready)
        }
    }
}
