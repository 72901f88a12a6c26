//! Writes ttrpc-rust's client and server for `proto/echo.proto`. No protoc is needed.

use std::path::Path;

use ttrpc_codegen::{Codegen, Customize};

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=proto");
    Codegen::new()
        .input("proto/echo.proto")
        .include("proto")
        .customize(Customize {
            async_all: true,
            ..Default::default()
        })
        .run()?;
    // The written file begins with inner attributes, which `include!` takes in a module file only.
    let folder = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(Path::new(&folder).join("mod.rs"), "pub mod echo_ttrpc;\n")
}
