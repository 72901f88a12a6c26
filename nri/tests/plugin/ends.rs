//! How the time with a runtime ends, and what is said of it.

use std::sync::Arc;

use tokio::time::sleep;
use ttrpc_keepalive_nri::api::*;
use ttrpc_keepalive_nri::{EndReason, EventContext, Late, Plugin};

use crate::played::*;

fn plugin() -> Plugin<Arc<Seen>> {
    Plugin::new("10", "test", Arc::default())
        .create_container(Seen::create)
        .late(Late::never())
}

#[tokio::test(start_paused = true)]
async fn the_end_names_the_event_that_was_overdue_and_by_how_much() {
    let (mut runtime, ran) = played(plugin());
    runtime.start().await;
    runtime.create("slow-9000").await.unwrap_err();
    sleep(ms(200)).await;
    runtime.close();
    let end = ran.await.unwrap().unwrap();
    let text = "closed by the runtime while CreateContainer was 0.2 s overdue";
    assert_eq!(end.to_string(), text);
    assert_eq!(end.overdue(), Some(("CreateContainer", ms(200))));
    assert!(end.was_synchronized());
}

#[tokio::test(start_paused = true)]
async fn the_end_names_no_event_that_was_answered() {
    let late = plugin().late(Late::empty());
    let (mut runtime, ran) = played(late);
    runtime.start().await;
    runtime.create("slow-9000").await.unwrap();
    sleep(secs(1)).await;
    runtime.close();
    let end = ran.await.unwrap().unwrap();
    assert_eq!(end.to_string(), "closed by the runtime");
    assert_eq!(end.overdue(), None);
}

#[tokio::test(start_paused = true)]
async fn the_end_names_an_event_that_was_not_overdue_and_how_far_it_had_come() {
    let (mut runtime, ran) = played(plugin());
    runtime.start().await;
    let request = creation("slow-9000");
    let call = runtime.plugin.create_container(&request).timeout(secs(5));
    tokio::select! {
        _ = call => panic!("it was answered"),
        () = sleep(ms(700)) => {}
    }
    runtime.close();
    let end = ran.await.unwrap().unwrap();
    let text = "closed by the runtime while CreateContainer had been handled for 0.7 s";
    assert_eq!(end.to_string(), text);
    assert_eq!(end.overdue(), None);
}

#[tokio::test(start_paused = true)]
async fn the_end_says_how_far_the_registration_had_come() {
    let (mut runtime, ran) = played(plugin());
    runtime.registered.recv().await.unwrap();
    runtime.close();
    let end = ran.await.unwrap().unwrap();
    assert_eq!(
        end.to_string(),
        "closed by the runtime before it was registered"
    );

    let (mut runtime, ran) = played(plugin());
    runtime.registered.recv().await.unwrap();
    runtime.configure("").await.unwrap();
    runtime.close();
    let end = ran.await.unwrap().unwrap();
    assert_eq!(
        end.to_string(),
        "closed by the runtime before it was synchronized"
    );
    assert!(!end.was_synchronized());
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_told_that_the_runtime_is_about_to_close_before_it_does() {
    let seen = Arc::new(Seen::default());
    let told = Plugin::new("10", "test", Arc::clone(&seen))
        .create_container(Seen::create)
        .shutdown(|seen: Arc<Seen>, event: EventContext| async move {
            sleep(secs(1)).await;
            let connected = event.runtime().is_connected();
            seen.add(format!("shutdown, connected: {connected}"));
        });
    let (mut runtime, ran) = played(told);
    runtime.start().await;
    let announced = runtime.plugin.shutdown(&Empty::new()).timeout(LIMIT);
    announced.await.unwrap();
    assert_eq!(seen.take(), ["shutdown, connected: true"]);
    runtime.close();
    let end = ran.await.unwrap().unwrap();
    assert_eq!(end.to_string(), "closed by the runtime, as announced");
}

#[tokio::test(start_paused = true)]
async fn an_end_that_is_announced_says_so() {
    let (mut runtime, ran) = played(plugin());
    runtime.start().await;
    runtime.plugin.shutdown(&Empty::new()).await.unwrap();
    runtime.close();
    let end = ran.await.unwrap().unwrap();
    assert_eq!(end.to_string(), "closed by the runtime, as announced");
    assert!(matches!(end.reason(), EndReason::Connection(end) if end.is_announced()));
}
