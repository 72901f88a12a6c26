//! Plugins of the NRI crate, and runtimes with Go's adaptation as it is.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use ttrpc_keepalive::{Code, Status};
use ttrpc_keepalive_nri::api::*;
use ttrpc_keepalive_nri::{EventContext, Late, LateResult, Plugin};

use crate::Result;
use crate::process::Process;
use crate::report::{Report, World, claim};

/// What the runtimes on most nodes embed, and the newest.
pub(crate) const RELEASES: [&str; 2] = ["0.8.0", "0.12.5"];

/// How long something may take that takes less than a second on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn all(world: &World, report: &mut Report) {
    for release in RELEASES {
        let name = format!("Rust NRI plugin, Go NRI runtime {release}: every event");
        report.pairing(&name, events(world, release)).await;
        let name = format!("Rust NRI plugin, Go NRI runtime {release}: late, failing");
        report.pairing(&name, late(world, release)).await;
        let name = format!("Rust NRI plugin, Go NRI runtime {release}: never answered for");
        report.pairing(&name, never(world, release)).await;
        let name = format!("Rust NRI plugin, Go NRI runtime {release}: started, stopped");
        report.pairing(&name, started(world, release)).await;
    }
}

/// A runtime, and perhaps a plugin in this process.
pub(crate) struct Node {
    runtime: Process,
    pub(crate) socket: PathBuf,
    /// What the runtime has printed by itself.
    notes: VecDeque<String>,
    /// What the plugin was told.
    events: mpsc::UnboundedReceiver<String>,
    pub(crate) ends: mpsc::UnboundedReceiver<String>,
    pub(crate) told: Arc<Told>,
    plugin: Option<JoinHandle<()>>,
}

/// What a plugin tells of what it is told.
pub(crate) struct Told {
    events: mpsc::UnboundedSender<String>,
    ends: mpsc::UnboundedSender<String>,
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(plugin) = &self.plugin {
            plugin.abort();
        }
    }
}

impl Node {
    /// A runtime that starts the plugins in a folder, on a machine with so many pods of 1 MiB.
    async fn new(world: &World, release: &str, plugins: &str, pods: usize) -> Result<Self> {
        let socket = world.socket();
        let program = world.program(&format!("interop/go/nri-runtime-{release}"));
        let path = socket.display().to_string();
        let mut runtime = Process::start(&program, &[&path, plugins, &pods.to_string()], &socket)?;
        let mut notes = VecDeque::new();
        loop {
            match runtime.line().await?.as_str() {
                "ready" => break,
                note => notes.push_back(note.to_owned()),
            }
        }
        // That of the plugins which it starts, if there are none too.
        if plugins == NONE {
            notes.clear();
        }
        let (told, events) = mpsc::unbounded_channel();
        let (ended, ends) = mpsc::unbounded_channel();
        Ok(Self {
            runtime,
            socket,
            notes,
            events,
            ends,
            told: Arc::new(Told {
                events: told,
                ends: ended,
            }),
            plugin: None,
        })
    }

    /// With a plugin that is made of this one, once it gets events.
    pub(crate) async fn with(
        world: &World,
        release: &str,
        pods: usize,
        make: impl FnOnce(Plugin<Arc<Told>>) -> Plugin<Arc<Told>>,
    ) -> Result<Self> {
        let mut node = Self::new(world, release, NONE, pods).await?;
        let told = Arc::clone(&node.told);
        let plugin = make(Plugin::new("10", "rust", Arc::clone(&told)))
            .start_container(|told, _, event: StartContainerRequest| async move {
                told.got("StartContainer", &event.container.id);
                Ok(())
            })
            .socket(&node.socket)
            .on_end(move |end| {
                let _ = told.ends.send(end.to_string());
            });
        node.plugin = Some(tokio::spawn(async move {
            let _ = plugin.run().await;
        }));
        node.served().await?;
        Ok(node)
    }

