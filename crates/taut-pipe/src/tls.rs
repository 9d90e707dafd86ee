//! TLS (RFC 8446, RFC 5246) with rustls: what is set up once, and a connection's records.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};
use taut_link::{Error, Result};

use crate::refusal;

/// The files of TLS.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TlsFiles {
    /// Our certificate and those between it and the root, PEM. Needed to listen; elsewhere the client certificate.
    pub cert: Option<PathBuf>,
    /// Its private key, PEM.
    pub key: Option<PathBuf>,
    /// Roots that the other side's certificate must lead to, PEM. Going to a server: those of the
    /// system unless given (where OpenSSL has them on this system, or `SSL_CERT_FILE` and
    /// `SSL_CERT_DIR` say). Listening: when given, clients need a certificate.
    pub ca: Option<PathBuf>,
}

/// The two roles' configuration.
#[derive(Clone, Debug)]
pub(crate) enum TlsRole {
    Client(Arc<ClientConfig>),
    Server(Arc<ServerConfig>),
}

fn wrong(path: &Path, why: impl std::fmt::Display) -> Error {
    Error::Input(format!("{}: {why}", path.display()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = fs::read(path).map_err(|error| wrong(path, error))?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&bytes)
        .collect::<std::result::Result<_, _>>()
        .map_err(|error| wrong(path, error))?;
    if certificates.is_empty() {
        return Err(wrong(path, "no certificate in it (PEM is needed: -----BEGIN CERTIFICATE-----)"));
    }
    Ok(certificates)
}

fn roots(path: &Path) -> Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    let (added, _) = store.add_parsable_certificates(certificates(path)?);
    if added == 0 {
        return Err(wrong(path, "no certificate in it that can be a root"));
    }
    Ok(store)
}

/// The roots that this system trusts.
fn system_roots() -> Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    let (added, _) = store.add_parsable_certificates(found.certs);
    // Of many files one may be damaged; without any certificate nobody could be trusted.
    if added == 0 {
        let why = found.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
        return Err(Error::Unavailable(format!(
            "this system has no roots to check a server's certificate with{why}: install ca-certificates, or give --ca FILE"
        )));
    }
    Ok(store)
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn identity(files: &TlsFiles) -> Result<Option<Identity>> {
    match (&files.cert, &files.key) {
        (None, None) => Ok(None),
        (Some(cert), Some(key)) => {
            let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, error))?;
            Ok(Some((certificates(cert)?, private)))
        }
        _ => Err(Error::Input("a certificate and its key go together: give both --cert and --key".to_owned())),
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

impl TlsRole {
    /// Reads the files for one who goes to a server.
    pub(crate) fn client(files: &TlsFiles) -> Result<Self> {
        let roots = files.ca.as_deref().map_or_else(system_roots, roots)?;
        let fail = |error: rustls::Error| Error::Input(format!("TLS: {error}"));
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(fail)?
            .with_root_certificates(roots);
        let config = match identity(files)? {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(fail)?,
            None => builder.with_no_client_auth(),
        };
        Ok(Self::Client(Arc::new(config)))
    }

    /// Reads the files for one who waits for clients.
    pub(crate) fn server(files: &TlsFiles) -> Result<Self> {
        let fail = |error: rustls::Error| Error::Input(format!("TLS: {error}"));
        let (chain, key) = identity(files)?
            .ok_or_else(|| Error::Input("to listen, tls:// needs a certificate: --cert FILE --key FILE".to_owned()))?;
        let builder =
            ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().map_err(fail)?;
        let builder = match &files.ca {
            Some(path) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(path)?), provider()).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| wrong(path, error))?)
            }
            None => builder.with_no_client_auth(),
        };
        Ok(Self::Server(Arc::new(builder.with_single_cert(chain, key).map_err(fail)?)))
    }

    /// A connection's beginning; `host` is who the server has to be.
    pub(crate) fn begin(&self, host: &str) -> Result<Tls> {
        let fail = |error: rustls::Error| Error::Input(format!("TLS: {error}"));
        let connection = match self {
            Self::Client(config) => {
                let name = ServerName::try_from(host.to_owned())
                    .map_err(|_| Error::Input(format!("`{host}` is no name that a certificate can have")))?;
                Connection::from(ClientConnection::new(Arc::clone(config), name).map_err(fail)?)
            }
            Self::Server(config) => Connection::from(ServerConnection::new(Arc::clone(config)).map_err(fail)?),
        };
        Ok(Tls { connection: Box::new(connection), ended: false, pending: 0, failed: None })
    }
}

