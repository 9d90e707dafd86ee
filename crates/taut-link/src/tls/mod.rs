//! TLS (RFC 8446, RFC 5246) with rustls, over sockets that somebody else has opened.
//!
//! - [`TlsFiles`]: which certificates; [`TlsRole`]: what is made of them once.
//! - [`Tls`]: one connection's records, over a socket that does not wait or without I/O.
//! - [`Wording`]: how errors name the settings.

mod connection;
mod files;
mod refusal;
mod role;
mod wording;

pub use connection::Tls;
pub use files::TlsFiles;
pub use role::TlsRole;
pub use wording::Wording;
