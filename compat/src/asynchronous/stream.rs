//! Streams of bytes.

use std::sync::{Arc, Mutex, PoisonError};

use ttrpc_keepalive as native;

use crate::convert::error;
use crate::error::{Error, Result};
use crate::proto::Code;
use native::{Raw, Receiver, Reply, Requests, Responses, Sender};

/// A stream whose messages are bytes.
#[derive(Debug)]
pub struct StreamInner {
    sender: StreamSender,
    receiver: StreamReceiver,
}

/// The half of a stream that sends.
#[derive(Clone, Debug)]
pub struct StreamSender(Sending);

#[derive(Clone, Debug)]
enum Sending {
    /// `None` when its requests have ended. They end with the last message that is on its way.
    Client(Arc<Mutex<Option<Arc<Sender<Raw>>>>>),
    Server(Arc<Responses<Raw>>),
    /// The one request was sent with the call.
    Nothing,
}

/// The half of a stream that receives.
#[derive(Debug)]
pub struct StreamReceiver {
    receiving: Receiving,
    ended: bool,
}

#[derive(Debug)]
enum Receiving {
    Client(Receiver<Raw>),
    Reply(Reply<Raw>),
    Server(Requests<Raw>),
}

impl StreamInner {
    fn new(sender: Sending, receiving: Receiving) -> Self {
        Self {
            sender: StreamSender(sender),
            receiver: StreamReceiver {
                receiving,
                ended: false,
            },
        }
    }

    pub(super) fn of_receiver(receiver: Receiver<Raw>) -> Self {
        Self::new(Sending::Nothing, Receiving::Client(receiver))
    }

    pub(super) fn of_both(sender: Sender<Raw>, receiver: Receiver<Raw>) -> Self {
        Self::new(Sending::of(sender), Receiving::Client(receiver))
    }

    pub(super) fn of_sender(sender: Sender<Raw>, reply: Reply<Raw>) -> Self {
        Self::new(Sending::of(sender), Receiving::Reply(reply))
    }

    pub(super) fn served(requests: Requests<Raw>, responses: Responses<Raw>) -> Self {
        let responses = Sending::Server(Arc::new(responses));
        Self::new(responses, Receiving::Server(requests))
    }

    /// Its two halves.
    pub fn split(self) -> (StreamSender, StreamReceiver) {
        (self.sender, self.receiver)
    }

    /// As [`StreamSender::send`].
    ///
    /// # Errors
    ///
    /// The same.
    pub async fn send(&self, message: Vec<u8>) -> Result<()> {
        self.sender.send(message).await
    }

    /// As [`StreamSender::close_send`].
    ///
    /// # Errors
    ///
    /// The same.
    pub async fn close_send(&self) -> Result<()> {
        self.sender.close_send().await
    }

    /// As [`StreamReceiver::recv`].
    ///
    /// # Errors
    ///
    /// The same.
    pub async fn recv(&mut self) -> Result<Vec<u8>> {
        self.receiver.recv().await
    }
}

impl Sending {
    fn of(sender: Sender<Raw>) -> Self {
        Self::Client(Arc::new(Mutex::new(Some(Arc::new(sender)))))
    }
}

impl StreamSender {
    /// Sends a message. One for a stream that the peer has ended is dropped: how it ended is told by the
    /// other half.
    ///
    /// # Errors
    ///
    /// `LocalClosed` if this half was closed, or the connection has ended. `Others` if the message is too
    /// large.
    pub async fn send(&self, message: Vec<u8>) -> Result<()> {
        match &self.0 {
            Sending::Client(sender) => {
                let sender = sender
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone();
                let sender = sender.ok_or(Error::LocalClosed)?;
                match sender.send(&Raw(message.into())).await {
                    Ok(()) | Err(native::Error::StreamEnded) => Ok(()),
                    Err(failed) => Err(error(&failed)),
                }
            }
            Sending::Server(responses) => responses
                .send(&Raw(message.into()))
                .await
                .map_err(of_status),
            Sending::Nothing => Err(Error::LocalClosed),
        }
    }

    /// Says that no message follows.
    ///
    /// # Errors
    ///
    /// `LocalClosed` if that was said.
    #[expect(clippy::unused_async, reason = "the signature of the crate ttrpc")]
    pub async fn close_send(&self) -> Result<()> {
        let Sending::Client(sender) = &self.0 else {
            return Err(Error::LocalClosed);
        };
        let sender = sender.lock().unwrap_or_else(PoisonError::into_inner).take();
        sender.map(drop).ok_or(Error::LocalClosed)
    }
}

/// What a handler's half failed with.
fn of_status(status: native::Status) -> Error {
    match status.code() {
        native::Code::UNAVAILABLE => Error::Socket(status.message().to_owned()),
        native::Code::CANCELLED => Error::RemoteClosed,
        code => {
            let code = protobuf::Enum::from_i32(code.value()).unwrap_or(Code::UNKNOWN);
            crate::error::get_rpc_status(code, status.message())
        }
    }
}

impl StreamReceiver {
    /// The next message.
    ///
    /// # Errors
    ///
    /// `Eof` at the end, and `RemoteClosed` after it. `RpcStatus` if the stream failed. `Socket` if the
    /// connection did.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no message.
    pub async fn recv(&mut self) -> Result<Vec<u8>> {
        if self.ended {
            return Err(Error::RemoteClosed);
        }
        let received = match &mut self.receiving {
            Receiving::Client(receiver) => receiver
                .next()
                .await
                .map(|next| next.map_err(|e| error(&e))),
            Receiving::Reply(reply) => {
                let reply = reply.await;
                self.ended = true;
                Some(reply.map_err(|e| error(&e)))
            }
            Receiving::Server(requests) => {
                requests.next().await.map(|next| next.map_err(of_status))
            }
        };
        match received {
            Some(Ok(Raw(message))) => Ok(message.into()),
            Some(Err(failed)) => {
                self.ended = true;
                Err(failed)
            }
            None => {
                self.ended = true;
                Err(Error::Eof)
            }
        }
    }
}
