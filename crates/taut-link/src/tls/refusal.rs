//! Why TLS failed, and which side refused.

use rustls::{AlertDescription, CertificateError, Error};

use super::wording::Wording;

/// What `error` means to somebody who has this side's settings before him; `peer` is who is at the other side.
pub(super) fn explain(error: &Error, peer: &str, wording: Wording) -> String {
    match error {
        Error::AlertReceived(alert) => {
            let remedy = remedy(*alert, wording).map_or_else(String::new, |remedy| format!(": {remedy}"));
            format!("{peer} refused: its TLS alert says \"{}\"{remedy}", words(*alert))
        }
        Error::NoCertificatesPresented => {
            format!("we refused {peer}: it has no certificate, and {} asks for one", wording.name("ca"))
        }
        Error::InvalidCertificate(why) => {
            let remedy = match why {
                // With a root of another key and the same name it is the signature that is wrong.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    format!(" (no root that we trust leads to it; {} names others)", wording.with_file("ca"))
                }
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
                    if wording == Wording::Address =>
                {
                    " (server-name=NAME says whose it should be, if not the address' host)".to_owned()
                }
                // Their crate has no variant for it.
                CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
                    " (it is that of a certificate authority: give the server one of its own, with basicConstraints=CA:FALSE)"
                        .to_owned()
                }
                _ => String::new(),
            };
            format!("we refused {peer}'s certificate: {why}{remedy}")
        }
        Error::InvalidMessage(why) => format!("we refused {peer}: what it sends is no TLS ({why:?})"),
        Error::PeerIncompatible(why) => format!("we refused {peer}: it can do nothing that we can ({why:?})"),
        Error::PeerMisbehaved(why) => format!("we refused {peer}: it breaks the rules of TLS ({why:?})"),
        other => format!("TLS with {peer}: {other}"),
    }
}

/// What to do at this side about the other one's refusal.
fn remedy(alert: AlertDescription, wording: Wording) -> Option<String> {
    let (cert, key) = (wording.name("cert"), wording.name("key"));
    Some(match alert {
        AlertDescription::CertificateRequired => format!("give it one with {cert} and {key}"),
        AlertDescription::UnknownCA => format!("it trusts no root that our certificate ({cert}) leads to"),
        AlertDescription::BadCertificate | AlertDescription::CertificateUnknown => {
            format!("it does not take our certificate ({cert})")
        }
        AlertDescription::CertificateExpired => format!("our certificate ({cert}) is not valid now"),
        AlertDescription::UnrecognisedName => "it serves no host of the name in our address".to_owned(),
        AlertDescription::ProtocolVersion => "we can TLS 1.2 and 1.3".to_owned(),
        AlertDescription::HandshakeFailure => "it can do nothing that we can".to_owned(),
        _ => return None,
    })
}

/// The name of an alert as RFC 8446 (section 6) has it, with blanks.
fn words(alert: AlertDescription) -> String {
    let AlertDescription::Unknown(number) = alert else {
        let mut words = String::new();
        let name = format!("{alert:?}");
        let mut after_lower = false;
        for letter in name.chars() {
            if letter.is_uppercase() && after_lower {
                words.push(' ');
            }
            after_lower = letter.is_lowercase();
            words.extend(letter.to_lowercase());
        }
        return words;
    };
    format!("number {number}")
}

#[cfg(test)]
mod tests {
    use rustls::InvalidMessage;

    use super::*;

    #[test]
    fn the_side_that_refused_is_named() {
        for (error, expected) in [
            (
                Error::AlertReceived(AlertDescription::CertificateRequired),
                "the server refused: its TLS alert says \"certificate required\": give it one with --cert and --key",
            ),
            (
                Error::AlertReceived(AlertDescription::UnknownCA),
                "the server refused: its TLS alert says \"unknown ca\": it trusts no root that our certificate (--cert) leads to",
            ),
            (
                Error::AlertReceived(AlertDescription::Unknown(200)),
                "the server refused: its TLS alert says \"number 200\"",
            ),
            (Error::NoCertificatesPresented, "we refused the server: it has no certificate, and --ca asks for one"),
            (
                Error::InvalidMessage(InvalidMessage::InvalidContentType),
                "we refused the server: what it sends is no TLS (InvalidContentType)",
            ),
        ] {
            assert_eq!(explain(&error, "the server", Wording::Options), expected);
        }
        let untrusted =
            explain(&Error::InvalidCertificate(CertificateError::UnknownIssuer), "the client", Wording::Options);
        assert!(
            untrusted.starts_with("we refused the client's certificate: ") && untrusted.contains("--ca"),
            "{untrusted}"
        );
        let required = Error::AlertReceived(AlertDescription::CertificateRequired);
        let told = explain(&required, "the server", Wording::Address);
        assert!(told.ends_with(": give it one with cert= and key="), "{told}");
    }
}
