//! The builder of a server: its methods and its settings.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::handler::Handler;
use super::method::Method;
use super::methods::Methods;
use super::options::{MethodOptions, Policy};
use super::requests::Kind;
use super::service::{Parts, Service};
use super::state::ServerState;
use crate::config::{Dispatch, DriverThread, ServerSettings, check_limits, check_timeouts};
use crate::error::ConfigError;
use crate::hook::{AtEnd, CallStart, Hook};
use crate::keepalive::Keepalive;
use crate::status::Status;

/// Collects the methods and settings of a [`Server`](crate::Server).
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until it is built"]
pub struct ServerBuilder {
    methods: HashMap<Name, Handler>,
    /// What is set for methods, in the order in which it was.
    options: Vec<(Name, MethodOptions)>,
    every_method: MethodOptions,
    hook: Option<Hook>,
    settings: ServerSettings,
}

/// A service and a method of it.
type Name = (String, String);

impl ServerBuilder {
    /// Serves the methods of a [`Service`]. Of two handlers for one method the later one serves it.
    pub fn service<S>(mut self, service: Service<S>) -> Self {
        let Parts {
            name: service,
            methods,
            options,
        } = service.into_parts();
        for (method, handler) in methods {
            self.methods.insert((service.clone(), method), handler);
        }
        for (method, options) in options {
            self.options.push(((service.clone(), method), options));
        }
        self
    }

    /// Sets options of one method, wherever it is added. What is set twice counts as it was last.
    pub fn method(mut self, service: &str, method: &str, options: MethodOptions) -> Self {
        let name = (service.to_owned(), method.to_owned());
        self.options.push((name, options));
        self
    }

    /// Sets options of every method for which they are not set by [`method`](Self::method). A soft
    /// deadline is one of the unary methods.
    pub fn every_method(mut self, options: MethodOptions) -> Self {
        self.every_method = options;
        self
    }

