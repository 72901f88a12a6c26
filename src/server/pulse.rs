//! Whether a runtime runs: a task on it that looks at the clock ten times a second, for servers that ask
//! for it and only while they have connections.
//!
//! A request says how long its caller waits, not when it was sent. One that is found after this process
//! was stopped looks as fresh as any other, and nothing tells when its bytes came: unix sockets have no
//! time stamps, a stop leaves no trace in what the system says of a process, and a driver that sleeps
//! without a deadline cannot know for how long it was kept. So somebody has to have looked at the clock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::task::unconstrained;
use tokio::time::sleep;

use crate::clock::Clock;
use crate::tuning::PULSE;

/// When a runtime last was in time.
#[derive(Debug)]
pub(super) struct Pulse {
    clock: Clock,
    /// In nanoseconds of its clock.
    in_time: AtomicU64,
}

impl Pulse {
    /// That of the runtime on which this is called: one for all connections on it. It ends with the last
    /// of them.
    pub(super) fn here() -> Arc<Self> {
        static PULSES: Mutex<Vec<(runtime::Id, Weak<Pulse>)>> = Mutex::new(Vec::new());
        let runtime = Handle::current();
        let mut pulses = PULSES.lock().unwrap_or_else(PoisonError::into_inner);
        pulses.retain(|(_, pulse)| pulse.strong_count() > 0);
        let known = pulses.iter().find(|(id, _)| *id == runtime.id());
        if let Some(pulse) = known.and_then(|(_, pulse)| pulse.upgrade()) {
            return pulse;
        }
        let pulse = Arc::new(Self {
            clock: Clock::start(),
            in_time: AtomicU64::new(0),
        });
        pulses.push((runtime.id(), Arc::downgrade(&pulse)));
        runtime.spawn(unconstrained(beat(Arc::downgrade(&pulse), pulse.clock)));
        pulse
    }

    /// How long ago the runtime last was in time. What has come since may have waited.
    pub(super) fn age(&self) -> Duration {
        let in_time = Duration::from_nanos(self.in_time.load(Relaxed));
        self.clock.now().saturating_sub(in_time)
    }
}

async fn beat(pulse: Weak<Pulse>, clock: Clock) {
    let mut last = clock.now();
    let mut in_time = false;
    loop {
        sleep(PULSE).await;
        let Some(pulse) = pulse.upgrade() else { return };
        let now = clock.now();
        let was_in_time = std::mem::replace(&mut in_time, now.saturating_sub(last) < 2 * PULSE);
        last = now;
        // Twice in a row: in between, drivers have read what came while nothing ran.
        if was_in_time && in_time {
            let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
            pulse.in_time.store(nanos, Relaxed);
        }
    }
}
