use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::wording::Wording;
use crate::files::read_short;
use crate::{Error, Result};

/// The files of TLS.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
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

/// Certificates and private key of one side.
pub(super) type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Longest file that is read, in bytes: a system's bundle of all roots has a quarter of a million.
const LONGEST: u64 = 8 << 20;

pub(super) fn wrong(path: &Path, why: impl std::fmt::Display) -> Error {
    Error::Input(format!("{}: {why}", path.display()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = read_short(path, LONGEST).map_err(|error| wrong(path, error))?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&bytes)
        .collect::<std::result::Result<_, _>>()
        .map_err(|error| wrong(path, error))?;
    if certificates.is_empty() {
        return Err(wrong(path, "no certificate in it (PEM is needed: -----BEGIN CERTIFICATE-----)"));
    }
    Ok(certificates)
}

impl TlsFiles {
    /// The roots that are given.
    pub(super) fn roots(path: &Path) -> Result<RootCertStore> {
        let mut store = RootCertStore::empty();
        let (added, _) = store.add_parsable_certificates(certificates(path)?);
        if added == 0 {
            return Err(wrong(path, "no certificate in it that can be a root"));
        }
        Ok(store)
    }

    /// The roots that a server's certificate must lead to.
    pub(super) fn roots_or_systems(&self, wording: Wording) -> Result<RootCertStore> {
        self.ca.as_deref().map_or_else(|| system_roots(wording), Self::roots)
    }

    /// Who we are, where that is given.
    pub(super) fn identity(&self, wording: Wording) -> Result<Option<Identity>> {
        match (&self.cert, &self.key) {
            (None, None) => Ok(None),
            (Some(cert), Some(key)) => {
                let bytes = read_short(key, LONGEST).map_err(|error| wrong(key, error))?;
                let private = PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| wrong(key, error))?;
                Ok(Some((certificates(cert)?, private)))
            }
            _ => Err(Error::Input(format!(
                "a certificate and its key go together: give both {} and {}",
                wording.name("cert"),
                wording.name("key")
            ))),
        }
    }
}

/// The roots that this system trusts.
fn system_roots(wording: Wording) -> Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    let (added, _) = store.add_parsable_certificates(found.certs);
    // Of many files one may be damaged; without any certificate nobody could be trusted.
    if added == 0 {
        let why = found.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
        return Err(Error::Unavailable(format!(
            "this system has no roots to check a server's certificate with{why}: install ca-certificates, or give {}",
            wording.with_file("ca")
        )));
    }
    Ok(store)
}
