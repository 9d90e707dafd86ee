//! Fetches a page over any link, to stdout: `fetch ENDPOINT TARGET`. With a browser one takes `taut pipe` instead.

use std::io::Write;

use taut_link::{Endpoint, Link};
use taut_time::Duration;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [endpoint, target] = arguments.as_slice() else { return Err("write: fetch ENDPOINT TARGET".into()) };
    let link = Link::connect(&endpoint.parse::<Endpoint>()?, Duration::from_secs(20))?;
    link.set_receive_timeout(Some(Duration::from_secs(60)))?;
    link.send_all(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())?;
    let (head, mut content) = head(&link)?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).ok_or("no length")?.parse()?;
    if !head.starts_with("HTTP/1.1 200 ") {
        return Err(head.lines().next().unwrap_or_default().into());
    }
    let begun = content.len();
    content.resize(length, 0);
    link.receive_exact(&mut content[begun..], "in the midst of a page")?;
    std::io::stdout().write_all(&content)?;
    Ok(())
}

/// An answer's head, and what has come of its content with it.
fn head(link: &Link) -> Outcome<(String, Vec<u8>)> {
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = link.receive(&mut buffer)?;
        if count == 0 {
            return Err("the server closed the link".into());
        }
        received.extend_from_slice(&buffer[..count]);
        if let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") {
            let content = received.split_off(end + 4);
            return Ok((String::from_utf8(received)?, content));
        }
    }
}
