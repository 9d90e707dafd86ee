use taut_link::SocketOption;
use taut_link::wire::AckPolicy;
use taut_measure::Interrupt;
use taut_measure::placement::Wish;

use crate::run;

/// How links are opened: the same for every command that opens some.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Link")]
pub(crate) struct LinkArgs {
    /// Socket options: nodelay, cork, quickack, notsent_lowat=N, delack_max_us=N, busy_poll=N,
    /// sndbuf=N, rcvbuf=N, priority=N
    #[arg(long, value_name = "NAME[=VALUE],…", value_delimiter = ',')]
    pub(crate) opt: Vec<SocketOption>,
    /// How the server acknowledges: system, prompt, delayed, us=N
    #[arg(long, value_name = "HOW", default_value = "system")]
    pub(crate) peer_ack: AckPolicy,
    /// The peer is any server that echoes (or, for pace and stream, reads): no handshake
    #[arg(long, conflicts_with = "peer_ack")]
    pub(crate) plain: bool,
    /// Put the sender on this processor
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<usize>,
    /// Where both ends run when the peer is a `taut serve` on this host: same-core, two-cores, both
    /// (a row each), or free, which is wherever the system puts them [default: both with one link;
    /// free of a peer elsewhere, or with --plain]
    #[arg(long, value_name = "WHERE")]
    pub(crate) place: Option<Wish>,
    /// End at the end of stdin (set by `taut agent`, so that what it measures ends with it)
    #[arg(long, hide = true)]
    while_stdin_open: bool,
}

impl LinkArgs {
    /// Where that is wanted, the end of stdin is an interrupt.
    pub(crate) fn heed_stdin(&self, interrupt: &Interrupt) {
        if self.while_stdin_open {
            run::end_with_stdin(interrupt);
        }
    }
}
