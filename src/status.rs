//! What a peer says about a call it has ended: a [`Code`], and the [`Status`] that carries it.
//!
//! A status comes from the peer, or is sent to it. A failure on this side is never dressed as one.

use std::fmt;

use protobuf::well_known_types::any::Any;

use crate::text;
use crate::tuning::SHOWN_ENTRIES;

/// The result of a call, as the peer that ended it says it.
///
/// A [`Response`](crate::wire::Response) carries one when the call did not succeed.
#[derive(Clone, PartialEq)]
pub struct Status {
    code: Code,
    message: String,
    details: Vec<Any>,
}

impl Status {
    /// A status without details.
    ///
    /// `message` is for people. One that does not fit into a frame is cut when it is sent, see
    /// [`encode_status`](crate::wire::encode_status).
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            details: Vec::new(),
        }
    }

    /// The refusal of a server that shuts down: UNAVAILABLE, with a detail that programs can read.
    ///
    /// A [`Server`](crate::Server) answers so what comes after its shutdown has begun, and a handler
    /// may, if its application is about to end. The caller's connection then ends with
    /// [`ConnectionError::Announced`](crate::ConnectionError::Announced) when it is closed.
    ///
    /// The detail is a `google.rpc.ErrorInfo` with reason `SHUTTING_DOWN` and domain `ttrpc`.
    /// Clients that do not know it see UNAVAILABLE.
    #[must_use]
    pub fn shutting_down() -> Self {
        let mut detail = Any::new();
        detail.type_url = ERROR_INFO.to_owned();
        detail.value = SHUTTING_DOWN.to_vec();
        Self::new(Code::UNAVAILABLE, "the server is shutting down").with_details(vec![detail])
    }

    /// Whether this is [`Status::shutting_down`]: whoever sent it is about to close the connection.
    #[must_use]
    pub fn announces_shutdown(&self) -> bool {
        let announces =
            |detail: &Any| detail.type_url == ERROR_INFO && detail.value.starts_with(SHUTTING_DOWN);
        self.code == Code::UNAVAILABLE && self.details.iter().any(announces)
    }

    /// The same status with these details instead of those it had.
    #[must_use]
    pub fn with_details(mut self, details: Vec<Any>) -> Self {
        self.details = details;
        self
    }

    /// What kind of result this is.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// The text for people; may be empty.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Messages that say more, in the order they were sent; usually none.
    #[must_use]
    pub fn details(&self) -> &[Any] {
        &self.details
    }
}

const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";

/// Its first two fields, encoded: `reason = 1` and `domain = 2`. A third one may follow.
const SHUTTING_DOWN: &[u8] = b"\x0a\x0dSHUTTING_DOWN\x12\x05ttrpc";

/// Code and message on one line, the message cut after about a kilobyte: it is the peer's.
/// [`message`](Status::message) has all of it.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() {
            return self.code.fmt(f);
        }
        write!(f, "{}: {}", self.code, text::message(&self.message))
    }
}

/// Cut as [`Display`](fmt::Display) does; of details their types.
impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.details.iter().take(SHOWN_ENTRIES);
        let types: Vec<_> = shown.map(|detail| text::name(&detail.type_url)).collect();
        f.debug_struct("Status")
            .field("code", &self.code)
            .field("message", &text::message(&self.message))
            .field("details", &types)
            .finish()
    }
}

impl std::error::Error for Status {}

/// The kind of a call's result: the codes of gRPC, which ttrpc shares.
///
/// The set is open, as the number is on the wire. A value without a name is kept as it came
/// (RFC KA-36).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(i32);

/// Gives each code its constant, with its description, and its name for [`Code::name`].
macro_rules! codes {
    ($($(#[$doc:meta])+ $name:ident = $value:literal;)+) => {
        impl Code {
            $($(#[$doc])+ pub const $name: Self = Self($value);)+

            /// The name in the spelling of gRPC; `None` for a value without one.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)+
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// The call succeeded.
    OK = 0;
    /// The call was cancelled, usually by who made it.
    CANCELLED = 1;
    /// A failure that nothing more is known about.
    UNKNOWN = 2;
    /// The request is wrong whatever the state of the system.
    INVALID_ARGUMENT = 3;
    /// The time for the call ran out.
    DEADLINE_EXCEEDED = 4;
    /// What the request names does not exist.
    NOT_FOUND = 5;
    /// What the request would create exists.
    ALREADY_EXISTS = 6;
    /// The client is known and may not do this.
    PERMISSION_DENIED = 7;
    /// Something is used up: memory, a quota, or the size that a frame may have.
    RESOURCE_EXHAUSTED = 8;
    /// The system is not in the state that the request needs.
    FAILED_PRECONDITION = 9;
    /// The call lost against another one; it may be tried again from the start.
    ABORTED = 10;
    /// The request reaches past the end of something.
    OUT_OF_RANGE = 11;
    /// The service or the method does not exist here.
    UNIMPLEMENTED = 12;
    /// Something that must not happen has happened.
    INTERNAL = 13;
    /// The service cannot be reached at present.
    UNAVAILABLE = 14;
    /// Data is lost or damaged beyond repair.
    DATA_LOSS = 15;
    /// The client has not shown who it is.
    UNAUTHENTICATED = 16;
}

impl Code {
    /// The number on the wire.
    #[must_use]
    pub const fn value(self) -> i32 {
        self.0
    }
}

impl From<i32> for Code {
    fn from(value: i32) -> Self {
        Self(value)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => fmt::Display::fmt(&self.0, f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_without_a_name_keeps_its_number() {
        for value in [-1, 17, i32::MIN, i32::MAX] {
            assert_eq!(Code::from(value).value(), value);
            assert_eq!(Code::from(value).name(), None);
            assert_eq!(Code::from(value).to_string(), value.to_string());
        }
    }

    #[test]
    fn the_seventeen_codes_have_the_names_and_numbers_of_grpc() {
        let names = [
            "OK",
            "CANCELLED",
            "UNKNOWN",
            "INVALID_ARGUMENT",
            "DEADLINE_EXCEEDED",
            "NOT_FOUND",
            "ALREADY_EXISTS",
            "PERMISSION_DENIED",
            "RESOURCE_EXHAUSTED",
            "FAILED_PRECONDITION",
            "ABORTED",
            "OUT_OF_RANGE",
            "UNIMPLEMENTED",
            "INTERNAL",
            "UNAVAILABLE",
            "DATA_LOSS",
            "UNAUTHENTICATED",
        ];
        for (value, name) in (0..).zip(names) {
            assert_eq!(Code::from(value).to_string(), name);
        }
    }

    #[test]
    fn a_status_reads_as_code_and_message() {
        let with = Status::new(Code::NOT_FOUND, "no such container");
        let without = Status::new(Code::from(99), "");
        assert_eq!(with.to_string(), "NOT_FOUND: no such container");
        assert_eq!(without.to_string(), "99");
    }

    #[test]
    fn what_a_peer_says_is_shown_in_one_line_that_is_not_long() {
        let lines = Status::new(Code::INTERNAL, "panicked:\nat\u{1b}[1m main\r");
        assert_eq!(
            lines.to_string(),
            "INTERNAL: panicked:\\nat\\u{1b}[1m main\\r"
        );
        // The cut falls into a letter.
        let long = Status::new(Code::INTERNAL, format!("x{}", "\u{e4}".repeat(1 << 20)));
        let shown = long.to_string();
        assert!(shown.len() < 1100 && shown.ends_with("\u{e4}... (2097153 bytes)"));
    }
}