/// A connection's records, in front of a socket that does not wait.
#[derive(Debug)]
pub(crate) struct Tls {
    connection: Box<Connection>,
    /// The socket will bring no more.
    ended: bool,
    /// Plain bytes that were taken and whose records are not all with the kernel yet.
    pending: usize,
    /// Why sending their records failed; told at the next call, as they were taken.
    failed: Option<io::Error>,
}

struct Socket<'a>(BorrowedFd<'a>);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(self.0, buffer, RecvFlags::DONTWAIT)?.0)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.0, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Tls {
    /// The beginning, as far as it goes now; whether both sides are who they have to be.
    pub(crate) fn greet(&mut self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        loop {
            let sent = self.flush(fd)?;
            if !self.connection.is_handshaking() {
                return Ok(sent);
            }
            match self.connection.read_tls(&mut Socket(fd)) {
                Ok(0) => return Err(self.closed("before TLS had begun")),
                Ok(_) => self.process(fd)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    let what = format!("{} reset the connection before TLS had begun", self.peer());
                    return Err(io::Error::new(error.kind(), what));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether it has still to find out who is there.
    pub(crate) fn is_greeting(&self) -> bool {
        self.connection.is_handshaking()
    }

    fn process(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        match self.connection.process_new_packets() {
            Ok(_) => Ok(()),
            Err(error) => {
                // The alert that says why, behind what waits before it.
                let _ = self.flush(fd);
                Err(io::Error::new(io::ErrorKind::InvalidData, refusal::explain(&error, self.peer())))
            }
        }
    }

    /// Who is at the other side.
    const fn peer(&self) -> &'static str {
        match *self.connection {
            Connection::Client(_) => "the server",
            Connection::Server(_) => "the client",
        }
    }

    fn closed(&self, when: &str) -> io::Error {
        io::Error::new(io::ErrorKind::UnexpectedEof, format!("{} closed {when}", self.peer()))
    }

    /// Plain bytes; 0 is the end that the other side has said. `WouldBlock` when the socket has no more.
    pub(crate) fn read(&mut self, fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            if self.ended {
                // What the records did not say to be the end.
                return Err(self.closed("without TLS' own end: what it sent may have been cut off"));
            }
            if self.connection.read_tls(&mut Socket(fd))? == 0 {
                self.ended = true;
            }
            self.process(fd)?;
            self.flush(fd)?;
        }
    }

    /// Whether there is something that [`read`](Self::read) would give, an error included.
    pub(crate) fn has_bytes(&mut self, fd: BorrowedFd<'_>) -> bool {
        loop {
            match self.connection.process_new_packets() {
                Ok(state) if state.plaintext_bytes_to_read() == 0 => {}
                _ => return true,
            }
            if self.ended {
                return false;
            }
            match self.connection.read_tls(&mut Socket(fd)) {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Makes records of plain bytes and sends what goes; how many were taken.
    pub(crate) fn write(&mut self, fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
        self.flush(fd)?;
        if self.connection.wants_write() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.pending = self.connection.writer().write(bytes)?;
        let taken = self.pending;
        if let Err(error) = self.flush(fd) {
            // Some of the records may have gone.
            self.failed = Some(error);
        }
        if taken == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    /// Plain bytes that were taken and may not be with the kernel yet.
    pub(crate) const fn pending(&self) -> u64 {
        self.pending as u64
    }

    /// Sends records that wait, as far as the socket takes them; whether all went.
    pub(crate) fn flush(&mut self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Socket(fd)) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(Errno::AGAIN.raw_os_error()) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.pending = 0;
        Ok(true)
    }

    /// Says that no more will be sent.
    pub(crate) fn finish(&mut self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        self.connection.send_close_notify();
        self.flush(fd)
    }
}
