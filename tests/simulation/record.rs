//! What has become of each call, as its caller and its handler saw it.

use std::sync::Mutex;

use ttrpc_keepalive::{ConnectionError, Error};

use super::plan::Ask;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Call(Ask),
    Probe(u64),
    Closed,
}

#[derive(Debug)]
pub(crate) enum Outcome {
    /// All that was to come has come, in its order.
    Answered,
    Probed,
    Closed(ConnectionError),
    Failed(Error),
    /// An answer that nobody gave.
    Wrong(String),
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) started: u64,
    pub(crate) began: u32,
    pub(crate) answered: u32,
    /// When its future was dropped.
    pub(crate) dropped: bool,
    /// Until when it was not polled.
    pub(crate) held_until: u64,
    /// When it ended, and how.
    pub(crate) ended: Option<(u64, Outcome)>,
}

#[derive(Debug, Default)]
struct State {
    now: u64,
    calls: Vec<Entry>,
    /// Those that have ended and are not judged yet.
    unjudged: Vec<usize>,
    faults: Vec<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Record(Mutex<State>);

impl Record {
    fn with<R>(&self, run: impl FnOnce(&mut State) -> R) -> R {
        run(&mut self.0.lock().expect("nothing panics in here"))
    }

    pub(crate) fn advance(&self, now: u64) {
        self.with(|state| state.now = now);
    }

    pub(crate) fn start(&self, kind: Kind) -> usize {
        self.with(|state| {
            state.calls.push(Entry {
                kind,
                started: state.now,
                began: 0,
                answered: 0,
                dropped: false,
                held_until: 0,
                ended: None,
            });
            state.calls.len() - 1
        })
    }

    /// Its future is polled for the first time, and its time begins.
    pub(crate) fn begin(&self, call: usize) {
        self.with(|state| state.calls[call].started = state.now);
    }

    pub(crate) fn ask(&self, call: usize) -> Option<Ask> {
        self.with(|state| match state.calls.get(call)?.kind {
            Kind::Call(ask) => Some(ask),
            Kind::Probe(_) | Kind::Closed => None,
        })
    }

    pub(crate) fn handler_began(&self, call: usize) {
        self.with(|state| state.calls[call].began += 1);
    }

    pub(crate) fn handler_answered(&self, call: usize) {
        self.with(|state| state.calls[call].answered += 1);
    }

    pub(crate) fn drop_call(&self, call: usize) {
        self.with(|state| state.calls[call].dropped = true);
    }

    pub(crate) fn hold(&self, call: usize, until: u64) {
        self.with(|state| state.calls[call].held_until = until);
    }

    pub(crate) fn end(&self, call: usize, outcome: Outcome) {
        self.with(|state| {
            let entry = &mut state.calls[call];
            if entry.ended.replace((state.now, outcome)).is_some() {
                state.faults.push(format!("call {call} ended twice"));
            }
            state.unjudged.push(call);
        });
    }

    pub(crate) fn expect(&self, holds: bool, what: &str) {
        if !holds {
            self.with(|state| state.faults.push(format!("not {what}")));
        }
    }

    pub(crate) fn take_faults(&self) -> Vec<String> {
        self.with(|state| std::mem::take(&mut state.faults))
    }

    /// Judges those that have ended since the last time.
    pub(crate) fn judge(&self, mut judge: impl FnMut(usize, &Entry)) {
        self.with(|state| {
            for call in std::mem::take(&mut state.unjudged) {
                judge(call, &state.calls[call]);
            }
        });
    }

    pub(crate) fn each(&self, mut see: impl FnMut(usize, &Entry)) {
        self.with(|state| {
            for (call, entry) in state.calls.iter().enumerate() {
                see(call, entry);
            }
        });
    }
}
