//! What is logged, for tests that hold it.

use std::cell::RefCell;
use std::fmt::Write;
use std::sync::{Arc, Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

thread_local! {
    /// Where the events of this thread go.
    static LOG: RefCell<Option<Log>> = const { RefCell::new(None) };
}

/// Keeps all events of one thread: their level, and their message and fields as text.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<(Level, String)>>>);

/// Until it is dropped events are kept.
pub(crate) struct Logging;

impl Log {
    /// Keeps the events of this thread from now on.
    pub(crate) fn begin() -> (Self, Logging) {
        // One for all threads and for good: what comes and goes with a test makes others that log
        // at the same time forget for which events somebody asked.
        static BEGUN: Once = Once::new();
        BEGUN.call_once(|| tracing::subscriber::set_global_default(ByThread).unwrap());
        let log = Self::default();
        LOG.set(Some(log.clone()));
        (log, Logging)
    }

    /// The events of this level and of all that are more urgent.
    pub(crate) fn at_least(&self, level: Level) -> Vec<String> {
        let events = self.0.lock().unwrap();
        let urgent = events.iter().filter(|(of, _)| *of <= level);
        urgent.map(|(_, text)| text.clone()).collect()
    }

    /// How many events of any level have this in their text.
    pub(crate) fn count(&self, what: &str) -> usize {
        let events = self.0.lock().unwrap();
        events
            .iter()
            .filter(|(_, text)| text.contains(what))
            .count()
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        LOG.set(None);
    }
}

struct ByThread;

impl Subscriber for ByThread {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let log = LOG.with_borrow(Clone::clone);
        if let Some(Log(events)) = log {
            let mut text = Text(String::new());
            event.record(&mut text);
            let level = *event.metadata().level();
            events.lock().unwrap().push((level, text.0));
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}
