//! One connection on which a peer is asked again and again.

use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::io::IoSlice;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::time::{Instant, sleep_until, timeout};
use ttrpc_keepalive::transport::Transport;
use ttrpc_keepalive::wire::{Decoded, Decoder, Flags, Frame, MessageType, pong};
use ttrpc_keepalive::{ConnectError, PeerProcess, Socket};

use crate::frame;
use crate::outcome::Outcome;

/// A read is looked for without a pause for so long: most come sooner, and a timer is coarser.
const SPIN: Duration = Duration::from_millis(2);

/// The pause between two such looks afterwards.
const PAUSE: Duration = Duration::from_millis(1);

/// How long a peer that has read a PING is given for its PONG, if it has never sent one before.
const ANSWER: Duration = Duration::from_millis(100);

const READ_BYTES: usize = 64 << 10;

const READS: usize = 16;

/// By so many bytes one knows what a peer speaks.
const FIRST: usize = 16;

/// A value of the kernel's that says: nothing is unread. It may be one too high.
const EMPTY: usize = 1;

#[derive(Debug)]
pub(crate) struct Connection {
    socket: Socket,
    decoder: Decoder,
    buffer: BytesMut,
    /// What the kernel has not taken yet: a frame that has begun is finished before the next one.
    unwritten: BytesMut,
    /// What it has sent first.
    first: Vec<u8>,
    /// Whether a PING of this side has come back.
    echoed: bool,
    /// Whether it has ever sent a PONG.
    answers: bool,
    number: u64,
    /// The newest PONG: its number, and when it came.
    pong: Option<(u64, Instant, Flags)>,
    /// Since when something has been unread.
    unread_since: Option<Instant>,
}

impl Connection {
    /// # Errors
    ///
    /// If there is none in this time.
    pub(crate) async fn open(address: &str, wait: Duration) -> Result<Self, ConnectError> {
        let socket = Socket::connect(address, wait).await?;
        Ok(Self {
            socket,
            decoder: Decoder::new(),
            buffer: BytesMut::new(),
            unwritten: BytesMut::new(),
            first: Vec::new(),
            echoed: false,
            answers: false,
            // Nobody else has it by chance.
            number: RandomState::new().hash_one(0) >> 1,
            pong: None,
            unread_since: None,
        })
    }

    pub(crate) fn process(&self) -> Option<PeerProcess> {
        self.socket.peer_process()
    }

    /// Asks once, and waits for the answer.
    pub(crate) async fn ask(&mut self, wait: Duration) -> Outcome {
        let outcome = match self.ask_or_end(wait).await {
            Ok(outcome) => outcome,
            Err(reason) => Outcome::Ended {
                reason,
                listens: false,
            },
        };
        match frame::foreign(&self.first) {
            Some(does) => Outcome::Foreign(does),
            None if self.echoed => Outcome::Foreign("it sends back what it is sent"),
            None => outcome,
        }
    }

    async fn ask_or_end(&mut self, wait: Duration) -> Result<Outcome, String> {
        // A peer that does not read is not sent more: its socket would fill, and hold up others.
        if self.is_unread() {
            self.rest_until_read(Instant::now() + wait).await?;
            if let (true, Some(since)) = (self.is_unread(), self.unread_since) {
                return Ok(Outcome::Unread {
                    since: since.elapsed(),
                });
            }
        }
        let start = Instant::now();
        if let Err(_elapsed) = timeout(wait, self.flush()).await {
            return Ok(Outcome::Refused);
        }
        self.number += 1;
        let number = self.number;
        self.unwritten.extend_from_slice(&frame::ping(number));
        match timeout(wait, self.flush()).await {
            Ok(written) => written?,
            Err(_elapsed) => return Ok(Outcome::Refused),
        }
        let end = start + wait;
        let mut read = None;
        loop {
            self.read_now().await?;
            if self.echoed {
                // What it makes of that is said above.
                return Ok(Outcome::Unknown {
                    within: start.elapsed(),
                });
            }
            if let Some((_, at, flags)) = self.pong.filter(|pong| pong.0 == number) {
                return Ok(Outcome::Answered {
                    after: at - start,
                    stalled: flags.contains(Flags::HANDLERS_STALLED),
                });
            }
            let now = Instant::now();
            if read.is_none() && self.socket.unread().is_some_and(|unread| unread <= EMPTY) {
                read = Some(now);
            }
            // One that has answered before is waited for: it was read by somebody in between, or is
            // slow to answer.
            let patience = match read {
                Some(read) if !self.answers => end.min(read + ANSWER),
                _ => end,
            };
            if now >= patience {
                break;
            }
            if now - start < SPIN {
                tokio::task::yield_now().await;
            } else {
                self.read_until(patience.min(now + PAUSE)).await?;
            }
        }
        Ok(match (read, self.socket.unread()) {
            (Some(read), _) => Outcome::Read {
                after: read - start,
                knows: self.answers,
            },
            (None, Some(_)) => {
                let since = *self.unread_since.get_or_insert(start);
                Outcome::Unread {
                    since: since.elapsed(),
                }
            }
            (None, None) => Outcome::Unknown { within: wait },
        })
    }

