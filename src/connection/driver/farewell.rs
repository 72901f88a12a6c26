//! The end of the stream, behind that of the connection.

use std::mem;
use std::task::{Context, Poll};

use super::Driver;
use super::stage::{Manner, Stage};
use crate::connection::side::SideDriver;
use crate::error::ConnectionError;
use crate::tuning::FAREWELL_PATIENCE;

impl<S: SideDriver> Driver<S> {
    /// Ends the stream. All who waited for something on the connection have been told by then, but for
    /// those who wait for its [end](crate::Client::closed): they may end the process next.
    pub(super) fn poll_farewell(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionError> {
        let Stage::Farewell(farewell) = &mut self.stage else {
            // It is not polled again after its end.
            return Poll::Pending;
        };
        if farewell.manner != Manner::Silent {
            match self.transport.poll_shutdown(cx) {
                Poll::Ready(_) => return Poll::Ready(self.part()),
                Poll::Pending if farewell.manner == Manner::Waits => {
                    let now = self.shared.now();
                    let until = now.saturating_add(FAREWELL_PATIENCE);
                    let until = *farewell.until.get_or_insert(until);
                    let effects = &mut self.effects;
                    let waits = (self.shared.lock()).wait_for_farewell(cx.waker(), effects);
                    self.effects.run();
                    if waits && now < until {
                        self.arm(cx, until);
                        return Poll::Pending;
                    }
                }
                Poll::Pending => {}
            }
        }
        self.transport.abort();
        Poll::Ready(self.part())
    }

    /// The farewell is not waited for any more.
    pub(super) fn give_up(&mut self) {
        if let Stage::Farewell(_) = self.stage {
            self.transport.abort();
            self.part();
        }
    }

    /// The stream has ended, and `closed` returns.
    fn part(&mut self) -> ConnectionError {
        self.shared.lock().end_farewell();
        self.shared.publisher().end_told();
        match mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Farewell(farewell) => farewell.end,
            Stage::Open | Stage::Ended => ConnectionError::Abandoned,
        }
    }
}
