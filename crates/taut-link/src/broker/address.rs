use super::carry::Carriage;
use super::client::Client;
use super::jetstream::{JetStream, Reading, StreamPlan};
use super::mqtt_address::MqttAddress;
use super::mqtt_client::MqttClient;
use super::mqtt_login::{Errand, Login};
use super::nats_address::NatsAddress;
use super::nats_client::{NatsClient, NatsLogin};
use super::part::Part;
use super::stream_settings::StreamSettings;
use super::tls_settings::TlsSettings;
use crate::tls::Tls;
use crate::{Error, Result, clock};

/// Which broker, and which topic or subject of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BrokerAddress<'a> {
    Mqtt(&'a MqttAddress),
    Nats(&'a NatsAddress),
}

/// The topics or subjects of one client.
#[derive(Clone, Debug)]
pub(super) struct Topics<'a> {
    /// What it hears.
    pub(super) filter: String,
    /// Where its own messages go; none of one who only answers.
    pub(super) publish_to: &'a str,
    /// What all clients of the tests ask on, in a stream that is made for them.
    pub(super) kept: [String; 2],
}

/// The topics or subjects of a client that carries messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct CarriedTopics {
    /// Where messages are published.
    pub(crate) published: Option<String>,
    /// What messages are heard.
    pub(crate) data: Option<String>,
    /// What writers and readers tell each other.
    pub(crate) tallies: Option<String>,
    pub(crate) receipts: Option<String>,
}

/// Below its topic goes what a pipe carries the other way.
pub(crate) const BACK: &str = "back";
/// Where MQTT brokers say what they are, by a convention of Mosquitto's.
const ABOUT: &str = "$SYS/broker/version";

