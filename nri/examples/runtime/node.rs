//! The runtime: it has a container every second, and a line for all that happens. The part to take along.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use ttrpc_keepalive::Keepalive;
use ttrpc_keepalive_nri::api::{Container, PodSandbox};
use ttrpc_keepalive_nri::runtime::{Change, Runtime};

use crate::{INTERVAL, LIMIT, PERIOD, Result, TIMEOUT};

pub(crate) struct Node {
    pub(crate) runtime: Runtime,
    timeline: Arc<Timeline>,
}

/// Something that happened to a plugin, or a container that was made.
pub(crate) struct Entry {
    pub(crate) at: Duration,
    /// A plugin, or nothing if this is about a container.
    pub(crate) plugin: String,
    /// In a word.
    pub(crate) what: String,
    pub(crate) detail: String,
    /// What each container got, and how long that took.
    pub(crate) made: Option<(usize, Vec<String>, Duration)>,
}

struct Timeline {
    began: Instant,
    /// Nothing that comes later belongs to the run.
    over: AtomicBool,
    entries: watch::Sender<Vec<Entry>>,
}

impl Node {
    pub(crate) async fn start(socket: &Path) -> Result<Self> {
        let timeline = Arc::new(Timeline {
            began: Instant::now(),
            over: AtomicBool::new(false),
            entries: watch::Sender::new(Vec::new()),
        });
        let told = Arc::clone(&timeline);
        let runtime = Runtime::builder("example", "1.0")
            .limit(LIMIT)
            .keepalive(Keepalive::every(INTERVAL).timeout(TIMEOUT))
            .state(|| async { (vec![pod()], Vec::new()) })
            .hook(move |plugin, change| told.tell(plugin, change))
            .listen(&socket.display().to_string())
            .await?;
        Ok(Self { runtime, timeline })
    }

    /// Makes containers for ever. Nobody is disconnected here, and nothing fails: no plugin is required.
    pub(crate) async fn create_containers(&self) -> Result<()> {
        let mut due = interval_at(Instant::now() + PERIOD, PERIOD);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for number in 1.. {
            due.tick().await;
            let began = Instant::now();
            let created = self
                .runtime
                .create_container(pod(), container(number))
                .await?;
            let env = created.adjustment.env.iter();
            let adjusted: Vec<_> = env.map(|variable| variable.key.clone()).collect();
            self.timeline.add(Entry {
                at: self.timeline.began.elapsed(),
                plugin: String::new(),
                what: format!("container {number}"),
                detail: format!(
                    "{:.2} s, adjusted by {}",
                    began.elapsed().as_secs_f64(),
                    adjusted.join(", ")
                ),
                made: Some((number, adjusted, began.elapsed())),
            });
        }
        Ok(())
    }

    pub(crate) fn say(&self, plugin: &str, what: &str, detail: String) {
        self.timeline.add(Entry {
            at: self.timeline.began.elapsed(),
            plugin: plugin.to_owned(),
            what: what.to_owned(),
            detail,
            made: None,
        });
    }

    /// Waits until that has happened to a plugin so many times.
    pub(crate) async fn happened(&self, plugin: &str, what: &str, times: usize) {
        let mut entries = self.timeline.entries.subscribe();
        let such = |entry: &&Entry| entry.plugin == plugin && entry.what == what;
        let enough = |entries: &Vec<Entry>| entries.iter().filter(such).count() >= times;
        // The sender is here.
        let _ = entries.wait_for(enough).await;
    }

    /// The run is over.
    pub(crate) fn end(&self) {
        self.timeline.over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn read<R>(&self, reader: impl FnOnce(&[Entry]) -> R) -> R {
        reader(&self.timeline.entries.borrow())
    }
}

impl Timeline {
    fn tell(&self, plugin: &str, change: &Change) {
        let (what, detail) = match change {
            Change::Registered => ("registered", String::new()),
            Change::Serving => ("serving", "it has answered Synchronize".to_owned()),
            Change::Late { error, .. } => match error.verdict() {
                Some(verdict) => {
                    let evidence = error.evidence().map(ToString::to_string);
                    (
                        "late",
                        format!("{verdict:?}: {}", evidence.unwrap_or_default()),
                    )
                }
                None => ("late", String::new()),
            },
            Change::SetAside(_) => ("set aside", "sent nothing, and costs nothing".to_owned()),
            Change::Answered { after, .. } => {
                ("answered", format!("after {:.2} s", after.as_secs_f64()))
            }
            Change::Gone(end) => ("gone", end.to_string()),
            other => ("told", other.to_string()),
        };
        self.add(Entry {
            at: self.began.elapsed(),
            plugin: plugin.to_owned(),
            what: what.to_owned(),
            detail,
            made: None,
        });
    }

    fn add(&self, entry: Entry) {
        if self.over.load(Ordering::Relaxed) {
            return;
        }
        crate::check::line(&format!(
            "{:>6.2} s  {:<10} {:<13} {}",
            entry.at.as_secs_f64(),
            entry.plugin,
            entry.what,
            entry.detail
        ));
        self.entries.send_modify(|entries| entries.push(entry));
    }
}

fn pod() -> PodSandbox {
    let mut pod = PodSandbox::new();
    pod.id = "pod".to_owned();
    pod
}

fn container(number: usize) -> Container {
    let mut container = Container::new();
    container.id = format!("container-{number}");
    container.name = number.to_string();
    container
}
