//! What the looks at a socket come to, as the explainer takes it.

use taut_explain::socket::Account;
use taut_source::Seen;

pub(crate) fn account(seen: &Seen) -> Account {
    let (first, last) = (&seen.first.info, &seen.last.info);
    let state = seen.last.state_with(seen.options);
    Account {
        span: seen.span,
        held: seen.held,
        samples: seen.samples,
        unread_samples: seen.unread_samples,
        unread_bytes: if seen.has_unread() { seen.last.unread_bytes } else { 0 },
        unaccepted_samples: if seen.last.is_unaccepted() { seen.unaccepted_samples } else { 0 },
        full_samples: seen.full_samples,
        opening_timeouts: if state.is_opening { state.timeouts } else { 0 },
        send_buffer_limited: last.send_buffer_limited.saturating_sub(first.send_buffer_limited),
    }
}
