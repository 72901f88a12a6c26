//! The other end of a shared stream, piece by piece.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use protobuf::well_known_types::wrappers::BytesValue;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use ttrpc_keepalive::transport::Transport;
use ttrpc_keepalive::wire::{Cut, Cutter, Flags, Header, MessageType};
use ttrpc_keepalive::{Client, Context, Error, Server, Service, Status};
use ttrpc_keepalive_nri::multiplexer::{Connection, Connections, Multiplexer};

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Both connections of a stream with so much room, and its other end.
pub(crate) fn split(room: usize) -> (Connections, Peer<DuplexStream>) {
    let (here, there) = tokio::io::duplex(room);
    (Multiplexer::new().split(here), Peer::new(there))
}

/// What stands at the other end and knows pieces only.
pub(crate) struct Peer<S> {
    pub(crate) stream: S,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream }
    }

    pub(crate) async fn send(&mut self, id: u32, bytes: &[u8]) {
        self.stream.write_all(&piece(id, bytes)).await.unwrap();
    }

    /// The next piece, or `None` if the stream ends.
    pub(crate) async fn next(&mut self) -> Option<(u32, Vec<u8>)> {
        let id = self.stream.read_u32().await.ok()?;
        let length = self.stream.read_u32().await.unwrap();
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut bytes).await.unwrap();
        Some((id, bytes))
    }

    /// The next frame, which must be short, with its connection.
    pub(crate) async fn next_frame(&mut self) -> Option<(u32, Header, Vec<u8>)> {
        let (id, bytes) = self.next().await?;
        let frames = frames(&bytes);
        let [(header, payload)] = &frames[..] else {
            panic!("{} frames in a piece", frames.len());
        };
        Some((id, *header, payload.clone()))
    }
}

pub(crate) fn piece(id: u32, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap();
    [&id.to_be_bytes(), &length.to_be_bytes(), bytes].concat()
}

/// A frame with a payload of this length.
pub(crate) fn frame(stream_id: u32, length: usize) -> Vec<u8> {
    let fill = u8::try_from(stream_id & 0xff).unwrap();
    data(stream_id, &vec![fill; length])
}

pub(crate) fn data(stream_id: u32, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        length: u32::try_from(payload.len()).unwrap(),
        stream_id,
        message_type: MessageType::DATA,
        flags: Flags::NONE,
    };
    [&header.encode()[..], payload].concat()
}

/// The frames in these bytes, which must be whole.
pub(crate) fn frames(bytes: &[u8]) -> Vec<(Header, Vec<u8>)> {
    let mut cutter = Cutter::new();
    let mut input = bytes;
    let mut frames: Vec<(Header, Vec<u8>)> = Vec::new();
    loop {
        match cutter.cut(&mut input, usize::MAX).unwrap() {
            Cut::Nothing => break,
            Cut::Header(header) => frames.push((header, Vec::new())),
            Cut::Payload(payload) => frames.last_mut().unwrap().1.extend_from_slice(payload),
        }
    }
    assert!(cutter.is_between_frames());
    frames
}

/// Writes all, and passes it on.
pub(crate) async fn write(connection: &mut Connection, bytes: &[u8]) -> io::Result<()> {
    let mut left = bytes;
    while !left.is_empty() {
        let slices = [IoSlice::new(left)];
        let taken = poll_fn(|cx| connection.poll_write(cx, &slices)).await?;
        left = &left[taken..];
    }
    poll_fn(|cx| connection.poll_flush(cx)).await
}

/// Reads at least so much. Less if the stream ends.
pub(crate) async fn read(connection: &mut Connection, length: usize) -> io::Result<Vec<u8>> {
    let mut buffer = BytesMut::new();
    while buffer.len() < length {
        buffer.reserve(length);
        let limit = length - buffer.len();
        if poll_fn(|cx| connection.poll_read(cx, &mut buffer, limit)).await? == 0 {
            break;
        }
    }
    Ok(buffer.to_vec())
}

pub(crate) fn echo() -> Server {
    let say = |_: Arc<()>, _: Context, request: BytesValue| async { Ok::<_, Status>(request) };
    let service = Service::new("demo.Echo", Arc::new(())).unary("Say", say);
    Server::builder().service(service).build().unwrap()
}

/// Has a message echoed.
pub(crate) async fn say(client: &Client, length: usize) -> Result<(), Error> {
    let mut request = BytesValue::new();
    request.value = vec![7; length];
    let reply: BytesValue = client.call("demo.Echo", "Say", &request).await?;
    assert_eq!(reply, request);
    Ok(())
}

/// The same with a limit.
pub(crate) async fn say_within(client: &Client, limit: Duration) -> Result<(), Error> {
    let request = BytesValue::new();
    let call = client.call("demo.Echo", "Say", &request).timeout(limit);
    call.await.map(|_: BytesValue| ())
}
