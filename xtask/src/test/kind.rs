//! What a test needs of the machine, by its name: the rules stand here, since the runner must know
//! before it starts one.

use anyhow::{Result, bail};

/// What a test needs.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Kind {
    /// Nothing: it holds on a busy machine, and beside others.
    Host,
    /// A virtual machine, which keeps one core busy.
    Guest,
    /// The same of the other machine: with `--arm` alone.
    ArmGuest,
    /// The same with the lab's debug kernel, which a command of its own builds.
    DebugKernel,
    /// A browser.
    Browser,
    /// Whole measurements, which take long: of every path, or an instruction at a time.
    Bench,
    /// A build of its own: the model checker, the sanitizers.
    Apart,
    /// A quiet machine, or else the times that it asserts on are others'.
    Timing,
    /// Virtual machines in the host's time, whose links end when neither has its turn: a quiet machine.
    QuietGuest,
}

/// Tests that run when all others have ended, by themselves but for one that sleeps as they do, and
/// why. Names as `--only` has them, whole.
const TIMING: &[(&str, &str)] = &[
    (
        "taut-link foreign::tun::tests::nagle_waits_for_the_delayed_ack_and_no_delay_does_not",
        "its median gaps have to be within 5 %, and its messages are due every 10 ms",
    ),
    (
        "tautline::agent an_idle_agent_needs_little",
        "0.2 % of a processor: who runs beside it empties the caches, and each wake-up takes longer",
    ),
    (
        "tautline::agent of_two_hundred_agents_nothing_is_lost_untold",
        "half of 200 streams in a minute: its 400 processes need all cores, and others would wait for their turn",
    ),
    (
        "tautline::broker tune_finds_the_cure_around_a_broker",
        "the cure is 100 times shorter: on a busy core a round trip waits for its turn",
    ),
    (
        "tautline::broker who_holds_messages_with_qos_1_is_named_and_cured",
        "cures 20 times shorter: on a busy core a round trip waits for its turn",
    ),
    (
        "tautline::broker_tls who_holds_messages_with_qos_1_over_tls_is_named",
        "no finding where nothing is held: on a busy core a round trip waits for its turn",
    ),
    (
        "tautline::broker_pace a_broker_that_stops_is_told_from_a_reader_that_stops",
        "each message has all stamps of the kernels: those of a reader that a busy core holds, too, come together",
    ),
    (
        "tautline::broker_pace what_the_broker_had_is_told_over_every_protocol",
        "no finding where nothing is held: a broker or a receiver that a busy core holds is one that holds",
    ),
    (
        "tautline::demo each_case_is_named_by_the_trace_and_cured_nothing_is",
        "no finding where nothing is held: a receiver that a busy core holds is one that holds",
    ),
    (
        "tautline::explain_clean nothing_is_found_where_nothing_is_wrong",
        "no finding where nothing is held: a path that a busy core stops loses time, packets and window",
    ),
    (
        "tautline::explain_drawn drawn_connections_are_broken_down_as_the_kernel_has_it",
        "its sender is asked for its state each millisecond, and a busy core delays what the capture shows",
    ),
    (
        "tautline::explain_lab the_time_breakdown_is_the_kernels",
        "what holds a write is seen at the receiver by how soon both ends answer: a busy core answers late",
    ),
    (
        "tautline::explain_middle a_router_sees_what_the_senders_kernel_knows",
        "as explain_lab, with a router between: a busy core delays what it forwards",
    ),
    (
        "tautline::mesh ten_thousand_hosts_are_added_up_in_a_second",
        "a second of a processor: who runs beside it, or on the same core's other thread, makes it more",
    ),
    ("tautline::pace a_foreign_peer_with_a_56_ms_timer", "mean gaps within 1 %, and no finding beside the one"),
    (
        "tautline::pace a_linux_peer_with_delayed_acknowledgements",
        "mean gaps within 2 %, and no finding beside the one",
    ),
    ("tautline::pace a_veth_pair_behaves_alike", "messages of 10 ms, which a late thread sends together"),
    (
        "tautline::pace every_transport_is_paced_and_every_message_accounted_for",
        "gaps of 5 ms within 5 %: a busy core's time slice is as long",
    ),
    (
        "tautline::pace the_finding_stands_where_the_stall_is_and_nowhere_else",
        "no finding where nothing is held: a receiver that a busy core holds is one that holds",
    ),
    (
        "tautline::pace tune_finds_the_remedy_by_itself",
        "Nagle's algorithm off is 500 times shorter: on a busy core a round trip waits for its turn",
    ),
    (
        "tautline::pace write_write_read_is_found_and_its_cures_are_not",
        "cures 500 times shorter: on a busy core a round trip waits for its turn",
    ),
    (
        "tautline::recording the_recording_is_what_the_commands_print",
        "a busy core takes its part of the time, and another finding may come first",
    ),
    (
        "tautline::trace_bars a_tracer_sleeps_by_its_clock_and_not_by_what_it_traces",
        "it sleeps once it has read all: on a busy core more comes than it gets to read",
    ),
    (
        "tautline::trace_causes each_cause_holds_what_it_is_said_to_hold_and_nothing_once_it_is_cured",
        "shares of what is held: on a busy core a reader waits for its turn, too",
    ),
    (
        "tautline::trace_first what_a_program_takes_by_splice_does_not_wait_for_it",
        "no finding where nothing is held: a receiver that a busy core holds is one that holds",
    ),
    (
        "tautline::trace_local a_pipe_whose_reader_is_slow",
        "no finding where nothing is held: a receiver that a busy core holds is one that holds",
    ),
    (
        "tautline::trace_local a_queue_of_a_unix_socket_that_is_full_of_datagrams",
        "no finding where nothing is held: a receiver that a busy core holds is one that holds",
    ),
    (
        "tautline::trace_local a_unix_socket_whose_reader_is_slow",
        "no finding where nothing is held: a receiver that a busy core holds is one that holds",
    ),
    (
        "tautline::trace_local datagrams_that_wait_to_be_read",
        "no finding where nothing is held: a receiver that a busy core holds is one that holds",
    ),
    (
        "tautline::trace_local requests_over_a_unix_socket_that_wait_to_be_read",
        "no finding where nothing is held: a receiver that a busy core holds is one that holds",
    ),
    (
        "tautline::trace_ring a_server_that_reads_by_io_uring_at_once_and_answers_late_holds_nothing_back_by_reading",
        "no finding where nothing is held: a receiver that a busy core holds is one that holds",
    ),
    (
        "tautline::trace_pace a_foreign_receiver_that_acknowledges_late",
        "95 of 100 times within 50 µs: on a busy core the kernel leaves out runs of the trace's programs",
    ),
    (
        "tautline::trace_pace a_receiver_that_acknowledges_late",
        "95 of 100 times within 50 µs: on a busy core the kernel leaves out runs of the trace's programs",
    ),
    (
        "tautline::trace_rights samples_without_any_right_name_the_cause_that_a_trace_names",
        "shares of samples of six programs at once: on a busy core some are looked at too seldom",
    ),
    (
        "tautline::trace_threads of_two_threads_the_one_that_reads_late_is_named",
        "a fifth of the other thread's waits: on a busy core the prompt one waits for its turn, too",
    ),
    (
        "xtask::lab_two a_browser_shows_a_page_of_another_kernel_over_either_radio",
        "two machines and a browser in the host's time: beside others a link is up later than kernels wait for it",
    ),
];

