//! Between what this crate shows and what `ttrpc-keepalive` does.

use bytes::Bytes;
use protobuf::well_known_types::any;
use ttrpc_keepalive::{self as native, CallOptions, ConnectionError, Context, Raw};

use crate::context::by_key;
use crate::error::{Error, get_rpc_status};
use crate::proto::{
    Any, Code, KeyValue, MESSAGE_TYPE_REQUEST, MessageHeader, Request, Response, Status,
};

/// A status as it is sent.
pub(crate) fn native_status(status: Status) -> native::Status {
    let details = status.details.into_iter().map(|detail| any::Any {
        type_url: detail.type_url,
        value: detail.value,
        ..any::Any::default()
    });
    native::Status::new(status.code.value().into(), status.message).with_details(details.collect())
}

fn status(status: &native::Status) -> Status {
    let details = status.details().iter().map(|detail| {
        let mut any = Any::new();
        any.type_url.clone_from(&detail.type_url);
        any.value.clone_from(&detail.value);
        any
    });
    let mut shown = Status::new();
    // Not by its accessor: a number without a name would become OK.
    shown.code = protobuf::EnumOrUnknown::from_i32(status.code().value());
    status.message().clone_into(&mut shown.message);
    shown.details = details.collect();
    shown
}

/// The error of a call, in the words that users of `ttrpc` look for.
pub(crate) fn error(error: &native::Error) -> Error {
    if let Some(answered) = error.status() {
        return Error::RpcStatus(status(answered));
    }
    match error {
        native::Error::Deadline(late) => {
            Error::Others(format!("Receive packet timeout Elapsed(()): {late}"))
        }
        native::Error::Connection(end, progress) => match progress {
            // Reconnecting is tied to this one.
            native::RequestProgress::NotSent => Error::LocalClosed,
            _ => Error::Socket(end_words(end)),
        },
        native::Error::IdsExhausted => Error::LocalClosed,
        native::Error::StreamEnded => Error::RemoteClosed,
        native::Error::RequestTooLarge(oversized) => Error::Others(too_large(oversized.size)),
        native::Error::ResponseTooLarge(oversized) => {
            get_rpc_status(Code::INVALID_ARGUMENT, too_large(oversized.size))
        }
        other => Error::Others(other.to_string()),
    }
}

fn too_large(size: usize) -> String {
    let limit = crate::proto::MESSAGE_LENGTH_MAX;
    format!("message length {size} exceed maximum message size of {limit}")
}

/// Why a connection ended. A peer that went away is *early eof* for those who look for it.
pub(crate) fn end_words(end: &ConnectionError) -> String {
    match (end, end.io_error()) {
        (_, Some(error)) => error.to_string(),
        (
            ConnectionError::PeerClosed | ConnectionError::Announced(_) | ConnectionError::Torn,
            None,
        ) => "early eof".to_owned(),
        (other, None) => format!("keepalive: {other}"),
    }
}

/// Time and metadata of a request. A timeout of zero or less is none.
pub(crate) fn options(request: &Request, timed: bool) -> CallOptions {
    let pairs = request.metadata.iter();
    let options = pairs.fold(
        CallOptions::new(),
        |options, KeyValue { key, value, .. }| options.metadata(key, value),
    );
    match u64::try_from(request.timeout_nano) {
        Ok(nanos @ 1..) if timed => options.timeout(std::time::Duration::from_nanos(nanos)),
        _ => options,
    }
}

/// What a handler is told: the header of its request, its metadata and its time, in nanoseconds.
pub(crate) struct Called {
    pub(crate) header: MessageHeader,
    pub(crate) metadata: std::collections::HashMap<String, Vec<String>>,
    pub(crate) timeout_nano: i64,
}

impl Called {
    pub(crate) fn of(context: &Context) -> Self {
        let header = MessageHeader {
            stream_id: context.stream_id(),
            type_: MESSAGE_TYPE_REQUEST,
            ..MessageHeader::default()
        };
        let pairs = context.metadata().iter();
        // At least one: zero would be no limit.
        let left =
            |left: std::time::Duration| left.as_nanos().try_into().unwrap_or(i64::MAX).max(1);
        Self {
            header,
            metadata: by_key(pairs.map(|(key, value)| (&**key, &**value))),
            timeout_nano: context.remaining().map_or(0, left),
        }
    }
}

/// The request as a generated handler wants it.
pub(crate) fn request(context: &Context, called: &Called, payload: Bytes) -> Request {
    let mut request = Request::new();
    context.service().clone_into(&mut request.service);
    context.method().clone_into(&mut request.method);
    request.timeout_nano = called.timeout_nano;
    request.metadata = crate::context::to_pb(called.metadata.clone());
    request.payload = payload.into();
    request
}

/// What a handler has answered.
pub(crate) fn answer(result: crate::Result<Response>) -> Result<Raw, native::Status> {
    let response = result.unwrap_or_else(Response::from);
    match response.status.into_option() {
        Some(status) if status.code.value() != 0 => Err(native_status(status)),
        _ => Ok(Raw(response.payload.into())),
    }
}

/// What a call was answered with.
pub(crate) fn response(Raw(payload): Raw) -> Response {
    let mut response = Response::new();
    response.payload = payload.into();
    response
}
