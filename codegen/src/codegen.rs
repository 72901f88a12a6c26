//! What is to be generated, from which files, and where to.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use protobuf_codegen::Customize;
use protobuf_codegen::gen_and_write::gen_and_write;
use protobuf_parse::ProtoPathBuf;

use crate::error::Error;
use crate::message_docs::with_docs;
use crate::print::{Futures, print};
use crate::prost;
use crate::rust_types::{Messages, RustTypes, is_of_runtime, module_of, service_module_of};
use crate::services::services_of;
use crate::sources::{Source, Sources};

/// Collects what is to be generated.
///
/// For each `.proto` file, and each file that it imports, two are written: `demo.rs` with the
/// messages, by rust-protobuf, and `demo_ttrpc.rs` with the services, if there are any. `mod.rs` has
/// all of them as modules.
///
/// What comes with crate `protobuf`, `google/protobuf/empty.proto` for example, is used from there.
#[derive(Clone, Debug)]
#[must_use = "nothing is generated before `build` or `write`"]
pub struct Codegen {
    inputs: Vec<PathBuf>,
    includes: Vec<PathBuf>,
    futures: Futures,
    messages: Messages,
}

/// What was written.
#[derive(Debug)]
#[non_exhaustive]
pub struct Generated {
    /// The files in the folder of the output, `mod.rs` among them, in the order of their names.
    pub files: Vec<PathBuf>,
    /// The `.proto` files that were read, each after those that it imports.
    pub sources: Vec<PathBuf>,
}

impl Default for Codegen {
    fn default() -> Self {
        Self::new()
    }
}

impl Codegen {
    /// Begins without a file.
    pub fn new() -> Self {
        Self {
            inputs: Vec::new(),
            includes: Vec::new(),
            futures: Futures::Native,
            messages: Messages::Protobuf(None),
        }
    }

    /// Adds a `.proto` file, by its path.
    pub fn input(mut self, file: impl AsRef<Path>) -> Self {
        self.inputs.push(file.as_ref().to_owned());
        self
    }

    /// Adds `.proto` files, by their paths.
    pub fn inputs(mut self, files: impl IntoIterator<Item = impl AsRef<Path>>) -> Self {
        let files = files.into_iter().map(|file| file.as_ref().to_owned());
        self.inputs.extend(files);
        self
    }

    /// Adds a folder in which imports are looked for, in the order in which they are added. A file
    /// that is in none of them is looked at as if its own folder were one.
    pub fn include(mut self, folder: impl AsRef<Path>) -> Self {
        self.includes.push(folder.as_ref().to_owned());
        self
    }

    /// Writes traits that can be used as `dyn Echo`: their futures are boxed by crate `async-trait`,
    /// which the generated code then needs, and which implementations use too. By default futures
    /// are those of `async fn`, which cost no allocation.
    pub fn object_safe(mut self) -> Self {
        self.futures = Futures::Boxed;
        self
    }

    /// Writes services only, for messages that are generated elsewhere, in a module of this path:
    /// `crate::messages`, or `other_crate::messages`. It has a module for each `.proto` file, as
    /// rust-protobuf writes them.
    pub fn messages_in(mut self, module: &str) -> Self {
        self.messages = Messages::Protobuf(Some(module.to_owned()));
        self
    }

    /// Writes services only, for messages that prost-build generates, in a module of this path in the same
    /// crate, as `crate::messages`. It has a module for each part of a package's name, as the file
    /// that [`Config::include_file`] writes.
    ///
    /// Requests and responses that come with crate `protobuf`, as `google.protobuf.Empty`, are those of
    /// that crate all the same: prost has none that they could be. In fields they are as prost has
    /// them.
    ///
    /// One of these for all services of a crate: it implements the traits by which a message is sent and
    /// received, once for each.
    ///
    /// [`Config::include_file`]: https://docs.rs/prost-build/latest/prost_build/struct.Config.html#method.include_file
    pub fn prost_messages_in(mut self, module: &str) -> Self {
        self.messages = Messages::Prost(module.to_owned());
        self
    }

    /// For `build.rs`: writes into the folder that Cargo gives, and tells Cargo to build again when
    /// one of the `.proto` files changes.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write), and if this is not run by Cargo.
    pub fn build(&self) -> Result<(), Error> {
        let folder = std::env::var_os("OUT_DIR");
        let folder = folder.ok_or_else(|| {
            Error::new("OUT_DIR is not set, so this is no build script; write to a folder instead")
        })?;
        let generated = self.write(folder)?;
        for source in generated.sources {
            #[expect(clippy::print_stdout, reason = "Cargo reads it there")]
            {
                println!("cargo::rerun-if-changed={}", source.display());
            }
        }
        Ok(())
    }

