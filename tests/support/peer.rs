//! A peer that does what a test says, byte by byte.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use ttrpc_keepalive::Code;
use ttrpc_keepalive::wire::{
    Decoded, Decoder, Flags, Frame, Header, MessageType, Raw, Request, RequestHead, Response,
    encode_data, encode_request, encode_response, ping_number, pong,
};

use super::text;

/// The other end of a connection under test.
pub(crate) struct Peer<S> {
    pub(crate) stream: S,
    decoder: Decoder,
    unread: BytesMut,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            decoder: Decoder::new(),
            unread: BytesMut::new(),
        }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// The next frame, or `None` at the end of the stream. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            let mut input = &self.unread[..];
            let decoded = self.decoder.decode(&mut input).unwrap();
            let taken = self.unread.len() - input.len();
            self.unread.advance(taken);
            match decoded {
                Some(Decoded::Frame(frame)) => return Some(frame),
                Some(other) => panic!("a frame that nobody may send: {other:?}"),
                None => {}
            }
            self.unread.reserve(64 << 10);
            match self.stream.read_buf(&mut self.unread).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    pub(crate) async fn frame(&mut self) -> Frame {
        self.next().await.expect("the connection goes on")
    }

    /// The next frame is a PING; yields its number.
    pub(crate) async fn ping(&mut self) -> u64 {
        let frame = self.frame().await;
        assert_eq!(frame.header.message_type, MessageType::PING, "{frame:?}");
        ping_number(&frame.payload).unwrap()
    }

    /// The next frame is a PING, which is answered.
    pub(crate) async fn answer_ping(&mut self) {
        let frame = self.frame().await;
        assert_eq!(frame.header.message_type, MessageType::PING, "{frame:?}");
        self.pong(&frame).await;
    }

    pub(crate) async fn pong(&mut self, ping: &Frame) {
        let pong = pong(ping.header.stream_id, Flags::NONE, &ping.payload);
        self.send(pong).await;
    }

    /// The next frame is a REQUEST; yields its id.
    pub(crate) async fn request(&mut self) -> (u32, Request) {
        let frame = self.frame().await;
        assert_eq!(frame.header.message_type, MessageType::REQUEST, "{frame:?}");
        let request = Request::decode(&frame.payload).unwrap();
        (frame.header.stream_id, request)
    }

    /// Answers a call.
    pub(crate) async fn respond(&mut self, stream_id: u32) {
        let response = encode_response(stream_id, &text("hello")).unwrap();
        self.send(response).await;
    }

    /// The first exchange of a peer that knows PING: the PING and then the call are answered.
    pub(crate) async fn first_exchange(&mut self) {
        self.answer_ping().await;
        let (id, _) = self.request().await;
        self.respond(id).await;
    }

    /// Calls `demo.Echo/<method>` as a client.
    pub(crate) async fn call(&mut self, stream_id: u32, method: &str, message: &str) {
        let head = RequestHead {
            service: "demo.Echo",
            method,
            timeout_nano: 0,
            metadata: &[],
        };
        let request = encode_request(stream_id, Flags::NONE, &head, &text(message)).unwrap();
        self.send(request).await;
    }

    /// Begins `demo.Stream/<method>` as a client.
    pub(crate) async fn open(&mut self, stream_id: u32, method: &str, flags: Flags, first: &[u8]) {
        let head = RequestHead {
            service: "demo.Stream",
            method,
            timeout_nano: 0,
            metadata: &[],
        };
        let request = encode_request(stream_id, flags, &head, &Raw(first)).unwrap();
        self.send(request).await;
    }

    /// Sends a DATA frame.
    pub(crate) async fn data(&mut self, stream_id: u32, flags: Flags, message: &[u8]) {
        let data = encode_data(stream_id, flags, &Raw(message)).unwrap();
        self.send(data).await;
    }

    /// The next frame is DATA; yields its id, flags and message.
    pub(crate) async fn expect_data(&mut self) -> (u32, Flags, Bytes) {
        let Frame { header, payload } = self.frame().await;
        assert_eq!(header.message_type, MessageType::DATA, "{header:?}");
        (header.stream_id, header.flags, payload)
    }

    /// The next frame is a RESPONSE; yields its id and what is in it.
    pub(crate) async fn expect_response(&mut self) -> (u32, Response) {
        let Frame { header, payload } = self.frame().await;
        assert_eq!(header.message_type, MessageType::RESPONSE, "{header:?}");
        (header.stream_id, Response::decode(&payload).unwrap())
    }

    /// Nothing is sent to it for so long.
    pub(crate) async fn silence(&mut self, duration: Duration) {
        let next = tokio::time::timeout(duration, self.next()).await;
        assert!(next.is_err(), "expected silence, came {next:?}");
    }

    /// Answers PINGs and calls until the connection ends.
    pub(crate) async fn serve(&mut self) {
        while let Some(frame) = self.next().await {
            match frame.header.message_type {
                MessageType::PING => self.pong(&frame).await,
                MessageType::REQUEST => self.respond(frame.header.stream_id).await,
                _ => {}
            }
        }
    }
}

/// A frame of any type, with any id and flags.
pub(crate) fn junk(message_type: u8, stream_id: u32, flags: Flags, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        length: u32::try_from(payload.len()).unwrap(),
        stream_id,
        message_type: message_type.into(),
        flags,
    };
    [&header.encode(), payload].concat()
}

/// The payload of a frame as bytes, for comparison.
pub(crate) fn bytes(payload: &'static [u8]) -> Bytes {
    Bytes::from_static(payload)
}

/// Calls a method of `demo.Echo` as a scripted client, with a timeout.
pub(crate) async fn call_within(
    peer: &mut Peer<DuplexStream>,
    method: &str,
    id: u32,
    message: &str,
    timeout: Duration,
) {
    let head = RequestHead {
        service: "demo.Echo",
        method,
        timeout_nano: timeout.as_nanos().try_into().unwrap(),
        metadata: &[],
    };
    let request = encode_request(id, Flags::NONE, &head, &text(message)).unwrap();
    peer.send(request).await;
}

/// The code of the next response, which is to this call.
pub(crate) async fn code(peer: &mut Peer<DuplexStream>, id: u32) -> Code {
    let (of, response) = peer.expect_response().await;
    assert_eq!(of, id);
    response.status.map_or(Code::OK, |status| status.code())
}

/// Requests to methods of `demo.Echo` in one piece, with ids from `first` on.
pub(crate) fn requests(first: u32, methods: &[&str]) -> Vec<u8> {
    let calls = (first..).step_by(2).zip(methods);
    let frames = calls.map(|(id, method)| {
        let head = RequestHead {
            service: "demo.Echo",
            method,
            timeout_nano: 0,
            metadata: &[],
        };
        encode_request(id, Flags::NONE, &head, &Raw(b"")).unwrap()
    });
    frames.flatten().collect()
}
