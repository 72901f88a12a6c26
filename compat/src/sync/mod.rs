//! Clients and servers of threads, by the names of `ttrpc::sync`.
//!
//! All connections are driven by one thread of this process, on which no handler ever runs, so that
//! PINGs are answered whatever handlers do. Each handler has a thread of a pool, and callers wait on
//! their own.

mod client;
mod handler;
mod server;
mod thread;

pub use client::Client;
#[cfg(feature = "v0_10")]
pub use handler::{ConnectionContext, send_response};
pub use handler::{MethodHandler, TtrpcContext, response_to_channel};
pub use server::Server;
