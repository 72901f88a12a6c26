//! From a connection to its end, and to the next one.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, info, warn};
use ttrpc_keepalive::{Client, IntoTransport, Keepalive, MethodOptions, Server};

use super::deliveries::Deliveries;
use super::end::{End, EndReason, Stage};
use super::error::PluginError;
use super::identity::{Identity, inherited};
use super::methods::Methods;
use super::session::{Events, Session};
use super::{OnEnd, Plugin, Settings};
use crate::EventMask;
use crate::api::RegisterPluginRequest;
use crate::multiplexer::{Connection, Connections, Multiplexer};
use crate::services::RuntimeClient;

/// The release of the protocol that a plugin names when it registers.
const NRI_VERSION: &str = "v0.12.5";

/// How long handlers have to answer when the plugin is told to stop.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// A plugin that is ready to connect.
struct Ready {
    server: Server,
    registration: RegisterPluginRequest,
    settings: Settings,
    events: Events,
    deliveries: Arc<Deliveries>,
    on_end: Option<OnEnd>,
    current: watch::Sender<Option<RuntimeClient>>,
}

/// How a connection ended.
struct Lived {
    end: End,
    /// For how long it was of use.
    lived: Duration,
    /// Whether the runtime may have closed it for events that it does not know.
    refused: bool,
}

pub(super) async fn run<S: Clone + Send + Sync + 'static>(
    plugin: Plugin<S>,
    stop: impl Future,
) -> Result<End, PluginError> {
    let environment = |variable: &str| std::env::var(variable).ok();
    let mut ready = Ready::new(plugin, environment)?;
    let mut stop = pin!(stop);
    if let Some(socket) = inherited(environment)? {
        return Ok(ready.session(socket, stop).await?.end);
    }
    let asked = ready.events.asked;
    loop {
        let Lived {
            end,
            lived,
            refused,
        } = match UnixStream::connect(&ready.settings.socket).await {
            Ok(stream) => ready.session(stream, stop.as_mut()).await?,
            Err(error) => {
                let lived = Lived::not_connected(&ready.settings.socket, error);
                ready.tell(&lived.end);
                lived
            }
        };
        let Some(backoff) = &mut ready.settings.reconnect else {
            return Ok(end);
        };
        if let EndReason::Stopped = end.reason {
            return Ok(end);
        }
        if refused {
            let known = asked.intersection(EventMask::BEFORE_0_10);
            let without = asked.without(known);
            warn!(%without, "registering without the events that an old runtime does not know");
            ready.events.asked = known;
            continue;
        }
        // The next one may be newer.
        ready.events.asked = asked;
        let Some(wait) = backoff.delay_after(lived) else {
            return Err(PluginError::GivenUp(end));
        };
        tokio::select! {
            () = sleep(wait) => {}
            _ = &mut stop => return Ok(End::stopped()),
        }
    }
}

pub(super) async fn run_on<S: Clone + Send + Sync + 'static>(
    plugin: Plugin<S>,
    stream: impl IntoTransport,
) -> Result<End, PluginError> {
    let ready = Ready::new(plugin, |_| None)?;
    let never = pin!(std::future::pending::<()>());
    Ok(ready.session(stream, never).await?.end)
}

