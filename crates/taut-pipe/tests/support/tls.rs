//! Both sides of TLS, and their certificates.

use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use taut_pipe::TlsFiles;

/// Certificates of a test: a root of our own, and both sides'.
pub(crate) struct Certificates {
    directory: PathBuf,
    /// Takes the files with it; nothing for those of another process.
    _own: Option<tempfile::TempDir>,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root_key = rcgen::KeyPair::generate().unwrap();
        let mut root = rcgen::CertificateParams::new(Vec::new()).unwrap();
        root.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let root_certificate = root.self_signed(&root_key).unwrap();
        let issuer = rcgen::Issuer::new(root, root_key);
        let write = |name: &str, text: String| std::fs::write(directory.path().join(name), text).unwrap();
        write("root.pem", root_certificate.pem());
        for name in ["server", "client"] {
            let key = rcgen::KeyPair::generate().unwrap();
            let parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            write(&format!("{name}.pem"), parameters.signed_by(&key, &issuer).unwrap().pem());
            write(&format!("{name}.key"), key.serialize_pem());
        }
        Self { directory: directory.path().to_owned(), _own: Some(directory) }
    }

    /// Those that another process has made.
    pub(crate) fn of(directory: PathBuf) -> Self {
        Self { directory, _own: None }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn files(&self, role: &str, with_root: bool) -> TlsFiles {
        TlsFiles {
            cert: Some(self.file(&format!("{role}.pem"))),
            key: Some(self.file(&format!("{role}.key"))),
            ca: with_root.then(|| self.file("root.pem")),
        }
    }

    fn chain(&self, role: &str) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let chain =
            CertificateDer::pem_file_iter(self.file(&format!("{role}.pem"))).unwrap().map(|c| c.unwrap()).collect();
        (chain, PrivateKeyDer::from_pem_file(self.file(&format!("{role}.key"))).unwrap())
    }

    fn roots(&self) -> rustls::RootCertStore {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(
            CertificateDer::pem_file_iter(self.file("root.pem")).unwrap().map(|c| c.unwrap()),
        );
        roots
    }

    pub(crate) fn connect(
        &self,
        socket: TcpStream,
        with_certificate: bool,
    ) -> rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
        let builder = rustls::ClientConfig::builder().with_root_certificates(self.roots());
        let config = if with_certificate {
            let (chain, key) = self.chain("client");
            builder.with_client_auth_cert(chain, key).unwrap()
        } else {
            builder.with_no_client_auth()
        };
        let name = ServerName::try_from("localhost").unwrap();
        rustls::StreamOwned::new(rustls::ClientConnection::new(Arc::new(config), name).unwrap(), socket)
    }

    pub(crate) fn accept(&self, socket: TcpStream) -> rustls::StreamOwned<rustls::ServerConnection, TcpStream> {
        let (chain, key) = self.chain("server");
        let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
        rustls::StreamOwned::new(rustls::ServerConnection::new(Arc::new(config)).unwrap(), socket)
    }
}
