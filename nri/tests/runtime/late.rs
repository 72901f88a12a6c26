//! A plugin is late: who is kept, set aside, brought back, and given up.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use ttrpc_keepalive::{Keepalive, Socket, Verdict};
use ttrpc_keepalive_nri::api::Event::{CREATE_CONTAINER, RUN_POD_SANDBOX, STOP_CONTAINER};
use ttrpc_keepalive_nri::runtime::{Absence, EventError, Runtime, RuntimeBuilder};
use ttrpc_keepalive_nri::{Late, Plugin};

use crate::support::{Node, Process, Script, container, env, pod};

const LIMIT: Duration = Duration::from_secs(2);

fn builder() -> RuntimeBuilder {
    let keepalive = Keepalive::every(Duration::from_secs(2)).timeout(Duration::from_secs(5));
    Runtime::builder("test", "1").keepalive(keepalive)
}

/// Creates a container, and says which variables it got and how long that took.
async fn create(node: &Node) -> (Vec<String>, Duration) {
    let began = Instant::now();
    let adjusted = node
        .runtime
        .create_container(pod("p"), container("c"))
        .await;
    (env(&adjusted.unwrap()), began.elapsed())
}

/// Bounds with room for timers and the scheduler.
fn took(time: Duration, expected: Duration) -> bool {
    time >= expected && time < expected + Duration::from_millis(100)
}

