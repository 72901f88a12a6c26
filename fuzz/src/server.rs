//! Any frames into a live server.

#[path = "../../tests/support/played.rs"]
mod played;

/// The bytes choose frames, three each, and when answers are taken.
pub fn check(data: &[u8]) {
    played::check(data);
}
