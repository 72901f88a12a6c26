//! Clients and servers of threads, by the names of `ttrpc::sync`.
//!
//! Callers wait on their own threads, and drive all connections of this process meanwhile; while none
//! waits, a thread that is there for it does. Each handler has a thread of a pool: none runs where
//! connections are driven, so that PINGs are answered whatever handlers do.

mod client;
mod handler;
mod pool;
mod server;
mod thread;

pub use client::Client;
#[cfg(feature = "v0_10")]
pub use handler::{ConnectionContext, send_response};
pub use handler::{MethodHandler, TtrpcContext, response_to_channel};
pub use server::Server;
