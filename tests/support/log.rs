//! What is logged, for tests that hold it.

use std::fmt::Write;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps all events: their level, and their message and fields as text.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<(Level, String)>>>);

impl Log {
    /// From now on, in this thread, until the guard is dropped.
    pub(crate) fn begin() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let guard = tracing::subscriber::set_default(log.clone());
        (log, guard)
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

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let level = *event.metadata().level();
        self.0.lock().unwrap().push((level, text.0));
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
