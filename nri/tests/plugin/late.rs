//! Handlers that need longer than the runtime waits.

use std::sync::Arc;

use tokio::time::{Instant, sleep};
use ttrpc_keepalive::{Code, DriverThread, Status};
use ttrpc_keepalive_nri::api::*;
use ttrpc_keepalive_nri::{EventContext, Late, LateResult, Plugin};

use crate::played::*;

/// A plugin whose creations take as long as their ids say.
fn slow(late: Option<Late>) -> (Plugin<Arc<Seen>>, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let plugin = Plugin::new("10", "test", Arc::clone(&seen)).create_container(Seen::create);
    let plugin = match late {
        Some(late) => plugin.late(late),
        None => plugin,
    };
    (plugin, seen)
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_is_answered_for_in_time_and_runs_on() {
    for late in [None, Some(Late::empty())] {
        let (plugin, seen) = slow(late);
        let (mut runtime, _ran) = played(plugin);
        runtime.start().await;
        let start = Instant::now();
        let created = runtime.create("slow-3000").await.unwrap();
        assert_eq!(start.elapsed(), ms(1800));
        assert!(created.adjust.is_none());
        // The next event is handled beside it.
        assert!(runtime.create("fast-0").await.unwrap().adjust.is_some());
        sleep(secs(2)).await;
        let order = [
            "begin slow-3000",
            "begin fast-0",
            "end fast-0",
            "end slow-3000",
        ];
        assert_eq!(seen.take(), order);
        // One that is in time answers by itself.
        assert!(runtime.create("slow-1700").await.unwrap().adjust.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn the_answer_may_be_a_failure_with_a_text_or_come_at_another_time() {
    let (plugin, _) = slow(Some(Late::fail("no device yet").margin(ms(500))));
    let (mut runtime, _ran) = played(plugin);
    runtime.start().await;
    let start = Instant::now();
    let refused = (Code::ABORTED, "no device yet".to_owned());
    assert_eq!(refusal(runtime.create("slow-3000").await), refused);
    assert_eq!(start.elapsed(), ms(1500));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_never_answered_for_is_late_and_its_answer_comes() {
    let (plugin, seen) = slow(Some(Late::never()));
    let (mut runtime, _ran) = played(plugin);
    runtime.start().await;
    let late = runtime.create("slow-3000").await.unwrap_err();
    assert!(late.is_deadline(), "{late}");
    let start = Instant::now();
    late.late_answer().unwrap().await;
    assert_eq!(start.elapsed(), secs(1));
    assert_eq!(seen.take().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn each_event_has_its_own_answer_whichever_shape_it_comes_in() {
    let slow = |_: Arc<()>, _: EventContext, _| async {
        sleep(secs(3)).await;
        Ok(())
    };
    let plugin = Plugin::new("10", "test", Arc::new(()))
        .run_pod_sandbox(slow)
        .late(Late::fail("no network yet"))
        .post_create_container(|_, _, _| async {
            sleep(secs(3)).await;
            Ok(())
        })
        .late(Late::never())
        .remove_pod_sandbox(|_, _, _| async {
            sleep(secs(3)).await;
            Ok(())
        })
        .validate_container_adjustment(|_, _, _| async {
            sleep(secs(3)).await;
            Ok(())
        });
    let (mut runtime, _ran) = played(plugin);
    runtime.start_as("").await;
    let start = Instant::now();
    let change = runtime.change(Event::RUN_POD_SANDBOX, "one").await;
    let refused = (Code::ABORTED, "no network yet".to_owned());
    assert_eq!(refusal(change), refused);
    assert_eq!(start.elapsed(), ms(1800));
    let change = runtime.change(Event::POST_CREATE_CONTAINER, "one").await;
    assert!(change.unwrap_err().is_deadline());
    let change = runtime.change(Event::REMOVE_POD_SANDBOX, "one").await;
    change.unwrap();
    assert_eq!(start.elapsed(), ms(1800 + 2000 + 1800));
    // No answer would be consent.
    let request = ValidateContainerAdjustmentRequest::new();
    let verdict = runtime.plugin.validate_container_adjustment(&request);
    assert_eq!(refusal(verdict.timeout(LIMIT).await).0, Code::ABORTED);
}

fn delivered() -> Late {
    Late::empty().then(LateResult::into_updates)
}

fn expected(id: &str) -> UpdateContainersRequest {
    let mut update = ContainerUpdate::of(id);
    update.resources_mut().set_cpu_shares(512);
    UpdateContainersRequest {
        update: vec![update],
        ..UpdateContainersRequest::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_is_late_is_delivered_once_its_container_exists() {
    let (plugin, _) = slow(Some(delivered()));
    let (mut runtime, _ran) = played(plugin);
    runtime.start().await;

    // The handler ends behind the creation of the container.
    runtime.create("one-3000").await.unwrap();
    runtime.post_create("one-3000").await.unwrap();
    let start = Instant::now();
    assert_eq!(runtime.updates.recv().await.unwrap(), expected("one-3000"));
    assert_eq!(start.elapsed(), ms(1200));

    // It ends before.
    runtime.create("two-1900").await.unwrap();
    sleep(secs(10)).await;
    assert!(runtime.updates.try_recv().is_err());
    let told = Event::POST_CREATE_CONTAINER;
    runtime.change(told, "two-1900").await.unwrap();
    assert_eq!(runtime.updates.recv().await.unwrap(), expected("two-1900"));

    // It was in time.
    runtime.create("three-1700").await.unwrap();
    runtime.post_create("three-1700").await.unwrap();
    sleep(secs(10)).await;
    assert!(runtime.updates.try_recv().is_err());

    // Its container never was.
    runtime.create("four-1900").await.unwrap();
    sleep(secs(1)).await;
    runtime
        .change(Event::REMOVE_CONTAINER, "four-1900")
        .await
        .unwrap();
    runtime.post_create("four-1900").await.unwrap();
    sleep(secs(10)).await;
    assert!(runtime.updates.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn so_is_one_that_nobody_answered_for() {
    let never = Late::never().then(|result| {
        assert_eq!(result.adjustment, Some(shares(512)));
        vec![ContainerUpdate::of(&result.container_id)]
    });
    let (plugin, _) = slow(Some(never));
    let (mut runtime, _ran) = played(plugin);
    runtime.start().await;
    runtime.create("one-3000").await.unwrap_err();
    runtime.post_create("one-3000").await.unwrap();
    let request = runtime.updates.recv().await.unwrap();
    assert_eq!(request.update, [ContainerUpdate::of("one-3000")]);
}

#[tokio::test(start_paused = true)]
async fn updates_that_are_late_are_delivered_at_once() {
    let updates = |_: Arc<()>, _: EventContext, _| async {
        sleep(secs(3)).await;
        Ok(vec![ContainerUpdate::of("other")])
    };
    let plugin = Plugin::new("10", "test", Arc::new(()))
        .update_container(updates)
        .late(delivered())
        .synchronize(|_, _, _| async {
            sleep(secs(3)).await;
            Ok(vec![ContainerUpdate::of("another")])
        })
        .late(delivered());
    let (mut runtime, _ran) = played(plugin);
    runtime.start().await;
    let request = runtime.updates.recv().await.unwrap();
    assert_eq!(request.update, [ContainerUpdate::of("another")]);
    let request = UpdateContainerRequest {
        container: Some(container("one")).into(),
        ..UpdateContainerRequest::default()
    };
    let updated = runtime.plugin.update_container(&request).timeout(LIMIT);
    assert!(updated.await.unwrap().update.is_empty());
    let request = runtime.updates.recv().await.unwrap();
    assert_eq!(request.update, [ContainerUpdate::of("other")]);
}

#[tokio::test(start_paused = true)]
async fn updates_need_a_connection_and_say_what_was_not_done() {
    let (plugin, _) = slow(None);
    let runtime = plugin.runtime();
    let (mut first, ran) = played(plugin);
    let error = runtime.update_containers(Vec::new()).await.unwrap_err();
    let text = "the plugin is not registered with a runtime at this time";
    assert_eq!(error.to_string(), text);
    first.start().await;
    assert!(runtime.is_connected());
    let updates = vec![ContainerUpdate::of("one"), ContainerUpdate::of("gone")];
    let failed = runtime.update_containers(updates).await.unwrap();
    assert_eq!(failed, [ContainerUpdate::of("gone")]);
    first.close();
    ran.await.unwrap().unwrap();
    assert!(!runtime.is_connected());
    let error = runtime.update_containers(Vec::new()).await.unwrap_err();
    assert_eq!(error.to_string(), text);
}

/// Handlers really keep the only thread of their runtime here.
#[tokio::test]
async fn a_handler_that_blocks_its_thread_is_answered_for_and_the_next_event_handled() {
    let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    for end in [&here, &there] {
        end.set_nonblocking(true).unwrap();
    }
    let handlers = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let block = |_: Arc<()>, _: EventContext, event: CreateContainerRequest| async move {
                if event.container.id == "blocks" {
                    std::thread::sleep(secs(3));
                }
                Ok::<_, Status>(shares(512))
            };
            Plugin::new("10", "test", Arc::new(()))
                .create_container(block)
                .driver_thread(DriverThread::Dedicated)
                .run_on(tokio::net::UnixStream::from_std(there).unwrap())
                .await
        })
    });
    let mut runtime = Played::on(tokio::net::UnixStream::from_std(here).unwrap());
    runtime.start().await;
    let start = std::time::Instant::now();
    let created = runtime.create("blocks").await.unwrap();
    assert!(created.adjust.is_none());
    assert!(start.elapsed() < ms(1990), "{:?}", start.elapsed());
    // The thread is free again 1.2 s later.
    assert!(runtime.create("next").await.unwrap().adjust.is_some());
    runtime.close();
    // Beside this thread, which still has to close the connection.
    let end = tokio::task::spawn_blocking(move || handlers.join());
    let end = end.await.unwrap().unwrap().unwrap();
    assert!(end.was_synchronized(), "{end}");
}
