//! Receipts: what the kernel says of written bytes that a process has read, or that nobody has.

use std::time::Duration;

use super::Unread;

/// A count of the kernel below this is none: while the peer is reading it is one too high now and
/// then, and the smallest write counts for more.
const NOTHING: u64 = 256;

/// So many times the least that a write counts for is the most: its bytes twice, and the 256 of a write
/// five times.
const MOST: u64 = 5;

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
    /// What lay unread when the kernel was last asked, or may do so.
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
    /// Time of before is not attended.
    since: Duration,
    /// Time waited since, by the runs before call deadlines.
    attended: Duration,
    /// Whether the kernel has said so. If not they are a PING that has just been written.
    known: bool,
}

/// What an answer of the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// All is as it was: the same is unread, or nothing is.
    Nothing,
    /// Something is unread, and nobody can say for how long.
    Anew,
    /// Somebody has read since the question before, or since the bytes were written.
    Read,
}

impl Receipts {
    /// A PING is written that is to be read. Its time runs from here, if it is found unread.
    pub(super) fn expect(&mut self, now: Duration) {
        if self.tells && self.waiting.is_none() {
            self.waiting = Some(Waiting::from(now, now));
        }
    }

    /// Takes the kernel's answer at `now` to a question that was asked after `at`.
    ///
    /// That somebody has read is not *now*: what was read long ago says nothing of a peer that has
    /// stopped since, so a receipt counts from the last instant that the reading cannot have come
    /// before. And what is unread may be new, while all of before has been read: it is the same only
    /// if the queue holds more than what has come to it.
    pub(super) fn take(&mut self, at: Duration, now: Duration, unread: Unread) -> Heard {
        let (held, written, written_at) = match unread {
            Unread::NotAsked => return Heard::Nothing,
            Unread::Unknown => {
                (self.tells, self.asked, self.waiting) = (false, None, None);
                return Heard::Nothing;
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
        let same = match &mut self.waiting {
            _ if asked.is_empty() => {
                self.waiting = None;
                true
            }
            Some(waiting) if waiting.known && read.is_none() => {
                before.is_some_and(|before| before.is_left(&asked))
            }
            // Nothing was written behind it that could be what is unread.
            Some(waiting) if read.is_none() => {
                waiting.known = written_at <= waiting.written_at;
                waiting.known
            }
            _ => false,
        };
        if !same {
            self.waiting = Some(Waiting {
                known: true,
                ..Waiting::from(written_at, at)
            });
        }
        match read {
            Some(_) => Heard::Read,
            None if same => Heard::Nothing,
            None => Heard::Anew,
        }
    }

    /// A run of the driver before a call's deadline, as far as it counts.
    pub(super) fn attend(&mut self, last_run: Duration, now: Duration, lead: Duration) {
        if let Some(waiting) = &mut self.waiting {
            let gap = now.saturating_sub(last_run.max(waiting.since));
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
        self.known().map(|waiting| waiting.written_at)
    }

    /// For how long that was attended.
    pub(super) fn attended(&self) -> Option<Duration> {
        self.known().map(|waiting| waiting.attended)
    }

    /// Whether something is unread, or a PING that is to be read may be.
    pub(super) const fn may_be_unread(&self) -> bool {
        self.waiting.is_some()
    }

    fn known(&self) -> Option<&Waiting> {
        self.waiting.as_ref().filter(|waiting| waiting.known)
    }
}

impl Waiting {
    const fn from(written_at: Duration, since: Duration) -> Self {
        Self {
            written_at,
            since,
            attended: Duration::ZERO,
            known: false,
        }
    }
}

impl Asked {
    const fn is_empty(&self) -> bool {
        self.held < NOTHING
    }

    /// Whether something is left of what was unread at the question before: more is held than what was
    /// written since can count for. Buffers are rounded up, to twice their size at most.
    const fn is_left(&self, now: &Self) -> bool {
        let since = now.written.saturating_sub(self.written);
        now.held > since.saturating_mul(MOST)
    }

    /// What was written counts for at least so much, and what is missing of that has been read. A queue
    /// that is never empty is seen to be read by this, though as much is written as is read.
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
        heard(receipts, at, held, (written, written_at)) == Heard::Read
    }

    fn heard(
        receipts: &mut Receipts,
        at: u64,
        held: u64,
        (written, written_at): (u64, u64),
    ) -> Heard {
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
        // As much as before, and a frame was written meanwhile.
        assert!(ask(&mut receipts, 300, 768, (36 + 256 + 18, 250)));
        assert_eq!(seen(&receipts), (Some(ms(200)), Some(ms(250))));
        // Nothing was read, and the oldest is told.
        let more = heard(&mut receipts, 400, 768 + 2304, (310 + 274, 350));
        assert_eq!(more, Heard::Nothing);
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

    // One frame each, just written: those of before may have been read.
    #[test]
    fn what_is_unread_may_be_new_though_nothing_is_seen_to_be_read() {
        let mut receipts = Receipts::default();
        assert_eq!(heard(&mut receipts, 100, 0, (0, 0)), Heard::Nothing);
        assert_eq!(heard(&mut receipts, 200, 768, (306, 199)), Heard::Anew);
        receipts.attend(ms(200), ms(210), ms(100));
        assert_eq!(heard(&mut receipts, 300, 1536, (918, 299)), Heard::Anew);
        assert_eq!(receipts.attended(), Some(ms(0)));
        assert_eq!(seen(&receipts), (None, Some(ms(299))));
    }

    #[test]
    fn a_ping_to_be_read_is_attended_from_its_writing_on_if_nothing_was_written_behind_it() {
        for (behind, attended) in [(0, ms(20)), (306, ms(0))] {
            let mut receipts = Receipts::default();
            receipts.set(true);
            ask(&mut receipts, 90, 0, (306, 10));
            receipts.expect(ms(100));
            receipts.attend(ms(0), ms(120), ms(100));
            assert_eq!(receipts.unread_since(), None, "nobody knows");
            assert!(receipts.may_be_unread());
            let written_at = if behind > 0 { 110 } else { 100 };
            let held = if behind > 0 { 1536 } else { 768 };
            heard(&mut receipts, 120, held, (306 + 274 + behind, written_at));
            assert_eq!(receipts.attended(), Some(attended));
            assert_eq!(receipts.unread_since(), Some(ms(written_at)));
        }
    }

    #[test]
    fn a_transport_that_cannot_tell_any_more_forgets_what_it_told() {
        let mut receipts = Receipts::default();
        receipts.set(true);
        assert_eq!(
            receipts.take(ms(1), ms(1), Unread::NotAsked),
            Heard::Nothing
        );
        assert!(receipts.tell());
        ask(&mut receipts, 2, 768, (18, 1));
        assert_eq!(receipts.take(ms(3), ms(3), Unread::Unknown), Heard::Nothing);
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