/// Of these, which keep a core busy for a part of their time: nothing runs beside them but what yields.
pub(super) const COMPUTING: &[&str] = &[
    "tautline::pace tune_finds_the_remedy_by_itself",
    "tautline::pace write_write_read_is_found_and_its_cures_are_not",
    "tautline::agent of_two_hundred_agents_nothing_is_lost_untold",
    "tautline::trace_rights samples_without_any_right_name_the_cause_that_a_trace_names",
];

/// Of those that need a quiet machine, which need their turn as soon as they want it, and leave cores idle meanwhile:
/// what takes only what nobody else wants is in nobody's way there. They look neither at single microseconds nor at
/// what a processor takes for something.
const SPARING: &[&str] = &[
    "tautline::agent of_two_hundred_agents_nothing_is_lost_untold",
    "xtask::lab_two a_browser_shows_a_page_of_another_kernel_over_either_radio",
];

/// Guests in virtual time, which get as far whenever they have a core: these run beside [`SPARING`] ones, and together
/// about as long.
const YIELDING: &[&str] = &["xtask::lab_tune on_linux_5_10_", "xtask::lab_tune what_is_tried_"];

/// Tests of another kind than their package's.
const OTHERS: &[(&str, Kind)] = &[
    ("taut-report::browser ", Kind::Browser),
    ("tautline::web a_browser", Kind::Browser),
    ("tautline::demo an_experiment_", Kind::Bench),
    ("tautline::pages the_blocks_of_the_pages_run", Kind::Bench),
    ("tautline::route bench_", Kind::Bench),
    ("tautline::survey a_survey_", Kind::Bench),
    ("tautline::survey survey_", Kind::Bench),
    ("tautline::tasks ten_tasks_", Kind::Bench),
    ("tautline::wake_up ", Kind::Bench),
    ("xtask::lab_arm ", Kind::ArmGuest),
    ("xtask::lab_module the_debug_kernel_", Kind::DebugKernel),
];

