//! Receipts: what the kernel says of written bytes that a process has read, or that nobody has.

use std::time::Duration;

use super::Unread;

/// A count of the kernel below this is none: while the peer is reading it is one too high now and
/// then, and the smallest write counts for more.
const NOTHING: u64 = 256;

/// What is known of the peer by what it has read.
#[derive(Clone, Debug, Default)]
pub(super) struct Receipts {
    /// Whether the transport can tell.
    tells: bool,
    asked: Option<Asked>,
    /// When it was asked, in time that does not go back.
    asked_at: Option<Duration>,
    /// At or after this a process has read.
    read: Option<Duration>,
    /// What lay unread when the kernel was last asked.
    waiting: Option<Waiting>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Duration,
    held: u64,
    written: u64,
}

/// Written bytes that nobody has read.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    written_at: Duration,
    /// When it was known that nobody had read them; time of before is not attended.
    found: Duration,
    /// Time waited since, by the runs before call deadlines.
    attended: Duration,
}

impl Receipts {
    /// Takes the kernel's answer at `now` to a question that was asked after `at`. Returns whether it
    /// is a receipt: somebody has read since the question before, or since the bytes were written.
    ///
    /// That is not *now*: what was read long ago says nothing of a peer that has stopped since, so
    /// a receipt counts from the last instant that the reading cannot have come before.
    pub(super) fn take(&mut self, at: Duration, now: Duration, unread: Unread) -> bool {
        let (held, written, written_at) = match unread {
            Unread::NotAsked => return false,
            Unread::Unknown => {
                (self.tells, self.asked, self.waiting) = (false, None, None);
                return false;
            }
            Unread::Known {
                held,
                written,
                written_at,
            } => (held, written, written_at.unwrap_or_default()),
        };
        self.asked_at = Some(now);
        let asked = Asked { at, held, written };
        let before = self.asked.replace(asked);
        let read = if asked.is_empty() {
            match before {
                // The same as before, and nothing new that could have been read.
                Some(before) if before.is_empty() && before.written >= written => None,
                Some(before) if !before.is_empty() => Some(written_at.max(before.at)),
                _ if written == 0 => None,
                _ => Some(written_at),
            }
        } else {
            before.and_then(|before| before.has_shrunk(&asked).then_some(before.at))
        };
        self.read = self.read.max(read);
        if asked.is_empty() {
            self.waiting = None;
        } else if read.is_some() || self.waiting.is_none() {
            // What was written last is still there, whatever was read of that before it.
            self.waiting = Some(Waiting {
                written_at,
                found: at,
                attended: Duration::ZERO,
            });
        }
        read.is_some()
    }

    /// A run of the driver before a call's deadline, as far as it counts.
    pub(super) fn attend(&mut self, last_run: Duration, now: Duration, lead: Duration) {
        if let Some(waiting) = &mut self.waiting {
            let gap = now.saturating_sub(last_run.max(waiting.found));
            waiting.attended = waiting.attended.saturating_add(gap.min(lead / 4));
        }
    }

    pub(super) const fn set(&mut self, tells: bool) {
        self.tells = tells;
    }

    /// Whether the transport can tell.
    pub(super) const fn tell(&self) -> bool {
        self.tells
    }

    /// When the kernel was last asked.
    pub(super) const fn asked_at(&self) -> Option<Duration> {
        self.asked_at
    }

    /// An instant at or after which a process has read.
    pub(super) const fn read(&self) -> Option<Duration> {
        self.read
    }

    /// When something was written that nobody had read when the kernel was last asked.
    pub(super) fn unread_since(&self) -> Option<Duration> {
        self.waiting.map(|waiting| waiting.written_at)
    }

    /// For how long that was attended.
    pub(super) fn attended(&self) -> Option<Duration> {
        self.waiting.map(|waiting| waiting.attended)
    }
}

impl Asked {
    const fn is_empty(&self) -> bool {
        self.held < NOTHING
    }

