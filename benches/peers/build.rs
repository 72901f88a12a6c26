//! Writes the clients and servers of this crate, of ttrpc-rust and of tonic. No protoc is needed: two
//! parse `proto/echo.proto` themselves, and tonic is told the service here.

use std::fs;
use std::path::Path;
use std::process::Command;

use tonic_build::manual::{Builder, Method, MethodBuilder, Service};
use ttrpc_codegen::{Codegen, Customize};

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=proto");
    println!("cargo::rustc-env=COMPILER={}", compiler()?);
    let folder = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let folder = Path::new(&folder);
    ttrpc_keepalive_codegen::Codegen::new()
        .input("proto/echo.proto")
        .write(folder.join("ours"))
        .map_err(std::io::Error::other)?;
    ttrpc_rust(&folder.join("ttrpc"), "ttrpc")?;
    ttrpc_rust(&folder.join("facade"), "ttrpc_keepalive_compat")?;

    let service = Service::builder()
        .name("Echo")
        .package("bench")
        .method(method("echo", "Echo").build())
        .method(method("repeat", "Repeat").server_streaming().build())
        .build();
    Builder::new().compile(&[service]);
    Ok(())
}

/// For the crate ttrpc, or for one in its place.
fn ttrpc_rust(folder: &Path, name: &str) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    // The written file begins with inner attributes, which `include!` takes in a module file only.
    let mut modules = String::new();
    for (module, async_all) in [("echo", true), ("threads", false)] {
        Codegen::new()
            .out_dir(folder)
            .input(format!("proto/{module}.proto"))
            .include("proto")
            .customize(Customize {
                async_all,
                ..Default::default()
            })
            .run()?;
        let file = folder.join(format!("{module}_ttrpc.rs"));
        let written = fs::read_to_string(&file)?;
        fs::write(&file, written.replace("ttrpc::", &format!("{name}::")))?;
        if !async_all {
            modules.push_str("#[cfg(feature = \"facade\")]\n");
        }
        modules.push_str(&format!("pub mod {module}_ttrpc;\n"));
    }
    fs::write(folder.join("mod.rs"), modules)
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
