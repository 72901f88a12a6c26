//! The numbers that decide sizes and times inside. None of them is a limit that a user sets: those
//! are in `config`.

use std::time::Duration;

/// Reads and writes in one turn of a driver, each: a peer that sends without end must not keep the
/// driver from its deadlines, nor other tasks from the thread.
pub(crate) const TURN_STEPS: usize = 16;

/// Bytes read in one turn, about, for the same reason: they may be thousands of small frames.
pub(crate) const TURN_BYTES: usize = 256 << 10;

/// Frames taken in one turn. Callers and handlers woken by them have a turn before the rest: the peer
/// can work on the first answers or requests while this side works on the others. As many as go into
/// one write.
pub(crate) const TURN_FRAMES: usize = BATCH_FRAMES;

/// Requests or responses taken in one turn where the peer works beside: a quarter of sixteen. With
/// halves each side waits for the other after every one of them.
pub(crate) const SHARE_FEW: u32 = 4;

/// Frames after which both ways are timed for the first time.
pub(crate) const SHARE_FIRST_TRIAL: u32 = 4096;

/// The same at most, where the distance has doubled at each trial: what has been learned may become
/// wrong when a process moves to another core. A trial's cost stays at one or two percent.
pub(crate) const SHARE_LAST_TRIAL: u32 = 32_768;

/// Frames for which each way is timed: a millisecond or two.
pub(crate) const SHARE_WINDOW: u32 = 512;

/// A frame must take less by this part of it, a seventh: a turn that takes few costs more.
pub(crate) const SHARE_GAIN: u32 = 7;

/// Turns before a look is over although there still is something to read. What the kernel held when
/// the look was due has been read by then; a peer that sends without end would otherwise keep every
/// deadline from being seen, and so would a transport whose reads do not find what its looks do.
pub(crate) const LOOK_TURNS: u32 = 16;

/// The pause after a look that lasted so long and whose reads found nothing. What was due then still
/// is, and would keep a core busy.
pub(crate) const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// The pause after a read or write that failed for a reason which passes: the kernel lacks memory, and is
/// asked for some again when others may have given theirs back.
pub(crate) const FAULT_PAUSE: Duration = Duration::from_millis(10);

/// How long a transport may leave a look unanswered. Calls that are judged by it wait as long: little
/// beside their time, and enough for a task on another thread that has the descriptor.
pub(crate) const LOOK_PATIENCE: Duration = Duration::from_millis(10);

/// How long the end of a stream may take that says farewell. A peer that does not read must not keep a
/// connection which is over.
pub(crate) const FAREWELL_PATIENCE: Duration = Duration::from_secs(1);

/// How long a connection on which nothing can be written any more waits for what the kernel still
/// holds, and a reactor has not delivered. Turns of a scheduler would not tell: on several threads they
/// pass while the reactor has none.
pub(crate) const REST_PATIENCE: Duration = Duration::from_secs(1);

/// Frames in one write: enough that the cost of a system call is small for each, few enough that
/// their slices stay on the stack.
pub(crate) const BATCH_FRAMES: usize = 64;

/// Bytes in one write, about: beyond it a larger batch saves nothing and only puts off the next
/// look at what has come in.
pub(crate) const BATCH_BYTES: usize = 256 << 10;

/// What a frame that waits takes beside its bytes, about. Counted, or a limit in bytes would let ten
/// times as much memory wait in frames of ten bytes.
pub(crate) const FRAME_OVERHEAD: usize = 64;

/// What a write counts for in the kernel beside its bytes, at the least, until it is read. Linux counts
/// 512 and more.
pub(crate) const WRITE_OVERHEAD: u64 = 256;

/// The same for a received message. Empty messages would be free otherwise, and a flood of them
/// without a bound.
pub(crate) const MESSAGE_OVERHEAD: usize = 64;

/// A message up to this size is copied behind the one before it, if that is of the same stream:
/// cheaper than a buffer of its own, and than a piece of its own in a write.
pub(crate) const JOINED_MESSAGE: usize = 1 << 10;

/// Bytes of messages that are joined, at most.
pub(crate) const JOINED_BYTES: usize = 16 << 10;

/// Bytes that are asked for in one read: many small frames come at once.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// The same behind a large payload. Large ones come one behind the other: this takes little more
/// than the next one's header, so that little of it is moved.
pub(crate) const READ_BEHIND_LARGE: usize = 1 << 10;

/// Bytes of messages that a stream queues before other tasks have a turn. A handler that has much to
/// send would otherwise keep its thread until the outbox is full, and its peer waiting until then.
pub(crate) const SEND_SHARE: usize = 16 << 10;

/// A buffer up to this size is kept for a stream's next message.
pub(crate) const KEPT_BUFFER: usize = 4 << 10;

/// A queue with room for more entries gives its memory back when it is empty, and a table when it is
/// almost: a burst is no reason to hold it for as long as the connection lasts.
pub(crate) const KEPT_ENTRIES: usize = 128;

/// Bytes of a refusal at most. A longer status is not taken apart to see whether it announces a
/// shutdown.
pub(crate) const SHORT_STATUS: usize = 1024;

