//! The buckets and the stream, with a limit of time for all that is asked of them.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::datetime::DateTime;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::kv::{self, CreateErrorKind, Operation, UpdateErrorKind};
use async_nats::jetstream::stream::{self, DirectGetErrorKind, DiscardPolicy, Stream};
use async_nats::jetstream::{Context, message::StreamMessage};
use async_nats::{Client, HeaderMap};
use futures_util::{StreamExt, TryStreamExt};

use super::message::{LONGEST_MEMBER, LONGEST_REPORT, Member, Orders, RESULTS_BELOW, plan_of, written};
use super::name::token;
use crate::error::Error;
use crate::plan::MOST_HOSTS;

/// The number of a result, and since when results are counted: a server that has lost its disk begins anew.
pub(super) struct Newest {
    pub(super) number: u64,
    pub(super) counted_since: DateTime,
}

/// After which an agent is no longer there.
const MEMBER_AGE: Duration = Duration::from_secs(90);
/// After which a lease is free again whose holder does not prolong it.
pub(super) const LEASE_AGE: Duration = Duration::from_secs(30);
const RESULT_AGE: Duration = Duration::from_secs(7 * 86_400);
/// Within which a server knows a result again that it has. The reader knows it for ever.
const KNOWN_AGAIN: Duration = Duration::from_secs(600);
const MOST_RESULT_BYTES: i64 = 1 << 30;
/// For each request.
const PATIENCE: Duration = Duration::from_secs(5);
/// Room for the headers of a result, which count where its length is limited.
const HEADERS: usize = 1024;

const AGENTS: &str = "taut_agents";
const PLANS: &str = "taut_plan";
const LEASES: &str = "taut_lease";
const RESULTS: &str = "TAUT";

/// Where agents and those who gather meet.
#[derive(Clone)]
pub(super) struct Store {
    pub(super) client: Client,
    context: Context,
    agents: kv::Store,
    plans: kv::Store,
    leases: kv::Store,
    results: Stream,
}

/// How an attempt to change a value ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Changed {
    /// It stands there, with this revision.
    Done(u64),
    /// Somebody else's does.
    Taken,
}

/// What stands at a key.
pub(super) struct Value {
    pub(super) bytes: Vec<u8>,
    pub(super) revision: u64,
}

async fn within<T, E: std::fmt::Display>(what: &str, future: impl Future<Output = Result<T, E>>) -> Result<T, Error> {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Error::new(format!("{what}: {error}"))),
        Err(_) => Err(Error::new(format!("{what}: no answer within {PATIENCE:?}"))),
    }
}

impl Store {
    /// Opens what is there, and makes what is not.
    pub(super) async fn open(client: Client) -> Result<Self, Error> {
        let context = ContextBuilder::new().timeout(PATIENCE).build(client.clone());
        let results = stream::Config {
            name: RESULTS.to_owned(),
            subjects: vec![format!("{RESULTS_BELOW}>")],
            max_age: RESULT_AGE,
            max_bytes: MOST_RESULT_BYTES,
            max_message_size: i32::try_from(LONGEST_REPORT).unwrap_or(i32::MAX),
            duplicate_window: KNOWN_AGAIN,
            allow_direct: true,
            ..stream::Config::default()
        };
        let needed = |error: Error| Error::new(format!("{error} (JetStream is needed, which `nats-server -js` has)"));
        let opened = Self {
            agents: bucket(&context, AGENTS, MEMBER_AGE, LONGEST_MEMBER).await.map_err(needed)?,
            plans: bucket(&context, PLANS, Duration::ZERO, 0).await?,
            leases: bucket(&context, LEASES, LEASE_AGE, LONGEST_MEMBER).await?,
            results: within("the stream TAUT", context.get_or_create_stream(results)).await?,
            context,
            client,
        };
        opened.check_results()?;
        Ok(opened)
    }

    /// A stream of that name may be there already, with settings by which results would never be read.
    fn check_results(&self) -> Result<(), Error> {
        let config = &self.results.cached_info().config;
        let below = format!("{RESULTS_BELOW}>");
        let why = if !config.allow_direct {
            "without allow_direct".to_owned()
        } else if !config.subjects.iter().any(|subject| [below.as_str(), "taut.>", ">"].contains(&subject.as_str())) {
            format!("without the subject {below}")
        } else {
            return Ok(());
        };
        Err(Error::new(format!("the stream {RESULTS} is there {why}: remove or edit it, or use another account")))
    }

    /// Whether there is no connection to it now.
    pub(super) fn is_away(&self) -> bool {
        self.client.connection_state() != State::Connected
    }

