//! Generates from the files of the tests of `ttrpc-keepalive-codegen`, once for each option.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use prost::Message as _;
use protobuf::Message as _;
use ttrpc_keepalive_codegen::Codegen;

fn main() -> Result<(), Box<dyn Error>> {
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
        .clone()
        .messages_in("crate::native")
        .write(output.join("services"))?;
    codegen
        .prost_messages_in("crate::prost::messages")
        .write(output.join("prost"))?;
    write_prost_messages(&output.join("prost/messages"))
}

/// By what rust-protobuf reads, so that protoc is not needed.
fn write_prost_messages(output: &Path) -> Result<(), Box<dyn Error>> {
    let read = protobuf_parse::Parser::new()
        .pure()
        .include("../tests/proto")
        .input("../tests/proto/demo/v1/echo.proto")
        .input("../tests/proto/plain.proto")
        .parse_and_typecheck()?;
    let mut files = protobuf::descriptor::FileDescriptorSet::new();
    files.file = read.file_descriptors;
    let files = prost_types::FileDescriptorSet::decode(&*files.write_to_bytes()?)?;
    fs::create_dir_all(output)?;
    prost_build::Config::new()
        .out_dir(output)
        .include_file("mod.rs")
        // Those that are indented would be taken for tests.
        .disable_comments(["."])
        .compile_fds(files)?;
    Ok(())
}
