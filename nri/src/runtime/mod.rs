//! The runtime's side.

mod combine;
mod standing;

pub use combine::Conflict;
