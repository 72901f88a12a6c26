//! How long the peer may take for a step that is its own: a header that it has begun, a first request.
//! A rule: no I/O and no clock.
//!
//! It is off unless a user asks for it. As everywhere, *the timer fired* is not *the peer was silent*: the
//! driver asks the kernel before it believes that the time is over, and the time in which this process
//! did not run, or did not want to read, is given back.

use std::time::Duration;

use crate::error::ConnectionError;

/// The limits of one connection's peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerLimits {
    /// From a header's first byte to its last.
    pub(crate) header: Option<Duration>,
    /// From the beginning to the first request.
    pub(crate) first_request: Option<Duration>,
}

/// What the peer is being waited for.
#[derive(Debug)]
pub(super) struct Waits {
    header: Patience,
    first_request: Patience,
}

impl Waits {
    /// The connection begins.
    pub(super) fn new(limits: PeerLimits) -> Self {
        let mut first_request = Patience::new(limits.first_request);
        first_request.begin(Duration::ZERO);
        Self {
            header: Patience::new(limits.header),
            first_request,
        }
    }

    /// A frame's header has come whole.
    pub(super) fn handle_header(&mut self) {
        self.header.end();
    }

    pub(super) fn handle_request(&mut self) {
        self.first_request.end();
    }

    /// All that was read is taken, and `within` a header or not.
    pub(super) fn handle_read(&mut self, now: Duration, within_header: bool) {
        if within_header {
            self.header.begin(now);
        } else {
            self.header.end();
        }
    }

    /// This side does not read.
    pub(super) fn handle_parked(&mut self, now: Duration) {
        self.header.restart(now);
        self.first_request.restart(now);
    }

    /// When one of them is over.
    pub(super) fn due(&self) -> Option<Duration> {
        let dues = [self.header.due, self.first_request.due];
        dues.into_iter().flatten().min()
    }

    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.due().is_some_and(|due| due <= now)
    }

    /// The kernel holds nothing more of the peer's: ends the connection if a time is over.
    pub(super) fn judge(&mut self, now: Duration) -> Result<(), ConnectionError> {
        if let Some(limit) = self.header.over(now) {
            return Err(ConnectionError::HeaderTimeout(limit));
        }
        self.first_request
            .over(now)
            .map_or(Ok(()), |limit| Err(ConnectionError::NoRequest(limit)))
    }
}

#[derive(Debug)]
struct Patience {
    limit: Option<Duration>,
    due: Option<Duration>,
    /// How often the peer had half of its time again, since this process came late.
    extended: u32,
}

/// A process that is late for ever would otherwise never end a connection.
const EXTENSIONS: u32 = 4;

impl Patience {
    fn new(limit: Option<Duration>) -> Self {
        Self {
            limit,
            due: None,
            extended: 0,
        }
    }

    /// Its time begins, if it has not.
    fn begin(&mut self, now: Duration) {
        if let (Some(limit), None) = (self.limit, self.due) {
            self.due = Some(now.saturating_add(limit));
            self.extended = 0;
        }
    }

    fn restart(&mut self, now: Duration) {
        if self.due.take().is_some() {
            self.begin(now);
        }
    }

    fn end(&mut self) {
        self.due = None;
    }

    /// The limit, if its time is over.
    fn over(&mut self, now: Duration) -> Option<Duration> {
        let limit = self.limit?;
        let due = self.due.filter(|due| *due <= now)?;
        if now - due > limit / 4 && self.extended < EXTENSIONS {
            // This process did not run, and the peer may not have run either: one machine was paused.
            self.extended += 1;
            self.due = Some(now.saturating_add(limit / 2));
            return None;
        }
        Some(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(400);

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn waits() -> Waits {
        Waits::new(PeerLimits {
            header: Some(LIMIT),
            first_request: None,
        })
    }

    #[test]
    fn a_header_has_its_time_from_its_first_byte_whatever_comes_of_it() {
        let mut waits = waits();
        assert_eq!(waits.due(), None);
        waits.handle_read(ms(100), true);
        waits.handle_read(ms(400), true);
        assert_eq!(waits.due(), Some(ms(500)));
        assert!(waits.judge(ms(499)).is_ok());
        assert!(waits.judge(ms(500)).is_err());
        // The next one begins anew.
        waits.handle_header();
        waits.handle_read(ms(500), true);
        assert_eq!(waits.due(), Some(ms(900)));
        waits.handle_read(ms(600), false);
        assert_eq!(waits.due(), None);
    }

    #[test]
    fn time_in_which_this_side_did_not_run_or_read_is_given_back_and_not_for_ever() {
        let mut waits = waits();
        waits.handle_read(ms(0), true);
        waits.handle_parked(ms(300));
        assert_eq!(waits.due(), Some(ms(700)));
        let mut now = ms(700);
        for _ in 0..EXTENSIONS {
            now += ms(101);
            assert!(waits.judge(now).is_ok(), "{now:?}");
            now += LIMIT / 2;
            assert_eq!(waits.due(), Some(now));
        }
        assert!(waits.judge(now + ms(101)).is_err());
    }
}
