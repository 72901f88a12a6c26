//! Plugins and runtimes of the Node Resource Interface, by which container runtimes let others adjust
//! containers.
//!
//! - [`Plugin`]: who is told of events, and adjusts containers. One that is late is kept.
//! - [`runtime`]: who tells plugins of events, and asks them.
//! - [`multiplexer`]: the two connections on one socket.
//! - [`api`] has the messages and [`services`] the two services of the protocol,
//!   `nri.pkg.api.v1alpha1`, as of release 0.12.5.

#![forbid(unsafe_code)]

mod adjust;
mod events;
#[allow(
    clippy::all,
    clippy::nursery,
    clippy::pedantic,
    clippy::restriction,
    missing_docs,
    unused_qualifications,
    reason = "lints are for code that is written"
)]
mod generated;
mod plugin;

pub mod multiplexer;
pub mod runtime;

pub use adjust::removal;
pub use events::EventMask;
pub use generated::api;
pub use generated::api_ttrpc as services;
pub use plugin::{
    DEFAULT_SOCKET, End, EndReason, EventContext, Late, LateResult, Plugin, PluginError, Runtime,
    RuntimeInfo, UpdateError,
};
