//! A ttrpc that can tell a slow peer from a dead one.

#![forbid(unsafe_code)]

pub mod keepalive;
pub mod status;
pub mod wire;
