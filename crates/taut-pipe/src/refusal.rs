//! Why TLS failed, and which side refused.

use rustls::{AlertDescription, CertificateError, Error};

/// What `error` means to somebody who has this side's settings before him; `peer` is who is at the other side.
pub(crate) fn explain(error: &Error, peer: &str) -> String {
    match error {
        Error::AlertReceived(alert) => {
            let remedy = remedy(*alert).map_or_else(String::new, |remedy| format!(": {remedy}"));
            format!("{peer} refused: its TLS alert says \"{}\"{remedy}", words(*alert))
        }
        Error::NoCertificatesPresented => format!("we refused {peer}: it has no certificate, and --ca asks for one"),
        Error::InvalidCertificate(why) => {
            let remedy = match why {
                // With a root of another key and the same name it is the signature that is wrong.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    " (no root that we trust leads to it; --ca FILE names others)"
                }
                _ => "",
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
const fn remedy(alert: AlertDescription) -> Option<&'static str> {
    Some(match alert {
        AlertDescription::CertificateRequired => "give it one with --cert and --key",
        AlertDescription::UnknownCA => "it trusts no root that our certificate (--cert) leads to",
        AlertDescription::BadCertificate | AlertDescription::CertificateUnknown => {
            "it does not take our certificate (--cert)"
        }
        AlertDescription::CertificateExpired => "our certificate (--cert) is not valid now",
        AlertDescription::UnrecognisedName => "it serves no host of the name in our address",
        AlertDescription::ProtocolVersion => "we can TLS 1.2 and 1.3",
        AlertDescription::HandshakeFailure => "it can do nothing that we can",
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
            assert_eq!(explain(&error, "the server"), expected);
        }
        let untrusted = explain(&Error::InvalidCertificate(CertificateError::UnknownIssuer), "the client");
        assert!(
            untrusted.starts_with("we refused the client's certificate: ") && untrusted.contains("--ca"),
            "{untrusted}"
        );
    }
}
