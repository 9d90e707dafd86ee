//! What a server says first. The client of NATS takes lines of any length, and some short ones that are none end it, so
//! it is kept from what is no NATS server.

use std::io::Read;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use async_nats::ServerAddr;
use tokio::task::spawn_blocking;

use crate::error::Error;

/// The first line of a server. That of a large cluster has some 30 bytes for each of its servers.
const LONGEST: usize = 64 << 10;
/// For the connection and the first line.
const PATIENCE: Duration = Duration::from_secs(5);
/// Of what is no such line, so much is repeated.
const SHOWN: usize = 80;
const INFO: &[u8] = b"INFO ";

/// Those addresses at which nobody says what no NATS server says. Where nobody listens, one may do so later.
///
/// # Errors
/// There is none left.
pub(super) async fn sound(addresses: &[ServerAddr]) -> Result<Vec<ServerAddr>, Error> {
    let ask = |address: &ServerAddr| {
        let (host, port) = (address.host().to_owned(), address.port());
        spawn_blocking(move || wrong(&host, port))
    };
    let asked: Vec<_> = addresses.iter().map(ask).collect();
    let (mut sound, mut wrong) = (Vec::new(), None);
    for (address, asked) in addresses.iter().zip(asked) {
        match asked.await.ok().flatten() {
            Some(why) => wrong = Some(why),
            None => sound.push(address.clone()),
        }
    }
    match wrong {
        Some(why) if sound.is_empty() => Err(Error::new(why)),
        _ => Ok(sound),
    }
}

/// Why what listens there is no NATS server, if that is known. What ends or is silent is the client's own matter.
fn wrong(host: &str, port: u16) -> Option<String> {
    let mut addresses = (host, port).to_socket_addrs().ok()?;
    // A name may have many addresses at which nobody answers.
    let end = Instant::now() + PATIENCE;
    let stream = addresses.find_map(|address| TcpStream::connect_timeout(&address, left(end)?).ok())?;
    judged(stream, end)
}

fn left(end: Instant) -> Option<Duration> {
    Some(end.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
}

fn judged(mut stream: TcpStream, end: Instant) -> Option<String> {
    let (mut line, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        stream.set_read_timeout(Some(left(end)?)).ok()?;
        let length = stream.read(&mut piece).ok().filter(|length| *length > 0)?;
        line.extend_from_slice(&piece[..length]);
        let whole = line.windows(2).position(|two| two == b"\r\n");
        if !line.starts_with(&INFO[..INFO.len().min(line.len())]) {
            let first = &line[..whole.unwrap_or(line.len()).min(SHOWN)];
            let shown = taut_event::printable(&String::from_utf8_lossy(first));
            return Some(format!("its first line is `{shown}`, and that of a NATS server is INFO"));
        }
        if whole.is_some() {
            return None;
        }
        if line.len() > LONGEST {
            return Some(format!("its INFO is longer than {LONGEST} bytes"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// What is said of a server that begins with these pieces, and then ends.
    fn said(pieces: &'static [&'static [u8]]) -> Option<String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for piece in pieces {
                // Who has heard enough has gone.
                let _ = stream.write_all(piece);
                thread::sleep(Duration::from_millis(20));
            }
        });
        let said = wrong("127.0.0.1", port);
        server.join().unwrap();
        said
    }

    #[test]
    fn what_is_no_nats_server_is_known_by_its_first_line() {
        const LONG: &[u8] = &[b'x'; LONGEST + 1];
        const GOOD: [&[&[u8]]; 4] =
            [&[b"INFO {\"max_payload\":1}\r\n"], &[b"IN", b"FO {}", b"\r\nPING\r\n"], &[b"INF"], &[]];
        const BAD: [(&[&[u8]], &str); 6] = [
            (&[b"HTTP/1.1 400 Bad Request\r\n\r\n"], "its first line is `HTTP/1.1 400 Bad Request`"),
            (&[b"-ERR\r\n"], "its first line is `-ERR`"),
            (&[b"\r\n"], "its first line is ``"),
            (&[b"IN\r\n"], "its first line is `IN`"),
            (&[b"\x1b[2J\xff"], "its first line is `"),
            (&[b"INFO {", LONG], "its INFO is longer than 65536 bytes"),
        ];
        for good in GOOD {
            assert_eq!(said(good), None, "{good:?}");
        }
        for (bad, why) in BAD {
            let said = said(bad).unwrap_or_default();
            assert!(said.starts_with(why) && !said.contains('\u{1b}'), "{bad:?}: {said}");
        }
        // Where nobody listens.
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        assert_eq!(wrong("127.0.0.1", nobody), None);
    }
}
