//! The lock's protocol under every order of threads that a scheduler can think of.
//!
//! It is the real driver, and the real futures of callers, that run here: each on a thread of a model, with
//! a point in front of every lock, waker and system call at which another may go on. A wake-up that is
//! lost leaves all of them asleep, and the scheduler says so.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner, future, thread};
use tokio::runtime::{Builder, Runtime};

mod wire;

use self::wire::{NEVER, Peer, Socket, TIMEOUT, Wire};
use super::calls::Opening;
use super::state::{Rest, SleepRequest};
use super::stream::Spread;
use super::streaming::StreamGuard;
use super::*;
use crate::config::{ClientLimits, ClientSettings, DriverThread};
use crate::error::{ConnectionError, Error};
use crate::keepalive::{CallDeadline, Keepalive, Machine, PeerSupport, Role};
use crate::wire::{Flags, Raw, pong};

/// Wakes, and lets others go on in front of it.
struct Overtaken(Waker);

impl Wake for Overtaken {
    fn wake(self: Arc<Self>) {
        schedule::point();
        if schedule::goes_on() {
            self.0.wake_by_ref();
        }
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut waker = None;
    future::block_on(poll_fn(|cx| {
        let waker = waker.get_or_insert_with(|| Arc::new(Overtaken(cx.waker().clone())).into());
        future.as_mut().poll(&mut Context::from_waker(waker))
    }))
}

/// What the owner of a handle does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Story {
    Call,
    DroppedCall,
    Stream,
    DroppedStream,
    Probe,
    /// Is never answered, and ends at its deadline.
    Late,
    Abort,
}

const PEACEFUL: [Story; 5] = [
    Story::Call,
    Story::DroppedCall,
    Story::Stream,
    Story::DroppedStream,
    Story::Probe,
];

const FOR_EVER: Duration = Duration::from_secs(1 << 20);

fn outgoing(method: &'static str, flags: Flags) -> Outgoing {
    let timeout = (method == NEVER).then_some(TIMEOUT);
    Outgoing::new(("s", method), flags, &Raw(b"ask"), timeout)
}

async fn call(handle: &Handle, method: &'static str) -> Result<Bytes, Error> {
    let mut exchange = handle.exchange(outgoing(method, Flags::NONE), false);
    poll_fn(|cx| exchange.poll_response(cx)).await
}

async fn open(handle: &Handle, takes_messages: bool) -> Result<StreamGuard, Error> {
    let mut exchange = handle.exchange(outgoing("m", Flags::REMOTE_OPEN), takes_messages);
    poll_fn(|cx| exchange.poll_opened(cx)).await
}

impl Story {
    fn play(self, handle: &Handle) -> Result<(), Error> {
        match self {
            Self::Call => block_on(call(handle, "m")).map(drop),
            Self::DroppedCall => {
                let mut exchange = handle.exchange(outgoing(NEVER, Flags::NONE), false);
                let _ = exchange.poll_response(&mut Context::from_waker(Waker::noop()));
                schedule::point();
                Ok(())
            }
            Self::Stream => block_on(async {
                let guard = open(handle, false).await?;
                // Each message waits until the one before it is written.
                let outlet = guard.outlet(1);
                for _ in 0..2 {
                    match outlet.send(&Raw(b"message")).await {
                        Err(NotSent::Connection(end)) => return Err(Error::not_sent(end)),
                        sent => sent.unwrap(),
                    }
                }
                outlet.half_close();
                poll_fn(|cx| guard.poll_response(cx)).await.map(drop)
            }),
            Self::DroppedStream => block_on(async {
                let guard = open(handle, true).await?;
                let outlet = guard.outlet(usize::MAX);
                let _ = outlet.send(&Raw(b"message")).await;
                let _messages = guard.messages();
                Ok(())
            }),
            Self::Probe => block_on(handle.probe(FOR_EVER)).map(drop),
            Self::Late => match block_on(call(handle, NEVER)) {
                Err(Error::Deadline(_)) => Ok(()),
                ended => panic!("{ended:?}"),
            },
            Self::Abort => {
                handle.shared().expect_close();
                handle.shared().abort();
                Ok(())
            }
        }
    }
}

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
}

/// Time passes, and timers fire.
fn pass_time(over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let step = || tokio::time::advance(TIMEOUT / 8);
        RUNTIME.with(|runtime| schedule::alone(|| runtime.block_on(async { step().await })));
        schedule::point();
    }
}

