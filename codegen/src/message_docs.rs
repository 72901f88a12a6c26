//! Comments of messages, enums and fields, for rust-protobuf: its generator writes them, and its
//! parser does not keep them.

use protobuf::descriptor::source_code_info::Location;
use protobuf::descriptor::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto};

use crate::declarations::Declarations;

/// Numbers of fields in `descriptor.proto`, of which the path to a declaration is made.
const MESSAGE_OF_FILE: i32 = 4;
const ENUM_OF_FILE: i32 = 5;
const FIELD_OF_MESSAGE: i32 = 2;
const MESSAGE_OF_MESSAGE: i32 = 3;
const ENUM_OF_MESSAGE: i32 = 4;

/// The same file with what is said of its messages.
pub(crate) fn with_docs(
    file: &FileDescriptorProto,
    declarations: &Declarations,
) -> FileDescriptorProto {
    let mut found = Found {
        declarations,
        locations: Vec::new(),
    };
    found.messages(&file.message_type, &[MESSAGE_OF_FILE], "");
    found.enums(&file.enum_type, &[ENUM_OF_FILE], "");
    let mut file = file.clone();
    file.source_code_info.mut_or_insert_default().location = found.locations;
    file
}

struct Found<'a> {
    declarations: &'a Declarations,
    locations: Vec<Location>,
}

impl Found<'_> {
    fn messages(&mut self, messages: &[DescriptorProto], path: &[i32], scope: &str) {
        for (at, message) in (0..).zip(messages) {
            let path = [path, &[at]].concat();
            let name = format!("{scope}{}", message.name());
            self.declared(&name, &path);
            let scope = format!("{name}.");
            for (at, field) in (0..).zip(&message.field) {
                let path = [&path[..], &[FIELD_OF_MESSAGE, at]].concat();
                self.declared(&format!("{scope}{}", field.name()), &path);
            }
            let nested = [&path[..], &[MESSAGE_OF_MESSAGE]].concat();
            self.messages(&message.nested_type, &nested, &scope);
            let nested = [&path[..], &[ENUM_OF_MESSAGE]].concat();
            self.enums(&message.enum_type, &nested, &scope);
        }
    }

    fn enums(&mut self, enums: &[EnumDescriptorProto], path: &[i32], scope: &str) {
        for (at, descriptor) in (0..).zip(enums) {
            let path = [path, &[at]].concat();
            self.declared(&format!("{scope}{}", descriptor.name()), &path);
        }
    }

    fn declared(&mut self, name: &str, path: &[i32]) {
        let docs = self.declarations.docs(name);
        if !docs.is_empty() {
            let mut location = Location::new();
            location.path = path.to_vec();
            location.set_leading_comments(docs.join("\n"));
            self.locations.push(location);
        }
    }
}
