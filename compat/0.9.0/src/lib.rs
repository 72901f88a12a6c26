//! The crate `ttrpc` 0.9.0 by `ttrpc-keepalive`.

#![forbid(unsafe_code)]

#[cfg(feature = "prost")]
compile_error!("messages of prost are not supported here");
#[cfg(feature = "security_extension")]
compile_error!("hooks of connections are not supported here");

pub use ttrpc_keepalive_compat::*;
