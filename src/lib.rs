//! A ttrpc that can tell a slow peer from a dead one.

#![forbid(unsafe_code)]

mod call;
mod client;
mod clock;
mod config;
mod connection;
mod error;
pub mod keepalive;
mod late;
mod liveness;
mod seed;
mod server;
pub mod status;
mod streams;
pub mod transport;
pub mod wire;

pub use call::{Call, CallFuture};
pub use client::{Client, ClientBuilder};
pub use error::{ConfigError, ConnectError, ConnectionError, DeadlineError, Error};
pub use keepalive::{
    DeadReason, Evidence, Keepalive, OnSilence, Peer, PeerSupport, Support, Unknown, Verdict,
};
pub use late::{LateAnswer, LateOutcome};
pub use liveness::{Counters, Liveness, Snapshot, State};
pub use server::{Context, Server, ServerBuilder};
pub use status::{Code, Status};
pub use transport::{ByteStream, IntoTransport, Listener, Socket};
