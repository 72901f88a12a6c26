//! Any bytes into NRI's multiplexer, any frames out of it, in any pieces and by whichever connection.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::BytesMut;
use ttrpc_keepalive::transport::{Look, Shortcut, Transport};
use ttrpc_keepalive::wire::{HEADER_LENGTH, Header};
use ttrpc_keepalive_nri::multiplexer::{Connection, Connections, Multiplexer};

/// As much as the longest piece may have.
const LONGEST: usize = (4 << 20) + 10;

/// Bytes that may wait for a connection.
const LIMIT: usize = 100_000;

/// The bytes choose what is done, two each: what comes, who reads and writes how much, and how much the
/// stream takes.
pub fn check(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime with nothing but a clock");
    runtime.block_on(Run::new().play(data));
}

/// The stream below, in memory.
#[derive(Default)]
struct Pipe {
    incoming: VecDeque<u8>,
    is_ended: bool,
    /// Bytes of one read at most.
    read: usize,
    written: Vec<u8>,
    /// Bytes that it takes still.
    room: usize,
    reader: Option<Waker>,
    writer: Option<Waker>,
    is_shut: bool,
}

impl Pipe {
    fn take(&mut self, slices: &[IoSlice<'_>]) -> usize {
        let mut taken = 0;
        for slice in slices {
            let part = slice.len().min(self.room);
            self.written.extend_from_slice(&slice[..part]);
            self.room -= part;
            taken += part;
        }
        taken
    }

    fn wake(&mut self) {
        let wakers = [self.reader.take(), self.writer.take()];
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

struct Stream(Arc<Mutex<Pipe>>);

impl Transport for Stream {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        let mut pipe = self.0.lock().unwrap();
        let length = pipe.incoming.len().min(limit).min(pipe.read.max(1));
        if length == 0 && !pipe.is_ended {
            pipe.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        buffer.extend(pipe.incoming.drain(..length));
        Poll::Ready(Ok(length))
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut pipe = self.0.lock().unwrap();
        match pipe.take(slices) {
            0 => {
                pipe.writer = Some(cx.waker().clone());
                Poll::Pending
            }
            taken => Poll::Ready(Ok(taken)),
        }
    }

    fn poll_look(&mut self, _: &mut Context<'_>) -> Poll<Look> {
        let pipe = self.0.lock().unwrap();
        Poll::Ready(match pipe.incoming.is_empty() && !pipe.is_ended {
            true => Look::Empty,
            false => Look::Readable,
        })
    }

    fn try_send(&mut self, bytes: &[u8]) -> Option<io::Result<usize>> {
        let taken = self.0.lock().unwrap().take(&[IoSlice::new(bytes)]);
        Some(match taken {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        })
    }

    fn shortcut(&self) -> Option<Arc<dyn Shortcut>> {
        Some(Arc::new(Unused))
    }

    fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let pipe = &mut self.0.lock().unwrap();
        assert!(!pipe.is_shut, "it says farewell once");
        pipe.is_shut = true;
        Poll::Ready(Ok(()))
    }
}

/// The multiplexer writes to the stream itself.
struct Unused;

impl Shortcut for Unused {
    fn try_write(&self, _: &[IoSlice<'_>]) -> io::Result<usize> {
        unreachable!("one connection would write into the other's piece")
    }
}

/// Whether a driver has been called.
#[derive(Default)]
struct Called(AtomicBool);

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Side {
    connection: Connection,
    shortcut: Arc<dyn Shortcut>,
    called: Arc<Called>,
    waker: Waker,
    /// Frames that are to be written.
    frames: VecDeque<Vec<u8>>,
    /// Bytes of the first one that have been taken.
    done: usize,
    /// All that was taken.
    taken: Vec<u8>,
    found: Vec<u8>,
    unflushed: bool,
    is_over: bool,
}

impl Side {
    fn new(connection: Connection) -> Self {
        let called = Arc::new(Called(AtomicBool::new(true)));
        Self {
            shortcut: connection.shortcut().expect("the stream has one"),
            connection,
            waker: Waker::from(Arc::clone(&called)),
            called,
            frames: VecDeque::new(),
            done: 0,
            taken: Vec::new(),
            found: Vec::new(),
            unflushed: false,
            is_over: false,
        }
    }

    fn read(&mut self, limit: usize) -> bool {
        let mut cx = Context::from_waker(&self.waker);
        let mut buffer = BytesMut::from(&b"kept"[..]);
        buffer.reserve(limit);
        let read = self.connection.poll_read(&mut cx, &mut buffer, limit);
        assert_eq!(&buffer[..4], b"kept");
        self.found.extend_from_slice(&buffer[4..]);
        match read {
            Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => {
                self.is_over = true;
                false
            }
            Poll::Ready(Ok(length)) => {
                assert_eq!(length, buffer.len() - 4);
                assert!(length <= limit);
                true
            }
            Poll::Pending => {
                assert_eq!(buffer.len(), 4);
                false
            }
        }
    }

    /// Offers what is to be written, and notes what is taken of it.
    fn write(&mut self, way: Way) -> bool {
        let mut cx = Context::from_waker(&self.waker);
        let first = self.frames.front().map(|frame| &frame[self.done..]);
        let slices: Vec<_> = (first.into_iter())
            .chain(self.frames.iter().skip(1).map(|frame| &frame[..]))
            .take(64)
            .map(IoSlice::new)
            .collect();
        let Some(front) = slices.first() else {
            return false;
        };
        let taken = match way {
            Way::Driver => match self.connection.poll_write(&mut cx, &slices) {
                Poll::Ready(Ok(taken)) => {
                    assert!(taken > 0);
                    taken
                }
                Poll::Ready(Err(_)) | Poll::Pending => 0,
            },
            Way::Handle => self.shortcut.try_write(&slices).unwrap_or(0),
            Way::Offer => {
                let offered = self.connection.try_send(front);
                offered.expect("it can").unwrap_or(0)
            }
        };
        self.done += taken;
        self.unflushed |= taken > 0;
        while let Some(frame) = self.frames.front() {
            if frame.len() > self.done {
                break;
            }
            self.done -= frame.len();
            self.taken.extend_from_slice(frame);
            self.frames.pop_front();
        }
        taken > 0
    }

    /// As drivers do, if there is something to pass on.
    fn flush(&mut self) {
        let mut cx = Context::from_waker(&self.waker);
        if self.unflushed {
            self.unflushed = self.connection.poll_flush(&mut cx).is_pending();
        }
    }

    fn is_called(&self) -> bool {
        self.called.0.swap(false, Ordering::Relaxed)
    }
}

#[derive(Clone, Copy)]
enum Way {
    Driver,
    Handle,
    Offer,
}

struct Run {
    pipe: Arc<Mutex<Pipe>>,
    sides: [Side; 2],
    /// All that came.
    sent: Vec<u8>,
}

impl Run {
    fn new() -> Self {
        let pipe = Arc::new(Mutex::new(Pipe::default()));
        let split = Multiplexer::new().unread_limit(LIMIT);
        let Connections {
            plugin_service,
            runtime_service,
            ..
        } = split.split(Stream(Arc::clone(&pipe)));
        Self {
            pipe,
            sides: [Side::new(plugin_service), Side::new(runtime_service)],
            sent: Vec::new(),
        }
    }

    async fn play(mut self, data: &[u8]) {
        for step in data.chunks_exact(2) {
            let (verb, size) = (step[0], usize::from(step[1]));
            let side = &mut self.sides[usize::from(verb >> 7)];
            match verb & 0xf {
                0 => drop(side.read(1 + size * size)),
                1 => drop(side.write(Way::Driver)),
                2 => drop(side.write(Way::Handle)),
                3 => drop(side.write(Way::Offer)),
                4 => side.flush(),
                5..=7 => side.frames.push_back(frame(size * size)),
                8 | 9 => {
                    let id = u32::from(verb >> 4 & 3);
                    let mut piece = id.to_be_bytes().to_vec();
                    piece.extend((size as u32 * 4).to_be_bytes());
                    // Its bytes tell where they stand.
                    let from = self.sent.len();
                    piece.extend((0..size * 4).map(|at| (from + at) as u8));
                    self.send(&piece);
                }
                // Anything, headers that lie too.
                10 => self.send(&[verb >> 4, step[1]]),
                11 => self.pipe.lock().unwrap().read = size * size,
                12 | 13 => {
                    let mut pipe = self.pipe.lock().unwrap();
                    pipe.room += size * 8;
                    if let Some(writer) = pipe.writer.take() {
                        writer.wake();
                    }
                }
                14 => tokio::time::advance(Duration::from_millis(size as u64)).await,
                _ => {
                    let mut cx = Context::from_waker(&side.waker);
                    let _ = side.connection.poll_look(&mut cx);
                    let _ = side.connection.last_heard();
                }
            }
        }
        self.finish().await;
    }

    fn send(&mut self, bytes: &[u8]) {
        self.sent.extend_from_slice(bytes);
        let mut pipe = self.pipe.lock().unwrap();
        pipe.incoming.extend(bytes);
        if let Some(reader) = pipe.reader.take() {
            reader.wake();
        }
    }

    /// Drivers that run only when they are called come to an end, and have moved everything.
    async fn finish(mut self) {
        {
            let mut pipe = self.pipe.lock().unwrap();
            pipe.read = usize::MAX;
            pipe.room = usize::MAX / 2;
            pipe.wake();
        }
        self.settle();
        // A burst has its pauses.
        while self
            .sides
            .iter()
            .any(|side| !side.is_over && !side.frames.is_empty())
        {
            tokio::time::advance(Duration::from_millis(2)).await;
            tokio::task::yield_now().await;
            self.settle();
        }
        self.check_incoming();
        // From here on one of them is busy at a time, and the time stands still.
        for id in [1, 2, 2, 1, 2, 1, 1] {
            if self.sent_rests() {
                self.send(&[&[0, 0, 0, id, 0, 0, 0, 5][..], b"again"].concat());
                self.settle();
                self.check_incoming();
            }
        }
        self.check_outgoing();
        // What they leave behind is nothing, in whatever order.
        for side in self.sides {
            drop(side);
        }
    }

    /// Whether a piece may begin, and is read.
    fn sent_rests(&self) -> bool {
        let mut rest = &self.sent[..];
        while let Some((header, bytes)) = rest.split_at_checked(8) {
            let length = u32::from_be_bytes(header[4..].try_into().unwrap()) as usize;
            let Some((_, behind)) = bytes.split_at_checked(length) else {
                return false;
            };
            rest = behind;
        }
        rest.is_empty() && !self.sides.iter().any(|side| side.is_over)
    }

    /// Lets the drivers run that are called, until none is.
    fn settle(&mut self) {
        let mut goes_on = [false; 2];
        loop {
            let mut ran = false;
            for (side, goes_on) in self.sides.iter_mut().zip(&mut goes_on) {
                if side.is_over || !(side.is_called() || *goes_on) {
                    continue;
                }
                ran = true;
                // A turn: it reads before it writes, and is called again if it stops before the end.
                let reads = (0..16).take_while(|_| side.read(1 << 16)).count();
                let writes = (0..16).take_while(|_| side.write(Way::Driver)).count();
                side.flush();
                *goes_on = reads == 16 || writes == 16;
            }
            if !ran {
                return;
            }
        }
    }

    /// What each connection found, by the simplest reader of pieces that there is.
    fn check_incoming(&self) {
        let mut expected = [Vec::new(), Vec::new()];
        let mut rest = &self.sent[..];
        let mut fails = false;
        while let Some((header, bytes)) = rest.split_at_checked(8) {
            let id = u32::from_be_bytes(header[..4].try_into().unwrap());
            let length = u32::from_be_bytes(header[4..].try_into().unwrap()) as usize;
            if length > LONGEST {
                fails = true;
                break;
            }
            let (payload, behind) = bytes.split_at(length.min(bytes.len()));
            if let 1 | 2 = id {
                expected[id as usize - 1].extend_from_slice(payload);
            }
            rest = behind;
        }
        for (side, expected) in self.sides.iter().zip(&expected) {
            assert!(expected.starts_with(&side.found), "other bytes");
            let overflow = expected.len() > LIMIT;
            if !self.sides.iter().any(|side| side.is_over) {
                assert!(!fails, "a piece that is too long is taken");
                assert!(side.found == *expected, "bytes are left");
            } else if !fails {
                assert!(
                    overflow || self.sides.iter().any(|side| side.found.len() > 0),
                    "{overflow}"
                );
            }
        }
    }

    /// What each wrote, as the peer sees it, and whether Go has room for each piece.
    fn check_outgoing(&self) {
        let pipe = self.pipe.lock().unwrap();
        let mut pieces = [Vec::new(), Vec::new()];
        let mut rest = &pipe.written[..];
        while let Some((header, bytes)) = rest.split_at_checked(8) {
            let id = u32::from_be_bytes(header[..4].try_into().unwrap());
            let length = u32::from_be_bytes(header[4..].try_into().unwrap()) as usize;
            assert!((1..=65536).contains(&length), "{length}");
            let (payload, behind) = bytes.split_at(length.min(bytes.len()));
            pieces[id as usize - 1].push((length, payload));
            rest = behind;
        }
        for (side, pieces) in self.sides.iter().zip(&pieces) {
            let written: Vec<u8> = pieces
                .iter()
                .flat_map(|(_, bytes)| *bytes)
                .copied()
                .collect();
            let mut taken = side.taken.clone();
            if let Some(frame) = side.frames.front() {
                taken.extend_from_slice(&frame[..side.done]);
            }
            if side.is_over {
                assert!(taken.starts_with(&written));
            } else {
                assert!(side.frames.is_empty(), "frames are left");
                assert!(written == taken, "bytes are left");
            }
            check_room(&taken, pieces.iter().map(|(length, _)| *length));
        }
    }
}

fn frame(length: usize) -> Vec<u8> {
    let header = Header {
        length: length as u32,
        stream_id: 1,
        message_type: ttrpc_keepalive::wire::MessageType::DATA,
        flags: ttrpc_keepalive::wire::Flags::NONE,
    };
    let mut frame = header.encode().to_vec();
    frame.resize(HEADER_LENGTH + length, 7);
    frame
}

/// A piece of more than 4096 bytes stands within the rest of one frame.
fn check_room(bytes: &[u8], pieces: impl Iterator<Item = usize>) {
    let (mut at, mut end) = (0, 0);
    for length in pieces {
        if length > 4096 {
            assert!(
                end - at >= length,
                "a piece of {length} bytes where {} fit",
                end - at
            );
        }
        at += length;
        while end < at && end + HEADER_LENGTH <= bytes.len() {
            let header = &bytes[end..end + 4];
            let payload = u32::from_be_bytes(header.try_into().unwrap()) as usize;
            end += HEADER_LENGTH + payload;
        }
    }
}
