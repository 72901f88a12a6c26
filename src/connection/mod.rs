//! One connection: what its handles and its driver share, the driver, and the client's side.
//!
//! The invariant: one task, the driver, owns the byte stream, the rules and the stream table.
//! Handles reach it through the desk, whose lock is short and never held across an await, a
//! wake-up or a system call.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use crate::clock::Clock;
use crate::error::ConnectionError;
use crate::keepalive::Machine;
use crate::liveness::{Liveness, Publisher, Snapshot};
use crate::transport::{PeerCredentials, Shortcut, Transport};

mod call;
mod calls;
mod deadlines;
mod driver;
mod give_way;
mod handle;
mod inbox;
mod open;
mod outbox;
mod reader;
mod room;
mod sending;
mod side;
mod thread;
mod writer;

pub(crate) use call::{Command, StreamEnd};
pub(crate) use calls::ClientSide;
pub(crate) use handle::{Exchange, Handle, Outgoing, Payload, Reply, Wait};
pub(crate) use inbox::{Inbox, MESSAGE_OVERHEAD, Messages, Overflow, Received, Total};
pub(crate) use open::Guard;
pub(crate) use sending::{NotSent, Outlet, half_close};
pub(crate) use side::{Side, Turn};
pub(crate) use thread::Connection;

use outbox::Outbox;
use room::Room;

/// What the handles and the driver of one connection share. `C` is what handles tell the driver.
#[derive(Debug)]
pub(crate) struct Shared<C> {
    clock: Clock,
    desk: Mutex<Desk<C>>,
    /// Open streams: calls of a client, requests of a server. Apart from the desk, so that the
    /// next call sees that the last one has ended without waiting for the driver.
    open: AtomicUsize,
    publisher: Publisher,
    peer_credentials: Option<PeerCredentials>,
}

/// Behind the one short lock.
#[derive(Debug)]
struct Desk<C> {
    outbox: Outbox,
    /// In the order in which they were given. Bounded by the open streams: each gives one at its
    /// start, one at its end.
    commands: Vec<C>,
    waker: Option<Waker>,
    /// Whether the driver has been called since it last took the commands.
    notified: bool,
    /// Whether the driver is in a turn. It looks here again before it sleeps, so nobody needs to
    /// wake it, and nobody writes beside it.
    awake: bool,
    shortcut: Option<Arc<dyn Shortcut>>,
    /// Whether a handle may write by itself: nothing is blocked, and the rules have nothing to
    /// put in front.
    direct: bool,
    /// When the driver's timer fires. A deadline behind it needs no wake-up of its own.
    wakes_at: Option<Duration>,
    /// Calls that wait.
    room: Room,
    /// Messages of open streams that wait. Apart from the calls: a call may wait for
    /// a stream to end that cannot end before its message is sent.
    senders: Room,
    next_id: Option<u32>,
    closing: Closing,
    /// Whether the peer has said, by whatever way, that it is about to close the connection.
    announced: bool,
    end: Option<ConnectionError>,
}

/// How this side wants the connection to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Closing {
    No,
    /// When its streams have ended: the last handle is gone, or a shutdown drains.
    Drained,
    Now,
}

