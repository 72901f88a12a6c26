//! Writes ttrpc-rust's clients and servers for `proto/interop.proto`, with the generator that belongs
//! to the version. No protoc is needed.

use std::path::Path;

use ttrpc_codegen::{Codegen, Customize};

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=../proto");
    let folder = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    Codegen::new()
        .input("../proto/interop.proto")
        .include("../proto")
        .out_dir(&folder)
        .rust_protobuf()
        .customize(Customize {
            async_all: true,
            ..Default::default()
        })
        .run()?;
    // The written file begins with inner attributes, which `include!` takes in a module file only.
    std::fs::write(
        Path::new(&folder).join("mod.rs"),
        "pub mod interop;\npub mod interop_ttrpc;\n",
    )
}
