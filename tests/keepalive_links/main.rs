//! Two machines over a simulated link: who is believed alive, who dead, and when.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod cases;
mod end;
mod link;
mod random;
mod world;
