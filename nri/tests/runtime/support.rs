//! A plugin that does what its test says, on a stream that can be stopped.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::{mpsc, watch};
use ttrpc_keepalive::{ByteStream, Client, Code, Context, Server, Status};
use ttrpc_keepalive_nri::api::{
    ConfigureRequest, ConfigureResponse, Container, CreateContainerRequest,
    CreateContainerResponse, Empty, Event, FailurePolicy, KeyValue, PodSandbox,
    RegisterPluginRequest, RunPodSandboxRequest, RunPodSandboxResponse, StateChangeEvent,
    StopContainerRequest, StopContainerResponse, SynchronizeRequest, SynchronizeResponse,
    ValidateContainerAdjustmentRequest, ValidateContainerAdjustmentResponse,
};
use ttrpc_keepalive_nri::multiplexer::Multiplexer;
use ttrpc_keepalive_nri::runtime::{Change, Runtime, RuntimeBuilder};
use ttrpc_keepalive_nri::services::{Plugin, RuntimeClient, plugin_service};

/// What a plugin does, and a record of what it was asked.
pub(crate) struct Script {
    index: String,
    base: String,
    events: i32,
    policy: Option<FailurePolicy>,
    /// How long it takes for its next calls, whichever they are, *Synchronize* apart.
    pub(crate) delays: Mutex<VecDeque<Duration>>,
    /// How long it takes for its next *Synchronize*.
    pub(crate) synchronize_delays: Mutex<VecDeque<Duration>>,
    /// How long it takes to be configured.
    configure_delay: Mutex<Duration>,
    /// What it answers, in place of success.
    pub(crate) status: Mutex<Option<Status>>,
    /// It does not know the methods of release 0.12.
    pub(crate) old: bool,
    /// What it answers as a validator.
    pub(crate) reject: Mutex<Option<String>>,
    seen: watch::Sender<Vec<String>>,
}

impl Script {
    /// A plugin called `10-name`, which wants these events.
    pub(crate) fn new(name: &str, events: &[Event]) -> Self {
        let (index, base) = name.split_once('-').expect("10-name");
        let bits = events
            .iter()
            .map(|event| 1 << (protobuf::Enum::value(event) - 1));
        Self {
            index: index.to_owned(),
            base: base.to_owned(),
            events: bits.sum(),
            policy: None,
            delays: Mutex::default(),
            synchronize_delays: Mutex::default(),
            configure_delay: Mutex::default(),
            status: Mutex::default(),
            old: false,
            reject: Mutex::default(),
            seen: watch::Sender::new(Vec::new()),
        }
    }

    pub(crate) fn policy(mut self, fail_request: bool) -> Self {
        let mut policy = FailurePolicy::new();
        policy.fail_request = fail_request;
        self.policy = Some(policy);
        self
    }

    pub(crate) fn old(mut self) -> Self {
        self.old = true;
        self
    }

    pub(crate) fn events(mut self, mask: i32) -> Self {
        self.events = mask;
        self
    }

    pub(crate) fn takes(&self, seconds: f64) {
        let delay = Duration::from_secs_f64(seconds);
        self.delays.lock().unwrap().push_back(delay);
    }

    pub(crate) fn synchronize_takes(&self, seconds: f64) {
        let delay = Duration::from_secs_f64(seconds);
        self.synchronize_delays.lock().unwrap().push_back(delay);
    }

    pub(crate) fn configure_takes(&self, seconds: f64) {
        *self.configure_delay.lock().unwrap() = Duration::from_secs_f64(seconds);
    }

    /// All that it was asked, one line each.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.borrow().clone()
    }

    /// Waits until it was asked so many times.
    pub(crate) async fn saw(&self, line: &str, times: usize) {
        let mut seen = self.seen.subscribe();
        let enough = |seen: &Vec<String>| seen.iter().filter(|seen| *seen == line).count() >= times;
        let seen = tokio::time::timeout(Duration::from_secs(600), seen.wait_for(enough)).await;
        assert!(seen.is_ok(), "{line:?} is not seen, but {:?}", self.seen());
    }

    async fn act(&self, line: String) -> Result<(), Status> {
        self.seen.send_modify(|seen| seen.push(line));
        let delay = self.delays.lock().unwrap().pop_front();
        if let Some(delay) = delay {
            tokio::time::sleep(delay).await;
        }
        match self.status.lock().unwrap().clone() {
            Some(status) => Err(status),
            None => Ok(()),
        }
    }
}

