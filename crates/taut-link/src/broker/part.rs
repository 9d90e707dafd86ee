/// Which end of the tests it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Part {
    /// Asks on `TOPIC/ID/req` and hears answers on `TOPIC/ID/rep`.
    Asker,
    /// Hears what all askers ask.
    Responder,
    /// Publishes to the topic and hears it by its own subscription: the broker alone is the echo.
    Alone,
    /// Hears what the broker says of itself, and publishes nothing.
    About,
}
