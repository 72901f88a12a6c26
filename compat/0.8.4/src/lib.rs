//! The crate `ttrpc` 0.8 by `ttrpc-keepalive`. Its async clients connect without waiting, and are made of
//! descriptors, as its servers are; all else is that of later releases.

#![forbid(unsafe_code)]

#[cfg(feature = "prost")]
compile_error!("messages of prost are not supported here");
#[cfg(feature = "security_extension")]
compile_error!("hooks of connections are not supported here");

pub use ttrpc_keepalive_compat::*;

#[cfg(feature = "async")]
pub use asynchronous as r#async;

/// Clients and servers on tokio.
#[cfg(feature = "async")]
pub mod asynchronous {
    use std::collections::HashMap;
    use std::os::fd::RawFd;

    use ttrpc_keepalive_compat::asynchronous as later;
    pub use ttrpc_keepalive_compat::asynchronous::*;
    use ttrpc_keepalive_compat::native;
    use ttrpc_keepalive_compat::{Request, Response, Result};

    /// The client's end of a connection.
    #[derive(Clone, Debug)]
    pub struct Client(later::Client);

    impl Client {
        /// Connects, and blocks its thread until that is done.
        ///
        /// # Errors
        ///
        /// `Nix` with what the operating system says, `Others` if the address is none.
        pub fn connect(sockaddr: &str) -> Result<Self> {
            later::Client::connect_blocking(sockaddr).map(Self)
        }

        /// Over a connected unix socket that is given away by its number.
        ///
        /// # Panics
        ///
        /// If it is none, and outside of a tokio runtime.
        pub fn new(fd: RawFd) -> Self {
            Self(later::Client::of_descriptor(fd))
        }

        /// Makes a unary call.
        ///
        /// # Errors
        ///
        /// See [`Error`](crate::Error).
        pub async fn request(&self, req: Request) -> Result<Response> {
            self.0.request(req).await
        }

        /// Opens a stream.
        ///
        /// # Errors
        ///
        /// See [`Error`](crate::Error).
        pub async fn new_stream(
            &self,
            req: Request,
            streaming_client: bool,
            streaming_server: bool,
        ) -> Result<StreamInner> {
            let opening = self.0.new_stream(req, streaming_client, streaming_server);
            opening.await
        }

        /// The client behind it.
        pub fn native(&self) -> &native::Client {
            self.0.native()
        }
    }

    impl AsRef<native::Client> for Client {
        fn as_ref(&self) -> &native::Client {
            self.0.native()
        }
    }

    /// Of which family descriptors are.
    #[derive(Clone, Copy, Debug, Default)]
    enum Domain {
        #[default]
        Unix,
        Vsock,
    }

    /// Serves services on a listener.
    #[derive(Debug, Default)]
    pub struct Server {
        later: later::Server,
        domain: Domain,
    }

    impl Server {
        /// Without listeners and services.
        #[must_use]
        pub fn new() -> Self {
            Self::default()
        }

        /// Listens on an address with its scheme.
        ///
        /// # Errors
        ///
        /// `Others`, with the words of the operating system.
        pub fn bind(self, sockaddr: &str) -> Result<Self> {
            let later = self.later.bind(sockaddr)?;
            Ok(Self { later, ..self })
        }

        /// Descriptors that are added are of unix sockets.
        #[must_use]
        pub fn set_domain_unix(mut self) -> Self {
            self.domain = Domain::Unix;
            self
        }

        /// Descriptors that are added are of vsock.
        #[must_use]
        pub fn set_domain_vsock(mut self) -> Self {
            self.domain = Domain::Vsock;
            self
        }

        /// Listens on a socket that is given away by its number.
        ///
        /// # Errors
        ///
        /// If the operating system refuses.
        pub fn add_listener(self, fd: RawFd) -> Result<Self> {
            let vsock = matches!(self.domain, Domain::Vsock);
            let later = self.later.add_descriptor(fd, vsock)?;
            Ok(Self { later, ..self })
        }

        /// Adds services.
        #[must_use]
        pub fn register_service(self, new: HashMap<String, Service>) -> Self {
            let later = self.later.register_service(new);
            Self { later, ..self }
        }

        /// Serves the last listener, in a task.
        ///
        /// # Errors
        ///
        /// `Others` if there is none.
        pub async fn start(&mut self) -> Result<()> {
            self.later.start().await
        }

        /// Stops listening, and closes connections.
        ///
        /// # Errors
        ///
        /// None.
        pub async fn shutdown(&mut self) -> Result<()> {
            self.later.shutdown().await
        }

        /// Closes connections.
        pub async fn disconnect(&mut self) {
            self.later.disconnect().await;
        }

        /// Stops accepting.
        pub async fn stop_listen(&mut self) {
            self.later.stop_listen().await;
        }
    }
}
