//! The part of a turn that tells: the state to watchers, the end to everybody, transitions to the log.

use std::mem;

use tracing::{debug, info, warn};

use super::Driver;
use super::stage::{Farewell, Stage};
use crate::connection::effects::Effects;
use crate::connection::side::SideDriver;
use crate::connection::state::State;
use crate::error::ConnectionError;
use crate::keepalive::{Event, Machine, OnSilence};
use crate::liveness::Shown;

impl<S: SideDriver> Driver<S> {
    /// Publishes what the rules know. A conviction is the end of the connection: it is published
    /// together with that end, so that nobody sees a death without its evidence.
    pub(super) fn tell(&mut self) -> Result<(), ConnectionError> {
        self.tell_and(|_, _| ())
    }

    /// The same, after a verb under the same lock, so that what is told is what the verb left (law 8).
    pub(super) fn tell_and<R>(
        &mut self,
        verb: impl FnOnce(&mut State<S::Side>, &mut Effects) -> R,
    ) -> Result<R, ConnectionError> {
        let (result, news, events) = {
            let mut state = self.shared.lock();
            let result = verb(&mut state, &mut self.effects);
            state.admit(&mut self.effects);
            let view = state.machine.view();
            let shown = Shown::of(&view);
            let is_news = mem::replace(&mut self.shown, shown) != shown;
            let news = is_news.then(|| (view, state.traffic()));
            (result, news, events(&mut state.machine))
        };
        let mut dead = None;
        for mut event in events {
            if let Event::Convicted {
                reason,
                evidence,
                on_silence,
            } = &mut event
            {
                evidence.process = self.shared.process_state(self.now);
                if *on_silence == OnSilence::Close {
                    // That of the event: the machine has let go of the PING that was on trial.
                    let (reason, evidence) = (*reason, Box::new(*evidence));
                    dead = Some(ConnectionError::Dead { reason, evidence });
                }
            }
            log(event);
        }
        if let Some((view, traffic)) = news {
            let publisher = self.shared.publisher();
            publisher.tell(self.now, view, &traffic, dead.as_ref());
        }
        self.effects.run();
        dead.map_or(Ok(result), Err)
    }

    /// Ends the connection: the state is known, then the calls fail, then the stream goes. Nothing on
    /// this path writes, flushes or waits.
    pub(super) fn end(&mut self, end: ConnectionError) {
        let end = if self.shared.lock().is_announced() {
            end.announced()
        } else {
            end
        };
        self.stage = Stage::Farewell(Farewell::new(&end, self.shared.lock().closing()));
        let (view, traffic, events) = {
            let mut state = self.shared.lock();
            // What the last turn learned before it met the end.
            let events = events(&mut state.machine);
            let view = state.machine.view();
            state.finish(&end, &mut self.effects);
            (view, state.traffic(), events)
        };
        events.into_iter().for_each(log);
        match &end {
            ConnectionError::Dead { reason, evidence } => {
                warn!(%reason, %evidence, "the peer is convicted");
            }
            _ => info!(reason = %end, "the connection has ended"),
        }
        let publisher = self.shared.publisher();
        publisher.tell(self.now, view, &traffic, Some(&end));
        self.effects.run();
        self.transport.handle_end(&end);
    }
}

/// The events of a turn. Most turns have none, and take no memory then.
fn events(machine: &mut Machine) -> Vec<Event> {
    std::iter::from_fn(|| machine.poll_event()).collect()
}

fn log(event: Event) {
    match event {
        Event::LocalStall { gap } => info!(?gap, "this side did not run"),
        Event::StateChanged { from, to } => info!(?from, ?to, "the peer's state changed"),
        Event::SupportChanged(support) => debug!(?support, "keepalive support is known"),
        Event::Convicted {
            reason,
            evidence,
            on_silence: OnSilence::Report,
        } => warn!(%reason, %evidence, "the peer is overdue"),
        _ => {}
    }
}
