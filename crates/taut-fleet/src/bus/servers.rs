//! `--on`: which NATS servers, and how to get in.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::net::{ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use async_nats::{ConnectOptions, ServerAddr};

use crate::error::Error;

/// `nats://HOST[:PORT],HOST…?user=NAME&password-file=PATH&creds=PATH&nkey=PATH&tls=on&ca=PATH&cert=PATH&key=PATH`:
/// servers of one cluster.
#[derive(Clone, Debug)]
pub struct Servers {
    text: String,
    addresses: Vec<ServerAddr>,
    user: Option<String>,
    /// A file, since a password in an address would be in every recording. Without a user, what is in it is a token.
    password_file: Option<PathBuf>,
    /// A user's JWT with the seed of its key, as `nsc` writes it.
    creds: Option<PathBuf>,
    /// The seed of a key.
    nkey: Option<PathBuf>,
    tls: bool,
    ca: Option<PathBuf>,
    cert: Option<(PathBuf, PathBuf)>,
}

const MOST_SERVERS: usize = 64;
/// A password or token, in bytes.
const LONGEST_SECRET: u64 = 64 << 10;
/// Hints that wait to be read: they all say the same.
const MOST_HINTS: usize = 4;

impl Servers {
    /// How to connect; files with secrets are read anew.
    pub(super) fn options(&self, name: &str) -> Result<ConnectOptions, Error> {
        let mut options = ConnectOptions::new().name(name).subscription_capacity(MOST_HINTS).require_tls(self.tls);
        let secret = self.password_file.as_deref().map(|path| secret("password", path)).transpose()?;
        options = match (&self.user, secret) {
            (Some(user), secret) => options.user_and_password(user.clone(), secret.unwrap_or_default()),
            (None, Some(token)) => options.token(token),
            (None, None) => options,
        };
        if let Some(path) = &self.creds {
            let text = self::secret("credentials", path)?;
            options = options.credentials(&format!("{text}\n")).map_err(|error| {
                let text = "it has a user's JWT and the seed of its key, each between two lines of dashes";
                Error::new(format!("the credentials file {}: {error}; {text}", path.display()))
            })?;
        }
        if let Some(path) = &self.nkey {
            let seed = self::secret("nkey", path)?.trim().to_owned();
            let pair = nkeys::KeyPair::from_seed(&seed);
            pair.map_err(|error| Error::new(format!("the nkey file {}: {error}", path.display())))?;
            options = options.nkey(seed);
        }
        if let Some(ca) = &self.ca {
            options = options.add_root_certificates(ca.clone());
        }
        if let Some((cert, key)) = &self.cert {
            options = options.add_client_certificate(cert.clone(), key.clone());
        }
        Ok(options)
    }

    pub(super) fn addresses(&self) -> &[ServerAddr] {
        &self.addresses
    }

    /// The files that are read to get in.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let own = self.cert.iter().flat_map(|(cert, key)| [cert, key]);
        let one = [&self.password_file, &self.creds, &self.nkey, &self.ca].into_iter().flatten();
        one.chain(own).map(PathBuf::as_path)
    }

    /// The address of this host from which it reaches a server, which others of the mesh most likely reach.
    ///
    /// # Errors
    /// Where no server's name can be resolved, or there is no route to it.
    pub fn seen_from_here(&self) -> Result<String, Error> {
        let from = |server: &ServerAddr| {
            let there = (server.host(), server.port()).to_socket_addrs().ok()?.next()?;
            let any = if there.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any).ok()?;
            // Of UDP that sends nothing.
            socket.connect(there).ok()?;
            Some(socket.local_addr().ok()?.ip().to_canonical().to_string())
        };
        self.addresses.iter().find_map(from).ok_or_else(|| {
            Error::new(format!("no way to {self} from here that would tell this host's address: say --address"))
        })
    }
}

