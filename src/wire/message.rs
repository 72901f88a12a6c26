//! Messages of applications: how they are written into frames and read out of them.

use std::error::Error;
use std::ops::Deref;

use bytes::Bytes;
use protobuf::{CodedOutputStream, Message};

use crate::buffers;

/// A message that can be sent.
///
/// Every message of rust-protobuf is one, and so are bytes that are encoded already, as [`Raw`]. The
/// messages of another library become ones by a few lines, for each of them or for a wrapper around
/// all of them: see [`Decode`].
///
/// Fields that proto2 calls required are not checked; the receiver does that.
pub trait Encode {
    /// Bytes that [`encode`](Self::encode) is going to write. It is called before that, and may keep
    /// what `encode` needs: the message does not change in between.
    fn encoded_len(&self) -> usize;

    /// Writes the message behind what `out` holds: exactly as many bytes as
    /// [`encoded_len`](Self::encoded_len) has said.
    fn encode(&self, out: &mut Vec<u8>);
}

/// A message that can be received.
///
/// Every message of rust-protobuf is one, and so are bytes, as [`Raw`]. Messages of another library, and
/// of other formats, are given a wrapper:
///
/// ```
/// use std::error::Error;
/// use ttrpc_keepalive::{Client, Decode, Encode};
///
/// /// A line of text, in place of a message of protobuf.
/// struct Line(String);
///
/// impl Encode for Line {
///     fn encoded_len(&self) -> usize {
///         self.0.len()
///     }
///
///     fn encode(&self, out: &mut Vec<u8>) {
///         out.extend_from_slice(self.0.as_bytes());
///     }
/// }
///
/// impl Decode for Line {
///     fn decode(bytes: &[u8]) -> Result<Self, Box<dyn Error + Send + Sync>> {
///         Ok(Self(std::str::from_utf8(bytes)?.to_owned()))
///     }
/// }
///
/// # async fn example(client: &Client) -> Result<(), ttrpc_keepalive::Error> {
/// let Line(answer) = client.call("demo.Echo", "Say", &Line("hello".to_owned())).await?;
/// # let _ = answer; Ok(()) }
/// ```
///
/// For prost the wrapper is `struct Prost<M>(M)`, with `impl<M: prost::Message + Default>` of both
/// traits, which call `prost::Message::encoded_len`, `encode_raw` and `decode`.
pub trait Decode: Sized {
    /// Reads the message.
    ///
    /// # Errors
    ///
    /// If it is none. What the error displays is told to whoever sent it.
    fn decode(bytes: &[u8]) -> Result<Self, Box<dyn Error + Send + Sync>>;

    /// The same for bytes that the message may keep. They are most of a frame: what keeps a few of
    /// them keeps all of it in memory.
    ///
    /// # Errors
    ///
    /// As for [`decode`](Self::decode).
    fn decode_owned(bytes: Bytes) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let message = Self::decode(&bytes);
        buffers::give_bytes(bytes);
        message
    }
}

impl<M: Message> Encode for M {
    fn encoded_len(&self) -> usize {
        usize::try_from(self.compute_size()).unwrap_or(usize::MAX)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let mut out = CodedOutputStream::vec(out);
        self.write_to_with_cached_sizes(&mut out)
            .and_then(|()| out.flush())
            .expect("a vector takes every byte");
    }
}

impl<M: Message> Decode for M {
    fn decode(bytes: &[u8]) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Ok(Self::parse_from_bytes(bytes)?)
    }

    fn decode_owned(bytes: Bytes) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let message = Self::parse_from_tokio_bytes(&bytes);
        // Not taken back if the message has kept some of it.
        buffers::give_bytes(bytes);
        Ok(message?)
    }
}

/// Bytes as a message: one that is encoded elsewhere, or is none of protobuf.
///
/// What is received is a `Raw<Bytes>`; what is sent may be in any memory.
///
/// ```
/// use ttrpc_keepalive::{Client, Raw};
///
/// # async fn example(client: &Client) -> Result<(), ttrpc_keepalive::Error> {
/// let Raw(answer) = client.call("demo.Echo", "Say", &Raw(b"hello")).await?;
/// # let _: bytes::Bytes = answer; Ok(()) }
/// ```
#[expect(clippy::exhaustive_structs, reason = "a name for bytes, nothing else")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Raw<B = Bytes>(pub B);

impl<B> Deref for Raw<B> {
    type Target = B;

    fn deref(&self) -> &B {
        &self.0
    }
}

impl<B: AsRef<[u8]>> Encode for Raw<B> {
    fn encoded_len(&self) -> usize {
        self.0.as_ref().len()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.as_ref());
    }
}

impl Decode for Raw {
    fn decode(bytes: &[u8]) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Ok(Self(Bytes::copy_from_slice(bytes)))
    }

    fn decode_owned(bytes: Bytes) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Ok(Self(bytes))
    }
}