impl Ready {
    fn new<S: Clone + Send + Sync + 'static>(
        plugin: Plugin<S>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, PluginError> {
        plugin.check()?;
        // As it was called, and not where that leads: links give one program several names.
        let program = std::env::args_os().next().map(PathBuf::from);
        let identity = Identity::new(&plugin.named, program.as_deref(), environment)?;
        let events = plugin.events();
        let deliveries = Deliveries::new(plugin.runtime());
        let Plugin {
            state,
            settings,
            configure,
            shutdown,
            handlers,
            on_end,
            current,
            ..
        } = plugin;
        let handled = handlers.iter().filter_map(|entry| entry.event).collect();
        let methods = handlers
            .into_iter()
            .fold(Methods::new(state), |methods, entry| {
                (entry.add)(methods, entry.late)
            });
        let policy = settings.failure_policy.clone();
        let service = methods.finish(handled, configure, shutdown, policy);
        let waited = MethodOptions::new().refuse_waited(settings.refuse_waited);
        let server = Server::builder()
            .service(service)
            .every_method(waited)
            .driver_thread(settings.driver_thread)
            // The runtime is watched, if at all, on the connection on which it is called.
            .keepalive(Keepalive::off())
            .build()?;
        let registration = RegisterPluginRequest {
            plugin_name: identity.name,
            plugin_idx: identity.index,
            NRI_version: NRI_VERSION.to_owned(),
            ..RegisterPluginRequest::default()
        };
        Ok(Self {
            server,
            registration,
            settings,
            events: Events {
                asked: events,
                handled: events,
                told: events.without(handled),
            },
            deliveries,
            on_end,
            current,
        })
    }

    /// Registers on this stream, and handles events until it ends.
    async fn session(
        &self,
        stream: impl IntoTransport,
        stop: Pin<&mut impl Future>,
    ) -> Result<Lived, PluginError> {
        let Connections {
            plugin_service,
            runtime_service,
            ..
        } = Multiplexer::new().split(stream);
        let client = Client::builder()
            .keepalive(self.settings.keepalive.clone())
            .driver_thread(self.settings.driver_thread)
            .attach(runtime_service)?;
        let client = RuntimeClient::new(client);
        let (events, current) = (self.events, self.current.clone());
        let deliveries = Arc::clone(&self.deliveries);
        let session = Session::new(deliveries, events, client.clone(), current);
        // Served before it is registered: the runtime may configure it before it answers.
        let reason = self.served(plugin_service, &client, &session, stop).await;
        let lived = session.synchronized();
        session.end();
        let end = End {
            interrupted: session.progress().interrupted(),
            stage: session.stage(),
            reason,
        };
        self.tell(&end);
        Ok(Lived {
            refused: end.is_close() && session.may_be_refused(),
            lived: lived.map_or(Duration::ZERO, |since| since.elapsed()),
            end,
        })
    }

    async fn served(
        &self,
        connection: Connection,
        client: &RuntimeClient,
        session: &Session,
        mut stop: Pin<&mut impl Future>,
    ) -> EndReason {
        let serving = self
            .server
            .serve_connection_with(connection, session.clone());
        let mut serving = pin!(serving);
        let registration = client.register_plugin(&self.registration);
        let registered = tokio::select! {
            end = &mut serving => return EndReason::Connection(end),
            registered = registration.timeout(self.settings.registration_timeout) => registered,
            _ = &mut stop => return EndReason::Stopped,
        };
        match registered {
            Ok(_) => debug!("registered"),
            // Its end says why.
            Err(error) if error.is_connection() => {}
            Err(error) => return EndReason::NotRegistered(Arc::new(error)),
        }
        tokio::select! {
            end = &mut serving => EndReason::Connection(end),
            _ = &mut stop => {
                tokio::join!(self.server.shutdown(STOP_LIMIT), serving);
                EndReason::Stopped
            }
        }
    }

    /// The one line in the log for this end, and who else wants to know.
    fn tell(&self, end: &End) {
        let plugin = format_args!(
            "{}-{}",
            self.registration.plugin_idx, self.registration.plugin_name
        );
        match end.reason {
            EndReason::Stopped => info!("{plugin}: {end}"),
            _ => warn!("{plugin}: {end}"),
        }
        if let Some(told) = &self.on_end {
            told(end);
        }
    }
}

impl Lived {
    fn not_connected(socket: &Path, error: io::Error) -> Self {
        let end = End {
            reason: EndReason::NotConnected {
                socket: socket.to_owned(),
                error: Arc::new(error),
            },
            interrupted: None,
            stage: Stage::Connecting,
        };
        Self {
            end,
            lived: Duration::ZERO,
            refused: false,
        }
    }
}
