//! The methods that a plugin serves, made of its handlers.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use protobuf::MessageField;
use tracing::{debug, info, warn};
use ttrpc_keepalive::{Context, MethodOptions, Service, SoftReply, Status};

use super::asked::{Asked, STATE_CHANGES};
use super::late::{Late, LateResult, Reply, failure};
use super::session::{EventContext, RuntimeInfo, Session};
use crate::EventMask;
use crate::api::*;
use crate::services::plugin_names::{CONFIGURE, SERVICE, SHUTDOWN, STATE_CHANGE, SYNCHRONIZE};

/// How a plugin is served: its events by their own calls, and by StateChange.
pub(super) struct Methods<S> {
    service: Service<S>,
    changes: HashMap<Event, Change<S>>,
    late: HashMap<Event, (Reply, Option<Duration>)>,
    synchronizes: bool,
}

/// The handler of an event as it comes by StateChange.
type Change<S> = Arc<dyn Fn(S, Context, StateChangeEvent) -> Answer<Empty> + Send + Sync>;

pub(super) type Answer<R> = Pin<Box<dyn Future<Output = Result<R, Status>> + Send>>;

/// A handler and what holds for it, which is known when the plugin is complete.
pub(super) type Add<S> = Box<dyn FnOnce(Methods<S>, Late) -> Methods<S> + Send>;

/// The handler of Configure.
pub(super) type Configure<S> =
    Arc<dyn Fn(S, EventContext, RuntimeInfo) -> Answer<Option<EventMask>> + Send + Sync>;

/// The handler of Shutdown.
pub(super) type Shutdown<S> =
    Arc<dyn Fn(S, EventContext) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

impl<S: Clone + Send + Sync + 'static> Methods<S> {
    pub(super) fn new(state: S) -> Self {
        Self {
            service: Service::new(SERVICE, state),
            changes: HashMap::new(),
            late: HashMap::new(),
            synchronizes: false,
        }
    }

    /// Serves what every plugin serves, for events without a handler too.
    pub(super) fn finish(
        mut self,
        handled: EventMask,
        configure: Option<Configure<S>>,
        shutdown: Option<Shutdown<S>>,
        policy: Option<FailurePolicy>,
    ) -> Service<S> {
        macro_rules! unhandled {
            ($($request:ident)*) => {$(
                if !handled.contains($request::EVENT) {
                    let nothing = |_: S, _: EventContext, _: $request| async { Ok(()) };
                    self = self.event::<$request, _, _>(Arc::new(nothing), Late::never());
                }
            )*};
        }
        unhandled! {
            RunPodSandboxRequest UpdatePodSandboxRequest PostUpdatePodSandboxRequest
            StopPodSandboxRequest RemovePodSandboxRequest CreateContainerRequest
            PostCreateContainerRequest StartContainerRequest PostStartContainerRequest
            UpdateContainerRequest PostUpdateContainerRequest StopContainerRequest
            RemoveContainerRequest ValidateContainerAdjustmentRequest
        }
        if !self.synchronizes {
            let nothing = |_: S, _: EventContext, _: SynchronizeRequest| async { Ok(()) };
            self = self.synchronize(Arc::new(nothing), Late::never());
        }
        let Self {
            service,
            changes,
            late,
            ..
        } = self;
        let policy = MessageField(policy.map(Box::new));
        service
            .unary(CONFIGURE, move |state, context: Context, request| {
                configured(state, context, request, configure.clone(), policy.clone())
            })
            .unary(SHUTDOWN, move |state, context: Context, _: Empty| {
                let shutdown = shutdown.clone();
                async move {
                    context.expect_close();
                    if let Some(shutdown) = shutdown {
                        let session = Session::of(&context)?;
                        shutdown(state, EventContext::new(context, session)).await;
                    }
                    Ok(Empty::new())
                }
            })
            .unary(
                STATE_CHANGE,
                move |state, context, event: StateChangeEvent| {
                    let change = event.event.enum_value().ok();
                    let change = change.and_then(|event| changes.get(&event).map(Arc::clone));
                    async move {
                        match change {
                            Some(change) => change(state, context, event).await,
                            None => Ok(Empty::new()),
                        }
                    }
                },
            )
            .method(STATE_CHANGE, state_change_options(late))
    }

    /// Serves an event by its own call, and by StateChange if it may come so.
    pub(super) fn event<Q, A, T>(
        mut self,
        handler: Arc<impl Fn(S, EventContext, Q) -> A + Send + Sync + 'static>,
        late: Late,
    ) -> Self
    where
        Q: Asked,
        A: Future<Output = Result<T, Status>> + Send + 'static,
        T: Into<Q::Response>,
    {
        let event = Q::EVENT;
        let name = event.method_name();
        let options = late.options(&Q::Response::default());
        if STATE_CHANGES.contains(&event) {
            let reply = (late.reply().clone(), late.lead());
            self.late.insert(event, reply);
            let (handler, late) = (Arc::clone(&handler), late.clone());
            let change: Change<S> = Arc::new(move |state, context, event| {
                let (handler, late) = (Arc::clone(&handler), late.clone());
                Box::pin(async move {
                    let Some(request) = Q::of_state_change(event) else {
                        return Ok(Empty::new());
                    };
                    handle(&*handler, state, context, request, late).await?;
                    Ok(Empty::new())
                })
            });
            self.changes.insert(event, change);
        }
        self.service = self
            .service
            .unary(name, move |state, context, request: Q| {
                let (handler, late) = (Arc::clone(&handler), late.clone());
                async move { handle(&*handler, state, context, request, late).await }
            })
            .method(name, options);
        self
    }

    /// Serves Synchronize, whose handler is called with all parts together.
    pub(super) fn synchronize<A, T>(
        mut self,
        handler: Arc<impl Fn(S, EventContext, SynchronizeRequest) -> A + Send + Sync + 'static>,
        late: Late,
    ) -> Self
    where
        A: Future<Output = Result<T, Status>> + Send + 'static,
        T: Into<SynchronizeResponse>,
    {
        let options = late.options(&SynchronizeResponse::new());
        self.synchronizes = true;
        self.service = self
            .service
            .unary(SYNCHRONIZE, move |state, context: Context, part| {
                let (handler, late) = (Arc::clone(&handler), late.clone());
                async move {
                    let session = Session::of(&context)?;
                    let running = session.begin(SYNCHRONIZE, &context)?;
                    let Some(request) = session.collect(part)? else {
                        // All parts together have the time of one: it is answered at once.
                        return Ok(SynchronizeResponse {
                            more: true,
                            ..SynchronizeResponse::default()
                        });
                    };
                    session.handle_synchronized(&request.containers);
                    session.publish();
                    let event = EventContext::new(context.clone(), session.clone());
                    let answer = handler(state, event, request).await;
                    let mut response: SynchronizeResponse =
                        told(answer, SYNCHRONIZE, &context)?.into();
                    if let Some(make) = late.delivery().filter(|_| is_late(&context)) {
                        let updates = std::mem::take(&mut response.update);
                        let result = LateResult {
                            updates,
                            ..LateResult::default()
                        };
                        session.deliveries().deliver(make(result));
                    }
                    drop(running);
                    Ok(response)
                }
            })
            .method(SYNCHRONIZE, options);
        self
    }
}

