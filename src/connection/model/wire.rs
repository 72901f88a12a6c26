//! The other side of what is checked: a kernel with little room, and a peer.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;
use shuttle::rand::{Rng, thread_rng};

use crate::clock::Clock;
use crate::connection::schedule;
use crate::transport::{Shortcut, Transport};
use crate::wire::{
    Decoded, Decoder, Flags, Frame, MessageType, Raw, Request, encode_response, pong,
};

/// How long a call may take that is late.
pub(super) const TIMEOUT: Duration = Duration::from_secs(1);

/// A method that the peer does not answer.
pub(super) const NEVER: &str = "never";

/// What the kernel holds of a connection.
#[derive(Default)]
pub(super) struct Wire {
    kernel: Mutex<Kernel>,
}

#[derive(Default)]
pub(super) struct Kernel {
    to_peer: BytesMut,
    to_client: BytesMut,
    /// Bytes to the peer that find room.
    pub(super) room: usize,
    /// Somebody is in a write.
    writes: bool,
    /// Time passes, and a handle may lose its thread in a write.
    pub(super) slow: bool,
    closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    peer: Option<Waker>,
}

impl Wire {
    pub(super) fn kernel(&self) -> MutexGuard<'_, Kernel> {
        schedule::point_before(&self.kernel);
        self.kernel.lock().unwrap()
    }

    /// Takes as much as there is room for. Two writes at one time would tear each other's frames.
    fn write(&self, slices: &[IoSlice<'_>], refused: Option<&Waker>) -> Option<usize> {
        let other = mem::replace(&mut self.kernel().writes, true);
        assert!(!other, "two have the permit to write");
        let mut kernel = self.kernel();
        kernel.writes = false;
        let before = kernel.to_peer.len();
        for slice in slices {
            let free = kernel.room - kernel.to_peer.len();
            kernel
                .to_peer
                .extend_from_slice(&slice[..slice.len().min(free)]);
        }
        let taken = kernel.to_peer.len() - before;
        if taken == 0 {
            kernel.writer = refused.cloned();
            return None;
        }
        let peer = kernel.peer.take();
        drop(kernel);
        peer.into_iter().for_each(Waker::wake);
        Some(taken)
    }
}

impl Shortcut for Wire {
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let taken = self.write(slices, None);
        if self.kernel().slow && thread_rng().r#gen() {
            let clock = Clock::start();
            while clock.now() < TIMEOUT {
                schedule::point();
            }
        }
        taken.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }
}

/// The client's end.
pub(super) struct Socket(pub(super) Arc<Wire>);

impl Transport for Socket {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        let mut kernel = self.0.kernel();
        if kernel.to_client.is_empty() {
            kernel.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let read = kernel.to_client.len().min(limit);
        buffer.extend_from_slice(&kernel.to_client.split_to(read));
        Poll::Ready(Ok(read))
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0
            .write(slices, Some(cx.waker()))
            .map_or(Poll::Pending, |taken| Poll::Ready(Ok(taken)))
    }

    fn shortcut(&self) -> Option<Arc<dyn Shortcut>> {
        Some(Arc::<Wire>::clone(&self.0))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let peer = {
            let mut kernel = self.0.kernel();
            kernel.closed = true;
            kernel.peer.take()
        };
        peer.into_iter().for_each(Waker::wake);
    }
}

/// A peer that answers all it is asked, and holds the frames to their rules.
#[derive(Default)]
pub(super) struct Peer {
    newest: u32,
    /// Streams whose half-close is still to come.
    open: BTreeSet<u32>,
}

impl Peer {
    pub(super) async fn run(mut self, wire: Arc<Wire>) {
        let mut decoder = Decoder::new();
        while let Some(bytes) = poll_fn(|cx| Self::poll_read(cx, &wire)).await {
            let mut input = &bytes[..];
            while let Some(decoded) = decoder.decode(&mut input).unwrap() {
                let Decoded::Frame(frame) = decoded else {
                    panic!("{decoded:?}");
                };
                let Some(answer) = self.answer(&frame) else {
                    continue;
                };
                let reader = {
                    let mut kernel = wire.kernel();
                    kernel.to_client.extend_from_slice(&answer);
                    kernel.reader.take()
                };
                reader.into_iter().for_each(Waker::wake);
            }
        }
    }

    /// `None` if the client has closed the connection.
    fn poll_read(cx: &Context<'_>, wire: &Wire) -> Poll<Option<BytesMut>> {
        let mut kernel = wire.kernel();
        if kernel.to_peer.is_empty() {
            if kernel.closed {
                return Poll::Ready(None);
            }
            kernel.peer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let bytes = kernel.to_peer.split();
        let writer = kernel.writer.take();
        drop(kernel);
        writer.into_iter().for_each(Waker::wake);
        Poll::Ready(Some(bytes))
    }

    fn answer(&mut self, frame: &Frame) -> Option<Vec<u8>> {
        let id = frame.header.stream_id;
        match frame.header.message_type {
            MessageType::REQUEST => {
                assert!(id > self.newest, "{id} behind {}", self.newest);
                self.newest = id;
                let request = Request::decode(&frame.payload).unwrap();
                if *request.method == *NEVER {
                    return None;
                }
                if frame.header.flags.contains(Flags::REMOTE_OPEN) {
                    self.open.insert(id);
                    return None;
                }
            }
            MessageType::DATA => {
                assert!(self.open.contains(&id), "data of stream {id}");
                if !frame.header.flags.contains(Flags::REMOTE_CLOSED) {
                    return None;
                }
                self.open.remove(&id);
            }
            MessageType::PING => return Some(pong(id, Flags::NONE, &frame.payload)),
            other => panic!("{other:?}"),
        }
        Some(encode_response(id, &Raw(b"answer")).unwrap())
    }
}
