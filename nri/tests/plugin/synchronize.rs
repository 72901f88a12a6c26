//! What is there when a plugin comes, in one part or many.

use std::sync::Arc;

use tokio::time::{Instant, sleep};
use ttrpc_keepalive::Status;
use ttrpc_keepalive_nri::Plugin;
use ttrpc_keepalive_nri::api::*;

use crate::played::*;

fn counting(seen: &Arc<Seen>) -> Plugin<Arc<Seen>> {
    Plugin::new("10", "test", Arc::clone(seen))
        .create_container(Seen::create)
        .synchronize(|seen: Arc<Seen>, _, all: SynchronizeRequest| async move {
            let (pods, containers) = (all.pods.len(), all.containers.len());
            seen.add(format!("{pods} pods, {containers} containers"));
            Ok::<_, Status>(vec![ContainerUpdate::of("one")])
        })
}

async fn part(runtime: &Played, pods: usize, containers: usize, more: bool) -> SynchronizeResponse {
    // Some 3 MiB a part.
    let text = "x".repeat(3 << 20);
    let mut request = SynchronizeRequest {
        pods: vec![pod("pod"); pods],
        containers: vec![container("container"); containers],
        more,
        ..SynchronizeRequest::default()
    };
    if let Some(first) = request.containers.first_mut() {
        first.args.push(text);
    }
    let call = runtime.plugin.synchronize(&request);
    call.timeout(LIMIT).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn parts_are_answered_at_once_and_the_handler_gets_all_of_them_with_the_last() {
    let seen = Arc::new(Seen::default());
    let (mut runtime, _ran) = played(counting(&seen));
    runtime.registered.recv().await.unwrap();
    runtime.configure("").await.unwrap();
    let start = Instant::now();
    for _ in 0..6 {
        let answer = part(&runtime, 10, 20, true).await;
        assert!(answer.more && answer.update.is_empty());
        assert_eq!(seen.take(), [""; 0]);
    }
    let answer = part(&runtime, 1, 2, false).await;
    assert!(!answer.more);
    assert_eq!(answer.update, [ContainerUpdate::of("one")]);
    assert_eq!(seen.take(), ["61 pods, 122 containers"]);
    assert_eq!(start.elapsed(), ms(0));
    // The next time begins with nothing.
    let answer = part(&runtime, 3, 4, false).await;
    assert!(!answer.more);
    assert_eq!(seen.take(), ["3 pods, 4 containers"]);
}

#[tokio::test(start_paused = true)]
async fn a_plugin_without_a_handler_takes_parts_too() {
    let plugin = Plugin::new("10", "test", Arc::new(Seen::default()));
    let (mut runtime, _ran) = played(plugin.create_container(Seen::create));
    runtime.registered.recv().await.unwrap();
    runtime.configure("").await.unwrap();
    assert!(part(&runtime, 1, 1, true).await.more);
    assert!(!part(&runtime, 1, 1, false).await.more);
    runtime.create("one").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_needs_longer_is_answered_for_and_events_come_meanwhile() {
    let seen = Arc::new(Seen::default());
    let plugin = Plugin::new("10", "test", Arc::clone(&seen))
        .create_container(Seen::create)
        .synchronize(|seen: Arc<Seen>, _, _| async move {
            sleep(secs(10)).await;
            seen.add("synchronized");
            Ok(())
        });
    let (mut runtime, _ran) = played(plugin);
    let start = Instant::now();
    runtime.start().await;
    assert_eq!(start.elapsed(), ms(1800));
    runtime.create("one").await.unwrap();
    sleep(secs(10)).await;
    assert_eq!(seen.take(), ["begin one", "end one", "synchronized"]);
}