/// Those in guests that take minutes: they begin before the others, also where none has run yet.
const LONG: &[&str] = &[
    "xtask::lab_gpio ",
    "xtask::lab_module it_stands_",
    "xtask::lab_pair blocks_",
    "xtask::lab_pi the_script_",
    "xtask::lab_route ",
    "xtask::lab_tune on_linux_6_12",
];

/// Pairs of guests in the host's time with a link between them, which ends when neither has its turn.
const PAIRS: &[&str] = &["xtask::lab_two a_browser_shows_", "xtask::lab_two the_receivers_rule_"];

impl Kind {
    /// Of the test with this name.
    pub(super) fn of(name: &str) -> Self {
        let is_timing = TIMING.iter().any(|(timing, _)| *timing == name);
        let other = || OTHERS.iter().find(|(begin, _)| name.starts_with(begin)).map(|(_, kind)| *kind);
        match other() {
            _ if is_timing && name.starts_with("xtask::lab") => Self::QuietGuest,
            _ if is_timing => Self::Timing,
            Some(kind) => kind,
            None if name.starts_with("xtask::lab") => Self::Guest,
            None => Self::Host,
        }
    }

    /// Whether it has a virtual machine.
    pub(super) const fn has_a_guest(self) -> bool {
        matches!(self, Self::Guest | Self::ArmGuest | Self::DebugKernel | Self::QuietGuest)
    }

    /// Whether it runs when all others have ended.
    pub(super) const fn needs_quiet(self) -> bool {
        matches!(self, Self::Timing | Self::QuietGuest)
    }

    /// Whether `--quick` has it.
    pub(super) const fn is_quick(self) -> bool {
        matches!(self, Self::Host | Self::Timing)
    }

    /// Whether `--arm` has it.
    pub(super) const fn is_for_arm(self) -> bool {
        matches!(self, Self::Host | Self::ArmGuest)
    }

    /// Whether `--busy` has it: what runs on this kernel and needs no quiet.
    pub(super) const fn stands_a_busy_machine(self) -> bool {
        matches!(self, Self::Host | Self::Browser | Self::Bench)
    }

