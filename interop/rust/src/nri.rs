//! Plugins with Go's stub as it is, and the runtime's side of the NRI crate.
//!
//! Such plugins know no PING. They are never found dead for that, and a late one is judged by what its process
//! reads.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::timeout;
use ttrpc_keepalive::{Code, DeadReason, Keepalive, Status, Support, Verdict};
use ttrpc_keepalive_nri::api::{Container, LinuxResources, PodSandbox};
use ttrpc_keepalive_nri::runtime::{Absence, Change, EventError, Runtime};

use crate::process::Process;
use crate::report::{Report, World, claim};
use crate::table::Place;
use crate::{Result, print};

/// What the runtimes on most nodes embed, and the newest.
pub(crate) const RELEASES: [&str; 2] = ["0.8.0", "0.12.5"];

/// The plugin's limit, as everywhere.
const LIMIT: Duration = Duration::from_secs(2);
/// Where the table stands; one of containerd's and one of plugins that know PING stand there too.
const PLACE: Place = Place {
    file: "nri/README.md",
    begin: "<!-- Written by `interop/run nri --write`. -->",
};
const HEAD: &str = "| your plugin | the event | the container | the plugin afterwards |";

const INTERVAL: Duration = Duration::from_millis(500);
/// What a busy machine adds.
const MARGIN: Duration = Duration::from_millis(1500);

pub(crate) async fn all(world: &World, report: &mut Report) {
    for release in RELEASES {
        let name = format!("Go NRI stub {release}, Rust runtime: every event");
        report.pairing(&name, events(world, release)).await;
        let name = format!("Go NRI stub {release}, Rust runtime: late, failing");
        report
            .pairing(&name, as_written(late(world, release)))
            .await;
        let name = format!("Go NRI stub {release}, Rust runtime: answers in time");
        report.pairing(&name, in_time(world, release)).await;
        let name = format!("Go NRI stub {release}, Rust runtime: stopped at work");
        report
            .pairing(&name, as_written(stopped_at_work(world, release)))
            .await;
        let name = format!("Go NRI stub {release}, Rust runtime: stopped while idle");
        report
            .pairing(&name, as_written(stopped_while_idle(world, release)))
            .await;
    }
    let name = "Go NRI stub 0.12.5, Rust runtime: late, asks to have that fail";
    report.pairing(name, failing(world)).await;
}

/// Measures what becomes of late plugins, and prints the table of it, or writes it.
pub(crate) async fn show(world: &World, write: bool) -> Result<()> {
    let mut table = format!("{HEAD}\n|---|---|---|---|");
    for release in RELEASES {
        for row in [
            late(world, release).await?,
            stopped_at_work(world, release).await?,
            stopped_while_idle(world, release).await?,
        ] {
            table += &format!("\n{row}");
        }
    }
    if write {
        return PLACE.write(&table);
    }
    print(&table);
    Ok(())
}

/// Plays, and looks for the row in the table.
async fn as_written(plays: impl Future<Output = Result<String>>) -> Result<String> {
    let row = plays.await?;
    let written = std::fs::read_to_string(PLACE.file)?;
    claim!(
        written.lines().any(|line| line == row),
        "not in {}: {row}",
        PLACE.file
    );
    Ok(row.trim_matches(['|', ' ']).replace(" | ", ": "))
}

/// A runtime with one plugin.
struct Node {
    runtime: Runtime,
    plugin: Process,
    changes: mpsc::UnboundedReceiver<Change>,
    updates: mpsc::UnboundedReceiver<String>,
}

