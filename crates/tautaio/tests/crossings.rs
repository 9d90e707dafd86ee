//! Where two good things meet: the library's own descriptors and its hooks, numbers that are used
//! again, cancelled threads, handlers, forks, filters and closefrom(3), scheduling and polling.
//! Each case of `programs/crossings.c` once hung, lost or misdirected something.

mod support;

use support::Library;
use support::program::run_case;

const PROGRAM: &str = "crossings.c";

/// Makes two tests of each case, one for each engine.
macro_rules! cases {
    ($($case:ident),* $(,)?) => {$(
        mod $case {
            use super::*;

            #[test]
            fn uring() {
                run_case(PROGRAM, stringify!($case), Library::Uring);
            }

            #[test]
            fn epoll() {
                run_case(PROGRAM, stringify!($case), Library::Epoll);
            }
        }
    )*};
}

cases! {
    library_closes_its_own,
    library_opens_what_was_not_open,
    closefrom_under_a_filter,
    closefrom_without_a_number_left,
    closefrom_that_can_not_tell,
    reads_of_nothing,
    a_sync_looks_at_two_members,
    completed_before_it_was_asked_for,
    ordinary_functions_stay_ordinary,
    real_time_is_not_demoted,
    idle_is_not_lifted,
    a_write_in_parts_keeps_its_pipe,
    a_file_closed_by_system_call,
    a_file_closed_by_fclose,
    a_socket_closed_at_once,
    anonymous_files_are_told_apart,
    what_waits_keeps_its_file,
    its_own_descriptors_are_closed,
    record_locks_stay,
    descriptors_run_out,
    aio_suspend_is_a_cancellation_point,
    aio_write_is_no_cancellation_point,
    a_handler_waits_for_its_write,
    forks_amid_submissions,
    a_fork_amid_the_start,
}

/// A program that asks again and again on its only processor gets on as with the C library, whose thread takes the
/// processor from it at once. Three times as long is allowed, on the best of some tries: other programs run too.
#[test]
fn asking_all_the_time_holds_nothing_up() {
    let nanoseconds = |library| run_case(PROGRAM, "polls_on_one_processor", library)?.trim().parse::<f64>().ok();
    for library in [Library::Uring, Library::Epoll] {
        let tries = (0..4).map_while(|_| Some((nanoseconds(library)?, nanoseconds(Library::System)?)));
        let ratios: Vec<f64> = tries.map(|(ours, libc)| ours / libc).collect();
        let best = ratios.iter().copied().reduce(f64::min);
        assert!(best.is_none_or(|best| best <= 3.0), "{library:?}: {ratios:?} times as long as the C library");
    }
}

/// Closing one of 19,000 descriptors with a pending read takes about as long as closing one of ten.
/// Of processor time, on the best of some tries: other programs run too. io_uring's own search
/// grows with what is pending (256 lists), and a search of all that is in flight took 2 to 5 times
/// as long.
#[test]
fn closing_is_not_quadratic() {
    for library in [Library::Uring, Library::Epoll] {
        let mut ratios = Vec::new();
        while ratios.len() < 3 && ratios.iter().all(|&ratio| ratio > 2.0) {
            let Some(output) = run_case(PROGRAM, "closes_many", library) else { break };
            let times: Vec<f64> = output.split_whitespace().map(|time| time.parse().unwrap()).collect();
            let [few, oldest, all] = times[..] else { panic!("{output}") };
            println!("{library:?}: {few} us of ten, {oldest} us for the oldest of 19,000, {all} us for all of them");
            ratios.push(all / few);
        }
        let best = ratios.iter().copied().reduce(f64::min);
        assert!(best.is_none_or(|best| best <= 2.0), "{library:?}: {ratios:?} times as long as one of ten");
    }
}