impl<C> Shared<C> {
    pub(crate) fn new(clock: Clock, machine: &Machine, transport: &dyn Transport) -> Self {
        Self {
            clock,
            desk: Mutex::new(Desk {
                outbox: Outbox::default(),
                commands: Vec::new(),
                waker: None,
                notified: false,
                awake: false,
                shortcut: transport.shortcut(),
                direct: false,
                wakes_at: None,
                room: Room::default(),
                senders: Room::default(),
                next_id: Some(1),
                closing: Closing::No,
                announced: false,
                end: None,
            }),
            open: AtomicUsize::new(0),
            publisher: Publisher::with_clock(clock, machine.view()),
            peer_credentials: transport.peer_credentials(),
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn peer_credentials(&self) -> Option<PeerCredentials> {
        self.peer_credentials
    }

    pub(crate) fn liveness(&self) -> Liveness {
        self.publisher.liveness()
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.publisher.snapshot()
    }

    /// Asks the driver to end the connection as soon as its streams have ended.
    pub(crate) fn close(&self) {
        self.close_by(Closing::Drained);
    }

    /// Asks the driver to end the connection now.
    pub(crate) fn abort(&self) {
        self.close_by(Closing::Now);
    }

    fn close_by(&self, closing: Closing) {
        let mut desk = self.desk();
        desk.closing = desk.closing.max(closing);
        notify(desk);
    }

    /// The peer is about to close the connection.
    pub(crate) fn expect_close(&self) {
        self.desk().announced = true;
    }

    /// Whether the connection has ended, so that nothing which is queued goes out any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.desk().end.is_some()
    }

    /// Waits for the end of the connection.
    pub(crate) async fn closed(&self) -> ConnectionError {
        self.publisher.closed().await
    }

    /// Gives the driver a command, which comes back if the connection has ended.
    pub(crate) fn tell(&self, command: C) -> Result<(), C> {
        let mut desk = self.desk();
        if desk.end.is_some() {
            return Err(command);
        }
        desk.commands.push(command);
        notify(desk);
        Ok(())
    }

    /// Queues a frame of the server. It is written at once if nothing else is going on; otherwise
    /// the driver sends all that has gathered in one go.
    pub(crate) fn answer(&self, stream_id: u32, frame: Vec<u8>, command: C) {
        let mut desk = self.desk();
        // Under the lock: the driver may take a request that waits for this answer's handler, and
        // looks under it whether to sleep. It either finds the command, or is seen to be needed.
        let open = self.release();
        if desk.end.is_some() {
            return;
        }
        let direct = open == 0 && desk.closing == Closing::No && desk.may_write();
        desk.commands.push(command);
        if direct {
            desk.outbox.push(stream_id, frame);
            self.write(desk, self.clock.now(), false);
        } else {
            desk.outbox.arrive(stream_id, frame);
            notify(desk);
        }
    }

    /// Queues a server's last frame on a stream, unless the stream has ended already: then nobody
    /// may send on it any more. Returns whether it was queued.
    pub(crate) fn answer_stream(&self, stream_id: u32, frame: Vec<u8>, command: C) -> bool {
        self.release();
        let mut desk = self.desk();
        if desk.end.is_some() {
            return false;
        }
        let queued = desk.outbox.end_stream(stream_id, frame);
        let waiting = desk.waiting_sender(stream_id);
        desk.commands.push(command);
        notify(desk);
        waiting.into_iter().for_each(Waker::wake);
        queued
    }

    /// Writes what waits, from the task of a handle. Wakes the driver for what is left, or if `wake`.
    fn write(&self, mut desk: MutexGuard<'_, Desk<C>>, now: Duration, wake: bool) {
        let Some(shortcut) = desk.shortcut.clone() else {
            return notify(desk);
        };
        let Some(mut batch) = desk.outbox.begin() else {
            return notify(desk);
        };
        drop(desk);
        // The driver meets every error by itself, in reading or in its own write.
        if let Ok(taken) = batch.write(|slices| shortcut.try_write(slices)) {
            batch.advance(taken);
        }
        let mut desk = self.desk();
        // A handle writes only what it found alone, so no PING is among it.
        desk.outbox.end(batch, now);
        if desk.end.is_some() {
            desk.outbox.clear();
            return;
        }
        let waiting = desk.first_waiting();
        // A connection that closes waits for what is being written here.
        let closing = desk.closing != Closing::No;
        if wake || closing || !desk.outbox.is_empty() {
            notify(desk);
        } else {
            drop(desk);
        }
        waiting.for_each(Waker::wake);
    }

    /// The driver's turn is over. Lets the call and the message that wait longest look whether there
    /// is room for them. Returns whether the driver has been called meanwhile.
    fn end_turn(&self) -> bool {
        let (waiting, notified) = {
            let mut desk = self.desk();
            desk.awake = false;
            (desk.first_waiting(), desk.notified)
        };
        waiting.for_each(Waker::wake);
        notified
    }

    /// Every critical section leaves the desk as it should be, so a panic elsewhere in a thread
    /// that holds it has broken nothing.
    fn desk(&self) -> MutexGuard<'_, Desk<C>> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more stream is open.
    pub(crate) fn claim(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// One stream less is open. Returns how many are left.
    pub(crate) fn release(&self) -> usize {
        self.open.fetch_sub(1, Ordering::Relaxed) - 1
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

impl<C> Desk<C> {
    /// Whether a handle that has just begun the only open stream may write by itself.
    fn may_write(&self) -> bool {
        self.direct && !self.awake && self.outbox.is_empty()
    }

    /// Whom to wake when a stream ends whose sender waits for room.
    fn waiting_sender(&self, stream_id: u32) -> Option<Waker> {
        let ticket = self.outbox.sending.ticket(stream_id)?;
        self.senders.waker(ticket)
    }

    fn first_waiting(&self) -> impl Iterator<Item = Waker> + use<C> {
        let call = self.room.first();
        call.into_iter().chain(self.senders.first())
    }
}

/// Calls the driver, behind the lock and only if nobody has since it last ran.
fn notify<C>(mut desk: MutexGuard<'_, Desk<C>>) {
    if desk.notified {
        return;
    }
    desk.notified = true;
    if desk.awake {
        return;
    }
    let waker = desk.waker.clone();
    drop(desk);
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::config::{ClientSettings, DriverThread};
    use crate::error::Error;
    use crate::keepalive::{Keepalive, Peer, Role};
    use crate::transport::ByteStream;
    use crate::wire::{Flags, PING_STREAM_ID, Raw, encode_response};

    // A driver that takes a request between the two puts it behind a handler that has ended, and
    // nobody wakes it to start that request.
    #[test]
    fn a_stream_is_open_until_its_answer_is_on_the_desk() {
        let machine = Machine::new(&Keepalive::off(), Role::Server, 0);
        let shared = Shared::new(
            Clock::start(),
            &machine,
            &ByteStream::new(tokio::io::empty()),
        );
        shared.claim();
        std::thread::scope(|scope| {
            let desk = shared.desk();
            let answering = scope.spawn(|| shared.answer(1, Vec::new(), ()));
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(shared.open(), 1);
            drop(desk);
            answering.join().unwrap();
        });
        assert_eq!((shared.open(), shared.desk().commands.len()), (0, 1));
    }

    // RFC KA-30. Ids are never used again: a late answer to an old call would be taken for that of
    // a new one.
    #[tokio::test]
    async fn a_connection_that_has_used_its_last_id_says_so_and_goes_on_with_its_calls() {
        let (here, mut there) = tokio::io::duplex(4096);
        let (side, thread) = (ClientSide::new(8), DriverThread::Shared);
        let connection = Connection::new(here, side, &Keepalive::off(), thread);
        let handle = Handle::new(connection.shared().clone(), ClientSettings::default());
        handle.shared().desk().next_id = Some(PING_STREAM_ID - 2);
        connection.spawn();
        let outgoing = || Outgoing {
            service: "demo.Echo",
            method: "Say",
            flags: Flags::NONE,
            metadata: Vec::new(),
            payload: Payload::Bytes(&[]),
            timeout: None,
        };
        let mut last = pin!(handle.exchange(outgoing()));
        let polled = last.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());

        for _ in 0..2 {
            let error = handle.exchange(outgoing()).await.unwrap_err();
            assert!(matches!(error, Error::IdsExhausted), "{error:?}");
            assert_eq!(error.peer(), Peer::Gone, "connect anew");
        }
        let answer = encode_response(PING_STREAM_ID - 2, &Raw(b"")).unwrap();
        there.write_all(&answer).await.unwrap();
        assert!(last.await.is_ok());
    }
}
