//! The guard around a handler: before it begins, and while it runs under a clock.
//!
//! The clock of a method is the handler's own task's, and runs whatever the driver does (law 9). The
//! driver has it too, a little later, for handlers that keep their thread.
//!
//! A call of a method for which nothing is set passes through here at the cost of looking.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::context::Context;
use super::early::Early;
use super::method::Method;
use super::options::{OnDeadline, OnDisconnect};
use super::refusal::expired;
use super::requests::{Kind, OpenRequests, Request};
use super::responder::Responder;
use super::state::ServerState;
use crate::connection::Shared;
use crate::status::{Code, Status};
use crate::tuning::OWN_CLOCK_MARGIN;

/// Asks whether a call is handled at all. Answers it if not.
pub(super) fn begin(context: &mut Context, responder: &mut Responder) -> bool {
    if responder.abandon() {
        let counts = &context.called().state.counts;
        counts.abandoned.fetch_add(1, Relaxed);
        debug!("a request is not handled: its client had left before");
        return false;
    }
    let remaining = context.remaining();
    // It may have waited in the queue, or for a thread that another handler kept. RFC KA-34. A caller who
    // got a soft reply meanwhile was told that the call is taken.
    if remaining == Some(Duration::ZERO) && !responder.was_answered() {
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
    /// The handler's, where the method has a time of its own.
    deadline: Option<Duration>,
    /// When to answer in its place.
    soft: Option<Duration>,
    /// When to stop it.
    cut: Option<Duration>,
    /// When its answer is for nobody.
    late: Option<Duration>,
    /// Whether it is stopped with its connection.
    disconnect: bool,
    shared: Arc<Shared<OpenRequests>>,
    state: Arc<ServerState>,
}

impl Guard {
    /// For a call that is about to start. `None` for one that needs no clock. What is due while the
    /// handler blocks its thread is the driver's, a little later than here.
    pub(super) fn of(
        method: &Method,
        shared: &Arc<Shared<OpenRequests>>,
        request: &Request,
    ) -> Option<Box<Self>> {
        let policy = method.policy.as_ref()?;
        let now = shared.now();
        let callers = request.deadline;
        let own = policy.timeout.map(|timeout| now.saturating_add(timeout));
        let deadline = callers.into_iter().chain(own).min();
        let soft = policy.soft.as_ref().zip(deadline);
        let soft = soft.map(|((margin, reply), deadline)| {
            // However little time there is, the handler has half of it.
            let margin = (*margin).min(deadline.saturating_sub(now) / 2);
            (deadline.saturating_sub(margin), margin, reply)
        });
        let cancelled = callers.filter(|_| policy.on_deadline == OnDeadline::Cancel);
        let cut = cancelled.into_iter().chain(own).min();
        let drops = policy.on_deadline == OnDeadline::DropAnswer && method.kind == Kind::Unary;
        let late = callers.filter(|_| drops);
        let disconnect = policy.on_disconnect == OnDisconnect::Cancel;
        if soft.is_none() && cut.is_none() && late.is_none() && !disconnect {
            return None;
        }
        if soft.is_some() || cut.is_some() {
            let early = Early {
                soft: soft.map(|(_, _, reply)| (reply.clone(), reply.keep(&request.payload))),
                soft_due: soft
                    .map(|(at, margin, _)| at.saturating_add(OWN_CLOCK_MARGIN.min(margin / 4))),
                cut_due: cut.map(|at| at.saturating_add(OWN_CLOCK_MARGIN)),
                answered: None,
            };
            shared.with(|state, _| state.side.early.insert(request.stream_id, early));
        }
        Some(Box::new(Self {
            deadline,
            soft: soft.map(|(at, ..)| at),
            cut,
            late,
            disconnect,
            shared: Arc::clone(shared),
            state: Arc::clone(&method.state),
        }))
    }

    /// Tells the handler its deadline.
    pub(super) fn show(&self, context: &mut Context) {
        if let Some(deadline) = self.deadline {
            context.set_deadline(deadline);
        }
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
        let clock = self.shared.clock();
        loop {
            let next = self.soft.into_iter().chain(self.cut).min();
            let due = next.and_then(|next| clock.instant(next));
            tokio::select! {
                biased;
                // First, so that an answer which is there is never late.
                result = &mut handler => {
                    let late = self.late.is_some_and(|late| late <= clock.now());
                    if responder.was_answered() || late {
                        counts.results_dropped.fetch_add(1, Relaxed);
                        responder.drop_answer();
                        return None;
                    }
                    return Some(result);
                }
                _ = unconstrained(self.shared.closed()), if self.disconnect => {
                    counts.handlers_cut.fetch_add(1, Relaxed);
                    responder.drop_answer();
                    return None;
                }
                () = wait_until(due) => {}
            }
            if self.soft.take_if(|soft| Some(*soft) == next).is_some() {
                responder.answer_early();
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
