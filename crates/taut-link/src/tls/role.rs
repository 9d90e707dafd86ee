use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

use super::connection::Tls;
use super::files::{TlsFiles, wrong};
use super::wording::Wording;
use crate::{Error, Result};

/// What one side makes of its files, for all of its connections.
#[derive(Clone, Debug)]
pub struct TlsRole {
    config: Config,
    wording: Wording,
}

#[derive(Clone, Debug)]
enum Config {
    Client(Arc<ClientConfig>),
    Server(Arc<ServerConfig>),
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn fail(error: rustls::Error) -> Error {
    Error::Input(format!("TLS: {error}"))
}

impl TlsRole {
    /// Reads the files for one who goes to a server.
    ///
    /// # Errors
    /// [`Error::Input`] when a file can't be read, is longer than 8 MiB or not what it should be;
    /// [`Error::Unavailable`] when no roots are given and this system has none.
    pub fn client(files: &TlsFiles, wording: Wording) -> Result<Self> {
        let roots = files.roots_or_systems(wording)?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(fail)?
            .with_root_certificates(roots);
        let config = match files.identity(wording)? {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(fail)?,
            None => builder.with_no_client_auth(),
        };
        Ok(Self { config: Config::Client(Arc::new(config)), wording })
    }

    /// Reads the files for one who waits for clients.
    ///
    /// # Errors
    /// As [`client`](Self::client); also without a certificate.
    pub fn server(files: &TlsFiles, wording: Wording) -> Result<Self> {
        let (chain, key) = files.identity(wording)?.ok_or_else(|| {
            let (cert, key) = (wording.with_file("cert"), wording.with_file("key"));
            Error::Input(format!("to listen, tls:// needs a certificate: {cert} {key}"))
        })?;
        let builder =
            ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().map_err(fail)?;
        let builder = match &files.ca {
            Some(path) => {
                let roots = Arc::new(TlsFiles::roots(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| wrong(path, error))?)
            }
            None => builder.with_no_client_auth(),
        };
        Ok(Self { config: Config::Server(Arc::new(builder.with_single_cert(chain, key).map_err(fail)?)), wording })
    }

    /// A connection's beginning; `host` is who the server has to be.
    ///
    /// # Errors
    /// [`Error::Input`] when that is no name and no address.
    pub fn begin(&self, host: &str) -> Result<Tls> {
        let connection = match &self.config {
            Config::Client(config) => {
                let name = ServerName::try_from(host.to_owned())
                    .map_err(|_| Error::Input(format!("`{host}` is no name that a certificate can have")))?;
                Connection::from(ClientConnection::new(Arc::clone(config), name).map_err(fail)?)
            }
            Config::Server(config) => Connection::from(ServerConnection::new(Arc::clone(config)).map_err(fail)?),
        };
        Ok(Tls::new(connection, self.wording))
    }
}
