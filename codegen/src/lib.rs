//! Writes typed clients and services of `ttrpc-keepalive` from `.proto` files, without protoc.
//!
//! In `build.rs`:
//!
//! ```no_run
//! use ttrpc_keepalive_codegen::{Codegen, Error};
//!
//! fn main() -> Result<(), Error> {
//!     Codegen::new().input("proto/greeter.proto").build()
//! }
//! ```
//!
//! and in the crate:
//!
//! ```ignore
//! mod protos {
//!     include!(concat!(env!("OUT_DIR"), "/mod.rs"));
//! }
//! use protos::greeter::{Greeting, Person};
//! use protos::greeter_ttrpc::{Greeter, GreeterClient, greeter_service};
//! ```
//!
//! For each service there is a trait that servers implement by `async fn`, the function that serves
//! an implementation, a client whose methods give the calls of `ttrpc-keepalive`, with their timeout
//! and metadata, and a module of the names on the wire. Messages are those of rust-protobuf, or of prost if they
//! are generated elsewhere. The
//! command of the same name does it for code that is checked in.
//!
//! `README.md` has a whole program, and what changes for a user of ttrpc-codegen.
//!
//! # Inside
//!
//! `sources` finds files and parses them, and says where a mistake is; it has the words of a file by
//! `tokens` and comments by `declarations`, since the parser keeps neither. `services` names in Rust
//! what a file declares, and `print` writes it in the forms of `layout`, which are those of rustfmt.
//! Messages are written by rust-protobuf, which is given their comments by `message_docs`; `prost` knows where
//! those of prost are.

#![forbid(unsafe_code)]

mod codegen;
mod declarations;
mod docs;
mod error;
mod imports;
mod layout;
mod message_docs;
mod names;
mod print;
mod prost;
mod rust_types;
mod services;
mod sources;
mod tokens;

pub use codegen::{Codegen, Generated};
pub use error::Error;
