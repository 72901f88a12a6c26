//! Events, in both shapes in which runtimes send them.

use std::sync::Arc;

use protobuf::MessageField;
use ttrpc_keepalive::{Code, Status};
use ttrpc_keepalive_nri::api::*;
use ttrpc_keepalive_nri::{EventContext, Plugin};

use crate::played::*;

macro_rules! tell {
    ($plugin:expr; $($method:ident $field:ident)*) => {
        $plugin$(.$method(|seen: Arc<Seen>, _: EventContext, event| async move {
            seen.add(format!("{} {}", stringify!($method), event.$field.id));
            Ok(())
        }))*
    };
}

fn telling(seen: &Arc<Seen>) -> Plugin<Arc<Seen>> {
    tell! { Plugin::new("10", "test", Arc::clone(seen));
        run_pod_sandbox pod
        post_update_pod_sandbox pod
        stop_pod_sandbox pod
        remove_pod_sandbox pod
        post_create_container container
        start_container container
        post_start_container container
        post_update_container container
        remove_container container
        update_pod_sandbox pod
        create_container container
        update_container container
        stop_container container
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_has_one_handler_in_whichever_shape_it_comes() {
    let seen = Arc::new(Seen::default());
    let (mut runtime, _ran) = played(telling(&seen));
    runtime.start().await;
    for event in [
        Event::RUN_POD_SANDBOX,
        Event::POST_UPDATE_POD_SANDBOX,
        Event::STOP_POD_SANDBOX,
        Event::REMOVE_POD_SANDBOX,
        Event::POST_CREATE_CONTAINER,
        Event::START_CONTAINER,
        Event::POST_START_CONTAINER,
        Event::POST_UPDATE_CONTAINER,
        Event::REMOVE_CONTAINER,
    ] {
        runtime.change(event, "one").await.unwrap();
    }
    let changes = seen.take();

    macro_rules! call {
        ($($method:ident $request:ident $field:ident $of:ident;)*) => {$(
            let request = $request { $field: MessageField::some($of("one")), ..$request::default() };
            runtime.plugin.$method(&request).timeout(LIMIT).await.unwrap();
        )*};
    }
    call! {
        run_pod_sandbox RunPodSandboxRequest pod pod;
        post_update_pod_sandbox PostUpdatePodSandboxRequest pod pod;
        stop_pod_sandbox StopPodSandboxRequest pod pod;
        remove_pod_sandbox RemovePodSandboxRequest pod pod;
        post_create_container PostCreateContainerRequest container container;
        start_container StartContainerRequest container container;
        post_start_container PostStartContainerRequest container container;
        post_update_container PostUpdateContainerRequest container container;
        remove_container RemoveContainerRequest container container;
    }
    assert_eq!(seen.take(), changes);
    assert_eq!(changes.len(), 9);
    call! {
        update_pod_sandbox UpdatePodSandboxRequest pod pod;
        create_container CreateContainerRequest container container;
        update_container UpdateContainerRequest container container;
        stop_container StopContainerRequest container container;
    }
    let calls = seen.take();
    assert_eq!(calls[0], "update_pod_sandbox one");
    assert_eq!(calls[3], "stop_container one");
}

#[tokio::test(start_paused = true)]
async fn an_event_without_a_handler_is_answered_with_nothing() {
    let seen = Arc::new(Seen::default());
    let plugin = Plugin::new("10", "test", Arc::clone(&seen)).create_container(Seen::create);
    let (mut runtime, _ran) = played(plugin);
    runtime.start().await;
    runtime.change(Event::RUN_POD_SANDBOX, "one").await.unwrap();
    // One that no release has yet, and one that is never sent by this call.
    let unknown = StateChangeEvent {
        event: protobuf::EnumOrUnknown::from_i32(99),
        ..StateChangeEvent::default()
    };
    runtime.plugin.state_change(&unknown).await.unwrap();
    runtime
        .change(Event::CREATE_CONTAINER, "one")
        .await
        .unwrap();
    runtime.post_create("one").await.unwrap();
    let request = ValidateContainerAdjustmentRequest::new();
    let verdict = runtime.plugin.validate_container_adjustment(&request);
    assert!(!verdict.await.unwrap().reject);
    assert_eq!(seen.take(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_a_handler_returns_is_the_answer() {
    let plugin = Plugin::new("10", "test", ())
        .create_container(|_, _, event: CreateContainerRequest| async move {
            match &*event.container.id {
                "refused" => Err(Status::new(Code::UNKNOWN, "the plugin says no")),
                _ => Ok((shares(512), vec![ContainerUpdate::of("other")])),
            }
        })
        .update_container(|_, _, _| async { Ok(vec![ContainerUpdate::of("other")]) })
        .run_pod_sandbox(|_, _, _| async { Err::<(), _>(Status::new(Code::UNKNOWN, "no pods")) })
        .validate_container_adjustment(|_, _, _| async {
            Err(Status::new(Code::UNKNOWN, "not like this"))
        });
    let (mut runtime, _ran) = played(plugin);
    runtime.start().await;
    let created = runtime.create("one").await.unwrap();
    assert_eq!(created.adjust, Some(shares(512)).into());
    assert_eq!(created.update, [ContainerUpdate::of("other")]);
    let refused = (Code::UNKNOWN, "the plugin says no".to_owned());
    assert_eq!(refusal(runtime.create("refused").await), refused);
    let request = UpdateContainerRequest::new();
    let updated = runtime.plugin.update_container(&request).await.unwrap();
    assert_eq!(updated.update, [ContainerUpdate::of("other")]);
    let refused = (Code::UNKNOWN, "no pods".to_owned());
    let change = runtime.change(Event::RUN_POD_SANDBOX, "one").await;
    assert_eq!(refusal(change), refused);
    let request = ValidateContainerAdjustmentRequest::new();
    let verdict = runtime.plugin.validate_container_adjustment(&request).await;
    let verdict = verdict.unwrap();
    assert_eq!((verdict.reject, &*verdict.reason), (true, "not like this"));
}
