//! Static files over HTTP/1.1 (RFC 9110, RFC 9112) on every kind of link.
//!
//! From the outside to the inside:
//!
//! - [`Server`]: listeners, connections and their limits, a stop that lets answers finish.
//! - `connection`: one connection, on any stream of bytes.
//! - `guard`: a stream that keeps to the rules: line ends of requests, time limits of writes, an
//!   end that loses nothing.
//! - `watched`: descriptors that the runtime waits for; the one place with `unsafe`.
//! - `packets`: a stream written in full SDUs, where the link has some.
//! - `stream`: a link as a stream.
//! - [`Site`]: from a request's head to an answer. Nothing below it knows of connections.
//! - `conditional`, `range`, `encoding`, `media`, `template`, `listing`: a rule each.
//! - [`Name`] and [`Tree`]: from a request's target to an open file beneath the directory, or to nothing.
//! - [`Page`]: one text under one path, without all of this.
//! - [`log`]: a line for each request, written by a thread of its own.
//!
//! Nothing that a client sends is evaluated, and nothing outside of the directory is opened.

mod body;
mod client;
mod conditional;
mod connection;
mod encoding;
mod guard;
mod hosts;
mod limits;
mod listing;
pub mod log;
mod media;
mod name;
mod packets;
mod page;
mod push;
mod range;
mod served;
mod server;
mod site;
mod stream;
mod template;
mod tree;
mod watched;

pub use body::Body;
pub use connection::serve_stream;
pub use hosts::Hosts;
pub use limits::Limits;
pub use name::{Name, Refusal};
pub use page::Page;
pub use push::{BadTarget, Push, Pushed, Target};
pub use served::Served;
pub use server::Server;
pub use site::{Options, Site};
pub use tree::{Miss, OpenFile, Resource, Tree};