    /// Each byte written counts for at least one, so what is missing has been read.
    fn has_shrunk(&self, now: &Self) -> bool {
        let since = now.written.saturating_sub(self.written);
        let unread = self.held.saturating_add(since);
        unread >= now.held.saturating_add(NOTHING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// The kernel is asked at `at`: so much is held, and so much was written until `written_at`.
    fn ask(receipts: &mut Receipts, at: u64, held: u64, (written, written_at): (u64, u64)) -> bool {
        let unread = Unread::Known {
            held,
            written,
            written_at: (written > 0).then(|| ms(written_at)),
        };
        receipts.take(ms(at), ms(at), unread)
    }

    fn seen(receipts: &Receipts) -> (Option<Duration>, Option<Duration>) {
        (receipts.read(), receipts.unread_since())
    }

    #[test]
    fn an_empty_queue_is_a_receipt_from_the_last_write_on_and_once() {
        let mut receipts = Receipts::default();
        assert!(!ask(&mut receipts, 5, 0, (0, 0)), "nothing was written");
        assert!(ask(&mut receipts, 100, 0, (18, 10)));
        assert_eq!(seen(&receipts), (Some(ms(10)), None), "not from now on");
        assert!(!ask(&mut receipts, 200, 0, (18, 10)), "it was told before");
        assert!(ask(&mut receipts, 300, 0, (36, 290)));
        assert_eq!(seen(&receipts), (Some(ms(290)), None));
    }

    #[test]
    fn a_queue_that_was_unread_and_is_empty_was_read_since() {
        let mut receipts = Receipts::default();
        assert!(!ask(&mut receipts, 100, 768, (18, 10)));
        assert_eq!(seen(&receipts), (None, Some(ms(10))));
        assert!(ask(&mut receipts, 200, 0, (18, 10)));
        assert_eq!(seen(&receipts), (Some(ms(100)), None));
    }

    #[test]
    fn a_queue_that_holds_less_than_was_written_was_read_in_part() {
        let mut receipts = Receipts::default();
        ask(&mut receipts, 100, 2 * 768, (36, 10));
        assert!(ask(&mut receipts, 200, 768, (36, 10)));
        assert_eq!(seen(&receipts), (Some(ms(100)), Some(ms(10))));
        // As much as before, and much was written meanwhile.
        assert!(ask(&mut receipts, 300, 768, (1036, 250)));
        assert_eq!(seen(&receipts), (Some(ms(200)), Some(ms(250))));
        // Nothing was read, and the oldest is told.
        assert!(!ask(&mut receipts, 400, 768 + 2304, (2036, 350)));
        assert_eq!(seen(&receipts), (Some(ms(200)), Some(ms(250))));
    }

    #[test]
    fn the_odd_one_is_neither_a_receipt_nor_unread() {
        let mut receipts = Receipts::default();
        assert!(ask(&mut receipts, 100, 1, (18, 10)), "empty");
        assert!(!ask(&mut receipts, 150, 0, (18, 10)));
        assert!(!ask(&mut receipts, 200, 769, (36, 190)));
        assert!(!ask(&mut receipts, 300, 768, (36, 190)), "no change");
        assert!(!ask(&mut receipts, 400, 769, (36, 190)));
        assert_eq!(seen(&receipts), (Some(ms(10)), Some(ms(190))));
    }

    #[test]
    fn time_is_attended_from_the_question_that_finds_something_unread_to_a_receipt() {
        let mut receipts = Receipts::default();
        receipts.attend(ms(0), ms(50), ms(100));
        assert_eq!(receipts.attended(), None);
        ask(&mut receipts, 100, 1536, (18, 10));
        receipts.attend(ms(80), ms(110), ms(100));
        assert_eq!(receipts.attended(), Some(ms(10)), "not what was before");
        receipts.attend(ms(110), ms(900), ms(100));
        assert_eq!(receipts.attended(), Some(ms(35)), "our own pause");
        ask(&mut receipts, 900, 1536, (18, 10));
        assert_eq!(receipts.attended(), Some(ms(35)));
        ask(&mut receipts, 910, 768, (18, 10));
        assert_eq!(receipts.attended(), Some(ms(0)));
    }

    #[test]
    fn a_transport_that_cannot_tell_any_more_forgets_what_it_told() {
        let mut receipts = Receipts::default();
        receipts.set(true);
        assert!(!receipts.take(ms(1), ms(1), Unread::NotAsked));
        assert!(receipts.tell());
        ask(&mut receipts, 2, 768, (18, 1));
        assert!(!receipts.take(ms(3), ms(3), Unread::Unknown));
        assert!(!receipts.tell());
        assert_eq!(seen(&receipts), (None, None));
    }

    #[test]
    fn extreme_values_saturate() {
        let mut receipts = Receipts::default();
        ask(&mut receipts, u64::MAX, u64::MAX, (u64::MAX, u64::MAX));
        ask(&mut receipts, 0, u64::MAX, (0, 0));
        receipts.attend(ms(0), Duration::MAX, Duration::MAX);
        assert!(receipts.attended().is_some());
    }
}
