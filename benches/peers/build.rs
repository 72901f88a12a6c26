//! Writes the clients and servers of ttrpc-rust and of tonic. No protoc is needed: ttrpc-codegen
//! parses `proto/echo.proto` itself, and tonic is told the service here.

use std::path::Path;
use std::process::Command;

use tonic_build::manual::{Builder, Method, MethodBuilder, Service};
use ttrpc_codegen::{Codegen, Customize};

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=proto");
    println!("cargo::rustc-env=COMPILER={}", compiler()?);
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
    std::fs::write(Path::new(&folder).join("mod.rs"), "pub mod echo_ttrpc;\n")?;

    let service = Service::builder()
        .name("Echo")
        .package("bench")
        .method(method("echo", "Echo").build())
        .method(method("repeat", "Repeat").server_streaming().build())
        .build();
    Builder::new().compile(&[service]);
    Ok(())
}

fn compiler() -> std::io::Result<String> {
    let rustc = std::env::var_os("RUSTC").expect("cargo sets RUSTC");
    let version = Command::new(rustc).arg("--version").output()?.stdout;
    Ok(String::from_utf8_lossy(&version).trim_end().to_owned())
}

/// For prost a byte vector is a `google.protobuf.BytesValue`.
fn method(name: &str, route: &str) -> MethodBuilder {
    Method::builder()
        .name(name)
        .route_name(route)
        .input_type("Vec<u8>")
        .output_type("Vec<u8>")
        .codec_path("tonic_prost::ProstCodec")
}