impl Node {
    /// Starts both, and waits until the plugin is served. `pods`: how many there are, of 1 MiB each; `does`: what
    /// the plugin is told to do; `timeout`: that of the watch.
    async fn start(
        world: &World,
        release: &str,
        pods: usize,
        does: &[&str],
        timeout: Duration,
    ) -> Result<Self> {
        let socket = world.socket();
        let (changed, changes) = mpsc::unbounded_channel();
        let (updated, updates) = mpsc::unbounded_channel();
        let keepalive = Keepalive::every(INTERVAL)
            .timeout(timeout)
            .watch_by_receipts(true);
        let runtime = Runtime::builder("interop", "1.0")
            .limit(LIMIT)
            .keepalive(keepalive)
            .state(move || async move {
                let pods = (0..pods).map(|number| large(&number.to_string()));
                (pods.collect(), vec![container("there")])
            })
            .update(move |plugin, request| {
                for update in request.update {
                    let shares = update.linux.resources.cpu.shares.value;
                    // The scenario may be over.
                    let _ = updated.send(format!("{plugin} {} {shares}", update.container_id));
                }
                async { Ok(Vec::new()) }
            })
            .hook(move |_, change| {
                let _ = changed.send(change.clone());
            })
            .listen(&socket.display().to_string())
            .await?;
        let program = world.program(&format!("interop/go/nri-plugin-{release}"));
        let path = socket.display().to_string();
        let mut plugin = Process::start(&program, &[&[path.as_str()], does].concat(), &socket)?;
        plugin.expect("configured interop 1.0 5s 2s").await?;
        plugin.expect(&format!("synchronized {pods} 1")).await?;
        let mut node = Self {
            runtime,
            plugin,
            changes,
            updates,
        };
        node.until(|change| matches!(change, Change::Serving))
            .await?;
        Ok(node)
    }

    async fn until(&mut self, such: impl Fn(&Change) -> bool) -> Result<Change> {
        loop {
            let change = timeout(Duration::from_secs(30), self.changes.recv()).await;
            match change.map_err(|_| "nothing happens to the plugin")? {
                Some(change) if such(&change) => return Ok(change),
                Some(_) => {}
                None => return Err("the runtime is gone".into()),
            }
        }
    }

    /// Creates a container, and says which variables it got and how long that took.
    async fn create(&self, name: &str) -> (std::result::Result<Vec<String>, EventError>, Duration) {
        let began = Instant::now();
        let created = self
            .runtime
            .create_container(pod("pod"), container(name))
            .await;
        let env = created.map(|created| {
            let env = created.adjustment.env.iter();
            env.map(|variable| format!("{}={}", variable.key, variable.value))
                .collect()
        });
        (env, began.elapsed())
    }
}

/// Every event that the release knows reaches the plugin, and its answers come back; a node of 20 MiB is told in
/// parts; the plugin's own updates arrive.
async fn events(world: &World, release: &str) -> Result<String> {
    let mut node = Node::start(world, release, 20, &["validates"], 2 * LIMIT).await?;
    let runtime = node.runtime.clone();
    let (p, c) = (|| pod("p"), || container("c"));
    runtime.run_pod_sandbox(p()).await?;
    let created = runtime.create_container(p(), c()).await?;
    claim!(created.adjustment.env[0].key == "GO", "{created:?}");
    claim!(
        created.adjustment.mounts[0].destination == "/go",
        "{created:?}"
    );
    let shares = created.adjustment.linux.resources.cpu.shares.value;
    claim!(shares == 512, "cpu shares {shares}");
    claim!(created.updates[0].container_id == "other", "{created:?}");
    runtime.post_create_container(p(), c()).await?;
    runtime.start_container(p(), c()).await?;
    runtime.post_start_container(p(), c()).await?;
    let updated = runtime
        .update_container(p(), c(), LinuxResources::new())
        .await?;
    let shares = updated.resources.cpu.shares.value;
    claim!(shares == 256, "cpu shares {shares}");
    runtime.post_update_container(p(), c()).await?;
    let none = LinuxResources::new;
    runtime.update_pod_sandbox(p(), none(), none()).await?;
    runtime.post_update_pod_sandbox(p()).await?;
    runtime.stop_container(p(), c()).await?;
    runtime.remove_container(p(), c()).await?;
    runtime.stop_pod_sandbox(p()).await?;
    runtime.remove_pod_sandbox(p()).await?;
    let new = release != "0.8.0";
    let expected = [
        ("RunPodSandbox p", true),
        ("CreateContainer c", true),
        ("ValidateContainerAdjustment c 10-go 1", new),
        ("PostCreateContainer c", true),
        ("StartContainer c", true),
        ("PostStartContainer c", true),
        ("UpdateContainer c", true),
        ("PostUpdateContainer c", true),
        ("UpdatePodSandbox p", new),
        ("PostUpdatePodSandbox p", new),
        ("StopContainer c", true),
        ("RemoveContainer c", true),
        ("StopPodSandbox p", true),
        ("RemovePodSandbox p", true),
    ];
    let mut events = 0;
    for (event, _) in expected.iter().filter(|(_, known)| *known) {
        node.plugin.expect(&format!("got {event}")).await?;
        events += 1;
    }
    if new {
        let (rejected, _) = node.create("invalid").await;
        let rejected = rejected.err().ok_or("nothing was rejected")?.to_string();
        claim!(rejected.contains("not valid"), "{rejected}");
        node.plugin.expect("got CreateContainer invalid").await?;
        let validated = "got ValidateContainerAdjustment invalid 10-go 1";
        node.plugin.expect(validated).await?;
    }

    let (created, _) = node.create("update").await;
    created?;
    let update = timeout(Duration::from_secs(10), node.updates.recv()).await?;
    claim!(update.as_deref() == Some("10-go late 7"), "{update:?}");
    let support = node.runtime.plugins()[0].snapshot.support();
    claim!(support == Support::No, "{support:?}");
    Ok(format!("{events} events, 20 MiB in parts, an update"))
}

