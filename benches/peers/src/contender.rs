//! What a contender has to be able to do.

use std::time::Duration;

use crate::Result;

/// The deadline that contenders with deadlines give each call, so that all of them pay for one.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The deadline of a call that is to be late, and how long its handler takes.
pub(crate) const LATE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// Calls at once at most.
pub(crate) const BURST: usize = 60_000;

/// One implementation of the echo: a connected client that holds its request.
pub(crate) trait Contender: Sized + Send + Sync + 'static {
    /// Serves for as long as it lives.
    type Server;

    /// The payload of a reply.
    type Reply: AsRef<[u8]> + Send;

    /// Whether its calls block the thread they are made on.
    const BLOCKS: bool = false;

    /// Returns once `address` (`unix:///path`) accepts connections.
    fn serve(address: &str) -> impl Future<Output = Result<Self::Server>>;

    /// Connects and prepares the request that carries `payload`.
    fn connect(address: &str, payload: Vec<u8>) -> impl Future<Output = Result<Self>>;

    /// Makes one call.
    fn echo(&self) -> impl Future<Output = Result<Self::Reply>> + Send;

    /// Receives a whole server stream, and checks the number and the lengths of its messages.
    fn stream(&self, _order: StreamOrder) -> impl Future<Output = Result<()>> + Send {
        async { Err("sends no streams".into()) }
    }

    /// Makes a call that is to run out of time, as [`LATE`] says. Returns whether it did: on a busy
    /// machine the answer may be there before the client runs again.
    fn late(&self) -> impl Future<Output = Result<bool>> + Send {
        async { Err("makes no late calls".into()) }
    }
}

/// What is asked of a server stream.
#[derive(Clone, Copy)]
pub(crate) struct StreamOrder {
    pub(crate) messages: u32,
    pub(crate) bytes: u32,
}

impl StreamOrder {
    /// The request's payload.
    pub(crate) fn to_payload(self) -> Vec<u8> {
        [self.messages.to_be_bytes(), self.bytes.to_be_bytes()].concat()
    }

    pub(crate) fn from_payload(payload: &[u8]) -> Option<Self> {
        let (messages, bytes) = payload.split_first_chunk()?;
        Some(Self {
            messages: u32::from_be_bytes(*messages),
            bytes: u32::from_be_bytes(bytes.try_into().ok()?),
        })
    }

    /// The payload of each message.
    pub(crate) fn message(self) -> Vec<u8> {
        vec![b'x'; usize::try_from(self.bytes).unwrap_or(usize::MAX)]
    }

    /// Whether the message that is number `received` may have `length` bytes.
    pub(crate) fn check(self, received: u32, length: usize) -> Result<()> {
        if usize::try_from(self.bytes)? != length {
            return Err(format!("message {received} of a stream has {length} bytes").into());
        }
        Ok(())
    }

    pub(crate) fn check_end(self, received: u32) -> Result<()> {
        if received != self.messages {
            return Err(format!("a stream of {received} messages, not {}", self.messages).into());
        }
        Ok(())
    }
}
