//! What four releases of ttrpc-codegen write for the same services.

#![allow(missing_docs, reason = "it is generated")]

#[allow(
    clippy::all,
    clippy::pedantic,
    unused,
    renamed_and_removed_lints,
    unknown_lints
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/mod.rs"));
}

pub use generated::*;