    /// Writes into this folder, which is made if it is not there. Other files in it stay.
    ///
    /// The same input gives the same bytes, on every machine.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or is wrong, with its line; if two files would be the same module;
    /// if the folder cannot be written. Nothing is written then, but in the last case.
    pub fn write(&self, folder: impl AsRef<Path>) -> Result<Generated, Error> {
        if self.inputs.is_empty() {
            return Err(Error::new("there is no .proto file to generate from"));
        }
        let sources = Sources::load(&self.inputs, &self.includes)?;
        // The others are part of crate `protobuf`, where generated messages look for them.
        let generated = sources
            .files
            .iter()
            .filter(|file| !is_of_runtime(&file.name));
        let generated: Vec<&Source> = generated.collect();
        let types = RustTypes::of(&sources.descriptors, &self.messages);
        let with_messages = matches!(self.messages, Messages::Protobuf(None));

        let mut modules = Modules::default();
        let mut written = Vec::new();
        let mut all_services = Vec::new();
        for file in &generated {
            if with_messages {
                modules.add(module_of(&file.name), file)?;
            }
            let services = services_of(file, &sources, &types)?;
            if !services.is_empty() {
                let module = service_module_of(&file.name);
                let text = print(&file.name, &services, self.futures);
                written.push((format!("{module}.rs"), text));
                modules.add(module, file)?;
            }
            all_services.extend(services);
        }
        if let Messages::Prost(_) = self.messages {
            let module = prost::MODULE.to_owned();
            written.push((format!("{module}.rs"), prost::print(all_services.iter())));
            modules.0.insert(module, String::new());
        }
        written.push(("mod.rs".to_owned(), modules.text()));

        let folder = folder.as_ref();
        let unwritten = |error: std::io::Error, path: &Path| {
            Error::new("cannot be written").in_file(path).because(error)
        };
        fs::create_dir_all(folder).map_err(|error| unwritten(error, folder))?;
        if with_messages {
            write_messages(&sources, &generated, folder)?;
        }
        for (name, text) in &written {
            let path = folder.join(name);
            fs::write(&path, text).map_err(|error| unwritten(error, &path))?;
        }
        let names = modules.0.into_keys().chain(["mod".to_owned()]);
        let mut files: Vec<_> = names
            .map(|name| folder.join(format!("{name}.rs")))
            .collect();
        files.sort_unstable();
        Ok(Generated {
            files,
            sources: sources.files.into_iter().map(|file| file.path).collect(),
        })
    }
}

fn write_messages(sources: &Sources, files: &[&Source], folder: &Path) -> Result<(), Error> {
    let names = files
        .iter()
        .map(|file| ProtoPathBuf::new(file.name.clone()));
    let names: Result<Vec<_>, _> = names.collect();
    // This has one for `mod.rs` that knows no keywords.
    let customize = Customize::default().gen_mod_rs(false);
    let descriptors = sources.descriptors.iter().map(|descriptor| {
        let source = files.iter().find(|file| file.name == descriptor.name());
        let documented = source.map(|source| with_docs(descriptor, &source.declarations));
        documented.unwrap_or_else(|| descriptor.clone())
    });
    let descriptors: Vec<_> = descriptors.collect();
    let written = names.and_then(|names| {
        gen_and_write(
            &descriptors,
            "pure",
            &names,
            folder,
            &customize,
            &NoCallback,
        )
    });
    written.map_err(|error| Error::new(format!("the messages cannot be generated: {error:#}")))
}

struct NoCallback;

impl protobuf_codegen::CustomizeCallback for NoCallback {}

/// Each with the file of which it is.
#[derive(Default)]
struct Modules(BTreeMap<String, String>);

impl Modules {
    fn add(&mut self, module: String, file: &Source) -> Result<(), Error> {
        let Some(other) = self.0.insert(module.clone(), file.name.clone()) else {
            return Ok(());
        };
        let reason = format!("would be module `{module}`, which is that of {other} already");
        Err(Error::new(reason).in_file(&file.path))
    }

    fn text(&self) -> String {
        let mut text = "// @generated by ttrpc-keepalive-codegen. Do not edit.\n\n".to_owned();
        for module in self.0.keys() {
            text.push_str(&format!("pub mod {module};\n"));
        }
        text
    }
}
