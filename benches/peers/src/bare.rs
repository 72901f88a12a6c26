//! The limit: what tokio and a socket can give. Frames with ttrpc's ten-byte header are written in
//! batches and matched to their callers by id; there is no envelope, no message, no deadline, and
//! nothing bounds what waits.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::Result;
use crate::contender::{Contender, StreamOrder};

const HEADER: usize = 10;

/// The types of frames: one that is answered by itself, and one that asks for many.
const ECHO: u8 = 1;
const STREAM: u8 = 2;

/// Messages of a stream are written when this much has come together.
const BATCH: usize = 64 * 1024;

/// Room asked for when the read buffer is used up.
const READ: usize = 64 * 1024;

/// From this size on a payload is written from where it is instead of being copied.
const LARGE: usize = 16 * 1024;

pub(crate) struct Echo {
    connection: Arc<Connection>,
    payload: Bytes,
}

impl Contender for Echo {
    type Server = JoinHandle<()>;
    type Reply = Bytes;

    async fn serve(address: &str) -> Result<Self::Server> {
        let listener = UnixListener::bind(crate::path(address)?)?;
        Ok(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream));
            }
        }))
    }

    async fn connect(address: &str, payload: Vec<u8>) -> Result<Self> {
        let (reader, writer) = UnixStream::connect(crate::path(address)?)
            .await?
            .into_split();
        let connection = Arc::new(Connection::default());
        tokio::spawn(write(writer, connection.clone()));
        let receiving = connection.clone();
        tokio::spawn(async move {
            let _ = read(reader, &receiving).await;
            receiving.state().end();
        });
        Ok(Self {
            connection,
            payload: payload.into(),
        })
    }

    async fn echo(&self) -> Result<Self::Reply> {
        let (caller, reply) = oneshot::channel();
        self.connection
            .queue(ECHO, &self.payload, Caller::Once(caller))?;
        Ok(reply.await?)
    }

    async fn stream(&self, order: StreamOrder) -> Result<()> {
        let (caller, mut messages) = mpsc::unbounded_channel();
        let payload = order.to_payload().into();
        let id = self
            .connection
            .queue(STREAM, &payload, Caller::Stream(caller))?;
        for received in 0..order.messages {
            let message: Bytes = messages.recv().await.ok_or("the stream ended early")?;
            order.check(received, message.len())?;
        }
        self.connection.state().waiting.remove(&id);
        Ok(())
    }
}

#[derive(Default)]
struct Connection {
    state: Mutex<State>,
    queued: Notify,
}

impl Connection {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self, kind: u8, payload: &Bytes, caller: Caller) -> Result<u32> {
        let id = self.state().queue(kind, payload, caller)?;
        self.queued.notify_one();
        Ok(id)
    }
}

#[derive(Default)]
struct State {
    last_id: u32,
    ended: bool,
    outbox: Vec<Batch>,
    waiting: HashMap<u32, Caller>,
}

enum Caller {
    Once(oneshot::Sender<Bytes>),
    Stream(mpsc::UnboundedSender<Bytes>),
}

/// Frames to be written at once: small ones whole, then a header's large payload, if any.
#[derive(Default)]
struct Batch {
    small: BytesMut,
    large: Bytes,
}

impl State {
    fn queue(&mut self, kind: u8, payload: &Bytes, caller: Caller) -> Result<u32> {
        if self.ended {
            return Err("the connection has ended".into());
        }
        self.last_id = self.last_id.wrapping_add(1);
        if self
            .outbox
            .last()
            .is_none_or(|last| last.large.has_remaining())
        {
            self.outbox.push(Batch::default());
        }
        if let Some(last) = self.outbox.last_mut() {
            last.small.put_u32(payload.len().try_into()?);
            last.small.put_u32(self.last_id);
            last.small.put_slice(&[kind, 0]);
            if payload.len() < LARGE {
                last.small.put_slice(payload);
            } else {
                last.large = payload.clone();
            }
        }
        self.waiting.insert(self.last_id, caller);
        Ok(self.last_id)
    }

