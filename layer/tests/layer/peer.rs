//! What the tests share: a peer that is played, and bytes of frames.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::time::{Instant, timeout};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{
    Decoded, Decoder, Flags, Frame, Header, MessageType, PING_STREAM_ID, Raw, RequestHead,
    encode_request, encode_response, ping, ping_number, pong,
};
use ttrpc_keepalive_layer::{Layered, Liveness};

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// PING after a second of silence, and a second for an answer.
pub(crate) fn watch() -> Keepalive {
    Keepalive::every(secs(1)).timeout(secs(1))
}

/// The peer's end of the pipe.
pub(crate) struct Peer {
    pub(crate) stream: DuplexStream,
    decoder: Decoder,
    read: Vec<u8>,
}

impl Peer {
    pub(crate) fn new(stream: DuplexStream) -> Self {
        Self {
            stream,
            decoder: Decoder::new(),
            read: Vec::new(),
        }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// The next frame; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            let mut input = &self.read[..];
            let decoded = self.decoder.decode(&mut input).unwrap();
            let rest = input.len();
            self.read.drain(..self.read.len() - rest);
            match decoded {
                Some(Decoded::Frame(frame)) => return Some(frame),
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            let mut chunk = [0; 4096];
            let count = self.stream.read(&mut chunk).await.unwrap();
            if count == 0 {
                return None;
            }
            self.read.extend_from_slice(&chunk[..count]);
        }
    }

    pub(crate) async fn frame(&mut self, expected: MessageType) -> Frame {
        let frame = self.next().await.expect("a frame");
        assert_eq!(frame.header.message_type, expected, "{frame:?}");
        frame
    }

    /// Expects a PING as the layer sends it, and yields its number.
    pub(crate) async fn ping(&mut self) -> u64 {
        let frame = self.frame(MessageType::PING).await;
        assert_eq!(frame.header.stream_id, PING_STREAM_ID);
        ping_number(&frame.payload).unwrap()
    }

    pub(crate) async fn answer_ping(&mut self) {
        let number = self.ping().await;
        self.send(pong_of(number)).await;
    }

    /// Nothing comes for so long.
    pub(crate) async fn silence(&mut self, duration: Duration) {
        let came = timeout(duration, self.next()).await;
        assert!(came.is_err(), "{came:?}");
    }
}

/// A wrapped side, its two halves.
pub(crate) struct Side {
    pub(crate) reader: ReadHalf<Layered<DuplexStream>>,
    pub(crate) writer: WriteHalf<Layered<DuplexStream>>,
    pub(crate) liveness: Liveness,
}

impl Side {
    fn new(layered: Layered<DuplexStream>) -> Self {
        let liveness = layered.liveness();
        let (reader, writer) = split(layered);
        Self {
            reader,
            writer,
            liveness,
        }
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.writer.write_all(bytes.as_ref()).await.unwrap();
        self.writer.flush().await.unwrap();
    }

    /// Expects exactly these bytes.
    pub(crate) async fn expect(&mut self, bytes: impl AsRef<[u8]>) {
        let mut came = vec![0; bytes.as_ref().len()];
        self.reader.read_exact(&mut came).await.unwrap();
        assert_eq!(came, bytes.as_ref());
    }

    /// Reads all the time, as an application does. Yields what came, and how it ended.
    pub(crate) fn read_on(&mut self) -> tokio::task::JoinHandle<(Vec<u8>, std::io::Result<()>)> {
        let (dummy, _) = duplex(1);
        let dummy = Layered::client(dummy, &Keepalive::off()).unwrap();
        let mut reader = std::mem::replace(&mut self.reader, split(dummy).0);
        tokio::spawn(async move {
            let mut all = Vec::new();
            let mut chunk = [0; 1000];
            loop {
                match reader.read(&mut chunk).await {
                    Ok(0) => return (all, Ok(())),
                    Ok(count) => all.extend_from_slice(&chunk[..count]),
                    Err(error) => return (all, Err(error)),
                }
            }
        })
    }
}

pub(crate) fn client(keepalive: &Keepalive) -> (Side, Peer) {
    client_with_room(keepalive, 64 << 10)
}

/// A client whose pipe holds so many bytes.
pub(crate) fn client_with_room(keepalive: &Keepalive, room: usize) -> (Side, Peer) {
    let (here, there) = duplex(room);
    let layered = Layered::client(here, keepalive).unwrap();
    (Side::new(layered), Peer::new(there))
}

pub(crate) fn server(keepalive: &Keepalive) -> (Side, Peer) {
    let (here, there) = duplex(64 << 10);
    let layered = Layered::server(here, keepalive).unwrap();
    (Side::new(layered), Peer::new(there))
}

pub(crate) fn request(id: u32, limit: Duration) -> Vec<u8> {
    let head = RequestHead {
        service: "demo.Echo",
        method: "Say",
        timeout_nano: i64::try_from(limit.as_nanos()).unwrap(),
        metadata: &[],
    };
    encode_request(id, Flags::NONE, &head, &Raw(b"hello")).unwrap()
}

pub(crate) fn response(id: u32) -> Vec<u8> {
    encode_response(id, &Raw(b"hello")).unwrap()
}

pub(crate) fn pong_of(number: u64) -> Vec<u8> {
    pong(PING_STREAM_ID, Flags::NONE, &number.to_be_bytes())
}

pub(crate) fn ping_of(number: u64) -> Vec<u8> {
    ping(number).to_vec()
}

/// Any frame.
pub(crate) fn frame(message_type: u8, id: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        length: u32::try_from(payload.len()).unwrap(),
        stream_id: id,
        message_type: message_type.into(),
        flags: flags.into(),
    };
    [&header.encode(), payload].concat()
}

/// Tokio's timers have a grain of a millisecond.
pub(crate) fn assert_passed(start: Instant, expected: Duration) {
    let passed = start.elapsed();
    assert!(
        passed >= expected && passed <= expected + ms(3),
        "{passed:?} instead of {expected:?}"
    );
}
