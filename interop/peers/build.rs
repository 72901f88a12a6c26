//! Writes ttrpc-rust's clients and servers for the files in `proto`, with the generator that belongs
//! to the version. No protoc is needed.

use std::path::Path;

use ttrpc_codegen::{Codegen, Customize};

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=../proto");
    let folder = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let folder = Path::new(&folder);
    generate(folder, "interop", true)?;
    generate(&folder.join("sync"), "unary", false)
}

fn generate(folder: &Path, name: &str, async_all: bool) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    Codegen::new()
        .input(format!("../proto/{name}.proto"))
        .include("../proto")
        .out_dir(folder)
        .rust_protobuf()
        .customize(Customize {
            async_all,
            ..Default::default()
        })
        .run()?;
    // The written file begins with inner attributes, which `include!` takes in a module file only.
    let modules = format!("pub mod {name};\npub mod {name}_ttrpc;\n");
    std::fs::write(folder.join("mod.rs"), modules)
}