#[tokio::test(start_paused = true)]
async fn a_slow_plugin_is_kept_spared_and_told_what_it_missed_when_it_has_answered() {
    let mut node = Node::start(builder()).await;
    let (prompt, _p) = node
        .plugin(Script::new("10-prompt", &[CREATE_CONTAINER]))
        .await;
    let (slow, _s) = node
        .plugin(Script::new("20-slow", &[CREATE_CONTAINER]))
        .await;
    slow.takes(5.0);
    let (adjusted, time) = create(&node).await;
    assert_eq!(adjusted, ["PROMPT=10"]);
    assert!(took(time, LIMIT), "{time:?}");
    node.until("20-slow late: Slow").await;
    node.until("20-slow aside: Some(Slow)").await;

    // Nobody waits for it, and the other one is served.
    let (adjusted, time) = create(&node).await;
    assert_eq!(adjusted, ["PROMPT=10"]);
    assert!(time < Duration::from_millis(100), "{time:?}");

    let said = node.until("20-slow serving").await;
    assert_eq!(said, ["20-slow answered"]);
    let (adjusted, _) = create(&node).await;
    assert_eq!(adjusted, ["PROMPT=10", "SLOW=20"]);
    let seen = slow.seen();
    assert_eq!(
        seen[1..],
        [
            "synchronize",
            "create c PROMPT=10",
            "synchronize",
            "create c PROMPT=10"
        ]
    );
    assert_eq!(prompt.seen().len(), 2 + 3);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_plugin_costs_one_limit_and_is_given_up_when_the_watch_convicts_it() {
    let mut node = Node::start(builder()).await;
    let (_, frozen) = node
        .plugin(Script::new("10-frozen", &[CREATE_CONTAINER]))
        .await;
    create(&node).await;
    frozen.stop();
    let (_, first) = create(&node).await;
    assert!(took(first, LIMIT), "{first:?}");
    node.until("10-frozen late: Unresponsive").await;
    for _ in 0..8 {
        let (_, time) = create(&node).await;
        assert!(time < Duration::from_millis(10), "{time:?}");
    }
    let said = node.until("10-frozen gone: the peer is dead").await;
    assert_eq!(said, ["10-frozen aside: Some(Unresponsive)"]);
    assert!(node.runtime.plugins().is_empty());
}

// Its silence is seen twice: by whoever waited for the answer, and by who watches the plugin.
#[tokio::test(start_paused = true)]
async fn a_plugin_that_is_late_and_silent_is_set_aside_once_and_by_the_verdict() {
    let mut node = Node::start(builder()).await;
    let (_, frozen) = node
        .plugin(Script::new("10-frozen", &[CREATE_CONTAINER]))
        .await;
    frozen.stop();
    let runtime = node.runtime.clone();
    let event = runtime.create_container(pod("p"), container("c"));
    let mut event = std::pin::pin!(event);
    let written = timeout(Duration::from_millis(1), &mut event).await;
    assert!(written.is_err());
    // The watch has seen it before the event is looked at again: in doubt for its late call, which nobody has judged
    // yet, and not silent for long enough to be found so without one.
    sleep(LIMIT + Duration::from_millis(10)).await;
    assert_eq!(node.said(), [""; 0]);
    event.await.unwrap();
    let expected = [
        "10-frozen late: Unresponsive",
        "10-frozen aside: Some(Unresponsive)",
    ];
    assert_eq!(node.said(), expected);
    let said = node.until("10-frozen gone: the peer is dead").await;
    assert_eq!(said, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_continued_in_time_comes_back_by_itself() {
    let mut node = Node::start(builder()).await;
    let (script, frozen) = node
        .plugin(Script::new("10-frozen", &[CREATE_CONTAINER]))
        .await;
    frozen.stop();
    create(&node).await;
    frozen.go_on();
    node.until("10-frozen serving").await;
    let (adjusted, _) = create(&node).await;
    assert_eq!(adjusted, ["FROZEN=10"]);
    script.saw("create c", 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_falls_silent_while_idle_is_not_waited_for() {
    let mut node = Node::start(builder()).await;
    let (_, frozen) = node
        .plugin(Script::new("10-frozen", &[CREATE_CONTAINER]))
        .await;
    create(&node).await;
    frozen.stop();
    // A PING after two seconds, suspect after half of its five.
    node.until("10-frozen aside: None").await;
    let (adjusted, time) = create(&node).await;
    assert!(adjusted.is_empty());
    assert!(time < Duration::from_millis(10), "{time:?}");
    frozen.go_on();
    node.until("10-frozen serving").await;
}

#[tokio::test(start_paused = true)]
async fn a_required_plugin_fails_what_begins_with_its_name_and_the_cause() {
    let mut node = Node::start(builder().required("devices")).await;
    let failed = |result: Result<_, EventError>| result.unwrap_err();
    let create = async |node: &Node| {
        failed(
            node.runtime
                .create_container(pod("p"), container("c"))
                .await,
        )
    };
    let never = create(&node).await;
    assert_eq!(
        never.to_string(),
        "CreateContainer needs plugin devices: it has not registered"
    );
    assert!(matches!(never.absence(), Some(Absence::NotRegistered)));

    let events = [RUN_POD_SANDBOX, CREATE_CONTAINER, STOP_CONTAINER];
    let (script, process) = node.plugin(Script::new("10-devices", &events)).await;
    script.takes(4.0);
    let late = create(&node).await;
    assert_eq!(late.plugin(), "10-devices");
    assert_eq!(late.absence().unwrap().verdict(), Some(Verdict::Slow));
    assert!(
        late.to_string()
            .contains("the peer is alive, its answer is late"),
        "{late}"
    );

    let began = Instant::now();
    let aside = create(&node).await;
    assert!(
        matches!(aside.absence(), Some(Absence::SetAside(Verdict::Slow))),
        "{aside}"
    );
    assert!(began.elapsed() < Duration::from_millis(10));
    // What ends something goes on all the same.
    node.runtime
        .stop_container(pod("p"), container("c"))
        .await
        .unwrap();

    node.until("10-devices serving").await;
    process.stop();
    let frozen = create(&node).await;
    assert_eq!(
        frozen.absence().unwrap().verdict(),
        Some(Verdict::Unresponsive)
    );
    assert!(frozen.to_string().contains("does not respond"), "{frozen}");

    node.until("10-devices gone").await;
    let dead = create(&node).await;
    assert!(
        dead.to_string().starts_with(
            "CreateContainer needs plugin devices: it was found dead: the peer is dead: "
        ),
        "{dead}"
    );
    let run = node.runtime.run_pod_sandbox(pod("p")).await.unwrap_err();
    assert!(matches!(run.absence(), Some(Absence::Gone(_))));
}

#[tokio::test(start_paused = true)]
async fn a_required_plugin_that_does_not_read_fails_with_that_cause() {
    let mut node = Node::start(builder().required("devices")).await;
    let (_, process) = node
        .plugin(Script::new("10-devices", &[RUN_POD_SANDBOX]))
        .await;
    process.stop();
    let mut large = pod("p");
    large.name = "x".repeat(300_000);
    let failed = node.runtime.run_pod_sandbox(large).await.unwrap_err();
    let text = failed.to_string();
    assert!(
        text.starts_with("RunPodSandbox needs plugin 10-devices: it is late: "),
        "{text}"
    );
    assert_eq!(
        failed.absence().unwrap().verdict(),
        Some(Verdict::NotReading)
    );
}

// In real time: its thread is blocked, and another one answers PINGs. On a machine that is too busy nobody can say
// so by the event's limit.
#[tokio::test]
async fn a_required_plugin_that_is_wedged_fails_with_that_cause_and_is_kept() {
    for _ in 0..5 {
        if wedged().await == Verdict::HandlersStalled {
            return;
        }
    }
    panic!("never found to be stalled");
}

async fn wedged() -> Verdict {
    let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    let (let_go, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = std::sync::Mutex::new(blocked);
    let plugin = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let plugin = Plugin::new("10", "devices", std::sync::Arc::new(blocked))
                .create_container(|blocked, _, _| async move {
                    let _ = blocked.lock().unwrap().recv();
                    Ok(())
                })
                .late(Late::never());
            plugin.run_on(Socket::from_fd(there).unwrap()).await
        })
    });
    let mut node = Node::start(Runtime::builder("test", "1").required("devices")).await;
    let runtime = node.runtime.clone();
    let here = Socket::from_fd(here).unwrap();
    let serving = tokio::spawn(async move { runtime.serve_plugin(here).await });
    node.until("10-devices serving").await;
    let created = node.runtime.create_container(pod("p"), container("c"));
    let failed = created.await.unwrap_err();
    let verdict = failed.absence().unwrap().verdict().unwrap();
    let text = failed.to_string();
    let begins = "CreateContainer needs plugin 10-devices: it is late: ";
    assert!(text.starts_with(begins), "{text}");
    assert!(text.contains(&verdict.to_string()), "{text}");
    assert!(!serving.is_finished(), "{text}");
    drop(let_go);
    node.runtime.shutdown();
    serving.await.unwrap();
    plugin.join().unwrap().unwrap();
    verdict
}

#[tokio::test(start_paused = true)]
async fn a_required_plugin_that_crashes_at_work_fails_its_event_at_once() {
    let mut node = Node::start(builder().required("10-devices")).await;
    let (script, process) = node
        .plugin(Script::new("10-devices", &[CREATE_CONTAINER]))
        .await;
    script.takes(60.0);
    let runtime = node.runtime.clone();
    let creating =
        tokio::spawn(async move { runtime.create_container(pod("p"), container("c")).await });
    script.saw("create c", 1).await;
    process.kill();
    let failed = creating.await.unwrap().unwrap_err();
    assert!(
        matches!(failed.absence(), Some(Absence::Gone(_))),
        "{failed}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_exempt_begins_without_a_required_plugin() {
    let exempt = builder()
        .required("10-devices")
        .exempt(|pod| pod.id == "of the plugin");
    let node = Node::start(exempt).await;
    assert!(node.runtime.run_pod_sandbox(pod("p")).await.is_err());
    node.runtime
        .run_pod_sandbox(pod("of the plugin"))
        .await
        .unwrap();
    let created = node
        .runtime
        .create_container(pod("of the plugin"), container("c"))
        .await;
    created.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_asks_to_fail_its_requests_fails_all_that_it_misses() {
    let mut node = Node::start(builder()).await;
    let script = Script::new("10-strict", &[CREATE_CONTAINER, STOP_CONTAINER]).policy(true);
    let (script, _process) = node.plugin(script).await;
    script.takes(4.0);
    let late = node
        .runtime
        .stop_container(pod("p"), container("c"))
        .await
        .unwrap_err();
    assert_eq!(late.absence().unwrap().verdict(), Some(Verdict::Slow));
    let aside = node
        .runtime
        .create_container(pod("p"), container("c"))
        .await
        .unwrap_err();
    assert!(matches!(aside.absence(), Some(Absence::SetAside(_))));
}

#[tokio::test(start_paused = true)]
async fn an_event_of_300_kb_to_a_frozen_plugin_ends_at_its_limit() {
    let mut node = Node::start(builder()).await;
    let (_, frozen) = node
        .plugin(Script::new("10-frozen", &[RUN_POD_SANDBOX]))
        .await;
    frozen.stop();
    let mut large = pod("p");
    large.name = "x".repeat(300_000);
    let began = Instant::now();
    node.runtime.run_pod_sandbox(large).await.unwrap();
    assert!(took(began.elapsed(), LIMIT), "{:?}", began.elapsed());
    node.until("10-frozen late: NotReading").await;
}

#[tokio::test(start_paused = true)]
async fn plugins_can_be_looked_at_while_one_is_waited_for() {
    let mut node = Node::start(builder()).await;
    let (script, _process) = node
        .plugin(Script::new("10-slow", &[CREATE_CONTAINER]))
        .await;
    script.takes(1.5);
    let runtime = node.runtime.clone();
    let creating =
        tokio::spawn(async move { runtime.create_container(pod("p"), container("c")).await });
    script.saw("create c", 1).await;
    sleep(Duration::from_secs(1)).await;
    let [status] = &node.runtime.plugins()[..] else {
        panic!("one plugin")
    };
    assert_eq!(status.name, "10-slow");
    assert!(status.absence.is_none());
    assert!(status.snapshot.oldest_call_for() >= Some(Duration::from_secs(1)));
    creating.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_future_is_dropped_leaves_nothing_behind() {
    let mut node = Node::start(builder()).await;
    let (script, _process) = node
        .plugin(Script::new("10-slow", &[CREATE_CONTAINER]))
        .await;
    script.takes(1.0);
    let creating = node.runtime.create_container(pod("p"), container("c"));
    let dropped = timeout(Duration::from_millis(500), creating).await;
    assert!(dropped.is_err());
    let (adjusted, time) = create(&node).await;
    assert_eq!(adjusted, ["SLOW=10"]);
    assert!(time < Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn n_plugins_that_are_frozen_cost_one_limit_each_and_once() {
    let mut node = Node::start(builder()).await;
    let mut processes: Vec<Process> = Vec::new();
    for name in ["10-a", "20-b", "30-c"] {
        let (_, process) = node.plugin(Script::new(name, &[CREATE_CONTAINER])).await;
        processes.push(process);
    }
    for process in &processes {
        process.stop();
    }
    let (_, first) = create(&node).await;
    let (_, second) = create(&node).await;
    assert!(
        first + second < 3 * LIMIT + Duration::from_millis(200),
        "{first:?} {second:?}"
    );
}