/// How long the canary may be out before its runtime counts as stuck. A runtime that is only busy
/// comes to a new task much sooner.
pub(crate) const CANARY_STALLED: Duration = Duration::from_millis(100);

/// How much later than the driver a caller ends its call by its own clock: a part of the lead, and
/// at least this, which is what timers of a runtime differ by.
pub(crate) const OWN_CLOCK_MARGIN: Duration = Duration::from_millis(5);

/// How long a client that closes waits for its peer to say that it has read all: one that speaks no
/// PING, and has answered nothing yet by which that could be known, does not say so.
pub(crate) const LAST_WORD_PATIENCE: Duration = Duration::from_secs(1);

/// What a driver that runs needs to end its connection.
pub(crate) const END_MARGIN: Duration = Duration::from_millis(100);

/// Below this size an allocator is as fast.
pub(crate) const MEDIUM_BUFFER: usize = 1 << 10;

/// From this size on buffers are kept for the whole process: they are worth a lock.
pub(crate) const LARGE_BUFFER: usize = 32 << 10;

/// Bytes of large buffers kept in all: two frames of the largest size, or a hundred of 64 KiB.
pub(crate) const KEPT_LARGE_BYTES: usize = 8 << 20;

/// Bytes of medium buffers kept by a thread: what a batch of writes sets free at one time.
pub(crate) const KEPT_MEDIUM_BYTES: usize = 256 << 10;

/// The newest buffers among which one that fits is looked for.
pub(crate) const BUFFERS_TRIED: usize = 8;

/// Handlers polled by the driver in one of its turns. Further ones have tasks, and the driver reads,
/// writes and answers PINGs again.
pub(crate) const INLINE_HANDLERS: usize = 256;

/// Bytes of a request beyond which its handler is not polled by the driver: decoding it takes time.
pub(crate) const INLINE_REQUEST: usize = 16 << 10;

/// Waits between two failed accepts, growing: the usual cause is that descriptors are used up,
/// which passes, and a loop that does not wait makes it worse.
pub(crate) const ACCEPT_BACKOFF: (Duration, Duration) =
    (Duration::from_millis(5), Duration::from_secs(1));

/// How long a shutdown waits for what it has told to stop. A task needs one turn for that; a future
/// that nobody polls never has one, and must not hold up the process that wants to end.
pub(crate) const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// A request up to this size is copied where its message keeps bytes: cheaper than sharing it.
pub(crate) const COPIED_REQUEST: usize = 16 << 10;

/// Ended calls that are left in here, beside as many as there are others.
pub(crate) const TOLERATED_ENTRIES: usize = 16;

/// Places that are kept while there are no calls.
pub(crate) const KEPT_DEADLINES: usize = 256;

/// Between two attempts to connect to a server that runs and has a full queue of connections.
pub(crate) const BACKLOG_RETRY: Duration = Duration::from_millis(10);

/// The least time between two attempts: an interval of nothing would keep a core busy.
pub(crate) const SHORTEST_RETRY: Duration = Duration::from_millis(1);

/// Bytes of small frames joined for a stream that takes one slice at a time.
pub(crate) const JOINED_WRITE: usize = 16 << 10;

/// A server has its name for a moment before it listens, and refuses connections until then. One
/// that refuses before and after so long has not just been started.
pub(crate) const SOCKET_FILE_START: Duration = Duration::from_millis(100);

/// How many times as long another process is waited for that has claimed a file.
pub(crate) const SOCKET_FILE_CLAIMS: u32 = 30;

/// Up to so many bytes copying twice is cheaper than an allocation.
pub(crate) const SMALL_MESSAGE: usize = 1 << 10;

/// From so many missing bytes on, a read of their own is cheaper than copying them: a socket gives
/// few more in one read, and below it the frames behind would cost a read more.
pub(crate) const READ_IN_PLACE: usize = 16 << 10;

/// Bytes of a name from a peer, and of a key or value, that are shown.
pub(crate) const SHOWN_NAME: usize = 128;

/// Bytes of a peer's message for people that are shown: a long line of a log.
pub(crate) const SHOWN_TEXT: usize = 1 << 10;

/// Bytes of a payload that are shown.
pub(crate) const SHOWN_BYTES: usize = 64;

/// Pairs of metadata, or details of a status, that are shown.
pub(crate) const SHOWN_ENTRIES: usize = 16;

/// How often a server that asks for it looks whether its runtime runs. A look takes some microseconds.
pub(crate) const PULSE: Duration = Duration::from_millis(100);

/// More than a kernel holds of one connection: what was read behind so many bytes came later than they.
pub(crate) const KERNEL_BYTES: usize = 8 << 20;

/// For how long what the peer's process was doing is told to calls that are late at the same time: as
/// long as a sign of life is fresh, so that a thousand of them ask forty times a second.
pub(crate) const PROCESS_KNOWN: Duration = Duration::from_millis(25);

/// How long after it was looked for in vain the process of a connection that was handed on is looked for
/// again. It takes milliseconds for each hundred processes.
pub(crate) const PROCESS_SOUGHT: Duration = Duration::from_secs(10);