impl Plugin for Script {
    async fn configure(
        &self,
        _: Context,
        request: ConfigureRequest,
    ) -> Result<ConfigureResponse, Status> {
        let (limit, register) = (request.request_timeout, request.registration_timeout);
        let told = format!(
            "configure {} {} {register} {limit} {}",
            request.runtime_name, request.runtime_version, request.NRI_version
        );
        self.seen.send_modify(|seen| seen.push(told));
        let delay = *self.configure_delay.lock().unwrap();
        tokio::time::sleep(delay).await;
        let mut response = ConfigureResponse::new();
        response.events = self.events;
        response.failure_policy = self.policy.clone().into();
        Ok(response)
    }

    async fn synchronize(
        &self,
        _: Context,
        request: SynchronizeRequest,
    ) -> Result<SynchronizeResponse, Status> {
        let pods: Vec<_> = request.pods.iter().map(|pod| pod.id.as_str()).collect();
        let line = format!("synchronize {}", pods.join(","));
        self.seen
            .send_modify(|seen| seen.push(line.trim_end().to_owned()));
        let delay = self.synchronize_delays.lock().unwrap().pop_front();
        if let Some(delay) = delay {
            tokio::time::sleep(delay).await;
        }
        let mut response = SynchronizeResponse::new();
        response.more = request.more;
        Ok(response)
    }

    async fn run_pod_sandbox(
        &self,
        _: Context,
        request: RunPodSandboxRequest,
    ) -> Result<RunPodSandboxResponse, Status> {
        if self.old {
            return Err(Status::new(Code::UNIMPLEMENTED, "unknown method"));
        }
        self.act(format!("run {}", request.pod.id)).await?;
        Ok(RunPodSandboxResponse::new())
    }

    async fn state_change(&self, _: Context, event: StateChangeEvent) -> Result<Empty, Status> {
        self.act(format!("{:?} {}", event.event.unwrap(), event.pod.id))
            .await?;
        Ok(Empty::new())
    }

    async fn create_container(
        &self,
        _: Context,
        request: CreateContainerRequest,
    ) -> Result<CreateContainerResponse, Status> {
        let env = request.container.env.join(",");
        let line = format!("create {} {env}", request.container.id);
        self.act(line.trim_end().to_owned()).await?;
        let mut variable = KeyValue::new();
        variable.key = self.base.to_uppercase();
        variable.value = self.index.clone();
        let mut response = CreateContainerResponse::new();
        response.adjust.mut_or_insert_default().env.push(variable);
        Ok(response)
    }

    async fn stop_container(
        &self,
        _: Context,
        request: StopContainerRequest,
    ) -> Result<StopContainerResponse, Status> {
        self.act(format!("stop {}", request.container.id)).await?;
        Ok(StopContainerResponse::new())
    }

    async fn validate_container_adjustment(
        &self,
        _: Context,
        request: ValidateContainerAdjustmentRequest,
    ) -> Result<ValidateContainerAdjustmentResponse, Status> {
        let asked: Vec<_> = request
            .plugins
            .iter()
            .map(|plugin| plugin.index.as_str())
            .collect();
        self.act(format!(
            "validate {} {}",
            request.container.id,
            asked.join(",")
        ))
        .await?;
        let mut response = ValidateContainerAdjustmentResponse::new();
        if let Some(reason) = self.reject.lock().unwrap().clone() {
            response.reject = true;
            response.reason = reason;
        }
        Ok(response)
    }
}

/// A plugin's process: it runs, it can be stopped and continued, and it can end.
pub(crate) struct Process {
    running: watch::Sender<bool>,
    /// The plugin's client of the runtime.
    pub(crate) runtime: RuntimeClient,
    serving: tokio::task::JoinHandle<()>,
    /// What its registration was answered.
    pub(crate) registered: tokio::task::JoinHandle<Result<(), String>>,
}

impl Process {
    /// Connects it to a runtime and registers it.
    pub(crate) fn start(runtime: &Runtime, script: &Arc<Script>) -> Self {
        let (here, there) = duplex(64 << 10);
        let serving = runtime.clone();
        tokio::spawn(async move { serving.serve_plugin(ByteStream::new(here)).await });
        // Who is stopped reads nothing and writes nothing, and the pipe to it fills.
        let (running, stream) = stoppable(there);
        let connections = Multiplexer::new().split(ByteStream::new(stream));
        let server = Server::builder()
            .service(plugin_service(Arc::clone(script)))
            .build()
            .unwrap();
        let plugin_service = connections.plugin_service;
        let serving = tokio::spawn(async move {
            server.serve_connection(plugin_service).await;
        });
        let client = Client::builder()
            .attach(connections.runtime_service)
            .unwrap();
        let runtime = RuntimeClient::new(client);
        let mut request = RegisterPluginRequest::new();
        request.plugin_idx.clone_from(&script.index);
        request.plugin_name.clone_from(&script.base);
        let call = runtime.register_plugin(&request);
        let registered = tokio::spawn(async move {
            let registered = call.await;
            registered.map(drop).map_err(|error| error.to_string())
        });
        Self {
            running,
            runtime,
            serving,
            registered,
        }
    }