    /// Bytes of the longest result that it takes.
    pub(super) fn longest_report(&self) -> usize {
        self.longest().min(LONGEST_REPORT).saturating_sub(HEADERS)
    }

    /// Bytes of the longest message that the server takes.
    pub(super) fn longest(&self) -> usize {
        self.client.server_info().max_payload
    }

    /// Says that an agent is there; with the revision that stood there before, it has to stand there still.
    pub(super) async fn tell_member(&self, member: &Member, before: Option<u64>) -> Result<Changed, Error> {
        let (key, value) = (token(&member.name), written(member));
        match before {
            None => within("taut_agents", self.agents.put(key, value.into())).await.map(Changed::Done),
            Some(revision) => update(&self.agents, &key, value, revision).await,
        }
    }

    /// An agent, if it is there.
    pub(super) async fn member(&self, name: &str) -> Result<Option<(Member, u64)>, Error> {
        let key = token(name);
        let Some(value) = value(&self.agents, &key).await? else { return Ok(None) };
        Ok(Some((Member::parse(&key, &value.bytes)?, value.revision)))
    }

    /// All agents that are there, by name, and how many entries are none.
    pub(super) async fn members(&self, stop: &AtomicBool) -> Result<(Vec<Member>, usize), Error> {
        let below = format!("$KV.{AGENTS}.");
        // Page by page: what a consumer sends could overtake us.
        let subjects = within("taut_agents", self.agents.stream.info_with_subjects(">")).await?;
        let subjects: Vec<(String, usize)> = within("taut_agents", subjects.take(MOST_HOSTS).try_collect()).await?;
        let keys = subjects.into_iter().filter_map(|(subject, _)| Some(subject.strip_prefix(&below)?.to_owned()));
        let (mut members, mut strange) = (Vec::new(), 0);
        for key in keys {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::new("interrupted"));
            }
            match value(&self.agents, &key).await?.map(|value| Member::parse(&key, &value.bytes)) {
                Some(Ok(member)) => members.push(member),
                Some(Err(_)) => strange += 1,
                None => {}
            }
        }
        members.sort_by(|one, other| one.name.cmp(&other.name));
        Ok((members, strange))
    }

    /// Takes an agent from those who are there.
    pub(super) async fn remove_member(&self, name: &str) -> Result<(), Error> {
        within("taut_agents", self.agents.purge(token(name))).await
    }

    /// Whether the server takes what an agent has to do.
    ///
    /// # Errors
    /// Where it is too long.
    pub(super) fn takes(&self, name: &str, orders: &Orders) -> Result<(), Error> {
        let (length, longest) = (written(orders).len(), self.longest());
        if length > longest {
            let text = "choose fewer peers, or set the server's max_payload higher";
            return Err(Error::new(format!(
                "what {name} has to do is {length} bytes, and the NATS server takes {longest}: {text}"
            )));
        }
        Ok(())
    }

    /// Gives an agent orders, and tells it so.
    pub(super) async fn order(&self, name: &str, orders: &Orders) -> Result<(), Error> {
        let key = token(name);
        within("taut_plan", self.plans.put(&key, written(orders).into())).await?;
        self.hint_at(&key).await
    }

    /// Takes an agent's orders away if they are of a plan that is ours, and tells it so. Another one's stay.
    pub(super) async fn take_back(&self, name: &str, is_ours: impl Fn(&str) -> bool) -> Result<(), Error> {
        let key = token(name);
        let Some(value) = value(&self.plans, &key).await? else { return Ok(()) };
        if plan_of(&value.bytes).is_some_and(|plan| is_ours(&plan)) {
            within("taut_plan", self.plans.purge_expect_revision(&key, Some(value.revision))).await?;
            self.hint_at(&key).await?;
        }
        Ok(())
    }

    async fn hint_at(&self, key: &str) -> Result<(), Error> {
        within("taut.plan", self.client.publish(hint(key), Vec::new().into())).await
    }

    /// What an agent has to do, as it stands there.
    pub(super) async fn orders(&self, name: &str) -> Result<Option<Value>, Error> {
        value(&self.plans, &token(name)).await
    }

    /// What tells an agent that its orders are new.
    pub(super) async fn hints(&self, name: &str) -> Result<async_nats::Subscriber, Error> {
        within("taut.plan", self.client.subscribe(hint(&token(name)))).await
    }

    /// Hands over a result. A server that has it already says so, which is as good.
    pub(super) async fn report(&self, agent: &str, id: &str, bytes: Vec<u8>) -> Result<(), Error> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", id);
        let subject = format!("{RESULTS_BELOW}{}", token(agent));
        let publish = async { self.context.publish_with_headers(subject, headers, bytes.into()).await?.await };
        within("TAUT", publish).await.map(drop)
    }

    /// The newest result.
    pub(super) async fn newest_report(&self) -> Result<Newest, Error> {
        let newest = |info: stream::Info| Newest { number: info.state.last_sequence, counted_since: info.created };
        within("TAUT", self.results.get_info()).await.map(newest)
    }

    /// The first result from a number on, as it came, with its number and subject.
    pub(super) async fn report_from(&self, number: u64) -> Result<Option<StreamMessage>, Error> {
        let ask = self.results.direct_get_next_for_subject(format!("{RESULTS_BELOW}>"), Some(number));
        match tokio::time::timeout(PATIENCE, ask).await {
            Ok(Ok(message)) => Ok(Some(message)),
            Ok(Err(error)) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
            Ok(Err(error)) => Err(Error::new(format!("TAUT: {error}"))),
            Err(_) => Err(Error::new(format!("TAUT: no answer within {PATIENCE:?}"))),
        }
    }

    /// Who has a lease.
    pub(super) async fn lease(&self, key: &str) -> Result<Option<Value>, Error> {
        value(&self.leases, key).await
    }

    /// Takes a lease that nobody has.
    pub(super) async fn take_lease(&self, key: &str, holder: Vec<u8>) -> Result<Changed, Error> {
        match tokio::time::timeout(PATIENCE, self.leases.create(key, holder.into())).await {
            Ok(Ok(revision)) => Ok(Changed::Done(revision)),
            Ok(Err(error)) if error.kind() == CreateErrorKind::AlreadyExists => Ok(Changed::Taken),
            Ok(Err(error)) => Err(Error::new(format!("taut_lease: {error}"))),
            Err(_) => Err(Error::new(format!("taut_lease: no answer within {PATIENCE:?}"))),
        }
    }

    /// Prolongs a lease that stands there with that revision.
    pub(super) async fn keep_lease(&self, key: &str, holder: Vec<u8>, revision: u64) -> Result<Changed, Error> {
        update(&self.leases, key, holder, revision).await
    }

    /// Gives a lease back that stands there with that revision.
    pub(super) async fn give_lease_back(&self, key: &str, revision: u64) -> Result<(), Error> {
        within("taut_lease", self.leases.purge_expect_revision(key, Some(revision))).await
    }
}

