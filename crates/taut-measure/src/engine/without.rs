use std::io;

use taut_time::Instant;

use super::wait::Engine;

/// No waiting here: either the receiving call itself waits, or nothing does.
pub(super) struct Without {
    links: usize,
}

impl Without {
    pub(super) const fn new(links: usize) -> Self {
        Self { links }
    }
}

impl Engine for Without {
    #[inline]
    fn wait(&mut self, _until: Option<Instant>, _writer: Option<usize>, ready: &mut Vec<usize>) -> io::Result<()> {
        ready.clear();
        ready.extend(0..self.links);
        Ok(())
    }
}