    /// A caller that is gone needs no reply.
    fn deliver(&mut self, id: u32, payload: Bytes) {
        let kept = match self.waiting.remove(&id) {
            None => None,
            Some(Caller::Once(caller)) => {
                let _ = caller.send(payload);
                None
            }
            Some(Caller::Stream(caller)) => {
                let taken = caller.send(payload).is_ok();
                taken.then_some(Caller::Stream(caller))
            }
        };
        if let Some(caller) = kept {
            self.waiting.insert(id, caller);
        }
    }

    /// Dropping the senders tells the callers that no reply will come.
    fn end(&mut self) {
        self.ended = true;
        self.waiting.clear();
    }
}

async fn write(mut writer: OwnedWriteHalf, connection: Arc<Connection>) -> io::Result<()> {
    loop {
        connection.queued.notified().await;
        let outbox = mem::take(&mut connection.state().outbox);
        for batch in outbox {
            let mut frames = batch.small.chain(batch.large);
            writer.write_all_buf(&mut frames).await?;
        }
    }
}

async fn read(mut reader: OwnedReadHalf, connection: &Connection) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    while read_more(&mut reader, &mut buffer).await? != 0 {
        let mut state = connection.state();
        while let Some(length) = frame_length(&buffer).filter(|length| *length <= buffer.len()) {
            let mut frame = buffer.split_to(length).freeze();
            frame.advance(4);
            let id = frame.get_u32();
            frame.advance(2);
            state.deliver(id, frame);
        }
    }
    Ok(())
}

/// The server's side: whole frames go back as they are, a batch in one write. One that asks for a
/// stream is answered with it before anything else.
async fn answer(mut stream: UnixStream) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    while read_more(&mut stream, &mut buffer).await? != 0 {
        let mut whole = 0;
        while let Some(length) = frame_length(&buffer[whole..]) {
            if buffer.len() - whole < length {
                break;
            }
            let frame = &buffer[whole..whole + length];
            if frame[8] == STREAM {
                repeat(&mut stream, frame).await?;
                buffer.advance(whole + length);
                whole = 0;
                continue;
            }
            whole += length;
        }
        stream.write_all(&buffer[..whole]).await?;
        buffer.advance(whole);
    }
    Ok(())
}

/// Answers one frame with a stream; only one that is alone in its batch asks for one.
async fn repeat(stream: &mut UnixStream, frame: &[u8]) -> io::Result<()> {
    let order = StreamOrder::from_payload(&frame[HEADER..]).ok_or(io::ErrorKind::InvalidData)?;
    let payload = order.message();
    let mut batch = BytesMut::with_capacity(BATCH + payload.len() + HEADER);
    for number in 1..=order.messages {
        batch.put_u32(order.bytes);
        batch.put_slice(&frame[4..HEADER]);
        batch.put_slice(&payload);
        if batch.len() >= BATCH || number == order.messages {
            stream.write_all(&batch).await?;
            batch.clear();
        }
    }
    Ok(())
}

/// Reads once, with room for the rest of the frame that the buffer begins with.
async fn read_more(
    reader: &mut (impl AsyncReadExt + Unpin),
    buffer: &mut BytesMut,
) -> io::Result<usize> {
    let missing = frame_length(buffer).map_or(HEADER, |length| length - buffer.len());
    // Only when little room is left: asking for READ each time would mean a new buffer each time.
    if buffer.capacity() - buffer.len() < missing.max(READ / 16) {
        buffer.reserve(missing.max(READ));
    }
    reader.read_buf(buffer).await
}

fn frame_length(mut buffer: &[u8]) -> Option<usize> {
    let length = (buffer.len() >= HEADER).then(|| buffer.get_u32())?;
    Some(HEADER.saturating_add(usize::try_from(length).ok()?))
}
