//! The pieces that go: how the frames of two connections share a stream.
//!
//! The peer may be Go's multiplexer. Its ttrpc reads a whole piece into whatever room it has: 4096
//! bytes while it looks for a frame, or the rest of a frame's payload. A piece that does not fit there
//! is lost for it, and the connection with it. Hence the rules of [`Outgoing`].

use std::io::IoSlice;

use bytes::{Buf, BufMut, BytesMut};
use ttrpc_keepalive::wire::Cutter;

use super::trunk::{Place, SIDES};

/// The longest piece that may hold more than the rest of one frame.
const SHORT: usize = 4096;

/// The longest piece. Another connection waits for one at most, and each costs a read and a write.
const PIECE: usize = 128 << 10;

/// The most bytes of several pieces that go in one turn.
const TURN: usize = 64 << 10;

/// Room for the headers of a turn, in most cases.
const HEADERS: usize = 64;

/// Room for pieces is kept up to this size while none wait.
const KEPT: usize = 4 << 10;

/// What a write counts for in the kernel beside its bytes, at the least, until it is read.
const OVERHEAD: usize = 256;

/// What was taken from the connections and has not been written: of each one turn at most.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pieces: BytesMut,
    /// Bytes of the stream that have been written.
    written: u64,
    /// Where in the stream ends what was taken from each connection.
    taken: [u64; SIDES],
    cutters: [Cutter; SIDES],
    /// What the other connection has added to the stream behind the last byte of this one.
    behind: [usize; SIDES],
    /// What the kernel does not count of turns that may have been joined to one write.
    joined: usize,
}

/// A turn that may still be taken back.
#[derive(Debug)]
pub(super) struct Turn {
    /// Bytes of the connection.
    pub(super) length: usize,
    pub(super) pieces: usize,
    place: Place,
    cutter: Cutter,
    from: usize,
    before: (u64, [usize; SIDES], usize),
}

impl Outgoing {
    /// Takes one turn of a connection from the front of the slices: one long piece, or several short
    /// ones of 64 KiB.
    pub(super) fn take(&mut self, place: Place, slices: &[IoSlice<'_>]) -> Turn {
        let from = self.pieces.len();
        let cutter = &mut self.cutters[place];
        let mut turn = Turn {
            length: 0,
            pieces: 0,
            place,
            cutter: cutter.clone(),
            from,
            before: (self.taken[place], self.behind, self.joined),
        };
        let mut frames = Frames::new(slices);
        self.pieces.reserve(frames.left.min(PIECE) + HEADERS);
        loop {
            let (length, is_whole) = frames.piece(cutter);
            if length == 0 || (turn.pieces > 0 && turn.length + length > TURN) {
                break;
            }
            turn.length += length;
            turn.pieces += 1;
            self.pieces.put_u32(super::ID[place]);
            self.pieces
                .put_u32(u32::try_from(length).unwrap_or_default());
            let moved = self.pieces.len();
            frames.move_to(&mut self.pieces, length);
            if is_whole {
                *cutter = Cutter::new();
                continue;
            }
            let mut moved = &self.pieces[moved..];
            // What is not ttrpc goes in short pieces.
            while !moved.is_empty() && cutter.cut(&mut moved, usize::MAX).is_ok() {}
        }
        self.taken[place] = self.end();
        self.behind[place] = 0;
        self.behind[1 - place] += self.pieces.len() - from + OVERHEAD;
        if from > 0 {
            self.joined += OVERHEAD;
        }
        turn
    }

    /// Takes the last turn back, of which nothing has been written.
    pub(super) fn untake(&mut self, turn: Turn) {
        self.pieces.truncate(turn.from);
        self.cutters[turn.place] = turn.cutter;
        (self.taken[turn.place], self.behind, self.joined) = turn.before;
    }

    /// Where in the stream ends what has been taken.
    fn end(&self) -> u64 {
        self.written + u64::try_from(self.pieces.len()).unwrap_or(u64::MAX)
    }

    pub(super) fn pieces(&self) -> &[u8] {
        &self.pieces
    }

    /// So much of the pieces has been written.
    pub(super) fn advance(&mut self, length: usize) {
        self.pieces.advance(length);
        self.written += u64::try_from(length).unwrap_or(u64::MAX);
    }

    /// Gives the room back that a large message has taken, where nothing has come and so nothing may be
    /// to be written: not behind each piece of one.
    pub(super) fn rest(&mut self) {
        if self.pieces.is_empty() && self.pieces.capacity() > KEPT {
            self.pieces = BytesMut::new();
        }
    }

    /// What of this connection the peer's process has not read, if the kernel says this of the whole
    /// stream. What the other one has written behind it is not taken for it: the peer may have read all
    /// of this one's.
    pub(super) fn unread(&mut self, place: Place, kernel: usize) -> usize {
        // It is one too high now and then.
        if kernel <= 1 && self.pieces.is_empty() {
            self.joined = 0;
            self.behind = [0; SIDES];
            return kernel;
        }
        let all = kernel + self.pieces.len() + self.joined;
        all.saturating_sub(self.behind[place])
    }

    /// Whether something of this connection was taken and has not been written.
    pub(super) fn holds(&self, place: Place) -> bool {
        self.taken[place] > self.written
    }
}

/// The frames that a connection offers, as bytes in slices of any size.
struct Frames<'a> {
    slices: &'a [IoSlice<'a>],
    /// Bytes of the first slice that are done.
    done: usize,
    left: usize,
}

impl<'a> Frames<'a> {
    fn new(slices: &'a [IoSlice<'a>]) -> Self {
        Self {
            slices,
            done: 0,
            left: slices.iter().map(|slice| slice.len()).sum(),
        }
    }

    /// How long the next piece is: the rest of a long frame, whole frames that are short together, or
    /// the first 4096 bytes of a long one. 0 if there is nothing. And whether it ends where a frame does.
    fn piece(&self, cutter: &Cutter) -> (usize, bool) {
        if cutter.remaining() > SHORT {
            return (self.left.min(cutter.remaining()).min(PIECE), false);
        }
        let mut ahead = cutter.clone();
        let (mut seen, mut whole) = (0, 0);
        let mut done = self.done;
        'frames: for slice in self.slices {
            let mut input = slice.get(done..).unwrap_or_default();
            done = 0;
            while !input.is_empty() {
                let before = input.len();
                if ahead.cut(&mut input, SHORT).is_err() {
                    break 'frames;
                }
                seen += before - input.len();
                if seen + ahead.remaining() > SHORT {
                    break 'frames;
                }
                if ahead.is_between_frames() {
                    whole = seen;
                }
            }
        }
        match whole {
            0 => (self.left.min(SHORT), false),
            whole => (whole, true),
        }
    }

    /// Moves bytes from the front.
    fn move_to(&mut self, pieces: &mut BytesMut, length: usize) {
        self.left -= length;
        let mut missing = length;
        while missing > 0 {
            let Some((first, rest)) = self.slices.split_first() else {
                return;
            };
            let front = first.get(self.done..).unwrap_or_default();
            let part = &front[..front.len().min(missing)];
            pieces.extend_from_slice(part);
            missing -= part.len();
            self.done += part.len();
            if self.done == first.len() {
                (self.slices, self.done) = (rest, 0);
            }
        }
    }
}