    /// What so many of them are or need, for a list.
    pub(super) fn described(self, count: usize) -> String {
        let one = count == 1;
        match self {
            Self::Host => format!("{count} of this machine"),
            Self::Guest => format!("{count} in a guest of the lab"),
            Self::ArmGuest => format!("{count} in a guest for aarch64, which `cargo xtask test --arm` runs"),
            Self::DebugKernel => {
                format!("{count} on the debug kernel, which `cargo xtask lab debug-kernel` builds")
            }
            Self::Browser => format!("{count} in a browser"),
            Self::Bench => format!("{count} {}", if one { "bench" } else { "benches" }),
            Self::Apart => {
                format!("{count} {} of the model checker or a sanitizer", if one { "build" } else { "builds" })
            }
            Self::Timing => format!("{count} that {} a quiet machine", if one { "needs" } else { "need" }),
            Self::QuietGuest => {
                format!("{count} in guests that {} a quiet machine", if one { "needs" } else { "need" })
            }
        }
    }
}

/// Whether it is known to take long.
pub(super) fn is_long(name: &str) -> bool {
    LONG.iter().any(|begin| name.starts_with(begin))
}

/// The cores that a test is to have, even if it needed less before.
pub(super) fn least_load(name: &str) -> f64 {
    if PAIRS.iter().any(|begin| name.starts_with(begin)) { 2.0 } else { 0.0 }
}

/// Whether it leaves cores to one that [yields](is_yielding).
pub(super) fn is_sparing(name: &str) -> bool {
    SPARING.contains(&name)
}

/// Whether it may run with what others leave of the cores.
pub(super) fn is_yielding(name: &str) -> bool {
    YIELDING.iter().any(|begin| name.starts_with(begin))
}

/// Why a test needs a quiet machine, where it does.
pub(super) fn needs_quiet_since(name: &str) -> Option<&'static str> {
    TIMING.iter().find(|(timing, _)| *timing == name).map(|(_, why)| *why)
}

/// Each name in the rules is that of a test, so that none outlives it.
///
/// # Errors
/// The names that no test has.
pub(super) fn check(names: &[&str]) -> Result<()> {
    let is_there = |name: &str| names.contains(&name);
    let exact = TIMING.iter().map(|(name, _)| *name).chain(COMPUTING.iter().chain(SPARING).copied());
    let gone: Vec<&str> = exact.filter(|name| !is_there(name)).collect();
    let begins = |begin: &str| names.iter().any(|name| name.starts_with(begin));
    let others = OTHERS.iter().map(|(begin, _)| *begin).chain(LONG.iter().chain(PAIRS).chain(YIELDING).copied());
    let others = others.filter(|begin| !begins(begin));
    let gone: Vec<&str> = gone.into_iter().chain(others).collect();
    if !gone.is_empty() {
        bail!("xtask/src/test/kind.rs names what is no test: {}", gone.join(", "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_by_name() {
        assert_eq!(Kind::of("xtask::lab_two a"), Kind::Guest);
        assert_eq!(Kind::of("xtask::lab_module the_debug_kernel_a"), Kind::DebugKernel);
        assert_eq!(Kind::of("xtask::bin/xtask lab::apt::tests::a"), Kind::Host);
        assert_eq!(Kind::of("taut-report::browser a"), Kind::Browser);
        assert_eq!(Kind::of(TIMING[0].0), Kind::Timing);
        let pair = TIMING.iter().find(|(name, _)| name.starts_with("xtask::lab")).unwrap();
        assert!(Kind::of(pair.0) == Kind::QuietGuest && !Kind::of(pair.0).is_quick());
    }

    #[test]
    fn each_has_a_reason_and_stands_once() {
        for (index, (name, why)) in TIMING.iter().enumerate() {
            assert!(!why.is_empty(), "{name}");
            assert!(!TIMING[..index].iter().any(|(other, _)| other == name), "{name}");
        }
    }

    #[test]
    fn what_spares_cores_needs_quiet_and_what_yields_is_a_guest() {
        assert!(SPARING.iter().all(|name| Kind::of(name).needs_quiet() && !is_yielding(name)));
        assert!(YIELDING.iter().all(|begin| Kind::of(begin) == Kind::Guest && least_load(begin) == 0.0));
    }

    #[test]
    fn a_rule_for_a_test_that_is_gone_is_an_error() {
        let error = check(&[]).unwrap_err().to_string();
        assert!(error.contains(TIMING[0].0), "{error}");
    }
}
