//! Who a plugin is, and where its runtime is found.

use std::io;
use std::os::fd::OwnedFd;

use filedescriptor::FileDescriptor;
use ttrpc_keepalive::Socket;

use super::error::PluginError;

/// What a runtime tells a plugin that it starts.
const NAME: &str = "NRI_PLUGIN_NAME";
const INDEX: &str = "NRI_PLUGIN_IDX";
const SOCKET: &str = "NRI_PLUGIN_SOCKET";

/// The index and the name under which a plugin registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) index: String,
    pub(super) name: String,
}

impl Identity {
    /// What the runtime says in the environment goes before what the plugin says of itself: it knows
    /// the plugin by that already.
    pub(super) fn new(
        index: &str,
        name: &str,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, PluginError> {
        let told = |variable, own: &str| {
            let told = environment(variable).filter(|told| !told.is_empty());
            told.unwrap_or_else(|| own.to_owned())
        };
        let (index, name) = (told(INDEX, index), told(NAME, name));
        // Both would be refused by the runtime, which closes the connection and does not say why.
        let is_index = index.len() == 2 && index.bytes().all(|byte| byte.is_ascii_digit());
        if !is_index {
            return Err(PluginError::InvalidIndex { index });
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
        if name.is_empty() || !name.bytes().all(allowed) {
            return Err(PluginError::InvalidName { name });
        }
        Ok(Self { index, name })
    }
}

/// The connection that a runtime has made for a plugin that it started, if it did.
pub(super) fn inherited(
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Option<Socket>, PluginError> {
    let Some(number) = environment(SOCKET).filter(|number| !number.is_empty()) else {
        return Ok(None);
    };
    let socket = number
        .parse()
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
        .and_then(socket);
    match socket {
        Ok(socket) => Ok(Some(socket)),
        Err(error) => Err(PluginError::Descriptor { number, error }),
    }
}

/// A copy of the descriptor: that the number is ours to close is only known to the runtime. The end of
/// the connection shuts the socket down, so no copy keeps it open.
fn socket(number: i32) -> io::Result<Socket> {
    let copy = FileDescriptor::dup(&number).and_then(|copy| copy.as_file());
    let copy: OwnedFd = copy.map_err(io::Error::other)?.into();
    Socket::from_fd(copy)
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        reason = "a test says what it expects by panicking"
    )]

    use super::*;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn an_index_and_a_name_that_runtimes_refuse_are_refused_here() {
        for index in ["", "1", "100", "1a", "é"] {
            let refused = Identity::new(index, "name", nothing).unwrap_err();
            assert!(
                refused.to_string().contains(&format!("{index:?}")),
                "{refused}"
            );
        }
        for name in ["", "a b", "a/b", "é"] {
            let refused = Identity::new("10", name, nothing).unwrap_err();
            assert!(
                refused.to_string().contains(&format!("{name:?}")),
                "{refused}"
            );
        }
        let identity = Identity::new("07", "a-B_9.c+d", nothing).unwrap();
        assert_eq!((&*identity.index, &*identity.name), ("07", "a-B_9.c+d"));
    }

    #[test]
    fn a_plugin_that_was_started_has_the_name_that_its_runtime_gave_it() {
        let started = |variable: &str| match variable {
            NAME => Some("given".to_owned()),
            INDEX => Some("42".to_owned()),
            _ => None,
        };
        let identity = Identity::new("10", "own", started).unwrap();
        assert_eq!((&*identity.index, &*identity.name), ("42", "given"));
    }

    #[tokio::test]
    async fn a_descriptor_that_is_no_socket_is_refused_by_its_number() {
        for (number, text) in [("x", "\"x\""), ("99999", "\"99999\""), ("0", "\"0\"")] {
            let told = |variable: &str| (variable == SOCKET).then(|| number.to_owned());
            let refused = inherited(told).unwrap_err();
            assert!(refused.to_string().contains(text), "{refused}");
        }
        assert!(inherited(nothing).unwrap().is_none());
    }
}
