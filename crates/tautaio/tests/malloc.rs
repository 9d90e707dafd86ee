//! Requests complete while a thread that waits for them has the lock of malloc(3), which its handler interrupted:
//! `programs/malloc.c`.

mod support;

use support::Library;
use support::program::run_case;

const PROGRAM: &str = "malloc.c";

fn on_both_engines(case: &str) {
    for library in [Library::Uring, Library::Epoll] {
        run_case(PROGRAM, case, library);
    }
}

#[test]
fn sockets_complete() {
    on_both_engines("sockets_complete");
}

#[test]
fn pipes_complete() {
    on_both_engines("pipes_complete");
}

#[test]
fn files_complete() {
    on_both_engines("files_complete");
}

#[test]
fn lists_complete() {
    on_both_engines("lists_complete");
}

#[test]
fn functions_are_called_later() {
    on_both_engines("functions_are_called_later");
}

#[test]
fn nobody_waits_for_a_fork_for_long() {
    on_both_engines("nobody_waits_for_a_fork_for_long");
}

#[test]
fn a_first_start_is_not_amid_a_fork() {
    on_both_engines("a_first_start_is_not_amid_a_fork");
}
