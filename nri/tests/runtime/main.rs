//! The runtime's side with plugins that do what a test says, in virtual time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::large_futures,
    reason = "a test says what it expects by panicking, and is no place to save memory"
)]

mod events;
mod joining;
mod late;
mod launching;
mod support;