/// A slow plugin is kept, spared, and served again; an error in time fails its event and no more.
async fn late(world: &World, release: &str) -> Result<String> {
    // With the interval that is less than it is silent for: it is not held against one that knows no PING.
    let mut node = Node::start(world, release, 0, &[], LIMIT).await?;
    let (created, _) = node.create("first").await;
    claim!(created? == ["GO=first"], "not adjusted");
    let (created, took) = node.create("slow").await;
    claim!(created?.is_empty(), "adjusted though late");
    claim!(took >= LIMIT && took < LIMIT + MARGIN, "it took {took:?}");
    let late = node
        .until(|change| matches!(change, Change::Late { .. }))
        .await?;
    let Change::Late { error, .. } = late else {
        return Err("not late".into());
    };
    claim!(error.verdict() == Some(Verdict::Slow), "{error}");
    let reads = error
        .evidence()
        .is_some_and(|evidence| evidence.only_reads());
    claim!(reads, "{error}");
    let (skipped, skipping) = node.create("skipped").await;
    claim!(skipped?.is_empty(), "asked while set aside");
    claim!(skipping < MARGIN, "the next event took {skipping:?}");
    node.until(|change| matches!(change, Change::Serving))
        .await?;

    let (failed, _) = node.create("error").await;
    let failed = failed.err().ok_or("an error is no error")?;
    claim!(failed.status().is_some(), "{failed}");
    let (created, _) = node.create("last").await;
    claim!(created? == ["GO=last"], "not adjusted");
    for name in ["first", "slow"] {
        node.plugin
            .expect(&format!("got CreateContainer {name}"))
            .await?;
    }
    node.plugin.expect("synchronized 0 1").await?;
    node.plugin.expect("got CreateContainer error").await?;
    node.plugin.expect("got CreateContainer last").await?;
    Ok(row(
        release,
        "takes 3 s",
        took,
        "*slow*: it reads. Kept, spared until it has answered, synchronized, served again",
    ))
}

/// Who answers before its limit is kept and served, whatever it answers: nothing, and the event goes on; an error, and
/// the event fails, Stop and Remove events too.
async fn in_time(world: &World, release: &str) -> Result<String> {
    let mut node = Node::start(world, release, 0, &[], 2 * LIMIT).await?;
    let (created, took) = node.create("empty").await;
    claim!(created?.is_empty(), "adjusted by nothing");
    claim!(took > LIMIT / 2, "it took {took:?}");
    let (failed, _) = node.create("deadline").await;
    let failed = failed.err().ok_or("no error")?;
    let code = failed.status().map(Status::code);
    claim!(code == Some(Code::DEADLINE_EXCEEDED), "{failed}");
    let stopped = node.runtime.stop_container(pod("p"), container("error"));
    let stopped = stopped.await.err().ok_or("no error")?;
    claim!(stopped.to_string().contains("not this one"), "{stopped}");
    let removed = node.runtime.remove_pod_sandbox(pod("error")).await;
    let removed = removed.err().ok_or("no error")?;
    claim!(removed.to_string().contains("not this one"), "{removed}");
    let (created, _) = node.create("last").await;
    claim!(created? == ["GO=last"], "not adjusted");
    let changed = node.changes.try_recv().ok();
    claim!(changed.is_none(), "{changed:?}");
    Ok(format!(
        "nothing after {:.1} s goes on, three errors fail, kept",
        took.as_secs_f64()
    ))
}

