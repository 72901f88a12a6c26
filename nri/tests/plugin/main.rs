//! The plugin's side, against a runtime that is played through the multiplexer.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod ends;
mod events;
mod late;
mod played;
mod reconnect;
mod registration;
mod stale;
mod synchronize;
