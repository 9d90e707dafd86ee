//! Settings of a broker's address that concern only messages which are carried.

/// What stands in an address for `taut pipe`: `session=NAME&buffer=N&envelope=off`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Carriage {
    /// Name of a session that the broker keeps while nobody is there (MQTT).
    pub(crate) session: Option<String>,
    /// Most messages that are kept while the broker is away, from 1.
    pub(crate) buffer: usize,
    /// Whether each message has its number with it.
    pub(crate) envelope: bool,
}

/// Most messages that may be asked to be kept.
const MOST_KEPT: usize = 1_000_000;
/// Most bytes of a session's name: a client identifier that every broker takes has at most 23 (MQTT 3.1.1, section
/// 3.1.3.1), and brokers in use take more.
const MOST_NAME_BYTES: usize = 200;

impl Default for Carriage {
    fn default() -> Self {
        Self { session: None, buffer: 1000, envelope: true }
    }
}

impl Carriage {
    /// Takes one setting; `false` where it is none of these.
    pub(in crate::broker) fn take(&mut self, name: &str, value: &str) -> bool {
        match (name, value) {
            ("session", session) if is_name(session) => self.session = Some(session.to_owned()),
            ("buffer", number) => match number.parse() {
                Ok(number) if (1..=MOST_KEPT).contains(&number) => self.buffer = number,
                _ => return false,
            },
            ("envelope", "on") => self.envelope = true,
            ("envelope", "off") => self.envelope = false,
            _ => return false,
        }
        true
    }

    /// As they stand in an address, what is not said by default.
    pub(in crate::broker) fn words(&self) -> impl Iterator<Item = String> {
        let session = self.session.as_ref().map(|name| format!("session={name}"));
        let buffer = (self.buffer != Self::default().buffer).then(|| format!("buffer={}", self.buffer));
        let envelope = (!self.envelope).then(|| "envelope=off".to_owned());
        [session, buffer, envelope].into_iter().flatten()
    }
}

fn is_name(text: &str) -> bool {
    (1..=MOST_NAME_BYTES).contains(&text.len()) && text.chars().all(|c| c.is_ascii_graphic() && c != '"')
}
