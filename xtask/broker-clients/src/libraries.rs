//! The clients that programs in Rust use, as their pages show them, with Nagle's algorithm off.

use anyhow::{Context, Result};
use futures_util::StreamExt;
use rumqttc::{AsyncClient, Event, EventLoop, MqttOptions, NetworkOptions, Packet, Publish, QoS};
use tokio::runtime::{Builder, Runtime};

use crate::Trips;

/// One thread, so that no message waits for another one to wake up.
fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// rumqttc with quality of service 1.
pub(crate) fn rumqttc(address: &str, trips: &mut Trips) -> Result<()> {
    const TOPIC: &str = "rumqttc/own";
    let (host, port) = address.rsplit_once(':').context("no port")?;
    let options = MqttOptions::new(format!("rumqttc-{}", std::process::id()), host, port.parse()?);
    runtime()?.block_on(async {
        let (client, mut events) = AsyncClient::new(options, 64);
        let mut network = NetworkOptions::new();
        network.set_tcp_nodelay(true);
        events.set_network_options(network);
        client.subscribe(TOPIC, QoS::AtLeastOnce).await?;
        while !matches!(events.poll().await?, Event::Incoming(Packet::SubAck(_))) {}
        while let Some(payload) = trips.next() {
            client.publish(TOPIC, QoS::AtLeastOnce, false, payload).await?;
            let message = next(&mut events).await?;
            trips.came(&message.payload)?;
        }
        Ok(())
    })
}

async fn next(events: &mut EventLoop) -> Result<Publish> {
    loop {
        if let Event::Incoming(Packet::Publish(message)) = events.poll().await? {
            return Ok(message);
        }
    }
}

/// Core NATS with async-nats, which has Nagle's algorithm off by itself.
pub(crate) fn async_nats(address: &str, trips: &mut Trips) -> Result<()> {
    const SUBJECT: &str = "async-nats.own";
    runtime()?.block_on(async {
        let client = async_nats::connect(address).await?;
        let mut messages = client.subscribe(SUBJECT).await?;
        client.flush().await?;
        while let Some(payload) = trips.next() {
            client.publish(SUBJECT, payload.to_vec().into()).await?;
            let message = messages.next().await.context("the subscription is over")?;
            trips.came(&message.payload)?;
        }
        Ok(())
    })
}
