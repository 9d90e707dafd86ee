//! A relay of TCP connections in the test's process, which counts: so a test knows how far a program has come.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// In the way of all connections to a server. Its threads end with the connections.
pub(crate) struct Relay {
    endpoint: String,
    from_clients: Arc<AtomicU64>,
}

impl Relay {
    pub(crate) fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
        let from_clients = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&from_clients);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else { continue };
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let counted = Arc::clone(&counted);
                thread::spawn(move || carry(client, server, Some(&counted)));
                thread::spawn(move || carry(back.0, back.1, None));
            }
        });
        Self { endpoint, from_clients }
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Until clients have sent so many messages: at most one for each time that there was something to read.
    pub(crate) fn wait_for_messages(&self, count: u64) {
        let begin = Instant::now();
        while self.from_clients.load(Ordering::Relaxed) < count {
            assert!(begin.elapsed() < Duration::from_secs(60), "the clients send nothing");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// One direction, to its end, which is passed on; all of the connection ends with what goes wrong.
fn carry(mut from: TcpStream, mut to: TcpStream, counted: Option<&AtomicU64>) {
    let mut buffer = vec![0; 64 << 10];
    // Either may be gone already when it is shut down.
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return to.shutdown(Shutdown::Write).unwrap_or(()),
            Ok(length) if to.write_all(&buffer[..length]).is_ok() => {
                counted.inspect(|counted| _ = counted.fetch_add(1, Ordering::Relaxed));
            }
            _ => break,
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
