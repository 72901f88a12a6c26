//! A peer that does what it is told, frame by frame.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;
use ttrpc_keepalive::wire::{Decoded, Decoder, Frame, MessageType};

use crate::Result;
use crate::report::claim;

const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct RawServer(UnixListener);

impl RawServer {
    pub(crate) fn bind(socket: &Path) -> Result<Self> {
        Ok(Self(UnixListener::bind(socket)?))
    }

    pub(crate) async fn accept(&self) -> Result<RawPeer> {
        let (stream, _) = timeout(PATIENCE, self.0.accept()).await??;
        Ok(RawPeer::new(stream))
    }
}

pub(crate) struct RawPeer {
    stream: UnixStream,
    decoder: Decoder,
    unread: Vec<u8>,
}

impl RawPeer {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            decoder: Decoder::new(),
            unread: Vec::new(),
        }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes).await?)
    }

    /// The next frame that is not skipped; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Frame>> {
        loop {
            let mut input = &self.unread[..];
            let decoded = self.decoder.decode(&mut input)?;
            let taken = self.unread.len() - input.len();
            self.unread.drain(..taken);
            match decoded {
                Some(Decoded::Frame(frame)) => return Ok(Some(frame)),
                Some(_) => continue,
                None => {}
            }
            if self.stream.read_buf(&mut self.unread).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// The next frame; there is one.
    pub(crate) async fn expect_any(&mut self) -> Result<Frame> {
        let frame = timeout(PATIENCE, self.next()).await??;
        frame.ok_or_else(|| "the connection ended".into())
    }

    /// The next frame, which is of this type.
    pub(crate) async fn expect(&mut self, message_type: MessageType) -> Result<Frame> {
        let frame = self.expect_any().await?;
        claim!(
            frame.header.message_type == message_type,
            "{:?} came",
            frame.header
        );
        Ok(frame)
    }
}
