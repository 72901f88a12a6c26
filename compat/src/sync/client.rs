//! Calling, from a thread that waits.

use std::os::fd::RawFd;

use ttrpc_keepalive::{self as native, Raw};

use super::thread::{runtime, wait};
use crate::convert::{error, options, response};
use crate::descriptor::take;
use crate::error::{Error, Result, refused};
use crate::keepalive;
use crate::proto::{Request, Response};
use crate::transport::Socket;

/// The client's end of a connection. Clones share it, and with the last one it closes.
#[derive(Clone, Debug)]
pub struct Client {
    native: native::Client,
}

impl Client {
    /// Connects: to `unix:///path`, `unix://@name`, `tcp://IP:PORT` or `vsock://CID:PORT`.
    ///
    /// # Errors
    ///
    /// `Nix` with what the operating system says, `Others` if the address is none.
    pub fn connect(sockaddr: &str) -> Result<Self> {
        let runtime = runtime().map_err(refused)?;
        let address = sockaddr.to_owned();
        // There, where its socket is to be registered.
        let connecting = runtime.spawn(async move { Socket::connect(address).await });
        let connected = wait(connecting).map_err(|error| Error::Others(error.to_string()))?;
        Self::of(connected.map_err(refused)?)
    }

    /// Over a connected socket that is given away by its number: of unix, TCP or vsock.
    ///
    /// # Errors
    ///
    /// `Nix` if the number is no open descriptor, or the operating system refuses otherwise.
    pub fn new(fd: RawFd) -> Result<Self> {
        let descriptor = take(fd).map_err(refused)?;
        let runtime = runtime().map_err(refused)?;
        let _entered = runtime.enter();
        Self::of(native::Socket::from_fd(descriptor).map_err(refused)?)
    }

    fn of(stream: impl native::IntoTransport) -> Result<Self> {
        let runtime = runtime().map_err(refused)?;
        let _entered = runtime.enter();
        let client = native::Client::builder().keepalive(keepalive::settings());
        let native = client
            .attach(stream)
            .map_err(|error| Error::Others(error.to_string()))?;
        Ok(Self { native })
    }

    /// Makes a unary call, and waits for its end.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub fn request(&self, req: Request) -> Result<Response> {
        let call = self
            .native
            .call(&req.service, &req.method, &Raw(&req.payload))
            .options(&options(&req, true));
        drop(req);
        wait(call).map(response).map_err(|e| words(error(&e)))
    }

    /// The client behind it: what is known of the peer, calls whose errors have a verdict. Its futures may
    /// be awaited anywhere.
    pub fn native(&self) -> &native::Client {
        &self.native
    }
}

impl AsRef<native::Client> for Client {
    fn as_ref(&self) -> &native::Client {
        &self.native
    }
}

/// The same in the words of `ttrpc::sync`.
fn words(error: Error) -> Error {
    match error {
        Error::LocalClosed => Error::Socket("Nix error: EPIPE: Broken pipe".to_owned()),
        Error::Socket(reason) if reason == "early eof" => {
            Error::Socket("socket error socket disconnected".to_owned())
        }
        Error::Socket(reason) => Error::Socket(format!("socket error {reason}")),
        other => other,
    }
}