    /// Reads, and answers PINGs of the peer, until then.
    pub(crate) async fn rest_until(&mut self, until: Instant) -> Result<(), String> {
        while Instant::now() < until {
            self.read_until(until).await?;
        }
        Ok(())
    }

    /// The same, unless what lies unread is read before.
    async fn rest_until_read(&mut self, until: Instant) -> Result<(), String> {
        while self.is_unread() && Instant::now() < until {
            self.read_until(until.min(Instant::now() + PAUSE)).await?;
        }
        Ok(())
    }

    /// Reads once, unless nothing comes until then.
    async fn read_until(&mut self, until: Instant) -> Result<(), String> {
        self.buffer.clear();
        let read = tokio::select! {
            biased;
            read = read(&mut self.socket, &mut self.buffer) => read?,
            () = sleep_until(until) => return Ok(()),
        };
        self.take(read).await
    }

    /// Reads what has come, as far as some reads go: a peer may send without end.
    async fn read_now(&mut self) -> Result<(), String> {
        for _ in 0..READS {
            self.buffer.clear();
            let (socket, buffer) = (&mut self.socket, &mut self.buffer);
            let read = poll_fn(|cx| match socket.poll_read(cx, buffer, READ_BYTES) {
                Poll::Ready(read) => Poll::Ready(Some(read)),
                Poll::Pending => Poll::Ready(None),
            });
            match read.await {
                Some(read) => {
                    let read = read.map_err(|error| error.to_string())?;
                    self.take(read).await?;
                }
                None => break,
            }
        }
        Ok(())
    }

    async fn take(&mut self, read: usize) -> Result<(), String> {
        if read == 0 {
            return Err("the peer closed it".to_owned());
        }
        let bytes = self.buffer.split().freeze();
        let missing = FIRST.saturating_sub(self.first.len());
        self.first.extend(bytes.iter().take(missing));
        let mut rest = &bytes[..];
        while let Some(decoded) = self
            .decoder
            .decode(&mut rest)
            .map_err(|error| error.to_string())?
        {
            let Decoded::Frame(Frame { header, payload }) = decoded else {
                continue;
            };
            match header.message_type {
                MessageType::PONG => {
                    self.answers = true;
                    if let Some(number) = frame::number(&payload) {
                        self.pong = Some((number, Instant::now(), header.flags));
                    }
                }
                MessageType::PING if frame::number(&payload) == Some(self.number) => {
                    self.echoed = true;
                }
                // A server that watches its clients would end the connection. One that sends PINGs
                // and reads nothing is owed no more than one.
                MessageType::PING if self.unwritten.is_empty() => {
                    let frame = pong(header.stream_id, Flags::NONE, &payload);
                    self.unwritten.extend_from_slice(&frame);
                    self.flush_now().await?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Dropped in between it leaves what is not written, for the next time.
    async fn flush(&mut self) -> Result<(), String> {
        while !self.unwritten.is_empty() {
            let (socket, bytes) = (&mut self.socket, &self.unwritten);
            let written = poll_fn(|cx| socket.poll_write(cx, &[IoSlice::new(bytes)])).await;
            let written = written.map_err(|error| error.to_string())?;
            self.unwritten.advance(written);
        }
        Ok(())
    }

    /// Writes what is taken at once.
    async fn flush_now(&mut self) -> Result<(), String> {
        let mut flush = pin!(self.flush());
        let flushed = poll_fn(|cx| match flush.as_mut().poll(cx) {
            Poll::Ready(flushed) => Poll::Ready(flushed),
            Poll::Pending => Poll::Ready(Ok(())),
        });
        flushed.await
    }

    /// Whether something lies unread of what was sent before.
    fn is_unread(&mut self) -> bool {
        let unread = self.unread_since.is_some()
            && self.socket.unread().is_some_and(|unread| unread > EMPTY);
        if !unread {
            self.unread_since = None;
        }
        unread
    }
}

async fn read(socket: &mut Socket, buffer: &mut BytesMut) -> Result<usize, String> {
    let read = poll_fn(|cx| socket.poll_read(cx, buffer, READ_BYTES)).await;
    read.map_err(|error| error.to_string())
}
