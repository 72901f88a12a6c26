//! What the keepalive machine does, case by case, with every instant given.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod bench;
mod idle;
mod observer;
mod receipts;
mod report;
mod support;
mod timers;
mod transitions;
mod trial;
mod verdict;
mod writer;
