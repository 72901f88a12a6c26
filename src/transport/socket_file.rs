//! The file of a unix socket: who may take its place, and who removes it.
//!
//! A file may be removed only by who knows whose it is, and names can change hands between any two
//! system calls. So a file is known by its number on its device, and that number is not given to
//! another file as long as this one has a name or an open socket:
//!
//! - A listener removes its own file while its socket is still open.
//! - Who takes a file for stale gives it a second name first, which is made of its number: one
//!   process can do that, and until it has decided all others leave the file alone. It is tried by
//!   its first name, since a longer one may be too long for a socket, and only if that is still its own
//!   behind the attempt was it this file and no other which refused a connection.
//! - Whoever finds the first name free then, one gets it: `bind` takes no name that exists.
//!
//! A lock file would have to be left behind for ever, and one that is bound under another name and
//! renamed would take the place of a server that was faster.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock::Alarm;
use crate::tuning::{SOCKET_FILE_CLAIMS, SOCKET_FILE_START};
use tokio::net::UnixStream;

/// The identity of a file among all that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    number: u64,
}

impl Identity {
    fn of(path: &Path) -> io::Result<Self> {
        Ok(Self::from(&fs::symlink_metadata(path)?))
    }
}

impl From<&Metadata> for Identity {
    fn from(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            number: file.ino(),
        }
    }
}

/// The file of a listening socket. It is removed when this is dropped, if it still is that file; to
/// be dropped before the socket.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    identity: Identity,
}

impl SocketFile {
    /// The file that was bound just now.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        // A process may change its directory.
        let path = std::path::absolute(path)?;
        let identity = Identity::of(&path)?;
        Ok(Self { path, identity })
    }
}

impl SocketFile {
    /// The file stays.
    pub(super) fn keep(mut self) {
        // No file has this name.
        self.path.clear();
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if Identity::of(&self.path).is_ok_and(|found| found == self.identity) {
            // There is nobody to tell.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The second name of a file, which goes when this is dropped.
struct Claim(PathBuf);

impl Claim {
    /// Claims the file at `path`. `None` if somebody else had claimed it, and has decided.
    async fn make(path: &Path, file: Identity) -> io::Result<Option<Self>> {
        let name = path.with_file_name(format!(".stale-{:x}", file.number));
        for _ in 0..SOCKET_FILE_CLAIMS {
            match fs::hard_link(path, &name) {
                Ok(()) => return Ok(Some(Self(name))),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    Alarm::after(SOCKET_FILE_START).await;
                }
                Err(error) => return Err(error),
            }
        }
        // Nobody takes so long. It was killed, or a third one has removed its name just now.
        let _ = fs::remove_file(&name);
        fs::hard_link(path, &name)?;
        Ok(Some(Self(name)))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Removes a socket on which nobody accepts. Anything else stays, and is an error.
///
/// # Cancel safety
///
/// Dropping the future leaves everything as it was.
pub(super) async fn remove_stale(path: &Path) -> io::Result<()> {
    let file = match fs::symlink_metadata(path) {
        // Its owner has just removed it.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let in_use = || Err(ErrorKind::AddrInUse.into());
    if !file.file_type().is_socket() {
        return in_use();
    }
    let file = Identity::from(&file);
    let Some(claim) = Claim::make(path, file).await? else {
        return Ok(());
    };
    // The path may have been another file's by then.
    if Identity::of(&claim.0)? != file {
        return in_use();
    }
    for pause in [SOCKET_FILE_START, Duration::ZERO] {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            // Its owner has just removed it.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == ErrorKind::InvalidInput => return Err(error),
            // It was accepted, or waits to be: somebody listens. Or it cannot be tried.
            _ => return in_use(),
        }
        Alarm::after(pause).await;
    }
    match Identity::of(path) {
        Ok(found) if found == file => fs::remove_file(path),
        Ok(_) => in_use(),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
