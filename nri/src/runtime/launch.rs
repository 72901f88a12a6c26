//! Plugins that the runtime starts: executables in a folder, each with a socket of its own.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use command_fds::{CommandFdExt, FdMapping};
use tokio::process::{Child, Command};
use ttrpc_keepalive::Socket;

use super::error::StartError;
use super::name::PluginName;
use super::registration::Launched;

/// The descriptor on which a plugin finds its connection.
const DESCRIPTOR: i32 = 3;

/// A plugin that lies in the folder.
#[derive(Debug)]
pub(super) struct Found {
    path: PathBuf,
    pub(super) launched: Launched,
}

/// Looks for plugins, in the order of their names.
///
/// # Errors
///
/// A folder or a configuration that cannot be read, an executable that is not called as a plugin is.
pub(super) fn find(folder: &Path, configurations: Option<&Path>) -> Result<Vec<Found>, StartError> {
    let failed = |path: &Path, source| StartError::Folder {
        path: path.to_owned(),
        source,
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(folder, error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| failed(folder, error))?.path();
        // A link is followed; one that leads nowhere is no plugin.
        let Ok(metadata) = fs::metadata(&path) else {
            continue;
        };
        if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
            continue;
        }
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let name = PluginName::parse(name).map_err(|reason| StartError::Name {
            path: path.clone(),
            reason,
        })?;
        let configuration = match configurations {
            Some(folder) => configuration(folder, &name)?,
            None => String::new(),
        };
        found.push(Found {
            path,
            launched: Launched {
                name,
                configuration,
            },
        });
    }
    found.sort_by(|one, other| one.launched.name.cmp(&other.launched.name));
    Ok(found)
}

fn configuration(folder: &Path, name: &PluginName) -> Result<String, StartError> {
    for file in [format!("{name}.conf"), format!("{}.conf", name.base)] {
        let path = folder.join(file);
        match fs::read_to_string(&path) {
            Ok(configuration) => return Ok(configuration),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(StartError::Folder { path, source }),
        }
    }
    Ok(String::new())
}

impl Found {
    /// Starts its process, which is killed when that is dropped. It finds nothing in its environment but what
    /// it needs to connect.
    pub(super) fn start(&self) -> io::Result<(Child, Socket)> {
        let (here, there) = UnixStream::pair()?;
        let mut command = std::process::Command::new(&self.path);
        command
            .stdin(Stdio::null())
            .env_clear()
            .env("NRI_PLUGIN_NAME", &self.launched.name.base)
            .env("NRI_PLUGIN_IDX", &self.launched.name.index)
            .env("NRI_PLUGIN_SOCKET", DESCRIPTOR.to_string());
        let mapping = FdMapping {
            parent_fd: OwnedFd::from(there),
            child_fd: DESCRIPTOR,
        };
        command
            .fd_mappings(vec![mapping])
            .map_err(|collision| io::Error::other(collision.to_string()))?;
        let child = Command::from(command).kill_on_drop(true).spawn()?;
        Ok((child, Socket::from_fd(OwnedFd::from(here))?))
    }
}
