//! Events: in which order, in which shape, and when they fail.

use ttrpc_keepalive::{Code, Status};
use ttrpc_keepalive_nri::api::Event::{
    CREATE_CONTAINER, RUN_POD_SANDBOX, STOP_CONTAINER, VALIDATE_CONTAINER_ADJUSTMENT,
};
use ttrpc_keepalive_nri::runtime::{EventError, Runtime};

use crate::support::{Node, Script, container, env, pod};

#[tokio::test(start_paused = true)]
async fn plugins_are_asked_in_the_order_of_their_index_and_see_what_those_before_set() {
    let mut node = Node::start(Runtime::builder("test", "1")).await;
    let (second, _s) = node
        .plugin(Script::new("20-second", &[CREATE_CONTAINER]))
        .await;
    let (first, _f) = node
        .plugin(Script::new("05-first", &[CREATE_CONTAINER]))
        .await;
    let (other, _o) = node
        .plugin(Script::new("10-other", &[STOP_CONTAINER]))
        .await;
    let adjusted = node
        .runtime
        .create_container(pod("p"), container("c"))
        .await
        .unwrap();
    assert_eq!(env(&adjusted), ["FIRST=05", "SECOND=20"]);
    first.saw("create c", 1).await;
    second.saw("create c FIRST=05", 1).await;
    // It did not ask for that.
    assert_eq!(other.seen().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_error_in_time_fails_the_event_and_those_behind_are_not_asked() {
    let mut node = Node::start(Runtime::builder("test", "1")).await;
    let events = [CREATE_CONTAINER, STOP_CONTAINER];
    let (refusing, _r) = node.plugin(Script::new("10-refusing", &events)).await;
    let (behind, _b) = node.plugin(Script::new("20-behind", &events)).await;
    for code in [
        Code::INVALID_ARGUMENT,
        Code::DEADLINE_EXCEEDED,
        Code::UNIMPLEMENTED,
    ] {
        *refusing.status.lock().unwrap() = Some(Status::new(code, "not today"));
        let created = node
            .runtime
            .create_container(pod("p"), container("c"))
            .await;
        let EventError::Refused { plugin, status, .. } = created.unwrap_err() else {
            panic!("{code}")
        };
        assert_eq!((plugin.as_str(), status.code()), ("10-refusing", code));
        let stopped = node.runtime.stop_container(pod("p"), container("c")).await;
        let text = stopped.unwrap_err().to_string();
        assert!(
            text.starts_with("plugin 10-refusing refuses StopContainer: "),
            "{text}"
        );
    }
    assert_eq!(behind.seen().len(), 2);
    // It is kept, and asked again.
    *refusing.status.lock().unwrap() = None;
    let adjusted = node
        .runtime
        .create_container(pod("p"), container("c"))
        .await
        .unwrap();
    assert_eq!(adjusted.adjustment.env.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_does_not_know_the_methods_is_told_by_state_change() {
    let mut node = Node::start(Runtime::builder("test", "1")).await;
    let (old, _o) = node
        .plugin(Script::new("10-old", &[RUN_POD_SANDBOX]).old())
        .await;
    for _ in 0..2 {
        node.runtime.run_pod_sandbox(pod("p")).await.unwrap();
    }
    assert_eq!(old.seen()[2..], ["RUN_POD_SANDBOX p", "RUN_POD_SANDBOX p"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_wants_everything_is_not_held_to_what_it_does_not_know() {
    let mut node = Node::start(Runtime::builder("test", "1")).await;
    // Its script answers UNIMPLEMENTED to what it has no method for.
    let (all, _a) = node.plugin(Script::new("10-all", &[]).old()).await;
    node.runtime
        .post_start_container(pod("p"), container("c"))
        .await
        .unwrap();
    let resources = ttrpc_keepalive_nri::api::LinuxResources::new();
    let updated = node
        .runtime
        .update_container(pod("p"), container("c"), resources)
        .await;
    updated.unwrap();
    all.saw("POST_START_CONTAINER p", 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_validator_sees_who_was_asked_and_what_it_rejects_is_not_created() {
    let mut node = Node::start(Runtime::builder("test", "1")).await;
    let (_, _a) = node.plugin(Script::new("10-a", &[CREATE_CONTAINER])).await;
    let events = [VALIDATE_CONTAINER_ADJUSTMENT];
    let (validator, _v) = node.plugin(Script::new("05-validator", &events)).await;
    node.runtime
        .create_container(pod("p"), container("c"))
        .await
        .unwrap();
    validator.saw("validate c 10", 1).await;

    *validator.reject.lock().unwrap() = Some("no variables".to_owned());
    let rejected = node
        .runtime
        .create_container(pod("p"), container("c"))
        .await
        .unwrap_err();
    assert_eq!(
        rejected.to_string(),
        "validator 05-validator rejects the adjustments: no variables"
    );

    // One that is late lets nothing through.
    *validator.reject.lock().unwrap() = None;
    validator.takes(3.0);
    for _ in 0..2 {
        let late = node
            .runtime
            .create_container(pod("p"), container("c"))
            .await
            .unwrap_err();
        assert!(late.absence().is_some(), "{late}");
        assert_eq!(late.plugin(), "05-validator");
    }
}

#[tokio::test(start_paused = true)]
async fn two_plugins_that_want_the_same_are_named_and_nothing_is_created() {
    let mut node = Node::start(Runtime::builder("test", "1")).await;
    let (_, _a) = node
        .plugin(Script::new("10-same", &[CREATE_CONTAINER]))
        .await;
    let (_, _b) = node
        .plugin(Script::new("20-same", &[CREATE_CONTAINER]))
        .await;
    let conflict = node
        .runtime
        .create_container(pod("p"), container("c"))
        .await
        .unwrap_err();
    assert_eq!(
        conflict.to_string(),
        "plugins 10-same and 20-same both set Env \"SAME\" of container c"
    );
}

#[tokio::test(start_paused = true)]
async fn events_come_one_at_a_time_and_in_order() {
    let mut node = Node::start(Runtime::builder("test", "1")).await;
    let (script, _p) = node.plugin(Script::new("10-a", &[RUN_POD_SANDBOX])).await;
    script.takes(1.0);
    let mut running = Vec::new();
    for id in ["1", "2", "3"] {
        let runtime = node.runtime.clone();
        running.push(tokio::spawn(async move {
            runtime.run_pod_sandbox(pod(id)).await
        }));
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(std::time::Duration::from_millis(900)).await;
    assert_eq!(script.seen()[2..], ["run 1"]);
    for running in running {
        running.await.unwrap().unwrap();
    }
    assert_eq!(script.seen()[2..], ["run 1", "run 2", "run 3"]);
}
