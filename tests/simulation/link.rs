//! The link between two ends: it delays, cuts in pieces, refuses, pauses and breaks.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use bytes::BytesMut;
use ttrpc_keepalive::transport::Look;

use super::choices::Choices;
use super::kernel::{Deaf, Kernel};
use super::plan::{Break, Traits};
use super::wire::{Cutter, Wire};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Client,
    Server,
}

impl End {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    pub(crate) fn index(self) -> usize {
        match self {
            Self::Client => 0,
            Self::Server => 1,
        }
    }
}

/// What an end was told by its transport, at last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Closed { mid_frame: bool },
    Reset,
    BrokenPipe,
}

/// One direction.
struct Pipe {
    flight: VecDeque<(u64, Vec<u8>)>,
    ready: VecDeque<u8>,
    paused_until: u64,
    blocked_until: u64,
    end: Option<Break>,
    /// What is written is thrown away: nobody is there to read it.
    void: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    wrote: Cutter,
    read: Cutter,
    kernel: Kernel,
    deaf: Deaf,
    was_stale: bool,
    last_taken: u64,
    last_read: u64,
    ready_since: u64,
    freed_at: u64,
}

impl Pipe {
    fn new() -> Self {
        Self {
            flight: VecDeque::new(),
            ready: VecDeque::new(),
            paused_until: 0,
            blocked_until: 0,
            end: None,
            void: false,
            reader: None,
            writer: None,
            wrote: Cutter::default(),
            read: Cutter::default(),
            kernel: Kernel::default(),
            deaf: Deaf::default(),
            was_stale: false,
            last_taken: 0,
            last_read: 0,
            ready_since: 0,
            freed_at: 0,
        }
    }

    fn held(&self) -> usize {
        self.ready.len()
            + self
                .flight
                .iter()
                .map(|(_, bytes)| bytes.len())
                .sum::<usize>()
    }

    /// Whether the reader would see the end of the stream next, but for what is ready.
    fn has_ended(&self) -> bool {
        self.end.is_some() && self.flight.is_empty()
    }

    fn advance(&mut self, now: u64, room: bool) {
        while now >= self.paused_until && self.flight.front().is_some_and(|(at, _)| *at <= now) {
            let (_, bytes) = self.flight.pop_front().expect("there is a front");
            if self.ready.is_empty() {
                self.ready_since = now;
            }
            self.ready.extend(bytes);
        }
        let deliverable = !self.ready.is_empty() || self.has_ended();
        for waker in [
            deliverable.then(|| self.reader.take()).flatten(),
            (room && now >= self.blocked_until)
                .then(|| self.writer.take())
                .flatten(),
        ]
        .into_iter()
        .flatten()
        {
            waker.wake();
        }
    }
}

pub(crate) type Hook = Box<dyn FnOnce() + Send>;

pub(crate) struct Link {
    pub(crate) now: u64,
    pub(crate) traits: Traits,
    /// By who writes.
    pipes: [Pipe; 2],
    pub(crate) wire: Wire,
    choices: Choices,
    /// Grows with each call of a transport.
    pub(crate) activity: u64,
    told: [Vec<Told>; 2],
    /// Whether an end gave up with bytes that it had not read.
    left_unread: [bool; 2],
    /// Whether bytes of an end were ever refused.
    refused: [bool; 2],
    /// What an end could know of its peer's reading when it closed.
    closed: [Option<(u64, Option<u64>)>; 2],
    /// Run within the next read or write of that end.
    hooks: [(Option<Hook>, Option<Hook>); 2],
}

#[derive(Clone)]
pub(crate) struct SharedLink(Arc<Mutex<Link>>);

