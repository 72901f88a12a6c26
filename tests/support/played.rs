//! What must hold of a server whatever is sent to it. Bytes choose the frames, so a fuzzer can.

use std::collections::HashMap;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{sleep, timeout};
use ttrpc_keepalive::wire::{
    Decoded, Decoder, Flags, Frame, Header, MessageType, Raw, RequestHead, encode_data,
    encode_request, ping, pong,
};
use ttrpc_keepalive::{Requests, Responses, Server, Service, Status};

/// Plays the frames that `data` chooses to a server, and checks what comes back.
pub(crate) fn check(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O");
    let choices = Choices {
        bytes: data,
        opened: 0,
    };
    runtime.block_on(play(choices));
}

/// `Say` answers at once, `Sleep` a second later, `Up` when its requests have ended, `Down` sends as
/// many messages as its request has bytes, `Both` sends each request back.
fn server() -> Server {
    const SERVICE: &str = "s";
    let server = Server::builder()
        .handler_limit(3)
        .waiting_limit(3)
        .stream_limit(150)
        .owed_limit(500)
        .service(
            Service::new(SERVICE, ())
                .unary("Say", |(), _, q: Raw| async move { Ok(q) })
                .unary("Sleep", |(), _, q: Raw| async move {
                    sleep(Duration::from_secs(1)).await;
                    Ok(q)
                })
                .client_stream("Up", |(), _, mut requests: Requests<Raw>| async move {
                    while let Some(request) = requests.next().await {
                        request?;
                    }
                    Ok(Raw(""))
                })
                .server_stream(
                    "Down",
                    |(), _, q: Raw, responses: Responses<Raw>| async move {
                        for _ in 0..q.len() {
                            responses.send(&q).await?;
                        }
                        Ok(())
                    },
                )
                .bidi_stream(
                    "Both",
                    |(), _, mut requests: Requests<Raw>, responses: Responses<Raw>| async move {
                        while let Some(request) = requests.next().await {
                            responses.send(&request?).await?;
                        }
                        Ok::<_, Status>(())
                    },
                ),
        );
    server.build().expect("no limit is 0")
}

const METHODS: [&str; 6] = ["Say", "Sleep", "Up", "Down", "Both", "None"];

/// Bytes, each of which decides something.
struct Choices<'a> {
    bytes: &'a [u8],
    /// How many streams were.
    opened: u32,
}

impl Choices<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let (taken, rest) = self.bytes.split_at(count.min(self.bytes.len()));
        self.bytes = rest;
        taken.to_vec()
    }

    /// Mostly a new one, or one of those that were opened last.
    fn stream_id(&mut self, opens: bool, about: u8) -> u32 {
        match about {
            0..=199 if opens => {
                self.opened += 1;
                2 * self.opened - 1
            }
            0..=199 => (2 * self.opened).saturating_sub(2 * u32::from(about % 4) + 1),
            200..=253 => u32::from(about % 32),
            254.. => u32::MAX - u32::from(0xFF - about),
        }
    }
}

/// What is sent next, or done.
enum Step {
    Send(Vec<u8>),
    Wait(Duration),
    /// Answers are taken.
    Read,
}

fn step(choices: &mut Choices<'_>) -> Option<Step> {
    let (kind, about, more) = (choices.next()?, choices.next()?, choices.next()?);
    let stream_id = choices.stream_id(kind % 16 <= 4, about);
    let method = METHODS[usize::from(kind / 16 % 8) % METHODS.len()];
    let flags = match (kind, method) {
        (128.., _) => Flags::from(more & 0x0F),
        // As they should be, so that streams stay open for a while.
        (_, "Up" | "Both") if kind % 16 <= 4 => Flags::REMOTE_OPEN | Flags::NO_DATA,
        _ => Flags::NONE,
    };
    let size = usize::from(more >> 2);
    Some(Step::Send(match kind % 16 {
        0..=4 => {
            let head = RequestHead {
                service: "s",
                method,
                timeout_nano: if kind > 240 { -1 } else { 0 },
                metadata: &[],
            };
            encode_request(stream_id, flags, &head, &Raw(&vec![kind; size])).ok()?
        }
        5..=9 => encode_data(stream_id, flags, &Raw(&vec![kind; size])).ok()?,
        10 => ping(more.into()).to_vec(),
        11 => pong(stream_id, flags, &[more; 8]),
        // A header with this payload, or with less of it than it says: seldom, since what follows
        // may be taken for the rest of it.
        12 if about > 250 => {
            let header = Header {
                length: u32::from(more) << (about % 20),
                stream_id,
                message_type: (kind / 16).into(),
                flags,
            };
            [&header.encode()[..], &choices.take(more.into())].concat()
        }
        13 if about > 250 => choices.take(more.into()),
        12..=14 => return Some(Step::Wait(Duration::from_millis(u64::from(more) * 10))),
        _ => return Some(Step::Read),
    }))
}

