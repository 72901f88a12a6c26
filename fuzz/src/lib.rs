//! What must hold of any input, one module for each fuzz target. The functions panic if it does not.

#![forbid(unsafe_code)]

pub mod connection;
pub mod decoder;
pub mod machine;
pub mod multiplexer;
pub mod server;
