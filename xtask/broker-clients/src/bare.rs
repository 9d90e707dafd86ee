//! Frames that are there before they are sent: the least that a client can do. Each packet is a write of its own, as it
//! is with `taut` and with the libraries.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Result, ensure};

use crate::{SIZE, Trips};

const TOPIC: &str = "bare/own";
const SUBJECT: &str = "bare.own";

/// A socket, and what came and was not taken yet.
struct Wire {
    socket: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
    taken: usize,
}

impl Wire {
    fn open(address: &str) -> Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, buffer: vec![0; 64 << 10], filled: 0, taken: 0 })
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.socket.write_all(bytes)?)
    }

    /// What has come and was not taken.
    fn rest(&self) -> &[u8] {
        &self.buffer[self.taken..self.filled]
    }

    fn take(&mut self, bytes: usize) {
        self.taken += bytes;
        if self.taken == self.filled {
            (self.taken, self.filled) = (0, 0);
        }
    }

    fn read(&mut self) -> Result<()> {
        if self.filled == self.buffer.len() {
            self.buffer.copy_within(self.taken..self.filled, 0);
            self.filled -= self.taken;
            self.taken = 0;
        }
        let bytes = self.socket.read(&mut self.buffer[self.filled..])?;
        ensure!(bytes > 0, "the broker closed the connection");
        self.filled += bytes;
        Ok(())
    }

    /// The length of the next packet of MQTT, when all of it is there; none here is longer than 127 bytes.
    fn packet(&mut self) -> Result<usize> {
        loop {
            if let [_, length, ..] = *self.rest() {
                let whole = usize::from(length) + 2;
                ensure!(length < 128, "a packet longer than any that was asked for");
                if self.rest().len() >= whole {
                    return Ok(whole);
                }
            }
            self.read()?;
        }
    }

    /// The length of the next line of NATS with its end, when all of it is there.
    fn line(&mut self) -> Result<usize> {
        loop {
            if let Some(end) = self.rest().windows(2).position(|end| end == b"\r\n") {
                return Ok(end + 2);
            }
            self.read()?;
        }
    }
}

fn field(out: &mut Vec<u8>, text: &str) {
    out.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend(text.as_bytes());
}

/// A packet of MQTT 3.1.1 with what follows its length.
fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    [&[first, u8::try_from(body.len()).unwrap_or(u8::MAX)], body].concat()
}

/// MQTT 3.1.1 with quality of service 1.
pub(crate) fn mqtt(address: &str, trips: &mut Trips) -> Result<()> {
    let mut wire = Wire::open(address)?;
    let mut body = Vec::new();
    field(&mut body, "MQTT");
    // Version 4, a clean session, no keep-alive.
    body.extend([4, 2, 0, 0]);
    field(&mut body, &format!("bare-{}", std::process::id()));
    wire.send(&packet(0x10, &body))?;
    let length = wire.packet()?;
    ensure!(wire.rest()[..4] == [0x20, 2, 0, 0], "the broker does not let us in");
    wire.take(length);

    let mut body = vec![0, 1];
    field(&mut body, TOPIC);
    body.push(1);
    wire.send(&packet(0x82, &body))?;
    let length = wire.packet()?;
    ensure!(wire.rest()[..5] == [0x90, 3, 0, 1, 1], "the broker does not subscribe us");
    wire.take(length);

    let mut body = Vec::new();
    field(&mut body, TOPIC);
    let number_at = 2 + body.len();
    body.extend([0, 0]);
    body.extend([0; SIZE]);
    let mut publish = packet(0x32, &body);
    let payload_at = publish.len() - SIZE;
    let mut number = 0_u16;
    while let Some(payload) = trips.next() {
        number = number.checked_add(1).unwrap_or(1);
        publish[number_at..number_at + 2].copy_from_slice(&number.to_be_bytes());
        publish[payload_at..].copy_from_slice(&payload);
        wire.send(&publish)?;
        // The acknowledgement of the one before may come first: as with the others, nobody waits for it.
        while !is_message(&mut wire, (number_at, payload_at), trips)? {}
    }
    Ok(())
}

/// Takes the next packet; whether it is the message.
fn is_message(wire: &mut Wire, (number_at, payload_at): (usize, usize), trips: &mut Trips) -> Result<bool> {
    let length = wire.packet()?;
    let packet = wire.rest();
    if packet[0] == 0x40 {
        wire.take(length);
        return Ok(false);
    }
    ensure!(packet[0] & 0xF0 == 0x30 && length == payload_at + SIZE, "the broker sent what was not asked for");
    let (high, low) = (packet[number_at], packet[number_at + 1]);
    let payload: [u8; SIZE] = packet[payload_at..length].try_into()?;
    wire.take(length);
    wire.send(&[0x40, 2, high, low])?;
    trips.came(&payload)?;
    Ok(true)
}

/// Core NATS.
pub(crate) fn nats(address: &str, trips: &mut Trips) -> Result<()> {
    let mut wire = Wire::open(address)?;
    let greeting = wire.line()?;
    ensure!(wire.rest().starts_with(b"INFO "), "there is no NATS server");
    wire.take(greeting);
    wire.send(format!("CONNECT {{\"verbose\":false}}\r\nSUB {SUBJECT} 1\r\nPING\r\n").as_bytes())?;
    loop {
        let length = wire.line()?;
        let is_answer = wire.rest().starts_with(b"PONG");
        wire.take(length);
        if is_answer {
            break;
        }
    }
    let head = format!("PUB {SUBJECT} {SIZE}\r\n");
    let mut publish = [head.as_bytes(), &[0; SIZE], b"\r\n"].concat();
    while let Some(payload) = trips.next() {
        publish[head.len()..head.len() + SIZE].copy_from_slice(&payload);
        wire.send(&publish)?;
        loop {
            let length = wire.line()?;
            if wire.rest().starts_with(b"PING") {
                wire.take(length);
                wire.send(b"PONG\r\n")?;
                continue;
            }
            ensure!(wire.rest().starts_with(b"MSG "), "the server sent what was not asked for");
            while wire.rest().len() < length + SIZE + 2 {
                wire.read()?;
            }
            trips.came(&wire.rest()[length..length + SIZE])?;
            wire.take(length + SIZE + 2);
            break;
        }
    }
    Ok(())
}