/// What was sent and what came, by stream.
#[derive(Default)]
struct Seen {
    requests: HashMap<u32, usize>,
    /// Frames that end a stream.
    ends: HashMap<u32, usize>,
    pings: usize,
    pongs: usize,
}

impl Seen {
    fn sent(&mut self, frame: &Decoded) {
        let (Decoded::Frame(Frame { header, .. }) | Decoded::Skipped { header, .. }) = frame else {
            return;
        };
        match header.message_type {
            MessageType::REQUEST => *self.requests.entry(header.stream_id).or_default() += 1,
            MessageType::PING => self.pings += 1,
            _ => {}
        }
    }

    fn came(&mut self, decoded: Decoded) {
        let Decoded::Frame(Frame { header, .. }) = decoded else {
            panic!("a frame that nobody may send: {decoded:?}");
        };
        let Header {
            message_type,
            stream_id,
            flags,
            ..
        } = header;
        if message_type == MessageType::PONG {
            self.pongs += 1;
            return;
        }
        // RFC KA-40
        let requests = self.requests.get(&stream_id).copied().unwrap_or_default();
        let ends = self.ends.entry(stream_id).or_default();
        // RFC KA-39: what follows the last answer to all that was asked on this id.
        assert!(*ends < requests, "{header:?} after {ends} of {requests}");
        match message_type {
            MessageType::RESPONSE => *ends += 1,
            MessageType::DATA if flags.contains(Flags::REMOTE_CLOSED) => *ends += 1,
            MessageType::DATA => {}
            other => panic!("a server never sends {other:?}"),
        }
    }
}

async fn play(mut choices: Choices<'_>) {
    let (here, mut peer) = tokio::io::duplex(2000);
    let server = server();
    let serving = tokio::spawn(async move { server.serve_connection(here).await });
    let mut seen = Seen::default();
    let (mut sent, mut came) = (Some(Decoder::new()), Decoder::new());
    while let Some(step) = step(&mut choices) {
        match step {
            Step::Send(bytes) => {
                // A server that waits for its answers to be taken reads on when they are.
                let mut left = &bytes[..];
                while !left.is_empty() && !serving.is_finished() {
                    let write = timeout(Duration::from_millis(1), peer.write(left)).await;
                    let Ok(written) = write else {
                        read(&mut peer, &mut came, &mut seen).await;
                        continue;
                    };
                    let Ok(written) = written else {
                        break;
                    };
                    let (mut piece, rest) = left.split_at(written);
                    left = rest;
                    note(&mut sent, &mut piece, &mut seen);
                }
            }
            Step::Wait(duration) => sleep(duration).await,
            Step::Read => read(&mut peer, &mut came, &mut seen).await,
        }
    }
    // All that can end has ended by then.
    sleep(Duration::from_secs(5)).await;
    read(&mut peer, &mut came, &mut seen).await;
    drop(peer);
    let end = timeout(Duration::from_secs(60), serving).await;
    end.expect("it ends with the pipe").expect("nothing panics");
    assert!(seen.pongs <= seen.pings);
}

/// Takes note of what the server is going to understand. Nothing, behind an error.
fn note(decoder: &mut Option<Decoder>, piece: &mut &[u8], seen: &mut Seen) {
    while let Some(sent) = decoder {
        match sent.decode(piece) {
            Ok(Some(frame)) => seen.sent(&frame),
            Ok(None) => return,
            Err(_) => *decoder = None,
        }
    }
}

/// Takes what there is.
async fn read(peer: &mut DuplexStream, decoder: &mut Decoder, seen: &mut Seen) {
    let mut chunk = [0; 4096];
    while let Ok(read) = timeout(Duration::from_millis(1), peer.read(&mut chunk)).await {
        let read = read.unwrap_or_default();
        if read == 0 {
            return;
        }
        let mut input = &chunk[..read];
        while let Some(decoded) = decoder.decode(&mut input).expect("it speaks ttrpc") {
            seen.came(decoded);
        }
    }
}