/// Plays these stories at one time, each by an owner of its own, and the end of the connection.
fn play(stories: &[Story], room: usize) {
    let wire = Arc::new(Wire::default());
    let late = stories.contains(&Story::Late);
    {
        let mut kernel = wire.kernel();
        kernel.room = room;
        kernel.slow = late;
    }
    // A third call waits.
    let limits = ClientLimits {
        calls: 2,
        ..ClientLimits::default()
    };
    let keepalive = Keepalive::on_demand().peer_support(PeerSupport::Assume);
    let connection = Connection::new(
        Socket(Arc::clone(&wire)),
        (ClientSide, Calls::new(limits)),
        limits.stream_bytes,
        &keepalive,
        DriverThread::Shared,
    );
    let shared = Arc::clone(connection.shared());
    let handle = Handle::new(
        Arc::clone(&shared),
        ClientSettings {
            keepalive,
            limits,
            ..ClientSettings::default()
        },
    );

    let driver = spawn("driver", || block_on(connection.run()));
    let over = Arc::new(AtomicBool::new(false));
    if late {
        let over = Arc::clone(&over);
        spawn("clock", move || pass_time(&over));
    }
    let peer = spawn("peer", move || block_on(Peer::default().run(wire)));
    let owners = stories.iter().map(|story| {
        let (story, handle) = (*story, handle.clone());
        spawn(&format!("{story:?}"), move || story.play(&handle))
    });
    let aborts = stories.contains(&Story::Abort);
    for owner in owners.collect::<Vec<_>>() {
        match owner.join().unwrap() {
            Err(Error::Connection(..)) if aborts => {}
            ended => ended.unwrap(),
        }
    }
    over.store(true, Ordering::Relaxed);
    // What they have left is written although nobody calls the driver any more: it must have been
    // called.
    while !aborts && !is_quiet(&shared.lock(), late) {
        thread::yield_now();
    }
    // An abort needs no drop of the last handle.
    let kept = aborts.then(|| handle.clone());
    drop(handle);

    let end = driver.join().unwrap();
    drop(kept);
    assert!(matches!(end, ConnectionError::LocalClose), "{end}");
    peer.join().unwrap();
    let mut state = shared.lock();
    assert!(state.outbox.is_empty());
    assert!(state.streams.is_empty(), "{:?}", state.streams);
    assert_eq!(state.traffic().calls_in_flight, 0);
}

/// Whether all is written, and nothing is left but the record of a late call.
fn is_quiet(state: &State<Calls>, late: bool) -> bool {
    state.outbox.is_empty() && (late || state.streams.is_empty())
}

/// Its name is in the report of a failure.
fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let builder = thread::Builder::new().name(name.to_owned());
    builder.spawn(run).unwrap()
}

fn check(scheduler: impl Scheduler + 'static, model: impl Fn() + Send + Sync + 'static) {
    schedule::begin();
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    // Beyond them somebody waits for ever while time passes.
    config.max_steps = MaxSteps::FailAfter(50_000);
    RUNTIME.with(|runtime| {
        let _entered = runtime.enter();
        Runner::new(scheduler, config).run(model);
    });
}

/// As many stories, each by chance.
fn by_chance<const N: usize>() -> [Story; N] {
    std::array::from_fn(|_| PEACEFUL[thread_rng().gen_range(0..PEACEFUL.len())])
}

/// Few frames fit into the kernel at one time, and hardly one is taken whole.
fn room() -> usize {
    thread_rng().gen_range(20..60)
}

#[test]
fn calls_end_and_leave_nothing_behind_in_every_order() {
    check(RandomScheduler::new(800), || {
        play(&by_chance::<3>(), room())
    });
}

#[test]
fn calls_end_in_rare_orders_too() {
    check(PctScheduler::new(3, 2500), || {
        play(&by_chance::<3>(), room())
    });
}

#[test]
fn an_abort_ends_all_in_every_order() {
    let model = || {
        let [other] = by_chance();
        play(&[Story::Abort, other], room());
    };
    check(PctScheduler::new(3, 1500), model);
}

#[test]
fn a_late_call_ends_in_every_order() {
    let model = || {
        let [other] = by_chance();
        play(&[Story::Late, other], room());
    };
    check(RandomScheduler::new(800), model);
}

/// A call that was written by its handle while the driver has come to its deadline, and found the
/// batch out.
fn met_on_its_way(keepalive: &Keepalive) -> State<Calls> {
    let machine = Machine::new(keepalive, Role::Client, 0);
    let calls = Calls::new(ClientLimits::default());
    let mut state = State::new(
        machine,
        calls,
        Spread::new(0),
        0,
        Some(Arc::new(Wire::default())),
        0,
    );
    let mut effects = Effects::default();
    assert_eq!(state.sleep(&IDLE), Rest::Sleep);
    let call = Opening {
        started: Duration::ZERO,
        timeout: Some(TIMEOUT),
        deadline: Some(CallDeadline::new(Duration::ZERO, TIMEOUT, keepalive)),
        flags: Flags::NONE,
        takes_messages: false,
    };
    let mut frame = pong(0, Flags::NONE, b"in place of a request");
    let waker = Waker::noop();
    state
        .open(Duration::ZERO, &call, &mut frame, waker, &mut effects)
        .unwrap();
    let mut batch = effects.write.take().unwrap().batch;

    let now = 2 * TIMEOUT;
    state.begin_turn(now, waker, &mut effects);
    assert!(state.begin_write(now, &mut effects).is_none());
    batch.advance(usize::MAX);
    state.end_write(Duration::ZERO, batch, &mut effects);
    state
}

/// A stream with nothing to do.
const IDLE: SleepRequest = SleepRequest {
    now: TIMEOUT.saturating_mul(2),
    due: None,
    looks_since: None,
    heard: None,
    armed: Some(Duration::ZERO),
    rest_until: Duration::ZERO,
    goes_on: false,
    blocked: false,
    flushed: true,
    has_read_all: true,
    alone: true,
};

#[test]
fn a_deadline_that_waited_for_a_write_is_seen_before_the_driver_sleeps() {
    let mut state = met_on_its_way(&Keepalive::off());
    assert_eq!(state.sleep(&IDLE), Rest::Turn);
}

#[test]
fn a_ping_that_a_handle_wrote_is_flushed_before_the_driver_sleeps() {
    let keepalive = Keepalive::on_demand().probe_before_deadline(TIMEOUT);
    let mut state = met_on_its_way(&keepalive);
    state.begin_write(2 * TIMEOUT, &mut Effects::default());
    assert_eq!(state.sleep(&IDLE), Rest::Turn);
}