/// It says what becomes of an event that it does not answer in time, and is kept by this runtime in any case.
async fn failing(world: &World) -> Result<String> {
    let mut node = Node::start(world, "0.12.5", 0, &["fails"], 2 * LIMIT).await?;
    let (failed, took) = node.create("slow").await;
    let failed = failed.err().ok_or("made without it")?;
    let verdict = failed.absence().and_then(Absence::verdict);
    claim!(verdict == Some(Verdict::Slow), "{failed}");
    node.until(|change| matches!(change, Change::Serving))
        .await?;
    let (created, _) = node.create("last").await;
    claim!(created? == ["GO=last"], "not adjusted");
    Ok(format!("failed after {:.1} s, kept", took.as_secs_f64()))
}

/// Stopped with a request in its socket: one limit, then nothing, until it is found dead.
async fn stopped_at_work(world: &World, release: &str) -> Result<String> {
    let mut node = Node::start(world, release, 0, &[], 2 * LIMIT).await?;
    node.create("first").await.0?;
    node.plugin.stop().await?;
    let (created, took) = node.create("stopped").await;
    let waited = took >= LIMIT && took < LIMIT + MARGIN;
    claim!(waited, "it took {took:?}");
    claim!(created?.is_empty(), "adjusted by a stopped process");
    let late = node
        .until(|change| matches!(change, Change::Late { .. }))
        .await?;
    let Change::Late { error, .. } = late else {
        return Err("not late".into());
    };
    claim!(error.verdict() == Some(Verdict::NotReading), "{error}");
    let again = Instant::now();
    node.create("skipped").await.0?;
    claim!(again.elapsed() < MARGIN, "it is waited for again");
    found_dead(&mut node).await?;
    Ok(row(
        release,
        "is stopped at work",
        took,
        "*not reading*. Spared, and found dead; it may register anew",
    ))
}

/// Stopped while nothing is asked: found by what it does not read, and nobody has waited for it.
async fn stopped_while_idle(world: &World, release: &str) -> Result<String> {
    let mut node = Node::start(world, release, 0, &[], 2 * LIMIT).await?;
    node.create("first").await.0?;
    node.plugin.stop().await?;
    node.until(|change| matches!(change, Change::SetAside(None)))
        .await?;
    let (created, took) = node.create("skipped").await;
    claim!(took < MARGIN, "it is waited for: {took:?}");
    claim!(created?.is_empty(), "adjusted by a stopped process");
    found_dead(&mut node).await?;
    Ok(row(
        release,
        "was stopped before the event",
        took,
        "found dead by what it does not read",
    ))
}

async fn found_dead(node: &mut Node) -> Result<()> {
    let gone = node
        .until(|change| matches!(change, Change::Gone(_)))
        .await?;
    let Change::Gone(end) = gone else {
        return Err("not gone".into());
    };
    let reason = end.dead_reason();
    claim!(reason == Some(DeadReason::NotReading), "{end}");
    let (created, _) = node.create("after").await;
    claim!(created?.is_empty(), "adjusted by a plugin that is gone");
    node.plugin.go_on()?;
    loop {
        let line = node.plugin.line().await?;
        if line == "closed" || line == "ended" {
            return Ok(());
        }
    }
}

fn row(release: &str, does: &str, took: Duration, afterwards: &str) -> String {
    let took = took.as_secs_f64().round();
    format!("| Go's stub {release} {does} | {took} s | made without it | {afterwards} |")
}

fn pod(id: &str) -> PodSandbox {
    let mut pod = PodSandbox::new();
    id.clone_into(&mut pod.id);
    id.clone_into(&mut pod.name);
    pod
}

fn large(id: &str) -> PodSandbox {
    let mut pod = pod(id);
    pod.annotations
        .insert("large".to_owned(), "x".repeat(1 << 20));
    pod
}

fn container(name: &str) -> Container {
    let mut container = Container::new();
    name.clone_into(&mut container.id);
    name.clone_into(&mut container.name);
    container
}
