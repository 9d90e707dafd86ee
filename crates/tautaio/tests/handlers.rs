//! Signal handlers that fork, jump out of a call of the library's or close, in any moment: `programs/handlers.c`.

mod support;

use support::Library;
use support::program::run_case;

const PROGRAM: &str = "handlers.c";

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
    handlers_that_fork,
    handlers_that_leap,
    handlers_that_leap_out_of_a_wait,
    handlers_that_close,
}
