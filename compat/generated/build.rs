//! Has each generator write its code, without protoc, and one module for all that it has written.

use std::fs;
use std::path::{Path, PathBuf};

macro_rules! generate {
    ($codegen:ident, $to:expr) => {{
        let to: &Path = $to;
        for (input, is_async) in [("proto/kinds.proto", true), ("proto/plain.proto", false)] {
            fs::create_dir_all(to)?;
            $codegen::Codegen::new()
                .input(input)
                .include("proto")
                .out_dir(to)
                .rust_protobuf()
                .customize($codegen::Customize {
                    async_all: is_async,
                    ..Default::default()
                })
                .run()?;
        }
    }};
}

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=proto");
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    generate!(codegen_0_4, &folder.join("v0_4"));
    generate!(codegen_0_5, &folder.join("v0_5"));
    generate!(codegen_0_6, &folder.join("v0_6"));
    generate!(codegen_0_7, &folder.join("v0_7"));
    let versions = ["v0_4", "v0_5", "v0_6", "v0_7"];
    for version in versions {
        let folder = folder.join(version);
        let mut modules = String::new();
        for file in fs::read_dir(&folder)? {
            let name = file?.file_name();
            let name = name.to_string_lossy();
            if let Some(module) = name.strip_suffix(".rs").filter(|module| *module != "mod") {
                modules += &format!("pub mod {module};\n");
            }
        }
        // The older ones do not write the messages that are not in the file.
        if !folder.join("empty.rs").exists() {
            modules += "pub use ::protobuf::well_known_types::empty;\n";
        }
        fs::write(folder.join("mod.rs"), modules)?;
    }
    let modules = versions.map(|version| format!("pub mod {version};\n"));
    fs::write(folder.join("mod.rs"), modules.concat())
}