/// Handles an event, however it came.
async fn handle<S, Q, A, T>(
    handler: &(impl Fn(S, EventContext, Q) -> A + Sync),
    state: S,
    context: Context,
    request: Q,
    late: Late,
) -> Result<Q::Response, Status>
where
    Q: Asked,
    A: Future<Output = Result<T, Status>>,
    T: Into<Q::Response>,
{
    let name = Q::EVENT.method_name();
    let session = Session::of(&context)?;
    let running = session.begin(name, &context)?;
    session.note(&request);
    let delivery = late.delivery().zip(request.container());
    let delivery = delivery.map(|(make, container)| (Arc::clone(make), container.id.clone()));
    let creation = match &delivery {
        Some((_, container)) if Q::EVENT == Event::CREATE_CONTAINER => {
            Some(session.deliveries().begin(container))
        }
        _ => None,
    };
    let event = EventContext::new(context.clone(), session.clone());
    let answer = handler(state, event, request).await;
    let response: Q::Response = told(answer, name, &context)?.into();
    if let Some((make, container)) = delivery.filter(|_| is_late(&context)) {
        let result = Q::late_result(container, response.clone());
        let updates = result.map_or_else(Vec::new, |result| make(result));
        match creation {
            Some(creation) => creation.deliver(updates),
            None => session.deliveries().deliver(updates),
        }
    }
    drop(running);
    Ok(response)
}

/// Whether the answer of a handler that has ended comes too late for its caller. If not, it is the one
/// that is given.
fn is_late(context: &Context) -> bool {
    !context.leave_answer() || context.remaining() == Some(Duration::ZERO)
}

/// Tells of a handler that ended when its event had been answered: nobody else does.
fn told<T>(answer: Result<T, Status>, event: &str, context: &Context) -> Result<T, Status> {
    if context.is_answered() {
        match &answer {
            Ok(_) => info!(event, "a handler has ended after its event was answered"),
            Err(status) => {
                warn!(event, %status, "a handler has failed after its event was answered")
            }
        }
    }
    answer
}

async fn configured<S>(
    state: S,
    context: Context,
    request: ConfigureRequest,
    configure: Option<Configure<S>>,
    policy: MessageField<FailurePolicy>,
) -> Result<ConfigureResponse, Status> {
    let session = Session::of(&context)?;
    let _running = session.begin(CONFIGURE, &context)?;
    let info = session.tell(request).clone();
    let mut wanted = None;
    if let Some(configure) = configure {
        let event = EventContext::new(context, session.clone());
        wanted = configure(state, event, info.clone()).await?;
    }
    let events = session.configure(wanted)?;
    info!(
        runtime = info.name,
        version = info.version,
        nri = info.nri_version.as_deref().unwrap_or("before 0.12.0"),
        request_timeout = ?info.request_timeout,
        %events,
        "configured"
    );
    debug!(
        config = info.config,
        "the configuration of the runtime for this plugin"
    );
    Ok(ConfigureResponse {
        events: events.bits(),
        failure_policy: policy,
        ..ConfigureResponse::default()
    })
}

/// The soft reply to a StateChange is that of its event.
fn state_change_options(late: HashMap<Event, (Reply, Option<Duration>)>) -> MethodOptions {
    let margin = late.values().filter_map(|(_, margin)| *margin).max();
    let Some(margin) = margin else {
        return MethodOptions::new();
    };
    let reply = move |event: StateChangeEvent| {
        let event = event.event.enum_value().ok()?;
        match &late.get(&event)?.0 {
            Reply::Empty => Some(Ok(Empty::new())),
            Reply::Fail(text) => Some(Err(failure(text))),
            Reply::Never => None,
        }
    };
    MethodOptions::new().soft_deadline(margin, SoftReply::for_some_requests(reply))
}
