//! Requests that are canceled or whose descriptor is closed while a thread of the epoll engine is in the system call,
//! and forks amid a submission: `programs/held.c`, which holds that thread up.

mod support;

use support::Library;
use support::program::run_case;

const PROGRAM: &str = "held.c";

#[test]
fn a_refused_write_goes_on() {
    run_case(PROGRAM, "a_refused_write_goes_on", Library::Epoll);
}

#[test]
fn a_close_ends_what_can_not_be_canceled() {
    run_case(PROGRAM, "a_close_ends_what_can_not_be_canceled", Library::Epoll);
}

#[test]
fn a_fork_leaves_no_descriptor() {
    for library in [Library::Uring, Library::Epoll] {
        run_case(PROGRAM, "a_fork_leaves_no_descriptor", library);
    }
}

#[test]
fn a_fork_amid_its_own_duplicate_leaves_none() {
    for library in [Library::Uring, Library::Epoll] {
        run_case(PROGRAM, "a_fork_amid_its_own_duplicate_leaves_none", library);
    }
}

#[test]
fn a_file_replaced_amid_the_submission_is_let_go() {
    for library in [Library::Uring, Library::Epoll] {
        run_case(PROGRAM, "a_file_replaced_amid_the_submission_is_let_go", library);
    }
}

#[test]
fn what_is_at_hand_is_not_duplicated() {
    run_case(PROGRAM, "what_is_at_hand_is_not_duplicated", Library::Uring);
}
