use std::fmt;
use std::str::FromStr;

/// How a crowd host drives its I/O.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CrowdEngine {
    /// poll(2) over all links at each wake-up.
    Poll,
    /// epoll(7), level-triggered.
    Epoll,
    /// A task for each link on the tokio runtime, current-thread flavour.
    Tokio,
    /// io_uring: a receive under way on each link.
    Uring,
    /// libtautaio: an `aio_read` under way on each link, told of by a real-time signal.
    AioSignal,
    /// libtautaio: the same, waited for with `aio_suspend` over all of them.
    AioSuspend,
    /// libtautaio: the same, taken one by one with `aio_waitcomplete`.
    AioWait,
    /// The C library's POSIX AIO as it comes, told of by a real-time signal: up to 20 threads (aio_init(3)).
    GlibcAio,
    /// The same with a thread for each link.
    GlibcAioThreads,
}

impl CrowdEngine {
    /// All engines. Their places in this list are their numbers in the tests' protocol.
    pub const ALL: [Self; 9] = [
        Self::Poll,
        Self::Epoll,
        Self::Tokio,
        Self::Uring,
        Self::AioSignal,
        Self::AioSuspend,
        Self::AioWait,
        Self::GlibcAio,
        Self::GlibcAioThreads,
    ];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Epoll => "epoll",
            Self::Tokio => "tokio",
            Self::Uring => "uring",
            Self::AioSignal => "aio-signal",
            Self::AioSuspend => "aio-suspend",
            Self::AioWait => "aio-wait",
            Self::GlibcAio => "glibc-aio",
            Self::GlibcAioThreads => "glibc-aio-threads",
        }
    }

    /// Number in the tests' protocol.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The engine of that number in the tests' protocol; `None` also of one that this program is built without.
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied().filter(|engine| engine.is_here())
    }

    /// Whether this program has it: another C library has another AIO.
    const fn is_here(self) -> bool {
        cfg!(target_env = "gnu") || !matches!(self, Self::GlibcAio | Self::GlibcAioThreads)
    }
}

impl fmt::Display for CrowdEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CrowdEngine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let here = || Self::ALL.into_iter().filter(|kind| kind.is_here());
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        if found.is_some_and(|kind| !kind.is_here()) {
            return Err(format!("`{text}` needs the GNU C library, and this program is built with another one"));
        }
        found.ok_or_else(|| {
            let names: Vec<&str> = here().map(Self::name).collect();
            format!("there is no engine `{text}`; there are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_back() {
        for engine in CrowdEngine::ALL {
            assert_eq!(engine.name().parse(), Ok(engine));
            assert_eq!(CrowdEngine::of_number(engine.number()), Some(engine));
        }
        assert!("kqueue".parse::<CrowdEngine>().unwrap_err().contains("aio-wait"));
        assert_eq!(CrowdEngine::of_number(9), None);
    }
}