impl FromStr for Servers {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |why: &str| {
            let form = "write nats://HOST:PORT,HOST…?user=NAME&password-file=PATH&creds=PATH&nkey=PATH\
                        &tls=on&ca=PATH&cert=PATH&key=PATH";
            // After these there may be a secret, written where it does not belong.
            let shown = text.split('?').next().filter(|_| !text.contains('@')).unwrap_or("--on");
            Error::new(format!("`{}`: {why}; {form}", taut_event::printable(shown)))
        };
        if text.chars().any(|c| c.is_whitespace() || taut_event::steers(c)) {
            return Err(wrong("an address has no spaces and control characters"));
        }
        let (places, query) = text.split_once('?').unwrap_or((text, ""));
        let mut addresses = Vec::new();
        for place in places.split(',') {
            let host = place.strip_prefix("nats://").unwrap_or(place);
            if host.contains("://") || host.is_empty() {
                return Err(wrong("a server is nats://HOST:PORT"));
            }
            if host.contains('@') {
                return Err(wrong("a password in an address would be in every recording"));
            }
            if host.contains('/') {
                return Err(wrong("agents have subjects of their own, so none is written"));
            }
            addresses.push(format!("nats://{host}").parse().map_err(|_| wrong("a server is nats://HOST:PORT"))?);
        }
        if addresses.len() > MOST_SERVERS {
            return Err(wrong("so many servers"));
        }
        let text = text.to_owned();
        let mut servers = Self {
            text,
            addresses,
            user: None,
            password_file: None,
            creds: None,
            nkey: None,
            tls: false,
            ca: None,
            cert: None,
        };
        let (mut cert, mut key) = (None, None);
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=').ok_or_else(|| wrong("a setting is NAME=VALUE"))? {
                ("user", name) if !name.is_empty() => servers.user = Some(name.to_owned()),
                ("password-file", path) if !path.is_empty() => servers.password_file = Some(path.into()),
                ("creds", path) if !path.is_empty() => servers.creds = Some(path.into()),
                ("nkey", path) if !path.is_empty() => servers.nkey = Some(path.into()),
                ("tls", "on") => servers.tls = true,
                ("ca", path) if !path.is_empty() => servers.ca = Some(path.into()),
                ("cert", path) if !path.is_empty() => cert = Some(PathBuf::from(path)),
                ("key", path) if !path.is_empty() => key = Some(PathBuf::from(path)),
                ("tls", _) => return Err(wrong("it is tls=on, or nothing")),
                (name, _) => {
                    return Err(wrong(&format!(
                        "there is no setting {}, or none without a value",
                        taut_event::printable(name)
                    )));
                }
            }
        }
        servers.cert = match (cert, key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((cert, key)),
            _ => return Err(wrong("a certificate and its key go together")),
        };
        let by_name = servers.user.is_some() || servers.password_file.is_some();
        if [by_name, servers.creds.is_some(), servers.nkey.is_some()].into_iter().filter(|given| *given).count() > 1 {
            return Err(wrong("one way to get in: a user or token, creds=, or nkey="));
        }
        // Certificates that are given are meant to be used.
        servers.tls |= servers.ca.is_some() || servers.cert.is_some();
        Ok(servers)
    }
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn secret(what: &str, path: &Path) -> Result<String, Error> {
    let wrong = |why: &dyn fmt::Display| Error::new(format!("the {what} file {}: {why}", path.display()));
    let mut text = String::new();
    let file = File::open(path).map_err(|error| wrong(&error))?;
    file.take(LONGEST_SECRET + 1).read_to_string(&mut text).map_err(|error| wrong(&error))?;
    if text.len() as u64 > LONGEST_SECRET {
        return Err(wrong(&format!("it is longer than {} KiB", LONGEST_SECRET >> 10)));
    }
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read() {
        let servers: Servers = "nats://a,b:4223,nats://[::1]:7?user=ann&password-file=/p&ca=/ca.pem".parse().unwrap();
        let found: Vec<(String, u16)> =
            servers.addresses().iter().map(|server| (server.host().to_owned(), server.port())).collect();
        let of = |host: &str, port| (host.to_owned(), port);
        assert_eq!(found, [of("a", 4222), of("b", 4223), of("::1", 7)]);
        assert!(servers.tls && servers.user.as_deref() == Some("ann"));
        for wrong in [
            "",
            "nats://",
            "http://a",
            "nats://a/b",
            "nats://u:p@a",
            "nats://a?cert=/c",
            "nats://a b",
            "a?x=1",
            "a,,b",
            "a:99999",
            "a?user=u&nkey=/k",
            "a?creds=/c&nkey=/k",
            "a?nkey=",
        ] {
            assert!(wrong.parse::<Servers>().is_err(), "{wrong}");
        }
        for secret in ["nats://u:hidden@a", "nats://a?password=hidden", "nats://a?tls=hidden", "u:hidden@a?x=1"] {
            let error = secret.parse::<Servers>().unwrap_err().to_string();
            assert!(!error.contains("hidden"), "{error}");
        }
        let here: Servers = "nats://127.0.0.1:1".parse().unwrap();
        assert_eq!(here.seen_from_here().unwrap(), "127.0.0.1");
        assert!(here.options("x").is_ok());
        for (query, what) in [("password-file", "password"), ("creds", "credentials"), ("nkey", "nkey")] {
            let servers: Servers = format!("nats://a?{query}=/nowhere").parse().unwrap();
            let error = servers.options("x").err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.starts_with(&format!("the {what} file /nowhere: ")), "{error}");
        }
    }

    #[test]
    fn a_file_that_has_no_key_is_refused_and_not_repeated() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        let on = |query: &str| -> Servers { format!("nats://a?{query}={}", path.display()).parse().unwrap() };
        let seed = nkeys::seed(nkeys::Of::User, &[5; 32]);
        for (text, creds, nkey) in [
            (String::new(), "cannot parse user JWT", "58 characters"),
            (seed.replacen("SU", "SA", 1), "cannot parse user JWT", "its checksum is wrong"),
            (format!("-----A-----\nhidden\n------B------\n\n-----A-----\n{seed}x\n------B------\n"), "58", "58"),
        ] {
            std::fs::write(&path, &text).unwrap();
            for (query, why) in [("creds", creds), ("nkey", nkey)] {
                let error = on(query).options("x").err().map(|error| error.to_string()).unwrap_or_default();
                assert!(error.contains(why) && !error.contains("hidden") && !error.contains(&seed), "{error}");
            }
        }
        std::fs::write(&path, format!("{seed}\n")).unwrap();
        assert!(on("nkey").options("x").is_ok());
    }
}
