//! NRI on [`ttrpc_keepalive`]: slow plugins are told from dead ones.
//!
//! - [`multiplexer`]: the two connections on one socket.

#![forbid(unsafe_code)]

pub mod multiplexer;