impl SharedLink {
    pub(crate) fn new(traits: Traits, wire: Wire, choices: Choices) -> Self {
        Self(Arc::new(Mutex::new(Link {
            now: 0,
            traits,
            pipes: [Pipe::new(), Pipe::new()],
            wire,
            choices,
            activity: 0,
            told: [Vec::new(), Vec::new()],
            left_unread: [false; 2],
            refused: [false; 2],
            closed: [None; 2],
            hooks: [(None, None), (None, None)],
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Link> {
        self.0.lock().expect("no end panics in its transport")
    }
}

impl Link {
    pub(crate) fn advance(&mut self, now: u64) {
        self.now = now;
        for end in [End::Client, End::Server] {
            let room = self.room(end) > 0 || self.refuses(end);
            self.pipes[end.index()].advance(now, room);
        }
    }

    pub(crate) fn pause(&mut self, from: End, until: u64) {
        let pipe = &mut self.pipes[from.index()];
        pipe.paused_until = pipe.paused_until.max(until);
    }

    pub(crate) fn block(&mut self, from: End, until: u64) {
        let pipe = &mut self.pipes[from.index()];
        pipe.blocked_until = pipe.blocked_until.max(until);
    }

    /// Takes everything at once from now on. Returns the hooks that have not run.
    pub(crate) fn heal(&mut self) -> Vec<Hook> {
        for pipe in &mut self.pipes {
            (pipe.paused_until, pipe.blocked_until) = (0, 0);
        }
        (self.traits.capacity, self.traits.piece) = (1 << 20, 1 << 20);
        self.traits.refusals = 0;
        let hooks = std::mem::take(&mut self.hooks).into_iter();
        hooks
            .flat_map(|(read, write)| [read, write])
            .flatten()
            .collect()
    }

    pub(crate) fn hook(&mut self, end: End, reading: bool, hook: Hook) {
        let (read, write) = &mut self.hooks[end.index()];
        *(if reading { read } else { write }) = Some(hook);
    }

    pub(crate) fn break_off(&mut self, kind: Break) {
        self.activity += 1;
        for pipe in &mut self.pipes {
            pipe.end.get_or_insert(kind);
            if kind == Break::Clean {
                continue;
            }
            pipe.flight.clear();
            let kept = self.choices.size(pipe.ready.len() + 1);
            pipe.ready.truncate(kept);
        }
        self.advance(self.now);
    }

    /// Bytes to the other end as if this one had written them. Not within a frame of its own.
    pub(crate) fn inject(&mut self, from: End, bytes: &[u8]) {
        let pipe = &mut self.pipes[from.index()];
        if pipe.end.is_none() && !pipe.void && !pipe.wrote.is_mid_frame() {
            pipe.flight
                .push_back((self.now + self.traits.delay, bytes.to_vec()));
            pipe.kernel.write(self.now, bytes.len());
            self.advance(self.now);
        }
    }

    /// Takes all that was sent to an end that nobody plays.
    pub(crate) fn discard(&mut self, reader: End) {
        let pipe = &mut self.pipes[reader.other().index()];
        pipe.kernel.read(self.now, pipe.ready.len());
        pipe.ready.clear();
        self.advance(self.now);
    }

    /// What the kernel tells this end that the other has not read, one too high now and then.
    pub(crate) fn unread(&mut self, end: End) -> usize {
        self.activity += 1;
        let odd = usize::from(self.choices.percent(20));
        // What a peer leaves that closes is gone, but not before its end can be seen.
        match self.refuses(end) {
            true => odd,
            false => self.pipes[end.index()].kernel.held() + odd,
        }
    }

    /// When the other end has last read of what this one wrote, and since when something waits there
    /// while it reads nothing.
    pub(crate) fn last_read_of(&self, end: End) -> (u64, Option<u64>) {
        let kernel = &self.pipes[end.index()].kernel;
        let now = (kernel.last_read(), kernel.waits_since());
        self.closed[end.index()].unwrap_or(now)
    }

    /// What the transport of this end has said of the connection's end.
    pub(crate) fn told(&self, end: End) -> &[Told] {
        &self.told[end.index()]
    }

    pub(crate) fn was_refused(&self, end: End) -> bool {
        self.refused[end.index()]
    }

    pub(crate) fn left_unread(&self, end: End) -> bool {
        self.left_unread[end.index()]
    }

    /// When bytes of this end were last taken, and when it last read some.
    pub(crate) fn last_moved(&self, end: End) -> (u64, u64) {
        let read = &self.pipes[end.other().index()];
        (self.pipes[end.index()].last_taken, read.last_read)
    }

    /// Since when there have been bytes for this end that it has not touched.
    pub(crate) fn unread_since(&self, end: End) -> Option<u64> {
        let pipe = &self.pipes[end.other().index()];
        (!pipe.ready.is_empty()).then(|| pipe.last_read.max(pipe.ready_since))
    }

    /// Since when this end could have written and has not.
    pub(crate) fn free_since(&self, end: End) -> Option<u64> {
        let pipe = &self.pipes[end.index()];
        let free = self.room(end) > 0 && self.now > pipe.blocked_until;
        free.then(|| pipe.last_taken.max(pipe.blocked_until).max(pipe.freed_at))
    }

    fn room(&self, end: End) -> usize {
        let held = self.pipes[end.index()].held();
        self.traits.capacity.saturating_sub(held)
    }

    fn refuses(&self, end: End) -> bool {
        self.pipes[end.other().index()].has_ended()
    }

    pub(crate) fn close(&mut self, end: End) {
        self.activity += 1;
        let known = self.last_read_of(end);
        self.closed[end.index()].get_or_insert(known);
        self.pipes[end.index()].end.get_or_insert(Break::Clean);
        let pipe = &mut self.pipes[end.other().index()];
        let undelivered = !pipe.ready.is_empty();
        (pipe.void, pipe.reader, pipe.freed_at) = (true, None, self.now);
        pipe.flight.clear();
        pipe.ready.clear();
        self.left_unread[end.index()] |= undelivered;
        self.advance(self.now);
    }

    pub(crate) fn take(&mut self, end: End, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.activity += 1;
        let now = self.now;
        if self.refuses(end) {
            let reset = self.pipes[end.index()].end == Some(Break::Reset);
            let (told, kind) = match reset {
                true => (Told::Reset, ErrorKind::ConnectionReset),
                false => (Told::BrokenPipe, ErrorKind::BrokenPipe),
            };
            self.told[end.index()].push(told);
            return Err(kind.into());
        }
        let room = self.room(end).min(1 + self.choices.size(self.traits.piece));
        let refused = self.choices.percent(self.traits.refusals);
        let pipe = &mut self.pipes[end.index()];
        if refused && now >= pipe.blocked_until {
            pipe.blocked_until = now + 1 + self.choices.below(5);
        }
        if now < pipe.blocked_until || room == 0 {
            self.refused[end.index()] = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        let offered = slices.iter().flat_map(|slice| slice.iter().copied());
        let taken: Vec<u8> = offered.take(room).collect();
        let count = taken.len();
        self.wire.wrote(end, pipe.wrote.cut(&taken, self.activity));
        pipe.last_taken = now;
        pipe.kernel.write(now, count);
        if !pipe.void && pipe.end.is_none() {
            pipe.flight.push_back((now + self.traits.delay, taken));
            self.advance(now);
        }
        Ok(count)
    }

    pub(crate) fn give(
        &mut self,
        end: End,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Option<io::Result<usize>> {
        self.activity += 1;
        let pipe = &mut self.pipes[end.other().index()];
        if pipe.ready.is_empty() {
            if !pipe.has_ended() {
                return None;
            }
            if pipe.end == Some(Break::Reset) {
                self.told[end.index()].push(Told::Reset);
                return Some(Err(ErrorKind::ConnectionReset.into()));
            }
            let mid_frame = pipe.read.is_mid_frame();
            self.told[end.index()].push(Told::Closed { mid_frame });
            return Some(Ok(0));
        }
        let count = limit.min(1 + self.choices.size(self.traits.piece));
        let count = count.min(pipe.ready.len());
        let mut bytes: Vec<u8> = pipe.ready.drain(..count).collect();
        pipe.kernel.read(self.now, count);
        pipe.freed_at = self.now;
        if self.traits.old && end == End::Server {
            bytes = pipe.deaf.hear(&bytes);
            if bytes.is_empty() {
                self.advance(self.now);
                return self.give(end, buffer, limit);
            }
        }
        pipe.last_read = self.now;
        buffer.extend_from_slice(&bytes);
        self.wire
            .read(end, pipe.read.cut(&bytes, self.activity), self.now);
        self.advance(self.now);
        Some(Ok(bytes.len()))
    }

    pub(crate) fn look(&mut self, end: End) -> Look {
        self.activity += 1;
        let pipe = &self.pipes[end.other().index()];
        match self.traits.looks {
            false => Look::Blind,
            true if pipe.ready.is_empty() && !pipe.has_ended() => Look::Empty,
            true => Look::Readable,
        }
    }

    pub(crate) fn take_hook(&mut self, end: End, reading: bool) -> Option<Hook> {
        let (read, write) = &mut self.hooks[end.index()];
        if reading { read.take() } else { write.take() }
    }

    pub(crate) fn wake_reader(&mut self, end: End, waker: &Waker) {
        self.pipes[end.other().index()].reader = Some(waker.clone());
    }

    pub(crate) fn wake_writer(&mut self, end: End, waker: &Waker) {
        self.pipes[end.index()].writer = Some(waker.clone());
    }

    /// Whether this read is one that finds nothing though there is something; never two in a row.
    pub(crate) fn is_stale(&mut self, end: End) -> bool {
        let stale = self.traits.stale && self.choices.percent(30);
        let pipe = &mut self.pipes[end.other().index()];
        pipe.was_stale = stale && !pipe.was_stale && !pipe.ready.is_empty();
        pipe.was_stale
    }
}
