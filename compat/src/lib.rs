//! The API of the crate `ttrpc` over [`ttrpc_keepalive`]: code that was generated for it, and code that
//! was written for it, runs unchanged, and its connections answer PING, tell a slow peer from a dead one,
//! and can be watched.
//!
//! It is used in the place of `ttrpc`, either by its name in the manifest
//!
//! ```toml
//! ttrpc = { package = "ttrpc-keepalive-compat", version = "0.1", features = ["async"] }
//! ```
//!
//! or, where dependencies use `ttrpc` too, by one of the facades in `compat/` of the repository, which
//! are packages of that name for `[patch.crates-io]`. `docs/moving.md` there tells which way to go, and
//! what is different.
//!
//! # Keepalive
//!
//! Nothing is closed for silence unless the process asks for it, by one call:
//!
//! ```
//! use std::time::Duration;
//! use ttrpc_keepalive_compat::keepalive::{self, Keepalive};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! keepalive::set(Keepalive::every(Duration::from_secs(10)))?;
//! # Ok(()) }
//! ```
//!
//! From then on a call without a timeout, wherever it is made, ends with `Error::Socket` when its peer
//! is dead. What is known of a peer, and the verdict on each late call, is told by the native client
//! behind [`asynchronous::Client`] and [`Client`], which their `native` method gives.

#![deny(unsafe_code)]
#![cfg_attr(not(any(feature = "async", feature = "sync")), allow(dead_code))]
#![allow(
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    reason = "users of ttrpc build these structures whole, and match on all variants"
)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[macro_use]
mod macros;

mod convert;
mod descriptor;

#[cfg(feature = "async")]
pub mod asynchronous;
pub mod context;
pub mod error;
pub mod keepalive;
pub mod proto;
#[cfg(feature = "sync")]
pub mod sync;
pub mod transport;

#[cfg(feature = "async")]
#[doc(hidden)]
pub use asynchronous as r#async;
#[doc(inline)]
pub use error::{Error, Result, get_status};
#[doc(inline)]
pub use proto::{Code, MessageHeader, Request, Response, Status};
#[cfg(feature = "sync")]
#[doc(inline)]
pub use sync::{Client, MethodHandler, Server, TtrpcContext, response_to_channel};
#[cfg(all(feature = "sync", feature = "v0_10"))]
#[doc(inline)]
pub use sync::{ConnectionContext, send_response};
#[doc(no_inline)]
pub use ttrpc_keepalive as native;
