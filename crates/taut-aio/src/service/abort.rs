use std::thread;

/// Ends the process when the thread that has it panics: a bug of ours, after which no operation would ever end.
pub(crate) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("tautaio: an internal error, told above; the process is ended, as its requests can't go on");
            std::process::abort();
        }
    }
}
