//! How a plugin gets from a connection to its events.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use ttrpc_keepalive::{Code, Status};
use ttrpc_keepalive_nri::api::*;
use ttrpc_keepalive_nri::{
    EndReason, EventContext, EventMask, Late, LateResult, Plugin, PluginError, RuntimeInfo,
};

use crate::played::*;

fn plugin() -> Plugin<Arc<Seen>> {
    Plugin::new("10", "test", Arc::default()).create_container(Seen::create)
}

async fn nothing<S, Q>(_: S, _: EventContext, _: Q) -> Result<(), Status> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_plugin_can_be_configured_before_its_registration_is_answered() {
    let (here, _ran) = on_memory(plugin());
    let mut runtime = Played::slow_on(here, secs(1));
    let registered = runtime.registered.recv().await.unwrap();
    assert_eq!(registered.plugin_idx, "10");
    assert_eq!(registered.plugin_name, "test");
    assert_eq!(registered.NRI_version, "v0.12.5");
    let start = Instant::now();
    let configured = runtime.configure("v0.12.5").await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    let policy = configured.failure_policy.unwrap();
    assert!(policy.keep_connected && !policy.fail_request);
    runtime.synchronize(&[]).await.unwrap();
    runtime.create("one").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_plugin_asks_for_the_events_for_which_it_has_handlers() {
    let all = Plugin::new("10", "test", Arc::new(()))
        .run_pod_sandbox(nothing)
        .update_pod_sandbox(nothing)
        .post_update_pod_sandbox(nothing)
        .stop_pod_sandbox(nothing)
        .remove_pod_sandbox(nothing)
        .create_container(nothing)
        .post_create_container(nothing)
        .start_container(nothing)
        .post_start_container(nothing)
        .update_container(nothing)
        .post_update_container(nothing)
        .stop_container(nothing)
        .remove_container(nothing)
        .validate_container_adjustment(nothing);
    let two = Plugin::new("10", "test", Arc::new(()))
        .stop_container(nothing)
        .run_pod_sandbox(nothing);
    // That a container exists has to be told, if something waits for it.
    let told = Plugin::new("10", "test", Arc::new(()))
        .create_container(nothing)
        .late(Late::empty().then(LateResult::into_updates));
    for (plugin, events) in [
        (all, EventMask::ALL),
        (two, EventMask::from_bits(1 << 9 | 1)),
        (told, EventMask::from_bits(1 << 3 | 1 << 4)),
    ] {
        let (mut runtime, _ran) = played(plugin);
        let configured = runtime.start().await;
        assert_eq!(EventMask::from_bits(configured.events), events);
    }
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_cannot_do_what_it_says_does_not_run() {
    let new = |index: &str| Plugin::new(index, "test", Arc::new(()));
    let error = async |plugin: Plugin<Arc<()>>| {
        let (here, _there) = tokio::io::duplex(100);
        plugin.run_on(here).await.unwrap_err()
    };
    assert!(matches!(error(new("10")).await, PluginError::NoEvents));
    assert!(matches!(
        error(new("10").synchronize(nothing)).await,
        PluginError::NoEvents
    ));
    assert!(matches!(
        error(new("1").run_pod_sandbox(nothing)).await,
        PluginError::InvalidIndex { .. }
    ));
    let early = new("10").late(Late::never()).run_pod_sandbox(nothing);
    assert!(matches!(error(early).await, PluginError::LateWithoutEvent));
    let delivers = || Late::empty().then(LateResult::into_updates);
    let no_result = new("10").run_pod_sandbox(nothing).late(delivers());
    assert_eq!(
        error(no_result).await.to_string(),
        "RunPodSandbox has no result that could be delivered later"
    );
}

#[tokio::test(start_paused = true)]
async fn a_registration_is_waited_for_longer_than_a_silent_plugin_in_front_of_it_takes() {
    let (here, ran) = on_memory(plugin());
    let mut runtime = Played::slow_on(here, secs(12));
    runtime.registered.recv().await.unwrap();
    tokio::time::sleep(secs(12)).await;
    runtime.configure("").await.unwrap();
    runtime.synchronize(&[]).await.unwrap();
    runtime.create("one").await.unwrap();
    assert!(!ran.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_registration_that_is_not_answered_ends_in_time_and_says_so() {
    let (here, ran) = on_memory(plugin());
    let start = Instant::now();
    let _runtime = Played::slow_on(here, secs(3600));
    let end = ran.await.unwrap().unwrap();
    assert!(start.elapsed() >= secs(20) && start.elapsed() < secs(21));
    assert!(matches!(end.reason(), EndReason::NotRegistered(_)));
    assert!(end.to_string().starts_with("not registered: "), "{end}");
    assert!(!end.was_synchronized());
}

#[tokio::test(start_paused = true)]
async fn handlers_are_told_what_the_runtime_is_and_how_much_time_is_left() {
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let plugin = Plugin::new("10", "test", Arc::clone(&told))
        .configure(|told, _, info: RuntimeInfo| async move {
            told.lock().unwrap().push((info, None));
            Ok(None)
        })
        .run_pod_sandbox(|told, event: EventContext, _| async move {
            let told_now = (event.runtime_info(), event.remaining());
            told.lock().unwrap().push(told_now);
            Ok(())
        });
    let (mut runtime, _ran) = played(plugin);
    runtime.start().await;
    let request = RunPodSandboxRequest::new();
    let call = runtime.plugin.run_pod_sandbox(&request);
    call.timeout(ms(1500)).await.unwrap();
    let told = told.lock().unwrap();
    let [(configured, None), (seen, Some(remaining))] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(configured, seen);
    assert_eq!((&*seen.name, &*seen.config), ("played", "text = 1"));
    assert_eq!(seen.nri_version.as_deref(), Some("v0.12.5"));
    assert_eq!(seen.request_timeout, secs(2));
    assert_eq!(*remaining, ms(1500));
}

#[tokio::test(start_paused = true)]
async fn a_configuration_may_ask_for_fewer_events_and_not_for_more() {
    let create = EventMask::NONE.with(Event::CREATE_CONTAINER);
    let with_told = create.with(Event::POST_CREATE_CONTAINER);
    for (wanted, expected) in [
        (create, Some(with_told)),
        (EventMask::NONE.with(Event::START_CONTAINER), None),
        (
            EventMask::NONE,
            Some(EventMask::NONE.with(Event::POST_CREATE_CONTAINER)),
        ),
    ] {
        let plugin = plugin()
            .late(Late::empty().then(LateResult::into_updates))
            .run_pod_sandbox(nothing)
            .configure(move |_, _, _| async move { Ok(Some(wanted)) });
        let (mut runtime, _ran) = played(plugin);
        runtime.registered.recv().await.unwrap();
        let configured = runtime.configure("v0.12.5").await;
        match expected {
            Some(events) => assert_eq!(configured.unwrap().events, events.bits()),
            None => assert_eq!(refusal(configured).0, Code::INVALID_ARGUMENT),
        }
    }
}
