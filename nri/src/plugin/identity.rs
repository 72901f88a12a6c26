//! Who a plugin is, and where its runtime is found.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use filedescriptor::FileDescriptor;
use ttrpc_keepalive::Socket;

use super::error::PluginError;

/// What a runtime tells a plugin that it starts.
const NAME: &str = "NRI_PLUGIN_NAME";
const INDEX: &str = "NRI_PLUGIN_IDX";
const SOCKET: &str = "NRI_PLUGIN_SOCKET";

/// What a plugin says of its index and name.
#[derive(Clone, Debug)]
pub(super) enum Named {
    Given {
        index: String,
        name: String,
    },
    /// As its file is: `10-devices`.
    ByFile,
}

/// The index and the name under which a plugin registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) index: String,
    pub(super) name: String,
}

impl Identity {
    /// What the runtime says in the environment goes before what the plugin says of itself: it knows
    /// the plugin by that already. `program` is by which path the program was called.
    pub(super) fn new(
        named: &Named,
        program: Option<&Path>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, PluginError> {
        let told = |variable| environment(variable).filter(|told| !told.is_empty());
        let (index, name) = match (told(INDEX), told(NAME), named) {
            (Some(index), Some(name), _) => (index, name),
            (
                index,
                name,
                Named::Given {
                    index: own,
                    name: base,
                },
            ) => (
                index.unwrap_or_else(|| own.clone()),
                name.unwrap_or_else(|| base.clone()),
            ),
            (index, name, Named::ByFile) => {
                let file = program.and_then(Path::file_name).unwrap_or_default();
                let file = file.to_string_lossy();
                let Some((own, base)) = file.split_once('-') else {
                    let file = file.into_owned();
                    return Err(PluginError::InvalidFileName { file });
                };
                let index = index.unwrap_or_else(|| own.to_owned());
                (index, name.unwrap_or_else(|| base.to_owned()))
            }
        };
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

    fn given(index: &str, name: &str) -> Named {
        Named::Given {
            index: index.to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn an_index_and_a_name_that_runtimes_refuse_are_refused_here() {
        for index in ["", "1", "100", "1a", "é"] {
            let refused = Identity::new(&given(index, "name"), None, nothing).unwrap_err();
            assert!(
                refused.to_string().contains(&format!("{index:?}")),
                "{refused}"
            );
        }
        for name in ["", "a b", "a/b", "é"] {
            let refused = Identity::new(&given("10", name), None, nothing).unwrap_err();
            assert!(
                refused.to_string().contains(&format!("{name:?}")),
                "{refused}"
            );
        }
        let identity = Identity::new(&given("07", "a-B_9.c+d"), None, nothing).unwrap();
        assert_eq!((&*identity.index, &*identity.name), ("07", "a-B_9.c+d"));
    }

    #[test]
    fn a_plugin_that_was_started_has_the_name_that_its_runtime_gave_it() {
        let started = |variable: &str| match variable {
            NAME => Some("given".to_owned()),
            INDEX => Some("42".to_owned()),
            _ => None,
        };
        for named in [given("10", "own"), Named::ByFile] {
            let identity = Identity::new(&named, None, started).unwrap();
            assert_eq!((&*identity.index, &*identity.name), ("42", "given"));
        }
    }

    #[test]
    fn a_plugin_can_be_called_as_its_file_is() {
        let of = |program| Identity::new(&Named::ByFile, Some(Path::new(program)), nothing);
        let identity = of("/opt/nri/plugins/10-devices-b").unwrap();
        assert_eq!((&*identity.index, &*identity.name), ("10", "devices-b"));
        for program in ["devices", "/", "1-devices", "10-", "10-a b"] {
            of(program).unwrap_err();
        }
        let refused = of("bin/devices").unwrap_err().to_string();
        let expected =
            "the program's file \"devices\" is not called as a plugin is, like \"10-devices\"";
        assert_eq!(refused, expected);
        let index = |variable: &str| (variable == INDEX).then(|| "42".to_owned());
        let program = Some(Path::new("10-devices"));
        let identity = Identity::new(&Named::ByFile, program, index).unwrap();
        assert_eq!((&*identity.index, &*identity.name), ("42", "devices"));
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
