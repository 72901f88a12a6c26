//! Random interleavings of streams against a model: what a client may send on each id, and what its
//! receivers get.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use support::*;
use tokio::io::DuplexStream;
use tokio::time::timeout;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{Flags, MessageType, Raw, encode_response};
use ttrpc_keepalive::{Client, Error, Receiver, Sender};

/// What happens next; numbers choose a stream.
#[derive(Clone, Copy, Debug)]
enum Step {
    Open(Kind),
    Send(usize, u8),
    Finish(usize),
    DropReceiver(usize),
    /// From the server, with these flags.
    Data(usize, u8),
    Response(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Down,
    Both,
}

/// One stream, as the rules say it must be.
struct Stream {
    sender: Option<Sender<Raw>>,
    receiver: Option<Receiver<Raw>>,
    kind: Kind,
    /// The server's last frame was seen.
    ended: bool,
    /// This side has said, or had to say, that nothing follows.
    closed: bool,
    expected: Vec<Bytes>,
}

/// What is expected on the wire: stream id, type, flags and, for DATA, the message.
type Wire = Vec<(u32, MessageType, Flags, Bytes)>;

fn end() -> Flags {
    Flags::REMOTE_CLOSED | Flags::NO_DATA
}

impl Stream {
    /// This side says that nothing follows, if it still may.
    fn close(&mut self, id: u32, wire: &mut Wire) {
        if self.kind == Kind::Both && !self.ended && !self.closed {
            wire.push((id, MessageType::DATA, end(), Bytes::new()));
        }
        self.closed = true;
    }

    fn is_known(&self) -> bool {
        !self.ended && (self.sender.is_some() || self.receiver.is_some())
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let stream = 0..4usize;
    let step = prop_oneof![
        2 => prop_oneof![Just(Step::Open(Kind::Down)), Just(Step::Open(Kind::Both))],
        4 => (stream.clone(), any::<u8>()).prop_map(|(stream, length)| Step::Send(stream, length)),
        1 => stream.clone().prop_map(Step::Finish),
        1 => stream.clone().prop_map(Step::DropReceiver),
        4 => (stream.clone(), prop_oneof![4 => Just(0u8), 1 => 0..8u8])
            .prop_map(|(stream, flags)| Step::Data(stream, flags)),
        1 => stream.prop_map(Step::Response),
    ];
    prop::collection::vec(step, 1..60)
}

async fn open(client: &Client, kind: Kind) -> Stream {
    let (sender, receiver) = match kind {
        Kind::Down => {
            let call = client.server_stream::<_, Raw>("demo.Stream", "Down", &Raw(""));
            (None, call.await.unwrap())
        }
        Kind::Both => {
            let call = client.bidi_stream::<Raw, Raw>("demo.Stream", "Both");
            let (sender, receiver) = call.await.unwrap();
            (Some(sender), receiver)
        }
    };
    Stream {
        sender,
        receiver: Some(receiver),
        kind,
        ended: false,
        closed: kind == Kind::Down,
        expected: Vec::new(),
    }
}

/// Does a step and says what it must put on the wire.
async fn step(
    step: Step,
    client: &Client,
    peer: &mut Peer<DuplexStream>,
    streams: &mut BTreeMap<u32, Stream>,
) -> Wire {
    let mut wire = Wire::new();
    let chosen = match step {
        Step::Open(kind) => {
            let id = u32::try_from(streams.len() * 2 + 1).unwrap();
            streams.insert(id, open(client, kind).await);
            let flags = match kind {
                Kind::Down => Flags::REMOTE_CLOSED,
                Kind::Both => Flags::REMOTE_OPEN | Flags::NO_DATA,
            };
            wire.push((id, MessageType::REQUEST, flags, Bytes::new()));
            return wire;
        }
        Step::Send(at, _)
        | Step::Finish(at)
        | Step::DropReceiver(at)
        | Step::Data(at, _)
        | Step::Response(at) => at,
    };
    // The newest streams, so that most steps meet an open one.
    let Some((id, stream)) = streams.iter_mut().rev().nth(chosen) else {
        return wire;
    };
    let id = *id;
    match step {
        Step::Open(_) => {}
        Step::Send(_, length) => {
            if let Some(sender) = &mut stream.sender {
                let message = vec![length; length.into()];
                match sender.send(&raw(&message)).await {
                    Ok(()) if !stream.ended => {
                        let message = message.into();
                        wire.push((id, MessageType::DATA, Flags::NONE, message));
                    }
                    Err(Error::StreamEnded) if stream.ended => {}
                    other => panic!("{other:?} on {id}, ended: {}", stream.ended),
                }
            }
        }
        Step::Finish(_) => {
            if let Some(sender) = stream.sender.take() {
                sender.finish();
                stream.close(id, &mut wire);
            }
        }
        Step::DropReceiver(_) => stream.receiver = None,
        Step::Data(_, bits) => {
            let flags = Flags::from(bits);
            peer.data(id, flags, b"message").await;
            if stream.is_known() {
                if stream.receiver.is_some() && !flags.contains(Flags::NO_DATA) {
                    stream.expected.push("message".into());
                }
                stream.ended = flags.contains(Flags::REMOTE_CLOSED);
            }
        }
        Step::Response(_) => {
            peer.send(encode_response(id, &Raw(b"")).unwrap()).await;
            stream.ended = true;
        }
    }
    wire
}

async fn run(steps: Vec<Step>) {
    let (client, mut peer) = scripted(Keepalive::off(), 1 << 20);
    let mut streams = BTreeMap::new();
    for (at, next) in steps.into_iter().enumerate() {
        for (id, message_type, flags, message) in step(next, &client, &mut peer, &mut streams).await
        {
            let frame = timeout(secs(1), peer.frame()).await;
            let frame = frame.unwrap_or_else(|_| panic!("{message_type} on {id}, step {at}"));
            let header = frame.header;
            let seen = (header.stream_id, header.message_type, header.flags);
            assert_eq!(seen, (id, message_type, flags), "step {at}");
            if message_type == MessageType::DATA {
                assert_eq!(frame.payload, message, "step {at}");
            }
        }
        // RFC KA-38, KA-39: and nothing else.
        peer.silence(ms(10)).await;
    }
    let mut wire = Wire::new();
    for (id, mut stream) in streams {
        if stream.sender.take().is_some() {
            stream.close(id, &mut wire);
        }
        if let Some(mut receiver) = stream.receiver.take() {
            for expected in stream.expected {
                assert_eq!(*receiver.next().await.unwrap().unwrap(), expected);
            }
            let after = timeout(ms(10), receiver.next()).await;
            match after {
                Ok(None) => assert!(stream.ended),
                Err(_) => assert!(!stream.ended),
                Ok(Some(more)) => panic!("{more:?}"),
            }
        }
    }
    for (id, ..) in wire {
        assert_eq!(peer.expect_data().await, (id, end(), Bytes::new()));
    }
    peer.silence(ms(10)).await;
    // Nothing is left open: the connection closes with its last handle.
    drop(client);
    let closed = timeout(secs(1), peer.next()).await;
    assert_eq!(closed.expect("it closes"), None);
}

proptest! {
    #[test]
    fn any_interleaving_keeps_the_rules_of_streams(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(run(steps));
    }
}
