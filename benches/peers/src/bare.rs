//! The limit: what tokio and a socket can give. Frames with ttrpc's ten-byte header are written in
//! batches and matched to their callers by id; there is no envelope, no message, no deadline.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::Result;
use crate::child::Contender;

const HEADER: usize = 10;
const REQUEST: u8 = 1;

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
        let listener = UnixListener::bind(path(address)?)?;
        Ok(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream));
            }
        }))
    }

    async fn connect(address: &str, payload: Vec<u8>) -> Result<Self> {
        let (reader, writer) = UnixStream::connect(path(address)?).await?.into_split();
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
        let reply = self.connection.state().queue(&self.payload)?;
        self.connection.queued.notify_one();
        Ok(reply.await?)
    }
}

fn path(address: &str) -> Result<&str> {
    let path = address.strip_prefix("unix://");
    path.ok_or_else(|| format!("{address} is not a unix address").into())
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
}

#[derive(Default)]
struct State {
    last_id: u32,
    ended: bool,
    outbox: Vec<Batch>,
    waiting: HashMap<u32, oneshot::Sender<Bytes>>,
}

/// Frames to be written at once: small ones whole, then a header's large payload, if any.
#[derive(Default)]
struct Batch {
    small: BytesMut,
    large: Bytes,
}

impl State {
    fn queue(&mut self, payload: &Bytes) -> Result<oneshot::Receiver<Bytes>> {
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
            last.small.put_slice(&[REQUEST, 0]);
            if payload.len() < LARGE {
                last.small.put_slice(payload);
            } else {
                last.large = payload.clone();
            }
        }
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(self.last_id, sender);
        Ok(receiver)
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
            if let Some(caller) = state.waiting.remove(&id) {
                // A caller that is gone needs no reply.
                let _ = caller.send(frame);
            }
        }
    }
    Ok(())
}

/// The server's side: whole frames go back as they are, a batch in one write.
async fn answer(mut stream: UnixStream) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    while read_more(&mut stream, &mut buffer).await? != 0 {
        let mut whole = 0;
        while let Some(length) = frame_length(&buffer[whole..]) {
            if buffer.len() - whole < length {
                break;
            }
            whole += length;
        }
        stream.write_all(&buffer[..whole]).await?;
        buffer.advance(whole);
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
