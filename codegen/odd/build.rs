//! Generates from the files of the tests of `ttrpc-keepalive-codegen`, once for each option.

use std::path::PathBuf;

use ttrpc_keepalive_codegen::{Codegen, Error};

fn main() -> Result<(), Error> {
    let output = std::env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR");
    let output = PathBuf::from(output);
    let codegen = Codegen::new()
        .include("../tests/proto")
        .input("../tests/proto/demo/v1/echo.proto")
        .input("../tests/proto/plain.proto");
    println!("cargo::rerun-if-changed=../tests/proto");
    codegen.clone().write(output.join("native"))?;
    codegen.clone().object_safe().write(output.join("boxed"))?;
    codegen
        .messages_in("crate::native")
        .write(output.join("services"))?;
    Ok(())
}
