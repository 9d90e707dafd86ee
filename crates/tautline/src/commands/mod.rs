//! The commands, one file each.

#[cfg(feature = "fleet")]
pub(crate) mod agent;
pub(crate) mod air;
pub(crate) mod check;
pub(crate) mod check_server;
pub(crate) mod crowd;
pub(crate) mod crowd_host;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod echo;
pub(crate) mod explain;
pub(crate) mod generate;
pub(crate) mod mesh;
pub(crate) mod pace;
pub(crate) mod pipe;
pub(crate) mod report;
pub(crate) mod route;
pub(crate) mod serve;
pub(crate) mod sockets;
pub(crate) mod stream;
pub(crate) mod survey;
pub(crate) mod trace;
pub(crate) mod tune;
pub(crate) mod watch;
pub(crate) mod web;
