//! What somebody may have meant who writes an end as other tools have it.

/// What to write in place of `text`, when that can be told.
pub(crate) fn instead_of(text: &str) -> Option<String> {
    if matches!(text, "-" | "stdin" | "stdout" | "STDIO" | "stdio") {
        return Some("stdio:".to_owned());
    }
    if text.starts_with('/') {
        return Some(format!("file:{text}, unix:{text} for a socket, tty:{text} for a serial line"));
    }
    let (kind, rest) = text.split_once(':')?;
    // socat(1): keywords in any case, options after a comma.
    let rest = rest.split(',').next().filter(|rest| !rest.is_empty() && !rest.starts_with("//"))?;
    let kind = kind.to_ascii_uppercase();
    let kind = kind.strip_suffix(['4', '6']).unwrap_or(&kind);
    let any = |scheme: &str| {
        let host = if rest.contains(':') { "" } else { "0.0.0.0:" };
        format!("listen:{scheme}://{host}{rest}")
    };
    Some(match kind {
        "TCP" | "TCP-CONNECT" => format!("tcp://{rest}"),
        "TCP-LISTEN" | "TCP4-LISTEN" | "TCP6-LISTEN" => any("tcp"),
        "UDP" | "UDP-CONNECT" | "UDP-SENDTO" | "UDP-DATAGRAM" => format!("udp://{rest}"),
        "UDP-LISTEN" | "UDP-RECV" | "UDP-RECVFROM" | "UDP4-LISTEN" | "UDP6-LISTEN" => any("udp"),
        "TLS" | "OPENSSL" | "SSL" | "OPENSSL-CONNECT" => format!("tls://{rest}"),
        "OPENSSL-LISTEN" | "SSL-LISTEN" | "SSL-L" => any("tls"),
        "UNIX-CONNECT" | "UNIX-CLIENT" => format!("unix:{rest}"),
        "UNIX-LISTEN" => format!("listen:unix:{rest}"),
        "UNIX-SENDTO" => format!("unix-dgram:{rest}"),
        "UNIX-RECV" | "UNIX-RECVFROM" => format!("listen:unix-dgram:{rest}"),
        "ABSTRACT-CONNECT" | "ABSTRACT" => format!("unix:@{rest}"),
        "ABSTRACT-LISTEN" => format!("listen:unix:@{rest}"),
        "EXEC" => format!("exec:{rest}"),
        "SYSTEM" => format!("exec:sh -c '{rest}'"),
        "OPEN" | "GOPEN" | "CREATE" | "FILE" => format!("file:{rest}"),
        "L2CAP" | "RFCOMM" | "UDP-L" => return None,
        _ if rest.parse::<u16>().is_ok() => format!("tcp://{text}"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::Side;

    use super::*;

    #[test]
    fn what_is_proposed_can_be_read() {
        for (text, expected) in [
            ("-", "stdio:"),
            ("STDIO", "stdio:"),
            ("TCP-LISTEN:8080,fork,reuseaddr", "listen:tcp://0.0.0.0:8080"),
            ("TCP4:localhost:80", "tcp://localhost:80"),
            ("tcp:127.0.0.1:80", "tcp://127.0.0.1:80"),
            ("localhost:80", "tcp://localhost:80"),
            ("UNIX-CONNECT:/run/x.sock", "unix:/run/x.sock"),
            ("UNIX-LISTEN:/run/x.sock,mode=666", "listen:unix:/run/x.sock"),
            ("ABSTRACT-CONNECT:x", "unix:@x"),
            ("EXEC:cat -n,pty", "exec:cat -n"),
            ("SYSTEM:echo $HOME", "exec:sh -c 'echo $HOME'"),
            ("OPENSSL:example.org:443", "tls://example.org:443"),
            ("UDP-RECVFROM:9000", "listen:udp://0.0.0.0:9000"),
        ] {
            assert_eq!(instead_of(text).as_deref(), Some(expected), "{text}");
            assert!(expected.parse::<Side>().is_ok(), "{expected}");
            let message = text.parse::<Side>().unwrap_err().to_string();
            assert!(message.contains(&format!("write {expected}")), "{text}: {message}");
        }
        for text in ["", "http://x:1", "listen:listen:tcp://h:1", "hello", "a:b"] {
            assert_eq!(instead_of(text), None, "{text}");
        }
    }
}
