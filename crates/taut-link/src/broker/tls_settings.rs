use crate::tls::{Tls, TlsFiles, TlsRole, Wording};
use crate::{Error, Result};

/// What an address says of TLS to the broker: `ca=PATH&cert=PATH&key=PATH&server-name=NAME`. A server's certificate is
/// always checked.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct TlsSettings {
    files: TlsFiles,
    /// Whose certificate the server has to have, if not that of the address' host.
    server_name: Option<String>,
}

/// How they are written, for errors.
pub(super) const FORM: &str = "ca=PATH&cert=PATH&key=PATH&server-name=NAME";

impl TlsSettings {
    /// Takes a setting; `false` for one of another kind.
    pub(super) fn set(&mut self, name: &str, value: &str) -> bool {
        if value.is_empty() {
            return false;
        }
        match name {
            "ca" => self.files.ca = Some(value.into()),
            "cert" => self.files.cert = Some(value.into()),
            "key" => self.files.key = Some(value.into()),
            "server-name" => self.server_name = Some(value.to_owned()),
            _ => return false,
        }
        true
    }

    /// What of them does not fit together.
    pub(super) fn check(&self) -> std::result::Result<(), &'static str> {
        if self.files.cert.is_some() == self.files.key.is_some() {
            return Ok(());
        }
        Err("a certificate and its key go together: give both cert=PATH and key=PATH")
    }

    /// Whether any of them is given.
    pub(super) fn is_given(&self) -> bool {
        *self != Self::default()
    }

    /// As they were written.
    pub(super) fn shown(&self) -> impl Iterator<Item = String> {
        let path = |name: &str, path: &Option<std::path::PathBuf>| {
            path.as_ref().map(|path| format!("{name}={}", path.display()))
        };
        let name = self.server_name.as_ref().map(|name| format!("server-name={name}"));
        [path("ca", &self.files.ca), path("cert", &self.files.cert), path("key", &self.files.key), name]
            .into_iter()
            .flatten()
    }

    /// A connection's beginning, to a server at `host`.
    ///
    /// # Errors
    /// As [`TlsRole::client`] and [`TlsRole::begin`], with the endpoint in front.
    pub(super) fn begin(&self, endpoint: &impl std::fmt::Display, host: &str) -> Result<Tls> {
        let begun = TlsRole::client(&self.files, Wording::Address)
            .and_then(|role| role.begin(self.server_name.as_deref().unwrap_or(host)));
        begun.map_err(|error| match error {
            Error::Input(why) => Error::Input(format!("{endpoint}: {why}")),
            error => error,
        })
    }
}
