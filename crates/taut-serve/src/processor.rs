//! Where a thread runs that serves a client.

use taut_link::affinity::{allowed_cores, stay_on_core};
use taut_link::is_this_boot;
use taut_link::wire::Hello;

/// Puts the calling thread, which serves a client, where that wants it, if it is of this boot. The
/// processor that the thread is bound to then, if it is to one.
pub(super) fn for_client(hello: &Hello) -> Option<u16> {
    if let Some(core) =
        hello.core.map(usize::from).filter(|core| is_this_boot(hello.boot) && allowed_cores().contains(core))
    {
        // It was allowed a moment ago; what came of it is told below.
        let _ = stay_on_core(core);
    }
    bound_core(hello)
}

/// The processor that the calling thread is bound to, if it is to one; for clients of this boot only.
pub(super) fn bound_core(hello: &Hello) -> Option<u16> {
    if !is_this_boot(hello.boot) {
        return None;
    }
    match allowed_cores()[..] {
        [only] => u16::try_from(only).ok(),
        _ => None,
    }
}
