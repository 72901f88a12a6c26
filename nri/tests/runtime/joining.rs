//! Registration, configuration and *Synchronize*.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncReadExt, duplex};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use ttrpc_keepalive::{ByteStream, Code, Keepalive};
use ttrpc_keepalive_nri::api::Event::{CREATE_CONTAINER, RUN_POD_SANDBOX};
use ttrpc_keepalive_nri::api::{ContainerUpdate, RegisterPluginRequest, UpdateContainersRequest};
use ttrpc_keepalive_nri::runtime::{Absence, Change, Runtime, RuntimeBuilder};

use crate::support::{Node, Process, Script, container, pod};

fn builder() -> RuntimeBuilder {
    Runtime::builder("test", "1.2")
}

#[tokio::test(start_paused = true)]
async fn a_plugin_is_told_the_limits_and_its_own_come_first() {
    let settings = builder()
        .plugin_limit("slow", Duration::from_secs(7))
        .registration_limit(Duration::from_secs(9));
    let mut node = Node::start(settings).await;
    let (fast, _f) = node
        .plugin(Script::new("10-fast", &[CREATE_CONTAINER]))
        .await;
    let (slow, _s) = node
        .plugin(Script::new("20-slow", &[CREATE_CONTAINER]))
        .await;
    assert_eq!(fast.seen()[0], "configure test 1.2 9000 2000 v0.12.5");
    assert_eq!(slow.seen()[0], "configure test 1.2 9000 7000 v0.12.5");
    slow.takes(6.0);
    let adjusted = node
        .runtime
        .create_container(pod("p"), container("c"))
        .await;
    assert_eq!(adjusted.unwrap().adjustment.env.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_connector_that_stays_silent_keeps_nobody_out() {
    let mut node = Node::start(builder()).await;
    let mut silent = Vec::new();
    for _ in 0..3 {
        let (here, there) = duplex(1 << 10);
        silent.push(there);
        let runtime = node.runtime.clone();
        tokio::spawn(async move { runtime.serve_plugin(ByteStream::new(here)).await });
    }
    let began = Instant::now();
    node.plugin(Script::new("10-a", &[CREATE_CONTAINER])).await;
    assert!(
        began.elapsed() < Duration::from_millis(100),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn who_does_not_register_or_is_not_configured_in_time_is_disconnected() {
    let mut node = Node::start(builder()).await;
    let began = Instant::now();
    let (here, mut there) = duplex(1 << 10);
    node.runtime.serve_plugin(ByteStream::new(here)).await;
    // The limit for the registration, and as long again to read why it is refused.
    assert!(
        began.elapsed() < Duration::from_secs(11),
        "{:?}",
        began.elapsed()
    );
    let mut received = Vec::new();
    there.read_to_end(&mut received).await.unwrap();

    let mute = Arc::new(Script::new("10-mute", &[CREATE_CONTAINER]));
    mute.configure_takes(60.0);
    let process = Process::start(&node.runtime, &mute);
    node.until("10-mute refused: it could not be configured: deadline exceeded")
        .await;
    let closed = process.runtime.client().closed();
    timeout(Duration::from_secs(60), closed).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_plugin_registers_once() {
    let mut node = Node::start(builder()).await;
    let (_, process) = node.plugin(Script::new("10-a", &[CREATE_CONTAINER])).await;
    let mut request = RegisterPluginRequest::new();
    request.plugin_idx = "10".to_owned();
    request.plugin_name = "another".to_owned();
    let again = process.runtime.register_plugin(&request).await.unwrap_err();
    assert_eq!(again.status().unwrap().code(), Code::FAILED_PRECONDITION);
    assert_eq!(node.runtime.plugins()[0].name, "10-a");
}

#[tokio::test(start_paused = true)]
async fn one_that_is_stuck_when_it_is_told_again_holds_up_events_for_its_limit_and_once() {
    let mut node = Node::start(builder()).await;
    let script = Arc::new(Script::new("10-a", &[RUN_POD_SANDBOX]));
    script.synchronize_takes(0.5);
    script.synchronize_takes(100.0);
    let _process = Process::start(&node.runtime, &script);
    script.saw("synchronize", 1).await;
    node.runtime.run_pod_sandbox(pod("p")).await.unwrap();
    script.saw("synchronize", 2).await;
    let mut waited = Duration::ZERO;
    for _ in 0..5 {
        let began = Instant::now();
        node.runtime.run_pod_sandbox(pod("p")).await.unwrap();
        waited += began.elapsed();
    }
    let limit = Duration::from_secs(2);
    assert!(waited <= limit + Duration::from_millis(100), "{waited:?}");
    node.until("10-a serving").await;
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_panics_ends_nothing() {
    let runtime = builder()
        .hook(|_, _| panic!("of the test"))
        .start()
        .await
        .unwrap();
    let script = Arc::new(Script::new("10-a", &[RUN_POD_SANDBOX]));
    let _process = Process::start(&runtime, &script);
    script.saw("synchronize", 1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    runtime.run_pod_sandbox(pod("p")).await.unwrap();
    script.saw("run p", 1).await;
}

// Nothing is locked where it is called, whatever has happened.
#[tokio::test(start_paused = true)]
async fn a_hook_may_look_at_the_plugins_and_shut_the_runtime_down() {
    let place = Arc::new(OnceLock::<Runtime>::new());
    let (told, mut seen) = mpsc::unbounded_channel();
    let known = Arc::clone(&place);
    let hook = move |plugin: &str, change: &Change| {
        let Some(runtime) = known.get() else { return };
        let _ = told.send((plugin.to_owned(), runtime.plugins().len()));
        if let Change::Late { .. } = change {
            runtime.shutdown();
        }
    };
    let runtime = builder().hook(hook).start().await.unwrap();
    place.set(runtime.clone()).unwrap();
    let script = Arc::new(Script::new("10-a", &[RUN_POD_SANDBOX]));
    let _process = Process::start(&runtime, &script);
    script.saw("synchronize", 1).await;
    script.takes(100.0);
    runtime.run_pod_sandbox(pod("p")).await.unwrap();
    let mut counts = Vec::new();
    while let Ok(Some((_, count))) = timeout(Duration::from_secs(1), seen.recv()).await {
        counts.push(count);
    }
    // Registered, served, late, set aside, gone.
    assert_eq!(counts, [1, 1, 1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_none_and_an_event_that_there_is_not_are_refused_with_the_reason() {
    let mut node = Node::start(builder()).await;
    let odd = Arc::new(Script::new("1x-odd", &[CREATE_CONTAINER]));
    let process = Process::start(&node.runtime, &odd);
    let answer = process.registered.await.unwrap().unwrap_err();
    assert!(answer.contains("not two digits: \"1x\""), "{answer}");

    let unknown = Arc::new(Script::new("10-new", &[]).events(1 << 14));
    let _process = Process::start(&node.runtime, &unknown);
    node.until("10-new refused: it asks for events that there are not: unknown 0x4000")
        .await;
    assert!(node.runtime.plugins().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_registers_anew_takes_the_place_of_its_earlier_life() {
    let mut node = Node::start(builder()).await;
    let (earlier, process) = node.plugin(Script::new("10-a", &[CREATE_CONTAINER])).await;
    let (later, _l) = node.plugin(Script::new("10-a", &[CREATE_CONTAINER])).await;
    node.runtime
        .create_container(pod("p"), container("c"))
        .await
        .unwrap();
    assert_eq!(node.runtime.plugins().len(), 1);
    later.saw("create c", 1).await;
    // Its connection may be one that nobody closed: this side does.
    let closed = process.runtime.client().closed();
    timeout(Duration::from_secs(60), closed).await.unwrap();
    assert!(!earlier.seen().contains(&"create c".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn what_a_node_has_is_told_in_parts_if_a_frame_does_not_hold_it() {
    let mut pods = Vec::new();
    for number in 0..10 {
        let mut large = pod(&number.to_string());
        large.name = "x".repeat(1 << 20);
        pods.push(large);
    }
    let settings = builder().state(move || {
        let pods = pods.clone();
        async move { (pods, Vec::new()) }
    });
    let mut node = Node::start(settings).await;
    let (script, _process) = node.plugin(Script::new("10-a", &[CREATE_CONTAINER])).await;
    let told = script.seen()[1..].join(" ");
    assert_eq!(
        told,
        "synchronize 0,1,2 synchronize 3,4,5 synchronize 6,7,8 synchronize 9"
    );
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_is_frozen_in_a_large_synchronize_holds_up_no_event() {
    let keepalive = Keepalive::every(Duration::from_secs(2)).timeout(Duration::from_secs(5));
    let mut large = pod("large");
    large.name = "x".repeat(300_000);
    let settings = builder()
        .keepalive(keepalive)
        .required("10-a")
        .state(move || {
            let large = large.clone();
            async move { (vec![large], Vec::new()) }
        });
    let mut node = Node::start(settings).await;
    let (served, _s) = node.plugin(Script::new("20-b", &[RUN_POD_SANDBOX])).await;
    let script = Arc::new(Script::new("10-a", &[RUN_POD_SANDBOX]));
    let process = Process::start(&node.runtime, &script);
    node.until("10-a registered").await;
    process.stop();
    let began = Instant::now();
    let missing = node.runtime.run_pod_sandbox(pod("p")).await.unwrap_err();
    assert!(
        matches!(missing.absence(), Some(Absence::Synchronizing)),
        "{missing}"
    );
    node.runtime.remove_pod_sandbox(pod("p")).await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(10));
    // It is found dead without an event, and what it was told with it.
    let said = node.until("10-a gone: ").await;
    assert!(said.is_empty(), "{said:?}");
    assert!(!served.seen().contains(&"run p".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_plugin_may_take_as_long_for_synchronize_as_it_lives() {
    let mut node = Node::start(builder()).await;
    let script = Arc::new(Script::new("10-slow", &[CREATE_CONTAINER]));
    script.synchronize_takes(40.0);
    let _process = Process::start(&node.runtime, &script);
    let said = node.until("10-slow serving").await;
    assert_eq!(said, ["10-slow registered"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_came_during_an_event_is_told_of_it_by_the_state() {
    let known = Arc::new(std::sync::Mutex::new(Vec::new()));
    let state = Arc::clone(&known);
    let settings = builder().state(move || {
        let pods: Vec<_> = state.lock().unwrap().clone();
        async move { (pods, Vec::new()) }
    });
    let mut node = Node::start(settings).await;
    let (first, _f) = node
        .plugin(Script::new("10-first", &[RUN_POD_SANDBOX]))
        .await;
    first.takes(1.0);
    let runtime = node.runtime.clone();
    let running = tokio::spawn(async move {
        // As a runtime does it: the pod is in its books when the event is over.
        let _hold = runtime.hold_synchronize().await;
        runtime.run_pod_sandbox(pod("p")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        known.lock().unwrap().push(pod("p"));
    });
    first.saw("run p", 1).await;
    let (second, _s) = node
        .plugin(Script::new("20-second", &[RUN_POD_SANDBOX]))
        .await;
    running.await.unwrap();
    assert_eq!(second.seen()[1..], ["synchronize p"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_passes_during_synchronize_has_it_told_again() {
    let told = Arc::new(AtomicUsize::new(0));
    let state = Arc::clone(&told);
    let settings = builder().state(move || {
        let id = state.fetch_add(1, Ordering::Relaxed).to_string();
        async move { (vec![pod(&id)], Vec::new()) }
    });
    let mut node = Node::start(settings).await;
    let script = Arc::new(Script::new("10-a", &[RUN_POD_SANDBOX]));
    script.synchronize_takes(0.5);
    let _process = Process::start(&node.runtime, &script);
    script.saw("synchronize 0", 1).await;
    node.runtime.run_pod_sandbox(pod("p")).await.unwrap();
    node.until("10-a serving").await;
    assert_eq!(script.seen()[1..], ["synchronize 0", "synchronize 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_plugins_updates_reach_the_runtime_with_its_name() {
    let settings = builder().update(|plugin, request: UpdateContainersRequest| async move {
        assert_eq!(plugin, "10-a");
        let failed = request.update.into_iter();
        Ok(failed
            .filter(|update| update.container_id == "gone")
            .collect())
    });
    let mut node = Node::start(settings).await;
    let (_, process) = node.plugin(Script::new("10-a", &[CREATE_CONTAINER])).await;
    let mut request = UpdateContainersRequest::new();
    for id in ["there", "gone"] {
        let mut update = ContainerUpdate::new();
        update.container_id = id.to_owned();
        request.update.push(update);
    }
    let response = process.runtime.update_containers(&request).await.unwrap();
    let failed: Vec<_> = response
        .failed
        .iter()
        .map(|update| &*update.container_id)
        .collect();
    assert_eq!(failed, ["gone"]);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_shuts_down_disconnects_its_plugins() {
    let mut node = Node::start(builder()).await;
    let (_, process) = node.plugin(Script::new("10-a", &[CREATE_CONTAINER])).await;
    node.runtime.shutdown();
    let end = process.runtime.client().closed().await;
    assert!(!end.is_local_close(), "{end}");
}
