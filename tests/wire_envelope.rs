//! Envelopes against rust-protobuf, which is told of the same messages by a descriptor and reads and
//! writes them by reflection.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use protobuf::descriptor::FileDescriptorProto;
use protobuf::reflect::{FieldDescriptor, FileDescriptor, MessageDescriptor, ReflectValueBox};
use protobuf::well_known_types::any::Any;
use protobuf::{MessageDyn, text_format};
use ttrpc_keepalive::status::Status;
use ttrpc_keepalive::wire::{
    Flags, HEADER_LENGTH, Raw, Request, RequestHead, Response, encode_request, encode_status,
};

const MESSAGES: &str = r#"
    name: "ttrpc.proto" syntax: "proto3"
    message_type {
        name: "Request"
        field { name: "service" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
        field { name: "method" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
        field { name: "payload" number: 3 type: TYPE_BYTES label: LABEL_OPTIONAL }
        field { name: "timeout_nano" number: 4 type: TYPE_INT64 label: LABEL_OPTIONAL }
        field { name: "metadata" number: 5 type: TYPE_MESSAGE label: LABEL_REPEATED type_name: ".KeyValue" }
    }
    message_type {
        name: "KeyValue"
        field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
        field { name: "value" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
    }
    message_type {
        name: "Response"
        field { name: "status" number: 1 type: TYPE_MESSAGE label: LABEL_OPTIONAL type_name: ".Status" }
        field { name: "payload" number: 2 type: TYPE_BYTES label: LABEL_OPTIONAL }
    }
    message_type {
        name: "Status"
        field { name: "code" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL }
        field { name: "message" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
        field { name: "details" number: 3 type: TYPE_MESSAGE label: LABEL_REPEATED type_name: ".Any" }
    }
    message_type {
        name: "Any"
        field { name: "type_url" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
        field { name: "value" number: 2 type: TYPE_BYTES label: LABEL_OPTIONAL }
    }
"#;

fn descriptor(name: &str) -> MessageDescriptor {
    thread_local! {
        static FILE: FileDescriptor = {
            let file: FileDescriptorProto = text_format::parse_from_str(MESSAGES).unwrap();
            FileDescriptor::new_dynamic(file, &[]).unwrap()
        };
    }
    FILE.with(|file| file.message_by_package_relative_name(name).unwrap())
}

/// A message of rust-protobuf's.
struct Theirs(Box<dyn MessageDyn>);

impl Theirs {
    fn new(name: &str) -> Self {
        Self(descriptor(name).new_instance())
    }

    fn parse(name: &str, bytes: &[u8]) -> Option<Self> {
        descriptor(name).parse_from_bytes(bytes).ok().map(Self)
    }

    fn field(&self, name: &str) -> FieldDescriptor {
        self.0.descriptor_dyn().field_by_name(name).unwrap()
    }

    /// Sets a field, if the value is not the one it has anyway.
    fn set(mut self, name: &str, value: impl Into<ReflectValueBox>) -> Self {
        let (field, value) = (self.field(name), value.into());
        let default = match &value {
            ReflectValueBox::String(value) => value.is_empty(),
            ReflectValueBox::Bytes(value) => value.is_empty(),
            ReflectValueBox::I64(value) => *value == 0,
            ReflectValueBox::I32(value) => *value == 0,
            _ => false,
        };
        if !default {
            field.set_singular_field(&mut *self.0, value);
        }
        self
    }

    fn push(mut self, name: &str, value: Self) -> Self {
        let mut list = self.field(name).mut_repeated(&mut *self.0);
        list.push(ReflectValueBox::Message(value.0));
        self
    }

    fn request(request: &Request) -> Self {
        let mut theirs = Self::new("Request")
            .set("service", request.service.to_string())
            .set("method", request.method.to_string())
            .set("payload", request.payload.to_vec())
            .set("timeout_nano", request.timeout_nano);
        for (key, value) in &request.metadata {
            let (key, value) = (key.clone(), value.clone());
            let pair = Self::new("KeyValue").set("key", key).set("value", value);
            theirs = theirs.push("metadata", pair);
        }
        theirs
    }

    fn status(status: &Status) -> Self {
        let mut theirs = Self::new("Status")
            .set("code", status.code().value())
            .set("message", status.message().to_owned());
        for any in status.details() {
            let detail = Self::new("Any")
                .set("type_url", any.type_url.clone())
                .set("value", any.value.clone());
            theirs = theirs.push("details", detail);
        }
        Self::new("Response").set("status", theirs.0)
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.write_to_bytes_dyn().unwrap()
    }

    /// The fields that are known, without what else was in the bytes.
    fn known(&self) -> String {
        let message = &*self.0;
        let singular = ["service", "method", "payload", "timeout_nano"].map(|name| {
            let value = self.field(name).get_singular_field_or_default(message);
            format!("{value:?}")
        });
        let metadata = self.field("metadata").get_repeated(message);
        let pairs: Vec<[String; 2]> = (0..metadata.len())
            .map(|at| {
                let pair = metadata.get(at).to_message().unwrap();
                ["key", "value"].map(|name| {
                    let field = pair.descriptor_dyn().field_by_name(name).unwrap();
                    format!("{:?}", field.get_singular_field_or_default(&*pair))
                })
            })
            .collect();
        format!("{singular:?} {pairs:?}")
    }
}

/// A request as a client says it.
#[derive(Clone, Debug)]
struct Said {
    service: String,
    method: String,
    payload: Vec<u8>,
    timeout_nano: i64,
    metadata: Vec<(String, String)>,
}

impl Said {
    fn envelope(&self) -> Bytes {
        let head = RequestHead {
            service: &self.service,
            method: &self.method,
            timeout_nano: self.timeout_nano,
            metadata: &self.metadata,
        };
        payload_of(encode_request(1, Flags::NONE, &head, &Raw(&self.payload)).unwrap())
    }
}

fn payload_of(frame: Vec<u8>) -> Bytes {
    Bytes::from(frame).split_off(HEADER_LENGTH)
}

prop_compose! {
    fn said()(
        service in ".{0,40}",
        method in ".{0,40}",
        payload in vec(any::<u8>(), 0..400),
        timeout_nano in prop_oneof![Just(0), Just(-1), any::<i64>()],
        metadata in vec((".{0,20}", ".{0,200}"), 0..5),
    ) -> Said {
        Said { service, method, payload, timeout_nano, metadata }
    }
}

prop_compose! {
    fn status()(
        code in prop_oneof![1..17_i32, any::<i32>()].prop_filter("an error", |code| *code != 0),
        message in ".{0,200}",
        details in vec((".{0,40}", vec(any::<u8>(), 0..200)), 0..4),
    ) -> Status {
        let details = details.into_iter().map(|(type_url, value)| Any {
            type_url,
            value,
            ..Any::default()
        });
        Status::new(code.into(), message).with_details(details.collect())
    }
}

proptest! {
    #[test]
    fn a_request_comes_back_as_it_was_said(said in said()) {
        let request = Request::decode(&said.envelope()).unwrap();
        prop_assert_eq!(&*request.service, &said.service);
        prop_assert_eq!(&*request.method, &said.method);
        prop_assert_eq!(&request.payload[..], &said.payload);
        prop_assert_eq!(request.timeout_nano, said.timeout_nano);
        prop_assert_eq!(request.metadata, said.metadata);
    }

    #[test]
    fn a_request_is_written_as_rust_protobuf_writes_it(said in said()) {
        let envelope = said.envelope();
        let theirs = Theirs::request(&Request::decode(&envelope).unwrap());
        prop_assert_eq!(&envelope[..], theirs.bytes());
    }

    #[test]
    fn a_status_comes_back_and_is_written_as_rust_protobuf_writes_it(status in status()) {
        let envelope = payload_of(encode_status(1, &status));
        prop_assert_eq!(&envelope[..], Theirs::status(&status).bytes());
        let response = Response::decode(&envelope).unwrap();
        prop_assert_eq!(response.status, Some(status));
    }

    #[test]
    fn a_damaged_request_that_both_can_read_is_read_alike(
        said in said(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        length in any::<prop::sample::Index>(),
    ) {
        let mut bytes = said.envelope().to_vec();
        for (at, byte) in damage {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        // Half of the time the end is missing, too.
        bytes.truncate(length.index(2 * bytes.len() + 1));
        // Not all that one reads the other does: rust-protobuf takes a pair that says more bytes
        // than there are, and its reflection refuses a known field of another wire type.
        let ours = Request::decode(&bytes.clone().into());
        if let (Ok(ours), Some(theirs)) = (ours, Theirs::parse("Request", &bytes)) {
            prop_assert_eq!(Theirs::request(&ours).known(), theirs.known(), "{:02x?}", bytes);
        }
    }
}
