use super::carry::Carriage;
use super::client::Client;
use super::mqtt_address::MqttAddress;
use super::mqtt_client::MqttClient;
use super::mqtt_login::{Errand, Login};
use super::nats_address::NatsAddress;
use super::nats_client::{NatsClient, NatsLogin};
use super::part::Part;
use crate::{Error, Result};

/// Which broker, and which topic or subject of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BrokerAddress<'a> {
    Mqtt(&'a MqttAddress),
    Nats(&'a NatsAddress),
}

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

    /// A client of that name that hears what `filter` stands for.
    pub(crate) fn client(
        &self,
        endpoint: &impl std::fmt::Display,
        name: String,
        part: Part,
        filter: String,
    ) -> Result<Box<dyn Client>> {
        if part != Part::About && *self.carriage() != Carriage::default() {
            return Err(Error::Input(format!("{endpoint}: session=, buffer= and envelope= are for taut pipe")));
        }
        match self {
            Self::Mqtt(address) => {
                let filter = if part == Part::About { ABOUT.to_owned() } else { filter };
                let password = address.password()?;
                let (version, user, qos) = (address.version, address.user.clone(), address.qos);
                let login = Login { version, client: name, user, password, filter, qos };
                let client = MqttClient::new(login).map_err(|why| Error::Input(format!("{endpoint}: {why}")))?;
                Ok(Box::new(client))
            }
            Self::Nats(address) => {
                let password = address.password()?;
                let filter = (part != Part::About).then_some(filter);
                Ok(Box::new(NatsClient::new(NatsLogin { name, user: address.user.clone(), password, filter })))
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
    pub(crate) const fn is_confirmed(&self) -> bool {
        matches!(self, Self::Mqtt(MqttAddress { qos: 1.., .. }))
    }

    /// A client of that name that carries messages: it hears all of `filters`, and says itself what it has taken.
    /// Packets are numbered from `first_number` on.
    pub(crate) fn carrying_client(
        &self,
        endpoint: &impl std::fmt::Display,
        name: String,
        filters: Vec<String>,
        first_number: u16,
    ) -> Result<Box<dyn Client>> {
        match self {
            Self::Mqtt(address) => {
                let (version, user, qos, password) =
                    (address.version, address.user.clone(), address.qos, address.password()?);
                let login = Login { version, client: name, user, password, filter: String::new(), qos };
                let errand = Errand { is_lasting: address.carriage.session.is_some(), also: filters };
                let client = MqttClient::on_errand(login, errand, first_number)
                    .map_err(|why| Error::Input(format!("{endpoint}: {why}")))?;
                Ok(Box::new(client))
            }
            Self::Nats(address) => {
                let (user, password) = (address.user.clone(), address.password()?);
                Ok(Box::new(NatsClient::with_tags(NatsLogin { name, user, password, filter: None }, filters)))
            }
        }
    }
}
