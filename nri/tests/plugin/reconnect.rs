//! From one runtime to the next, over real sockets and in real time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use ttrpc_keepalive::Backoff;
use ttrpc_keepalive_nri::api::*;
use ttrpc_keepalive_nri::{EndReason, EventMask, Late, LateResult, Plugin, PluginError};

use crate::played::*;

struct Place {
    _folder: TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("nri.sock");
        Self {
            _folder: folder,
            path,
        }
    }

    /// A runtime that begins to listen here.
    fn listen(&self) -> UnixListener {
        let _ = std::fs::remove_file(&self.path);
        UnixListener::bind(&self.path).unwrap()
    }
}

async fn accept(listener: &UnixListener) -> Played {
    let accepted = tokio::time::timeout(secs(30), listener.accept());
    Played::on(accepted.await.unwrap().unwrap().0)
}

fn plugin(place: &Place) -> Plugin<Arc<Seen>> {
    Plugin::new("10", "test", Arc::default())
        .create_container(Seen::create)
        .socket(&place.path)
        .reconnect(Backoff::new(ms(10), ms(100)))
}

#[tokio::test]
async fn a_plugin_registers_with_each_runtime_that_comes_and_waits_for_the_first() {
    let place = Place::new();
    let (stop, stopped) = oneshot::channel::<()>();
    let ran = tokio::spawn(plugin(&place).run_until(stopped));
    tokio::time::sleep(ms(100)).await;
    for round in 0..4 {
        let listener = place.listen();
        let mut runtime = accept(&listener).await;
        runtime.start().await;
        // Parts that were left of the connection before are none of this one's.
        let part = SynchronizeRequest {
            more: round < 3,
            ..SynchronizeRequest::default()
        };
        let answer = runtime.plugin.synchronize(&part).await.unwrap();
        assert_eq!(answer.more, round < 3);
        let created = runtime.create("one").await.unwrap();
        assert!(created.adjust.is_some());
        if round < 3 {
            runtime.close();
        } else {
            stop.send(()).unwrap();
            let end = ran.await.unwrap().unwrap();
            assert!(matches!(end.reason(), EndReason::Stopped), "{end}");
            return;
        }
    }
}

#[tokio::test]
async fn an_old_runtime_is_not_asked_for_events_that_it_does_not_know() {
    async fn nothing<Q>(
        _: Arc<Seen>,
        _: ttrpc_keepalive_nri::EventContext,
        _: Q,
    ) -> Result<(), ttrpc_keepalive::Status> {
        Ok(())
    }
    let place = Place::new();
    let listener = place.listen();
    let new = plugin(&place)
        .update_pod_sandbox(nothing)
        .validate_container_adjustment(nothing);
    let ran = tokio::spawn(new.run());
    let create = EventMask::NONE.with(Event::CREATE_CONTAINER);
    let all = create
        .with(Event::UPDATE_POD_SANDBOX)
        .with(Event::VALIDATE_CONTAINER_ADJUSTMENT);
    // It closes the connection of a plugin that asks for an event which it does not know.
    for (release, asked) in [("", all), ("", create), ("", all), ("", create)] {
        let mut runtime = accept(&listener).await;
        runtime.registered.recv().await.unwrap();
        let configured = runtime.configure(release).await.unwrap();
        assert_eq!(EventMask::from_bits(configured.events), asked);
        if asked == create {
            runtime.synchronize(&[]).await.unwrap();
            runtime.create("one").await.unwrap();
        }
        runtime.close();
    }
    // One that names its release knows all of them: it has closed for another reason.
    for _ in 0..2 {
        let mut runtime = accept(&listener).await;
        runtime.registered.recv().await.unwrap();
        let configured = runtime.configure("v0.12.3").await.unwrap();
        assert_eq!(EventMask::from_bits(configured.events), all);
        runtime.close();
    }
    ran.abort();
}

#[tokio::test]
async fn a_late_result_is_delivered_over_the_next_connection_once_that_tells_of_its_container() {
    let place = Place::new();
    let listener = place.listen();
    let late = Late::never().then(LateResult::into_updates);
    let ran = tokio::spawn(plugin(&place).late(late).run());
    let mut first = accept(&listener).await;
    first.start().await;
    // As runtimes of today do with a plugin that is late.
    first.create("one-2500").await.unwrap_err();
    first.close();
    let mut second = accept(&listener).await;
    second.registered.recv().await.unwrap();
    second.configure("").await.unwrap();
    second.synchronize(&["one-2500"]).await.unwrap();
    let update = tokio::time::timeout(secs(30), second.updates.recv()).await;
    let update = update.unwrap().unwrap().update;
    assert_eq!(update[0].container_id, "one-2500");
    assert_eq!(update[0].linux.resources.cpu.shares.value, 512);
    ran.abort();
}

#[tokio::test]
async fn attempts_may_be_limited_and_once_is_once() {
    let place = Place::new();
    let ends = Arc::new(Seen::default());
    let told = Arc::clone(&ends);
    let few = plugin(&place)
        .reconnect(Backoff::new(ms(1), ms(2)).attempts(3))
        .on_end(move |end| told.add(end.to_string()));
    let error = few.run().await.unwrap_err();
    assert!(matches!(error, PluginError::GivenUp(_)));
    let path = place.path.display();
    let text = format!(
        "no runtime has kept the plugin: not connected to {path}: No such file or directory"
    );
    assert!(error.to_string().starts_with(&text), "{error}");
    assert_eq!(ends.take().len(), 3);

    let end = plugin(&place).once().run().await.unwrap();
    assert!(
        matches!(end.reason(), EndReason::NotConnected { .. }),
        "{end}"
    );

    let listener = place.listen();
    let ran = tokio::spawn(plugin(&place).once().run());
    let mut runtime = accept(&listener).await;
    runtime.start().await;
    runtime.close();
    let end = tokio::time::timeout(Duration::from_secs(30), ran).await;
    let end = end.unwrap().unwrap().unwrap();
    assert_eq!(end.to_string(), "closed by the runtime");
}
