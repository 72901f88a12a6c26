//! The layer between a wrapped side and a peer that is played frame by frame, on a paused clock.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod calls;
mod ends;
mod frames;
mod judging;
mod pairs;
mod peer;
mod random;
#[cfg(target_os = "linux")]
mod receipts;
