//! Requests for which nobody waits any more.

use std::sync::Arc;

use tokio::time::sleep;
use ttrpc_keepalive::Code;
use ttrpc_keepalive_nri::Plugin;
use ttrpc_keepalive_nri::api::*;

use crate::played::*;

fn plugin() -> (Plugin<Arc<Seen>>, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let plugin = Plugin::new("10", "test", Arc::clone(&seen));
    (plugin.create_container(Seen::create), seen)
}

#[tokio::test(start_paused = true)]
async fn an_event_behind_which_the_next_has_come_is_refused_without_its_handler() {
    let (plugin, seen) = plugin();
    let (mut runtime, _ran) = played(plugin);
    runtime.start().await;
    // Both are written before the plugin reads.
    let (stale, next) = tokio::join!(runtime.create("stale"), runtime.create("next"));
    let (code, text) = refusal(stale);
    assert_eq!(code, Code::ABORTED);
    assert_eq!(
        text,
        "the next event has come, so nobody waits for this one"
    );
    next.unwrap();
    assert_eq!(seen.take(), ["begin next", "end next"]);
}

#[tokio::test(start_paused = true)]
async fn so_is_one_in_the_other_shape_and_behind_one_in_the_other_shape() {
    let seen = Arc::new(Seen::default());
    let plugin = Plugin::new("10", "test", Arc::clone(&seen))
        .create_container(Seen::create)
        .run_pod_sandbox(|seen: Arc<Seen>, _, _| async move {
            seen.add("run");
            Ok(())
        });
    let (mut runtime, _ran) = played(plugin);
    runtime.start_as("").await;
    let run = || runtime.change(Event::RUN_POD_SANDBOX, "one");
    let (stale, next) = tokio::join!(run(), runtime.create("one"));
    assert_eq!(refusal(stale).0, Code::ABORTED);
    next.unwrap();
    let (stale, next) = tokio::join!(runtime.create("two"), run());
    assert_eq!(refusal(stale).0, Code::ABORTED);
    next.unwrap();
    assert_eq!(seen.take(), ["begin one", "end one", "run"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_was_read_late_is_refused_without_its_handler() {
    let (plugin, seen) = plugin();
    let (mut runtime, _ran) = played(plugin);
    runtime.start().await;
    sleep(secs(10)).await;
    for (paused, refused) in [(secs(6), true), (ms(1500), true), (ms(600), false)] {
        // Written, and not read before the pause is over.
        let mut waiting = Box::pin(runtime.create("one"));
        let written = futures_poll(&mut waiting);
        assert!(written.is_pending());
        pause(paused);
        let answer = waiting.await;
        if refused {
            // Where the runtime has not given up meanwhile.
            if let Some(status) = answer.as_ref().unwrap_err().status() {
                assert_eq!(status.code(), Code::UNAVAILABLE);
            }
            assert_eq!(seen.take(), [""; 0], "{paused:?}");
        } else {
            answer.unwrap();
            assert_eq!(seen.take().len(), 2);
        }
        sleep(secs(1)).await;
    }
}

fn futures_poll<F: Future + Unpin>(future: &mut F) -> std::task::Poll<F::Output> {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    std::pin::Pin::new(future).poll(&mut cx)
}

#[tokio::test(start_paused = true)]
async fn an_event_behind_which_the_connection_has_ended_is_not_handled() {
    let (plugin, seen) = plugin();
    let (mut runtime, ran) = played(plugin);
    runtime.start().await;
    let mut waiting = Box::pin(runtime.create("one"));
    assert!(futures_poll(&mut waiting).is_pending());
    drop(waiting);
    runtime.close();
    let end = ran.await.unwrap().unwrap();
    sleep(secs(1)).await;
    assert_eq!(seen.take(), [""; 0]);
    assert_eq!(end.to_string(), "closed by the runtime");
}
