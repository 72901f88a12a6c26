//! Calling.

use std::os::fd::RawFd;

use ttrpc_keepalive::{self as native, Raw};

use super::stream::StreamInner;
use crate::convert::{error, options, response};
use crate::error::{Result, get_rpc_status, others, refused};
use crate::keepalive;
use crate::proto::{Code, Request, Response};
use crate::transport::Socket;

/// The client's end of a connection. Clones share it, and with the last one and the last stream it
/// closes.
#[derive(Clone, Debug)]
pub struct Client {
    native: native::Client,
}

impl Client {
    /// Connects: to `unix:///path`, `unix://@name`, `tcp://IP:PORT` or `vsock://CID:PORT`.
    ///
    /// # Errors
    ///
    /// `Others`, with the words of the operating system.
    pub async fn connect(sockaddr: &str) -> Result<Self> {
        let socket = Socket::connect(sockaddr).await;
        Ok(Self::new(socket.map_err(others("Socket::connect error "))?))
    }

    /// Over a stream that is connected.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn new(stream: Socket) -> Self {
        let client = native::Client::builder().keepalive(keepalive::settings());
        let native = client
            .attach(stream)
            .expect("the keepalive was found good when it was set, and nothing else is");
        Self { native }
    }

    /// Over a unix socket that is given away by its number.
    ///
    /// # Safety
    ///
    /// `fd` is an open descriptor of a connected unix socket, and nobody else uses it.
    ///
    /// # Panics
    ///
    /// If it is not, and outside of a tokio runtime.
    #[allow(unsafe_code, reason = "the signature of the crate ttrpc")]
    pub unsafe fn from_raw_unix_socket_fd(fd: RawFd) -> Self {
        Self::of_descriptor(fd)
    }

    /// The same for a release in which this is not said to be unsafe.
    #[doc(hidden)]
    pub fn of_descriptor(fd: RawFd) -> Self {
        Self::new(Socket::of_unix(fd).expect("the descriptor is a connected unix socket"))
    }

    /// Connects as a release does that has no future for it.
    #[doc(hidden)]
    pub fn connect_blocking(sockaddr: &str) -> Result<Self> {
        let socket = Socket::connect_blocking(sockaddr).map_err(refused)?;
        Ok(Self::new(socket))
    }

    /// Makes a unary call.
    ///
    /// # Errors
    ///
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the call here.
    pub async fn request(&self, req: Request) -> Result<Response> {
        let call = self
            .native
            .call(&req.service, &req.method, &Raw(&req.payload))
            .options(&options(&req, true));
        drop(req);
        call.await.map(response).map_err(|e| error(&e))
    }

    /// Opens a stream. It has no timeout, whatever the request says.
    ///
    /// # Errors
    ///
    /// INVALID_ARGUMENT if many requests are to follow and there is a message already; else see
    /// [`Error`](crate::Error).
    pub async fn new_stream(
        &self,
        req: Request,
        streaming_client: bool,
        streaming_server: bool,
    ) -> Result<StreamInner> {
        let Request {
            service,
            method,
            payload,
            ..
        } = &req;
        let options = options(&req, false);
        if !streaming_client {
            let call = self.native.server_stream(service, method, &Raw(payload));
            let receiver = call.options(&options).await.map_err(|e| error(&e))?;
            return Ok(StreamInner::of_receiver(receiver));
        }
        if !payload.is_empty() {
            return Err(get_rpc_status(
                Code::INVALID_ARGUMENT,
                "Creating a ClientStream and sending payload at the same time is not allowed",
            ));
        }
        if streaming_server {
            let call = self.native.bidi_stream(service, method);
            let (sender, receiver) = call.options(&options).await.map_err(|e| error(&e))?;
            Ok(StreamInner::of_both(sender, receiver))
        } else {
            let call = self.native.client_stream(service, method);
            let (sender, reply) = call.options(&options).await.map_err(|e| error(&e))?;
            Ok(StreamInner::of_sender(sender, reply))
        }
    }

    /// The client behind it: what is known of the peer, a probe, calls whose errors have a verdict.
    pub fn native(&self) -> &native::Client {
        &self.native
    }
}

impl AsRef<native::Client> for Client {
    fn as_ref(&self) -> &native::Client {
        &self.native
    }
}