    /// Calls this function around every call, in the handler's task: before its handler begins, and
    /// when it has been answered. See [`CallStart`]. It may refuse the call with a status, which
    /// the caller then gets. None by default; the last one that is set counts.
    ///
    /// It does not see what never comes to a handler: requests that cannot be read, name no method
    /// of this server, are over a limit or have expired.
    pub fn hook(
        mut self,
        hook: impl Fn(&mut CallStart<'_>) -> Result<AtEnd, Status> + Send + Sync + 'static,
    ) -> Self {
        self.hook = Some(Hook::new(hook));
        self
    }

    /// When to ask whether clients are alive. [`Keepalive::on_demand`] by default.
    ///
    /// A server answers every PING, whatever is set here, and sends one itself only to a client
    /// that has sent one before (RFC KA-28).
    pub fn keepalive(mut self, keepalive: Keepalive) -> Self {
        self.settings.keepalive = keepalive;
        self
    }

    /// Which thread reads, writes and answers PINGs. [`DriverThread::Shared`] by default.
    ///
    /// In either case handlers run on the runtime that serves, and connections are accepted there:
    /// one that is blocked accepts none.
    pub fn driver_thread(mut self, thread: DriverThread) -> Self {
        self.settings.driver_thread = thread;
        self
    }

    /// Who polls the handlers of unary calls first. [`Dispatch::Spawn`] by default;
    /// [`Dispatch::Inline`] is for handlers that are short, [`Dispatch::By`] for those that block their
    /// thread.
    pub fn dispatch(mut self, dispatch: Dispatch) -> Self {
        self.settings.dispatch = dispatch;
        self
    }

    /// Connections that one [`serve`](crate::Server::serve) has at a time: at least 1, 65,536 by default.
    /// Beyond it none is accepted until one has ended. Clients whose connections wait in the queue
    /// of the operating system believe that they are connected, and their calls are late with a peer
    /// that says nothing; beyond that queue they wait to be connected.
    ///
    /// The other limits are for each connection.
    pub fn connection_limit(mut self, connections: usize) -> Self {
        self.settings.connection_limit = connections;
        self
    }

    /// Looks at the clock ten times a second, while there are connections, so that
    /// [`Context::may_have_waited`](crate::Context::may_have_waited) can tell. Off by default.
    ///
    /// A process that is stopped, by a signal, a debugger, its cgroup's freezer or a pause of its
    /// virtual machine, finds requests in its sockets when it goes on, and a request says how long its
    /// caller waits, not when it was sent: one whose caller has long given up looks fresh. The system
    /// does not tell when bytes came, so somebody has to have looked at the clock.
    ///
    /// Ten wake-ups a second are all that it costs, however many connections there are, and none while
    /// there is none. One task does it for all connections on a runtime, that on which drivers run. What keeps all of
    /// its threads is seen as well, and so is a machine too busy to run it. Not seen are pauses below
    /// 0.3 s, those in which the clock stands still too, as when a machine is suspended, and one
    /// thread of several that is kept while others look at the clock. What is told is what a request
    /// may have waited at most: it may have come a moment ago.
    pub fn observe_pauses(mut self) -> Self {
        self.settings.observe_pauses = true;
        self
    }

    /// How long a client may take from its connection's beginning to the end of its first request, at
    /// least 1 ns; without a limit by default. Then its connection ends with
    /// [`ConnectionError::NoRequest`](crate::ConnectionError::NoRequest): one that connects and says
    /// nothing would otherwise count towards [`connection_limit`](Self::connection_limit) for ever.
    /// PINGs are no request, nor is anything else.
    ///
    /// Not for clients that connect early and call late. Time in which this process did not run is
    /// not held against the client.
    pub fn first_request_timeout(mut self, timeout: Duration) -> Self {
        self.settings.first_request_timeout = Some(timeout);
        self
    }

    /// How long the ten bytes of a frame's header may take from the first to the last, at least 1 ns;
    /// without a limit by default. Then the connection ends with
    /// [`ConnectionError::HeaderTimeout`](crate::ConnectionError::HeaderTimeout).
    ///
    /// Without it a client that sends a byte now and then is alive for as long as it likes, watched or
    /// not: any byte is a sign of life. A peer writes a header at once, so only one that was stopped or
    /// cut off in its middle needs longer, and is lost with it. What follows the header may take its
    /// time. Time in which this process did not run, or did not read, is not held against the client.
    pub fn header_timeout(mut self, timeout: Duration) -> Self {
        self.settings.header_timeout = Some(timeout);
        self
    }

    /// Handlers that run at one time on one connection: at least 1, 1,024 by default. Further
    /// requests wait.
    ///
    /// Each has a request of up to 4 MiB, and may give an answer as large that its client does not
    /// take. Lower this for clients that are not trusted.
    pub fn handler_limit(mut self, handlers: usize) -> Self {
        self.settings.limits.handlers = handlers;
        self
    }

    /// Handlers that run at one time on all connections of the server: at least 1, without a limit
    /// by default. Further requests wait on their connections.
    ///
    /// A handler that ends makes way for one of the connection that has waited longest, which then
    /// waits behind the others: one with many requests does not keep the rest waiting. A handler
    /// counts until its own end, although its connection has ended or its call was answered early.
    pub fn total_handler_limit(mut self, handlers: usize) -> Self {
        self.settings.total_handlers = Some(handlers);
        self
    }

    /// Requests that wait for a handler to end, on one connection: at least 1, 1,024 by default.
    /// Further ones are answered RESOURCE_EXHAUSTED at once, after those that have expired were
    /// answered to make room.
    pub fn waiting_limit(mut self, waiting: usize) -> Self {
        self.settings.limits.waiting = waiting;
        self
    }

    /// Bytes of requests that wait for a handler to end, on one connection, with the messages that
    /// have come for their streams: at least 1, 16 MiB by default. Beyond it a further request is
    /// answered RESOURCE_EXHAUSTED at once, and so is a stream whose message it is. A request that
    /// none waits in front of always fits.
    pub fn waiting_byte_limit(mut self, bytes: usize) -> Self {
        self.settings.limits.waiting_bytes = bytes;
        self
    }

    /// Bytes of one stream's requests that were received and not taken by the handler yet: at least
    /// 1, 16 MiB by default. Beyond it that call is answered RESOURCE_EXHAUSTED; a message always
    /// fits into an empty queue. Each message counts as 64 bytes more than it has.
    pub fn stream_limit(mut self, bytes: usize) -> Self {
        self.settings.limits.stream_bytes = bytes;
        self
    }

    /// Bytes of all streams' requests on one connection that were received and not taken by their
    /// handlers yet: at least 1, 64 MiB by default. Beyond it the call whose message comes is
    /// answered RESOURCE_EXHAUSTED, however little of it waits; a message always fits if no other
    /// waits. Each message counts as 64 bytes more than it has.
    pub fn upload_limit(mut self, bytes: usize) -> Self {
        self.settings.limits.upload_bytes = bytes;
        self
    }

    /// Bytes of answers that a client has not taken, on one connection: at least 1, 16 MiB by
    /// default. 64 are counted beside each, for its place in memory. Beyond it no more of its
    /// requests are read, and those that wait do not begin, until it takes some. Responses of
    /// streams wait in their senders before it comes to that.
    pub fn owed_limit(mut self, bytes: usize) -> Self {
        self.settings.limits.owed_bytes = bytes;
        self
    }

    /// The methods with what is set for them, once all settings are found to be in their ranges.
    pub(super) fn into_methods(self) -> Result<(Methods, Arc<ServerState>), ConfigError> {
        let Self {
            methods: mut handlers,
            options,
            every_method,
            hook,
            mut settings,
        } = self;
        settings.keepalive.validate()?;
        check_limits(&[
            ("connection_limit", settings.connection_limit),
            ("handler_limit", settings.limits.handlers),
            ("total_handler_limit", settings.total_handlers.unwrap_or(1)),
            ("waiting_limit", settings.limits.waiting),
            ("waiting_byte_limit", settings.limits.waiting_bytes),
            ("owed_limit", settings.limits.owed_bytes),
            ("stream_limit", settings.limits.stream_bytes),
            ("upload_limit", settings.limits.upload_bytes),
        ])?;
        check_timeouts(&[
            ("first_request_timeout", settings.first_request_timeout),
            ("header_timeout", settings.header_timeout),
        ])?;
        let dedicated = settings.driver_thread == DriverThread::Dedicated;
        if dedicated && settings.dispatch == Dispatch::Inline {
            return Err(ConfigError::InlineOnDedicated);
        }
        let mut own = HashMap::<_, MethodOptions>::new();
        for (name, options) in options {
            let slot = own.entry(name).or_default();
            *slot = options.or(slot);
        }
        let refusing = own.values().chain([&every_method]);
        settings.observe_pauses |= { refusing }.any(MethodOptions::refuses_waited);
        let state = ServerState::new(settings);
        let mut methods = Methods::default();
        let mut add = |name, handler: Handler, options: MethodOptions| {
            options.check()?;
            let policy = Policy::new(options, hook.clone());
            let method = Method::new(name, handler.kind(), policy, Arc::clone(&state));
            methods.add(method, handler);
            Ok::<_, ConfigError>(())
        };
        let for_streams = every_method.clone().without_soft_deadline();
        let every_method = |kind| match kind {
            Kind::Unary => &every_method,
            Kind::ServerStream | Kind::Upload => &for_streams,
        };
        for (name, options) in own {
            let unusable = |problem| ConfigError::Method {
                method: format!("{}/{}", name.0, name.1),
                problem,
            };
            let Some(handler) = handlers.remove(&name) else {
                return Err(unusable("it is not served"));
            };
            let kind = handler.kind();
            if options.has_soft_deadline() && kind != Kind::Unary {
                return Err(unusable("a soft deadline is for unary methods"));
            }
            add(name, handler, options.or(every_method(kind)))?;
        }
        for (name, handler) in handlers {
            let options = every_method(handler.kind()).clone();
            add(name, handler, options)?;
        }
        Ok((methods, state))
    }
}
