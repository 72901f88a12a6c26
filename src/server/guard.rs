//! The guard around a handler: before it begins, and while it runs under a clock.
//!
//! The clock of a method is the handler's own task's, and runs whatever the driver does (law 9).
//!
//! A call of a method for which nothing is set passes through here at the cost of looking.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::context::Context;
use super::options::{OnDeadline, SoftReply};
use super::refusal::expired;
use super::requests::Kind;
use super::responder::Responder;
use super::state::ServerState;
use crate::clock::Clock;
use crate::status::{Code, Status};

/// Asks whether a call is handled at all. Answers it if not.
pub(super) fn begin(context: &mut Context, responder: &mut Responder) -> bool {
    if responder.abandon() {
        let counts = &context.called().state.counts;
        counts.abandoned.fetch_add(1, Relaxed);
        debug!("a request is not handled: its client had left before");
        return false;
    }
    let remaining = context.remaining();
    // It may have waited in the queue, or for a thread that another handler kept. RFC KA-34.
    if remaining == Some(Duration::ZERO) {
        context.called().state.counts.expired.fetch_add(1, Relaxed);
        responder.refuse(&expired());
        return false;
    }
    let policy = context.called().policy.as_ref();
    let Some(hook) = policy.and_then(|policy| policy.hook.clone()) else {
        return true;
    };
    match context.begin(&hook, remaining) {
        Ok(hooked) => {
            responder.hook(hooked);
            true
        }
        Err(status) => {
            debug!(%status, "the hook refuses a call");
            responder.refuse(&status);
            false
        }
    }
}

/// Waits for the handler, under its guard if it has one. `None` if the call has been answered.
pub(super) async fn guarded<T, H>(
    guard: Option<Box<Guard>>,
    responder: &mut Responder,
    handler: Pin<&mut H>,
) -> Option<Result<T, Status>>
where
    H: Future<Output = Result<T, Status>>,
{
    match guard {
        None => Some(handler.await),
        // In a box: tasks of handlers without one are not to be larger for it.
        Some(guard) => Box::pin(guard.run(responder, handler)).await,
    }
}

/// The instants at which something happens to a call, whatever its handler does.
#[derive(Debug)]
pub(super) struct Guard {
    /// When to answer in its place.
    soft: Option<Soft>,
    /// When to stop it.
    cut: Option<Duration>,
    /// When its answer is for nobody.
    late: Option<Duration>,
    clock: Clock,
    state: Arc<ServerState>,
}

#[derive(Debug)]
struct Soft {
    at: Duration,
    reply: SoftReply,
    /// What the reply is made of, if it is.
    request: Option<Bytes>,
}

impl Guard {
    /// `None` for a call that needs no clock.
    pub(super) fn of(context: &mut Context, payload: &[u8]) -> Option<Box<Self>> {
        // Of its own, since the context is about to be told.
        let method = Arc::clone(context.called());
        let policy = method.policy.as_ref()?;
        let clock = context.clock();
        let now = clock.now();
        let callers = context.deadline_at();
        let own = policy.timeout.map(|timeout| now.saturating_add(timeout));
        let deadline = callers.into_iter().chain(own).min()?;
        context.set_deadline(deadline);
        let soft = policy.soft.as_ref().map(|(margin, reply)| {
            // However little time there is, the handler has half of it.
            let margin = (*margin).min(deadline.saturating_sub(now) / 2);
            Soft {
                at: deadline.saturating_sub(margin),
                request: reply.keep(payload),
                reply: reply.clone(),
            }
        });
        let cancelled = callers.filter(|_| policy.on_deadline == OnDeadline::Cancel);
        let cut = cancelled.into_iter().chain(own).min();
        let drops = policy.on_deadline == OnDeadline::DropAnswer && method.kind == Kind::Unary;
        let late = callers.filter(|_| drops);
        if soft.is_none() && cut.is_none() && late.is_none() {
            return None;
        }
        Some(Box::new(Self {
            soft,
            cut,
            late,
            clock,
            state: Arc::clone(&method.state),
        }))
    }

    async fn run<T, H>(
        mut self: Box<Self>,
        responder: &mut Responder,
        mut handler: Pin<&mut H>,
    ) -> Option<Result<T, Status>>
    where
        H: Future<Output = Result<T, Status>>,
    {
        let counts = &self.state.counts;
        let mut answered = false;
        loop {
            let soft = self.soft.as_ref().map(|soft| soft.at);
            let next = soft.into_iter().chain(self.cut).min();
            let due = next.and_then(|next| self.clock.instant(next));
            tokio::select! {
                biased;
                // First, so that an answer which is there is never late.
                result = &mut handler => {
                    let late = self.late.is_some_and(|late| late <= self.clock.now());
                    if answered || late {
                        counts.results_dropped.fetch_add(1, Relaxed);
                        responder.drop_answer();
                        return None;
                    }
                    return Some(result);
                }
                () = wait_until(due) => {}
            }
            if let Some(soft) = self.soft.take_if(|soft| Some(soft.at) == next) {
                counts.soft_answers.fetch_add(1, Relaxed);
                responder.answer_early(soft.reply.make(soft.request).as_deref());
                answered = true;
            } else {
                counts.handlers_cut.fetch_add(1, Relaxed);
                let message = "the handler was stopped at its deadline";
                responder.refuse(&Status::new(Code::DEADLINE_EXCEEDED, message));
                return None;
            }
        }
    }
}

/// A time too far to be represented is never due.
async fn wait_until(due: Option<Instant>) {
    match due {
        // A handler for which something is always ready uses up the budget of the task at each
        // turn. The timer would be told to wait for the next one every time.
        Some(due) => unconstrained(sleep_until(due)).await,
        None => std::future::pending().await,
    }
}