impl BrokerAddress<'_> {
    /// The topic or subject below which everything is.
    pub(crate) const fn topic(&self) -> &str {
        match self {
            Self::Mqtt(address) => address.topic.as_str(),
            Self::Nats(address) => address.subject.as_str(),
        }
    }

    /// What stands between the levels of a topic.
    pub(crate) const fn separator(&self) -> char {
        match self {
            Self::Mqtt(_) => '/',
            Self::Nats(_) => '.',
        }
    }

    /// What stands for any name of one level.
    pub(crate) const fn any(&self) -> char {
        match self {
            Self::Mqtt(_) => '+',
            Self::Nats(_) => '*',
        }
    }

    /// Whether a server leaves Nagle's algorithm on.
    pub(crate) const fn nagle(&self) -> bool {
        match self {
            Self::Mqtt(address) => address.nagle,
            Self::Nats(address) => address.nagle,
        }
    }

    /// Whether the connection begins with TLS. A NATS server says first whether it wants it.
    pub(super) const fn begins_with_tls(&self) -> bool {
        matches!(self, Self::Mqtt(address) if address.tls.is_some())
    }

    /// The beginning of TLS to the broker.
    ///
    /// # Errors
    /// [`Error::Input`] where its files are not what they should be; [`Error::Unavailable`] without roots.
    pub(super) fn tls(&self, endpoint: &impl std::fmt::Display) -> Result<Tls> {
        let (tls, inet) = match self {
            Self::Mqtt(address) => (&address.tls, &address.inet),
            Self::Nats(address) => (&address.tls, &address.inet),
        };
        let none = TlsSettings::default();
        tls.as_deref().unwrap_or(&none).begin(endpoint, &inet.host)
    }

    /// What to write so that a user name or password that is given goes over TLS only; `None` where it does, or there
    /// is none.
    pub(crate) fn cure_of_open_login(&self) -> Option<&'static str> {
        let (user, password_file, is_sure, cure) = match self {
            Self::Mqtt(address) => (&address.user, &address.password_file, address.tls.is_some(), "write mqtts://"),
            Self::Nats(address) => (&address.user, &address.password_file, address.insists_on_tls(), "write tls=on"),
        };
        ((user.is_some() || password_file.is_some()) && !is_sure).then_some(cure)
    }

    /// A client of that name for these topics.
    pub(super) fn client(
        &self,
        endpoint: &impl std::fmt::Display,
        name: String,
        part: Part,
        topics: Topics<'_>,
    ) -> Result<Box<dyn Client>> {
        if part != Part::About && *self.carriage() != Carriage::default() {
            let text = format!("{endpoint}: session=, buffer= and envelope= are for taut pipe and taut route");
            return Err(Error::Input(text));
        }
        let Topics { filter, publish_to, kept } = topics;
        match self {
            Self::Mqtt(address) => {
                let filter = if part == Part::About { ABOUT.to_owned() } else { filter };
                let password = address.password()?;
                let (version, user, qos) = (address.version, address.user.clone(), address.qos);
                let login = Login { version, client: name, user, password, filter, qos };
                let mut client = MqttClient::new(login).map_err(|why| Error::Input(format!("{endpoint}: {why}")))?;
                client.is_plain(address.tls.is_none());
                Ok(Box::new(client))
            }
            Self::Nats(address) => {
                let (user, password) = (address.user.clone(), address.password()?);
                let client = |name, filter| {
                    let mut client = NatsClient::new(NatsLogin { name, user, password, filter });
                    client.insist_on_tls(address.insists_on_tls());
                    client
                };
                let stream = address.stream.as_deref().filter(|_| part != Part::About);
                let Some(stream) = stream else {
                    return Ok(Box::new(client(name, (part != Part::About).then_some(filter))));
                };
                // Answers are not kept: who asks hears them as they come.
                let reads = part != Part::Asker;
                let plan = StreamPlan {
                    stream: stream.name.clone(),
                    create: stream.create.map(|storage| (storage, kept.to_vec())),
                    publishes: (part != Part::Responder).then(|| publish_to.to_owned()),
                    reads: reads.then(|| Reading { filter: filter.clone(), name: stream.reader.clone() }),
                };
                let inbox = format!("_INBOX.{name}");
                Ok(Box::new(JetStream::new(client(name, (!reads).then_some(filter)), inbox, plan)))
            }
        }
    }

    /// What concerns messages that are carried.
    pub(crate) fn carriage(&self) -> &Carriage {
        match self {
            Self::Mqtt(address) => &address.carriage,
            Self::Nats(address) => &address.carriage,
        }
    }

    /// Whether the broker acknowledges what is published.
    pub(crate) fn is_confirmed(&self) -> bool {
        matches!(self, Self::Mqtt(MqttAddress { qos: 1.., .. })) || self.stream().is_some()
    }

    /// The stream that keeps the messages.
    pub(crate) fn stream(&self) -> Option<&StreamSettings> {
        match self {
            Self::Mqtt(_) => None,
            Self::Nats(address) => address.stream.as_deref(),
        }
    }

    /// A client of that name that carries messages and says itself what it has taken. Its session is kept if it
    /// `is_lasting`, and packets are numbered from `first_number` on.
    pub(crate) fn carrying_client(
        &self,
        endpoint: &impl std::fmt::Display,
        name: String,
        topics: &CarriedTopics,
        (is_lasting, first_number): (bool, u16),
    ) -> Result<Box<dyn Client>> {
        if self.nagle() {
            return Err(Error::Input(format!("{endpoint}: nagle= is for taut serve")));
        }
        let CarriedTopics { published, data, tallies, receipts } = topics;
        // What a stream has of it is read there.
        let heard = data.iter().filter(|_| self.stream().is_none());
        let filters = heard.chain(tallies).chain(receipts).cloned().collect();
        match self {
            Self::Mqtt(address) => {
                let (version, user, qos, password) =
                    (address.version, address.user.clone(), address.qos, address.password()?);
                let login = Login { version, client: name, user, password, filter: String::new(), qos };
                let errand = Errand { is_lasting, also: filters };
                let mut client = MqttClient::on_errand(login, errand, first_number)
                    .map_err(|why| Error::Input(format!("{endpoint}: {why}")))?;
                client.is_plain(address.tls.is_none());
                Ok(Box::new(client))
            }
            Self::Nats(address) => {
                let (user, password) = (address.user.clone(), address.password()?);
                let login = NatsLogin { name: name.clone(), user, password, filter: None };
                let mut client = NatsClient::with_tags(login, filters);
                client.insist_on_tls(address.insists_on_tls());
                let Some(stream) = address.stream.as_deref() else { return Ok(Box::new(client)) };
                // Whichever way the one goes that comes first.
                let kept = || vec![address.subject.clone(), format!("{}.{BACK}", address.subject)];
                // A pipe has a reader at each end, which read different subjects.
                let own = |filter: &str, name: &String| match *filter == address.subject {
                    true => name.clone(),
                    false => format!("{name}-{BACK}"),
                };
                let reading = |filter: String| {
                    let name = stream.reader.as_ref().map(|name| own(&filter, name));
                    Reading { filter, name }
                };
                let plan = StreamPlan {
                    stream: stream.name.clone(),
                    create: stream.create.map(|storage| (storage, kept())),
                    publishes: published.clone(),
                    reads: data.clone().map(reading),
                };
                // Of this connection alone: a server goes on to answer what an earlier one has asked for as long as
                // anybody hears the answers.
                let inbox = format!("_INBOX.{name}-{:x}", clock::now().as_nanos());
                Ok(Box::new(JetStream::carrying(client, inbox, plan)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_has_an_inbox_of_its_own() {
        let address = NatsAddress::parse("h/a?stream=S").unwrap();
        let topics = CarriedTopics { data: Some("a".to_owned()), ..CarriedTopics::default() };
        let inbox = || {
            let broker = BrokerAddress::Nats(&address);
            let mut client = broker.carrying_client(&"x", "taut-1".to_owned(), &topics, (false, 1)).unwrap();
            client.handle(b"INFO {\"headers\":true}\r\n");
            let hello = String::from_utf8(client.output().to_vec()).unwrap();
            hello.lines().find(|line| line.starts_with("SUB _INBOX.")).unwrap().to_owned()
        };
        assert_ne!(inbox(), inbox());
    }
}
