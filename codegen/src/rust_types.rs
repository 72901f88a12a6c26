//! Where the messages are that services use.

use std::collections::HashMap;

use protobuf::descriptor::{DescriptorProto, FileDescriptorProto};

use crate::names::capitalized;
use crate::prost;

/// Whose messages they are.
#[derive(Clone, Debug)]
pub(crate) enum Messages {
    /// Of rust-protobuf, generated with the services, or elsewhere, in this module.
    Protobuf(Option<String>),
    /// Of prost, in this module.
    Prost(String),
}

/// The messages of all files, by their full names: `.demo.Text.Part`.
#[derive(Debug)]
pub(crate) struct RustTypes(HashMap<String, RustType>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RustType {
    /// Without the name: `super::demo::text`.
    pub(crate) module: String,
    pub(crate) name: String,
    /// In another message.
    pub(crate) is_nested: bool,
}

impl RustType {
    /// Whether it comes with crate `protobuf`.
    pub(crate) fn is_of_runtime(&self) -> bool {
        self.module.starts_with("protobuf::")
    }
}

/// How a generator names its modules and types.
#[derive(Clone, Copy)]
struct Naming {
    module: fn(&str) -> String,
    type_name: fn(&str) -> String,
}

const PROTOBUF: Naming = Naming {
    module: |name| escaped(protobuf_parse::snake_case(name)),
    type_name: |name| escaped(capitalized(name)),
};

const PROST: Naming = Naming {
    module: prost::module,
    type_name: prost::type_name,
};

impl RustTypes {
    pub(crate) fn of(files: &[FileDescriptorProto], messages: &Messages) -> Self {
        let mut types = Self(HashMap::new());
        for file in files {
            // What comes with crate `protobuf` is used from there, whatever the others are.
            let (naming, module) = match (file.name(), messages) {
                ("google/protobuf/descriptor.proto", _) => {
                    (PROTOBUF, "protobuf::descriptor".to_owned())
                }
                ("rustproto.proto", _) => (PROTOBUF, "protobuf::rustproto".to_owned()),
                (name, _) if is_of_runtime(name) => {
                    let module = format!("protobuf::well_known_types::{}", module_of(name));
                    (PROTOBUF, module)
                }
                (name, Messages::Protobuf(root)) => {
                    let root = root.as_deref().unwrap_or("super");
                    (PROTOBUF, format!("{root}::{}", module_of(name)))
                }
                (_, Messages::Prost(root)) => {
                    let package = file.package().split('.').filter(|part| !part.is_empty());
                    let modules = package.map(|part| format!("::{}", prost::module(part)));
                    (PROST, format!("{root}{}", modules.collect::<String>()))
                }
            };
            let package = match file.package() {
                "" => String::new(),
                package => format!(".{package}"),
            };
            types.add(&file.message_type, &package, &module, false, naming);
        }
        types
    }

    fn add(
        &mut self,
        messages: &[DescriptorProto],
        scope: &str,
        module: &str,
        is_nested: bool,
        naming: Naming,
    ) {
        for message in messages {
            let full_name = format!("{scope}.{}", message.name());
            let nested = (naming.module)(message.name());
            let within = format!("{module}::{nested}");
            self.add(&message.nested_type, &full_name, &within, true, naming);
            let rust_type = RustType {
                module: module.to_owned(),
                name: (naming.type_name)(message.name()),
                is_nested,
            };
            self.0.insert(full_name, rust_type);
        }
    }

    pub(crate) fn get(&self, full_name: &str) -> Option<&RustType> {
        self.0.get(full_name)
    }
}

/// Whether a file's messages are part of crate `protobuf`.
pub(crate) fn is_of_runtime(file: &str) -> bool {
    let well_known = file.strip_prefix("google/protobuf/");
    file == "rustproto.proto"
        || well_known.is_some_and(|name| {
            matches!(
                name,
                "any.proto"
                    | "api.proto"
                    | "descriptor.proto"
                    | "duration.proto"
                    | "empty.proto"
                    | "field_mask.proto"
                    | "source_context.proto"
                    | "struct.proto"
                    | "timestamp.proto"
                    | "type.proto"
                    | "wrappers.proto"
            )
        })
}

/// The module of a file's messages: `my_file` for `some/my-file.proto`.
pub(crate) fn module_of(file: &str) -> String {
    escaped(stem_of(file))
}

/// The module of a file's services: `my_file_ttrpc`, as ttrpc-codegen names it.
pub(crate) fn service_module_of(file: &str) -> String {
    format!("{}_ttrpc", stem_of(file))
}

fn stem_of(file: &str) -> String {
    let name = file.rsplit(std::path::is_separator).next().unwrap_or(file);
    let stem = name.strip_suffix(".proto").unwrap_or(name);
    let is_word =
        |at: usize, c: char| c.is_ascii_alphabetic() || c == '_' || (at > 0 && c.is_ascii_digit());
    let chars = stem.chars().enumerate();
    chars
        .map(|(at, c)| if is_word(at, c) { c } else { '_' })
        .collect()
}

/// What rust-protobuf writes for a name that is a word of Rust.
fn escaped(name: String) -> String {
    if KEYWORDS.contains(&name.as_str()) {
        format!("{name}_")
    } else {
        name
    }
}

/// The words that rust-protobuf takes for keywords: not quite those that are.
const KEYWORDS: &[&str] = &[
    "_", "Self", "abstract", "alignof", "as", "async", "await", "become", "box", "break", "const",
    "continue", "crate", "do", "dyn", "else", "enum", "extern", "false", "final", "fn", "for",
    "if", "impl", "in", "let", "loop", "macro", "match", "mod", "move", "mut", "offsetof",
    "override", "priv", "proc", "pub", "pure", "ref", "return", "self", "sizeof", "static",
    "struct", "super", "trait", "true", "type", "typeof", "unsafe", "unsized", "use", "virtual",
    "where", "while", "yield",
];
