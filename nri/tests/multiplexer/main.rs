//! The multiplexer, by what its connections and its peer see.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod closing;
mod ends;
mod life;
mod reading;
mod served;
mod support;
mod writing;
