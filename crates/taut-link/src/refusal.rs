//! Which side refused: the kernel has one error for what different machines may have said.

use std::io;

/// What to add to the kernel's answer to `operation` on `endpoint`, so that it says whose it is;
/// empty where it does already.
///
/// Only of errors that have a number: others were told by somebody who has explained them.
pub(crate) fn by_whom(operation: &str, endpoint: &str, error: &io::Error) -> String {
    let kind = endpoint.split(':').next().unwrap_or_default();
    let is_ip = matches!(kind, "tcp" | "udp" | "tls");
    let who = match (kind, error.raw_os_error()) {
        ("tcp" | "tls", Some(libc::ECONNREFUSED)) => {
            "that host answered that nobody listens on the port (or a packet filter answered for it)"
        }
        ("udp", Some(libc::ECONNREFUSED)) => {
            "that host answered to an earlier datagram that nobody has the port (or a packet filter answered for it)"
        }
        ("unix" | "unix-dgram", Some(libc::ECONNREFUSED)) => "the socket is there, and nobody listens on it any more",
        ("l2cap" | "rfcomm", Some(libc::ECONNREFUSED)) => {
            "the peer refused the channel: nobody listens on its PSM or channel, or it has no room"
        }
        ("l2cap" | "rfcomm", Some(libc::EACCES)) if operation == "connect to" => {
            "the peer asks for more security: write ?security=medium or high"
        }
        ("l2cap" | "rfcomm", Some(libc::EHOSTDOWN)) => "the peer did not answer",
        (_, Some(libc::ENETUNREACH)) if is_ip => "this host has no route there",
        (_, Some(libc::EHOSTUNREACH)) if is_ip => {
            "no host has that address on its network, or a router or packet filter said so"
        }
        (_, Some(libc::EPERM | libc::EACCES)) if is_ip && matches!(operation, "connect to" | "send to") => {
            "this host's own packet filter or security policy"
        }
        (_, Some(libc::ECONNRESET)) => "the peer broke the connection off",
        _ => return String::new(),
    };
    format!(": {who}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn who_refused_is_told_where_the_kernel_has_one_word_for_several() {
        let told = |endpoint: &str, errno| {
            let error = io::Error::from_raw_os_error(errno);
            Error::Io { operation: "connect to", endpoint: endpoint.to_owned(), error }.to_string()
        };
        for (endpoint, errno, who) in [
            ("tcp://192.0.2.1:9", libc::ECONNREFUSED, "that host answered"),
            ("tcp://192.0.2.1:9", libc::ENETUNREACH, "this host has no route"),
            ("tcp://192.0.2.1:9", libc::EPERM, "this host's own packet filter"),
            ("udp://192.0.2.1:9", libc::ECONNREFUSED, "earlier datagram"),
            ("unix:/run/x", libc::ECONNREFUSED, "nobody listens on it any more"),
            ("l2cap://00:11:22:33:44:55/225", libc::ECONNREFUSED, "the peer refused the channel"),
        ] {
            let text = told(endpoint, errno);
            assert!(text.contains("os error") && text.contains(who), "{text}");
        }
        assert!(told("unix:/run/x", libc::ENOENT).ends_with("(os error 2)"));
        // Told with its reason by who knows it.
        let error = io::Error::new(io::ErrorKind::ConnectionRefused, "the peer refused to pair");
        assert_eq!(by_whom("connect to", "l2cap://x/1", &error), "");
    }
}