fn hint(key: &str) -> String {
    format!("taut.plan.{key}")
}

async fn bucket(context: &Context, name: &str, max_age: Duration, longest: usize) -> Result<kv::Store, Error> {
    let what = format!("the bucket {name}");
    let store = match within(&what, context.get_key_value(name)).await {
        Ok(store) => store,
        Err(_) => {
            // The client's own call asks for the account first, in a form that servers before 2.10 don't answer in.
            let config = stream::Config {
                name: format!("KV_{name}"),
                subjects: vec![format!("$KV.{name}.>")],
                max_messages_per_subject: 1,
                discard: DiscardPolicy::New,
                max_age,
                max_message_size: if longest == 0 { -1 } else { i32::try_from(longest).unwrap_or(i32::MAX) },
                allow_rollup: true,
                deny_delete: true,
                allow_direct: true,
                // Not longer than the age, or it is refused.
                duplicate_window: if max_age.is_zero() { KNOWN_AGAIN } else { max_age },
                ..stream::Config::default()
            };
            within(&what, context.get_or_create_stream(config)).await?;
            within(&what, context.get_key_value(name)).await?
        }
    };
    let found = store.stream.cached_info().config.max_age;
    if found != max_age {
        return Err(Error::new(format!(
            "{what} is there with an age of {found:?}, and agents need {max_age:?}: remove it, or use another account"
        )));
    }
    Ok(store)
}

async fn value(bucket: &kv::Store, key: &str) -> Result<Option<Value>, Error> {
    let entry = within(&bucket.name, bucket.entry(key)).await?;
    let entry = entry.filter(|entry| entry.operation == Operation::Put);
    Ok(entry.map(|entry| Value { bytes: entry.value.to_vec(), revision: entry.revision }))
}

async fn update(bucket: &kv::Store, key: &str, value: Vec<u8>, revision: u64) -> Result<Changed, Error> {
    match tokio::time::timeout(PATIENCE, bucket.update(key, value.into(), revision)).await {
        Ok(Ok(revision)) => Ok(Changed::Done(revision)),
        Ok(Err(error)) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(Changed::Taken),
        Ok(Err(error)) => Err(Error::new(format!("{}: {error}", bucket.name))),
        Err(_) => Err(Error::new(format!("{}: no answer within {PATIENCE:?}", bucket.name))),
    }
}