    /// Waits until the plugin gets events: a runtime adds it a moment after it has synchronized it.
    pub(crate) async fn served(&mut self) -> Result<()> {
        let since = Instant::now();
        loop {
            self.tell("StartContainer probe").await?;
            while let Ok(event) = self.events.try_recv() {
                if event == "StartContainer probe" {
                    return Ok(());
                }
            }
            claim!(since.elapsed() < PATIENCE, "the plugin gets no events");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Tells the runtime of an event. Yields what became of it, and how long it took.
    pub(crate) async fn tell(&mut self, event: &str) -> Result<(String, f64)> {
        self.runtime.tell(event).await?;
        loop {
            let line = self.runtime.line().await?;
            match line.strip_prefix(&format!("{event} ")) {
                Some(became) => {
                    let (took, became) = became.split_once(' ').ok_or("no time")?;
                    return Ok((became.to_owned(), took.parse()?));
                }
                None => self.notes.push_back(line),
            }
        }
    }

    /// The next thing that the runtime tells by itself.
    async fn note(&mut self) -> Result<String> {
        match self.notes.pop_front() {
            Some(note) => Ok(note),
            None => self.runtime.line().await,
        }
    }

    pub(crate) async fn event(&mut self) -> Result<String> {
        let event = timeout(PATIENCE, self.events.recv()).await;
        Ok(event?.ok_or("the plugin is gone")?)
    }

    /// Claims that the plugin is still there, and adjusts the next container.
    pub(crate) async fn is_kept(&mut self) -> Result<()> {
        if let Ok(end) = self.ends.try_recv() {
            return Err(format!("the plugin was dropped: {end}").into());
        }
        let (became, _) = self.tell("CreateContainer next").await?;
        claim!(became == adjusted("next"), "the next container: {became}");
        Ok(())
    }
}

/// No folder, so no plugins to start.
const NONE: &str = "/nowhere";

fn adjusted(name: &str) -> String {
    format!("adjusted RUST={name} shares=512 memory=0")
}

impl Told {
    pub(crate) fn got(&self, event: &str, name: &str) {
        // The scenario may be over.
        let _ = self.events.send(format!("{event} {name}"));
    }

    /// Does what the name of the container says.
    pub(crate) async fn create(
        self: Arc<Self>,
        event: EventContext,
        request: CreateContainerRequest,
    ) -> std::result::Result<(ContainerAdjustment, Vec<ContainerUpdate>), Status> {
        let name = request.container.name.clone();
        self.got("CreateContainer", &name);
        let slow = Duration::from_secs(3);
        if name.starts_with("slow") {
            sleep(slow).await;
        } else if name.starts_with("block") {
            std::thread::sleep(slow);
        } else if name.starts_with("error") {
            return Err(Status::new(Code::UNKNOWN, "not this one"));
        } else if name.starts_with("deadline") {
            return Err(Status::new(Code::DEADLINE_EXCEEDED, "no time for this one"));
        } else if name.starts_with("update") {
            let runtime = event.runtime().clone();
            tokio::spawn(async move {
                let updated = runtime.update_containers(vec![update("other")]).await;
                let failed = updated
                    .map_or_else(|error| error.to_string(), |failed| failed.len().to_string());
                self.got("updated", &failed);
            });
        }
        let mut adjustment = ContainerAdjustment::new();
        adjustment.add_env("RUST", &name);
        adjustment.resources_mut().set_cpu_shares(512);
        Ok((adjustment, Vec::new()))
    }
}

fn update(id: &str) -> ContainerUpdate {
    let mut update = ContainerUpdate::of(id);
    update.resources_mut().set_memory_limit(1 << 20);
    update
}

/// Every event that the release knows reaches its handler in the shape that the release has for it, answers come
/// back, a node of 20 MiB is told in parts, and an update by the plugin arrives. An old release refuses a plugin
/// for the events that it does not know, and gets it without them.
async fn events(world: &World, release: &str) -> Result<String> {
    macro_rules! telling {
        ($plugin:expr, $($method:ident $event:ident $field:ident),*) => {
            $plugin$(.$method(|told: Arc<Told>, _, event| async move {
                told.got(stringify!($event), &event.$field.id);
                Ok(())
            }))*
        };
    }
    let is_new = release != "0.8.0";
    let mut node = Node::with(world, release, 20, |plugin| {
        let plugin = telling!(plugin,
            run_pod_sandbox RunPodSandbox pod,
            update_pod_sandbox UpdatePodSandbox pod,
            post_update_pod_sandbox PostUpdatePodSandbox pod,
            stop_pod_sandbox StopPodSandbox pod,
            remove_pod_sandbox RemovePodSandbox pod,
            post_create_container PostCreateContainer container,
            post_start_container PostStartContainer container,
            post_update_container PostUpdateContainer container,
            stop_container StopContainer container,
            remove_container RemoveContainer container
        );
        plugin
            .create_container(Told::create)
            .update_container(|told, _, event: UpdateContainerRequest| async move {
                told.got("UpdateContainer", &event.container.id);
                Ok(vec![update("other")])
            })
            .validate_container_adjustment(
                |told, _, event: ValidateContainerAdjustmentRequest| async move {
                    let id = &event.container.id;
                    told.got("ValidateContainerAdjustment", id);
                    match &**id {
                        "invalid" => Err(Status::new(Code::UNKNOWN, "not like this")),
                        _ => Ok(()),
                    }
                },
            )
            .synchronize(
                |told, event: EventContext, all: SynchronizeRequest| async move {
                    let runtime = event.runtime_info();
                    let is_told = runtime.nri_version.is_some();
                    let counts = format!("{} {}", all.pods.len(), all.containers.len());
                    told.got(
                        "Synchronize",
                        &format!("{counts} {} {is_told}", runtime.name),
                    );
                    Ok(vec![update("there")])
                },
            )
    })
    .await?;
    claim!(
        node.note().await? == "synchronized 1",
        "no update for what is there"
    );
    // Taken while the plugin was waited for.
    let refused = node.ends.try_recv().ok();
    let expected = "closed by the runtime before it was synchronized";
    claim!(
        refused.as_deref() == (!is_new).then_some(expected),
        "{refused:?}"
    );
    let mut count = 0;
    for (event, became, known) in [
        ("RunPodSandbox", "told", true),
        ("CreateContainer", &*adjusted("c"), true),
        ("PostCreateContainer", "told", true),
        ("StartContainer", "told", true),
        ("PostStartContainer", "told", true),
        (
            "UpdateContainer",
            "updates other shares=0 memory=1048576",
            true,
        ),
        ("PostUpdateContainer", "told", true),
        ("UpdatePodSandbox", "told", is_new),
        ("PostUpdatePodSandbox", "told", is_new),
        ("StopContainer", "updates", true),
        ("RemoveContainer", "told", true),
        ("StopPodSandbox", "told", true),
        ("RemovePodSandbox", "told", true),
    ] {
        if !known {
            continue;
        }
        let told = format!("{event} c");
        let (said, _) = node.tell(&told).await?;
        claim!(said == became, "{event}: {said}");
        let got = node.event().await?;
        claim!(got == told, "{got} and not {told}");
        if event == "CreateContainer" && is_new {
            let got = node.event().await?;
            claim!(got == "ValidateContainerAdjustment c", "{got}");
            count += 1;
        }
        count += 1;
    }
    if is_new {
        let (became, _) = node.tell("CreateContainer invalid").await?;
        claim!(became.contains("not like this"), "{became}");
    }
    let (became, _) = node.tell("CreateContainer update").await?;
    claim!(became == adjusted("update"), "{became}");
    let note = node.note().await?;
    claim!(note == "updated other shares=0 memory=1048576", "{note}");
    loop {
        let event = node.event().await?;
        if let Some(failed) = event.strip_prefix("updated ") {
            claim!(failed == "0", "{failed}");
            break;
        }
    }
    Ok(format!("{count} events, 20 MiB in parts, an update"))
}

/// A plugin that takes 3 s is answered for, and kept by every release.
async fn late(world: &World, release: &str) -> Result<String> {
    let in_time = |took: f64| took > 1.5 && took < 1.99;
    let mut shown = Vec::new();

    let late = Late::empty().then(LateResult::into_updates);
    let mut node = Node::with(world, release, 0, |plugin| {
        plugin.create_container(Told::create).late(late)
    })
    .await?;
    for name in ["slow", "block"] {
        let (became, took) = node.tell(&format!("CreateContainer {name}")).await?;
        claim!(
            became == "plain" && in_time(took),
            "{name}: {became} after {took} s"
        );
        node.tell(&format!("PostCreateContainer {name}")).await?;
        node.is_kept().await?;
        // The first is that it was synchronized.
        let updated = loop {
            let note = node.note().await?;
            if !note.starts_with("synchronized") {
                break note;
            }
        };
        claim!(
            updated == format!("updated {name} shares=512 memory=0"),
            "{updated}"
        );
        shown.push(format!("{name}: {took} s, kept, delivered"));
    }
    let (became, took) = node.tell("CreateContainer error").await?;
    claim!(
        became.contains("not this one") && took < 1.0,
        "{became} after {took} s"
    );
    node.is_kept().await?;
    drop(node);

    let mut node = Node::with(world, release, 0, |plugin| {
        let plugin = plugin
            .create_container(Told::create)
            .late(Late::fail("not there yet"));
        let run = |_, _, _: RunPodSandboxRequest| async {
            sleep(Duration::from_secs(3)).await;
            Ok(())
        };
        plugin
            .run_pod_sandbox(run)
            .late(Late::fail("no network yet"))
    })
    .await?;
    for (event, text) in [
        ("CreateContainer slow", "not there yet"),
        ("RunPodSandbox p", "no network yet"),
    ] {
        let (became, took) = node.tell(event).await?;
        claim!(
            became.contains(text) && in_time(took),
            "{event}: {became} after {took} s"
        );
        node.is_kept().await?;
    }
    shown.push("failing: kept".to_owned());
    Ok(shown.join("; "))
}

/// What the soft deadline is for. An old runtime drops such a plugin, which comes back at once and says why it
/// had to; a new one keeps it, as it is asked to.
async fn never(world: &World, release: &str) -> Result<String> {
    let is_new = release != "0.8.0";
    let mut node = Node::with(world, release, 0, |plugin| {
        plugin.create_container(Told::create).late(Late::never())
    })
    .await?;
    let (became, took) = node.tell("CreateContainer slow").await?;
    claim!(became == "plain" && took > 1.9, "{became} after {took} s");
    if is_new {
        node.is_kept().await?;
        return Ok(format!("{took} s, kept"));
    }
    let end = timeout(PATIENCE, node.ends.recv()).await?;
    let end = end.ok_or("the plugin is gone")?;
    // On a busy machine its clock begins so much later that the event is not overdue yet.
    let expected = "closed by the runtime while CreateContainer ";
    claim!(end.starts_with(expected), "{end}");
    node.served().await?;
    node.is_kept().await?;
    Ok(format!("{took} s, {end}; registered again"))
}

/// A plugin that its runtime has started: it finds its connection, and ends with it. One that was stopped does not
/// handle what it finds.
async fn started(world: &World, release: &str) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let program = world.program("debug/examples/device_plugin");
    std::os::unix::fs::symlink(&program, folder.path().join("42-given"))?;
    let plugins = folder.path().display().to_string();
    let mut node = Node::new(world, release, &plugins, 3).await?;
    let (became, _) = node.tell("CreateContainer fast").await?;
    let expected = "adjusted NRI_PROBE=was-here shares=0 memory=0";
    claim!(became == expected, "started: {became}");
    let (became, took) = node.tell("CreateContainer slow").await?;
    claim!(
        became == "plain" && took < 1.99,
        "slow: {became} after {took} s"
    );
    drop(node);

    let node = Node::new(world, release, NONE, 3).await?;
    let path = node.socket.display().to_string();
    let mut plugin = Process::start(&program, &["--socket", &path], &world.socket())?;
    let line = plugin.line().await?;
    claim!(line.ends_with("with 3 pods, 50 containers"), "{line}");
    let mut node = node;
    let since = Instant::now();
    while node.tell("CreateContainer fast").await?.0 != expected {
        claim!(since.elapsed() < PATIENCE, "the plugin gets no events");
    }
    plugin.stop().await?;
    let (became, took) = node.tell("CreateContainer stopped").await?;
    claim!(
        became == "plain" && took > 1.9,
        "stopped: {became} after {took} s"
    );
    // So that it is found to have been stopped for longer than it takes a request.
    sleep(Duration::from_secs(1)).await;
    plugin.go_on()?;
    let mut lines = Vec::new();
    let since = Instant::now();
    while node.tell("CreateContainer after").await?.0 != expected {
        claim!(since.elapsed() < PATIENCE, "it does not come back");
        sleep(Duration::from_millis(20)).await;
    }
    while !lines.iter().any(|line: &String| line.contains("/after")) {
        lines.push(plugin.line().await?);
    }
    let stale = lines.iter().any(|line| line.contains("/stopped"));
    claim!(!stale, "it handles what nobody waits for: {lines:?}");
    Ok("started with its connection; stopped, and what it found not handled".to_owned())
}