    pub(crate) fn stop(&self) {
        self.running.send_replace(false);
    }

    pub(crate) fn go_on(&self) {
        self.running.send_replace(true);
    }

    /// Ends it, as a crash does.
    pub(crate) fn kill(&self) {
        self.serving.abort();
        self.runtime.client().abort();
    }
}

fn stoppable(stream: DuplexStream) -> (watch::Sender<bool>, DuplexStream) {
    let (inside, outside) = duplex(1 << 10);
    let (sender, running) = watch::channel(true);
    let (here, there) = (split(stream), split(inside));
    tokio::spawn(copy(here.0, there.1, running.clone()));
    tokio::spawn(copy(there.0, here.1, running));
    (sender, outside)
}

async fn copy(
    mut from: ReadHalf<DuplexStream>,
    mut to: WriteHalf<DuplexStream>,
    mut running: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 4 << 10];
    loop {
        if running.wait_for(|running| *running).await.is_err() {
            return;
        }
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            _ = running.wait_for(|running| !*running) => continue,
        };
        match read {
            Ok(0) | Err(_) => break,
            Ok(read) => {
                let _ = running.wait_for(|running| *running).await;
                if to.write_all(&buffer[..read]).await.is_err() {
                    break;
                }
            }
        }
    }
    let _ = to.shutdown().await;
}

/// A runtime, and all that it says of its plugins.
pub(crate) struct Node {
    pub(crate) runtime: Runtime,
    changes: mpsc::UnboundedReceiver<String>,
}

impl Node {
    pub(crate) async fn start(builder: RuntimeBuilder) -> Self {
        let (sender, changes) = mpsc::unbounded_channel();
        let told = move |plugin: &str, change: &Change| {
            let word = match change {
                Change::Registered => "registered".to_owned(),
                Change::Refused(reason) => format!("refused: {reason}"),
                Change::Serving => "serving".to_owned(),
                Change::Late { error, .. } => format!("late: {:?}", error.verdict().unwrap()),
                Change::SetAside(verdict) => format!("aside: {verdict:?}"),
                Change::Answered { .. } => "answered".to_owned(),
                Change::Gone(end) => format!("gone: {end}"),
                _ => "?".to_owned(),
            };
            // The test may be over.
            let _ = sender.send(format!("{plugin} {word}"));
        };
        let runtime = builder.hook(told).start().await.unwrap();
        Self { runtime, changes }
    }

    /// Waits until this is said, and yields what was said before.
    pub(crate) async fn until(&mut self, line: &str) -> Vec<String> {
        let mut said = Vec::new();
        loop {
            let next = tokio::time::timeout(Duration::from_secs(600), self.changes.recv());
            match next.await {
                Ok(Some(next)) if next.starts_with(line) => return said,
                Ok(Some(next)) => said.push(next),
                _ => panic!("{line:?} is not said, but {said:?}"),
            }
        }
    }

    /// All that is said so far.
    pub(crate) fn said(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.changes.try_recv().ok()).collect()
    }

    /// A plugin that is served.
    pub(crate) async fn plugin(&mut self, script: Script) -> (Arc<Script>, Process) {
        let script = Arc::new(script);
        let process = Process::start(&self.runtime, &script);
        let name = format!("{}-{} serving", script.index, script.base);
        self.until(&name).await;
        (script, process)
    }
}

pub(crate) fn pod(id: &str) -> PodSandbox {
    let mut pod = PodSandbox::new();
    pod.id = id.to_owned();
    pod
}

pub(crate) fn container(id: &str) -> Container {
    let mut container = Container::new();
    container.id = id.to_owned();
    container
}

/// The variables of an adjustment.
pub(crate) fn env(adjusted: &ttrpc_keepalive_nri::runtime::Adjustment) -> Vec<String> {
    let env = adjusted.adjustment.env.iter();
    env.map(|variable| format!("{}={}", variable.key, variable.value))
        .collect()
}
