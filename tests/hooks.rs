//! The hook around calls, on both sides.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::future::IntoFuture;
use std::panic::panic_any;
use std::sync::{Arc, Mutex, OnceLock};

use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::time::{Duration, sleep};
use ttrpc_keepalive::{
    AtEnd, CallStart, Client, ClientBuilder, Code, Error, MethodOptions, OnDeadline, Outcome, Raw,
    Requests, Responses, ServerBuilder, Service, SoftReply, Status,
};

/// What a hook has seen of the calls that have ended, in their order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(String, String, Duration)>>>);

impl Log {
    fn note(&self, call: &CallStart<'_>) -> AtEnd {
        let (log, method) = (self.0.clone(), call.method().to_owned());
        AtEnd::run(move |end| {
            let outcome = match end.outcome() {
                Outcome::Refused(status) => format!("refused {}", status.code()),
                Outcome::Failed(error) if error.is_deadline() => "late".to_owned(),
                Outcome::Failed(error) if error.is_connection() => "lost".to_owned(),
                Outcome::Failed(error) => match error.status() {
                    Some(status) => format!("failed {}", status.code()),
                    None => "failed".to_owned(),
                },
                other => format!("{other:?}").to_lowercase(),
            };
            log.lock().unwrap().push((method, outcome, end.took()));
        })
    }

    /// Takes the one call that has ended.
    #[track_caller]
    fn one(&self, method: &str, outcome: &str, took: Duration) {
        let mut seen = self.0.lock().unwrap();
        let (of, end, after) = seen.pop().unwrap();
        assert_eq!((&*of, &*end), (method, outcome));
        assert!(after >= took && after <= took + ms(5), "{after:?}");
        assert!(seen.is_empty(), "{seen:?}");
    }
}

/// A client and a server that both note what they see.
fn noted(server: ServerBuilder) -> (Client, Log, Log) {
    let (ours, theirs) = (Log::default(), Log::default());
    let (here, there) = (ours.clone(), theirs.clone());
    let server = server
        .hook(move |call| Ok(there.note(call)))
        .build()
        .unwrap();
    let client = Client::builder().hook(move |call| Ok(here.note(call)));
    (pair(server, client, 64 << 10).0, ours, theirs)
}

#[tokio::test(start_paused = true)]
async fn a_hook_sees_a_call_and_what_it_adds_is_seen_by_who_handles_it() {
    let server = streams()
        .hook(|call| {
            assert_eq!((call.service(), call.method()), ("demo.Echo", "Say"));
            assert_eq!(call.values("KEY").collect::<Vec<_>>(), ["a", "b"]);
            assert_eq!(call.values("who").collect::<Vec<_>>(), ["me"]);
            assert!(call.remaining().unwrap() <= secs(2));
            call.set_metadata("who", "somebody known");
            Ok(AtEnd::nothing())
        })
        .service(Service::new("demo.Echo", ()).unary(
            "Say",
            |(), call, _: StringValue| async move {
                let who: Vec<_> = call.values("who").collect();
                assert_eq!(call.metadata().len(), 3);
                Ok(text(&who.join(",")))
            },
        ))
        .build()
        .unwrap();
    let client = Client::builder().hook(|call| {
        assert_eq!((call.service(), call.method()), ("demo.Echo", "Say"));
        assert_eq!(call.metadata().len(), 3);
        assert_eq!(call.remaining(), Some(secs(2)));
        call.set_metadata("Who", "me");
        Ok(AtEnd::nothing())
    });
    let client = pair(server, client, 4096).0;
    let request = text("");
    let call = client.call::<_, StringValue>("demo.Echo", "Say", &request);
    let call = call
        .metadata("key", "a")
        .metadata("who", "you")
        .metadata("Key", "b");
    assert_eq!(call.timeout(secs(2)).await.unwrap().value, "somebody known");
}

#[tokio::test(start_paused = true)]
async fn both_sides_see_every_outcome_of_a_call_with_its_duration() {
    let options = MethodOptions::new().on_deadline(OnDeadline::Cancel);
    let (client, ours, theirs) = noted(echo().method("demo.Echo", "Sleep", options));
    say(&client).await.unwrap();
    ours.one("Say", "answered", secs(0));
    theirs.one("Say", "answered", secs(0));

    sleep_within(&client, secs(1), secs(2)).await.unwrap();
    ours.one("Sleep", "answered", secs(1));
    theirs.one("Sleep", "answered", secs(1));

    let request = text("not a number");
    let call = client.call::<_, StringValue>("demo.Echo", "Sleep", &request);
    call.await.unwrap_err();
    ours.one("Sleep", "failed INVALID_ARGUMENT", secs(0));
    theirs.one("Sleep", "refused INVALID_ARGUMENT", secs(0));

    let call = client.call::<_, StringValue>("demo.Echo", "Panic", &request);
    call.await.unwrap_err();
    ours.one("Panic", "failed INTERNAL", secs(0));
    theirs.one("Panic", "refused INTERNAL", secs(0));

    sleep_within(&client, secs(3), secs(2)).await.unwrap_err();
    sleep(ms(2)).await;
    ours.one("Sleep", "late", secs(2));
    theirs.one("Sleep", "refused DEADLINE_EXCEEDED", secs(2));

    // What the server never gets to see.
    let large = vec![0; 5 << 20];
    let call = client.call::<_, Raw>("demo.Echo", "Bytes", &Raw(&large));
    call.await.unwrap_err();
    ours.one("Bytes", "failed", secs(0));
    client
        .call::<_, Raw>("demo.Echo", "None", &Raw(""))
        .await
        .unwrap_err();
    ours.one("None", "failed UNIMPLEMENTED", secs(0));

    let request = text("9000");
    let call = client.call::<_, StringValue>("demo.Echo", "Sleep", &request);
    let mut dropped = Box::pin(call.into_future());
    poll_once(dropped.as_mut());
    sleep(secs(1)).await;
    drop(dropped);
    ours.one("Sleep", "dropped", secs(1));
    client.abort();
    sleep(secs(20)).await;
    theirs.one("Sleep", "dropped", secs(9));
    say(&client).await.unwrap_err();
    ours.one("Say", "lost", secs(0));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_answered_early_has_ended_for_the_hook() {
    let soft = MethodOptions::new().soft_deadline(ms(500), SoftReply::message(&text("")));
    let drops = MethodOptions::new().on_deadline(OnDeadline::DropAnswer);
    let server = echo()
        .method("demo.Echo", "Sleep", soft)
        .service(
            Service::new("demo.Echo", ()).unary("Late", |(), _, q: Raw| async {
                sleep(secs(3)).await;
                Ok(q)
            }),
        )
        .method("demo.Echo", "Late", drops);
    let (client, ours, theirs) = noted(server);
    sleep_within(&client, secs(3), secs(2)).await.unwrap();
    ours.one("Sleep", "answered", ms(1500));
    theirs.one("Sleep", "answered", ms(1500));
    let call = client.call::<_, Raw>("demo.Echo", "Late", &Raw(""));
    call.timeout(secs(2)).await.unwrap_err();
    sleep(secs(5)).await;
    ours.one("Late", "late", secs(2));
    theirs.one("Late", "dropped", secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_for_the_hook_with_its_last_frame() {
    let server = streams().service(Service::new(SERVICE, ()).bidi_stream(
        "Fail",
        |(), _, _: Requests<Raw>, out: Responses<Raw>| async move {
            out.send(&raw("x")).await?;
            sleep(secs(1)).await;
            Err(Status::new(Code::ABORTED, ""))
        },
    ));
    let (client, ours, theirs) = noted(server);
    let call = client.bidi_stream::<_, StringValue>(SERVICE, "Echo");
    let (sender, mut receiver) = call.await.unwrap();
    sender.send(&text("a")).await.unwrap();
    receiver.next().await.unwrap().unwrap();
    sleep(secs(3)).await;
    sender.finish();
    assert!(receiver.next().await.is_none());
    assert!(receiver.next().await.is_none());
    ours.one("Echo", "answered", secs(3));
    theirs.one("Echo", "answered", secs(3));

    let (_sender, mut receiver) = client
        .bidi_stream::<Raw, Raw>(SERVICE, "Fail")
        .await
        .unwrap();
    receiver.next().await.unwrap().unwrap();
    receiver.next().await.unwrap().unwrap_err();
    ours.one("Fail", "failed ABORTED", secs(1));
    theirs.one("Fail", "refused ABORTED", secs(1));

    let call = client.client_stream::<StringValue, StringValue>(SERVICE, "Join");
    let (sender, reply) = call.await.unwrap();
    sender.finish();
    reply.await.unwrap();
    ours.one("Join", "answered", secs(0));
    theirs.one("Join", "answered", secs(0));

    let call = client.server_stream::<_, Raw>(SERVICE, "Flood", &Raw(""));
    drop(call.await.unwrap());
    ours.one("Flood", "dropped", secs(0));

    client.abort();
    client.closed().await;
    let call = client.server_stream::<_, Raw>(SERVICE, "Flood", &Raw(""));
    call.await.unwrap_err();
    ours.one("Flood", "lost", secs(0));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_was_ended_before_its_handler_is_not_told_as_answered() {
    let server = streams()
        .stream_limit(1)
        .service(Service::new(SERVICE, ()).client_stream(
            "Late",
            |(), _, _requests: Requests<StringValue>| async move {
                sleep(secs(1)).await;
                Ok(text("done"))
            },
        ));
    let (client, ours, theirs) = noted(server);
    let call = client.client_stream::<_, StringValue>(SERVICE, "Late");
    let (sender, reply) = call.await.unwrap();
    sender.send(&text("fits")).await.unwrap();
    sender.send(&text("does not")).await.unwrap();
    reply.await.unwrap_err();
    ours.one("Late", "failed RESOURCE_EXHAUSTED", secs(0));
    sleep(secs(2)).await;
    theirs.one("Late", "dropped", secs(1));
}

fn refusing(call: &mut CallStart<'_>) -> Result<AtEnd, Status> {
    match call.method() {
        "Say" => Ok(AtEnd::nothing()),
        method => Err(Status::new(Code::PERMISSION_DENIED, method)),
    }
}

/// A unary call and a stream that the hook refuses, and a call that goes through.
async fn refused(client: &Client) -> [Error; 3] {
    let unary = client.call::<_, Raw>("demo.Echo", "Large", &Raw("1")).await;
    let stream = client
        .server_stream::<_, Raw>(SERVICE, "Flood", &Raw(""))
        .await;
    let mut upload = client.client_stream::<Raw, Raw>(SERVICE, "Join").await;
    let stream = match stream {
        Ok(mut receiver) => receiver.next().await.unwrap().unwrap_err(),
        Err(error) => error,
    };
    let upload = match &mut upload {
        Ok((_, reply)) => reply.await.unwrap_err(),
        Err(_) => upload.unwrap_err(),
    };
    say(client).await.unwrap();
    [unary.unwrap_err(), stream, upload]
}

#[tokio::test(start_paused = true)]
async fn a_call_that_the_clients_hook_refuses_is_never_sent() {
    let (server, theirs) = (streams(), Log::default());
    let there = theirs.clone();
    let server = server
        .hook(move |call| Ok(there.note(call)))
        .build()
        .unwrap();
    let client = pair(server, Client::builder().hook(refusing), 4096).0;
    for error in refused(&client).await {
        assert!(error.status().is_none(), "it is not the peer's: {error}");
        let Error::Refused(status) = error else {
            panic!("{error}")
        };
        assert_eq!(status.code(), Code::PERMISSION_DENIED);
    }
    theirs.one("Say", "answered", secs(0));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_the_servers_hook_refuses_is_answered_without_its_handler() {
    let server = streams().service(Service::new("demo.Echo", ()).unary(
        "Large",
        |(), _, _: Raw| async {
            panic!("it is refused");
            #[expect(unreachable_code, reason = "says what it would answer")]
            Ok(Raw(""))
        },
    ));
    let server = server.hook(refusing).build().unwrap();
    let client = pair(server, Client::builder(), 4096).0;
    for error in refused(&client).await {
        let status = error.status().unwrap();
        assert_eq!(status.code(), Code::PERMISSION_DENIED);
    }
}

fn panicking(call: &mut CallStart<'_>) -> Result<AtEnd, Status> {
    if call.method() == "Bytes" {
        panic_any(Bomb);
    }
    let at_end = call.method() == "Large";
    Ok(AtEnd::run(move |_| {
        if at_end {
            panic_any(Bomb);
        }
    }))
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_panics_costs_its_call_and_nothing_else() {
    let hooked: [(ServerBuilder, ClientBuilder); 2] = [
        (echo().hook(panicking), Client::builder()),
        (echo(), Client::builder().hook(panicking)),
    ];
    for (server, client) in hooked {
        let client = pair(server.build().unwrap(), client, 4096).0;
        for _ in 0..10 {
            let running = {
                let client = client.clone();
                tokio::spawn(async move { sleep_within(&client, secs(1), secs(60)).await })
            };
            let error = client.call::<_, Raw>("demo.Echo", "Bytes", &Raw("")).await;
            let error = error.unwrap_err();
            let status = match &error {
                Error::Refused(status) => status,
                other => other.status().unwrap(),
            };
            assert_eq!(status.code(), Code::INTERNAL);
            // At the end it is too late to cost even that.
            let reply = client.call::<_, Raw>("demo.Echo", "Large", &Raw("3")).await;
            assert_eq!(*reply.unwrap(), &[7; 3][..]);
            // A panic of the handler and one of the hook that is told of it.
            client
                .call::<_, Raw>("demo.Echo", "Large", &Raw("x"))
                .await
                .unwrap_err();
            running.await.unwrap().unwrap();
        }
        client.probe(secs(1)).await.unwrap();
    }
}

// G4: whatever the library holds at that moment, the hook may use the client.
#[tokio::test(start_paused = true)]
async fn a_hook_may_use_its_client() {
    let client: Arc<OnceLock<Client>> = Arc::default();
    let inside = Arc::clone(&client);
    let builder = Client::builder().call_limit(1).hook(move |call| {
        let client = inside.get().unwrap().clone();
        if call.method() == "Bytes" {
            return Ok(AtEnd::nothing());
        }
        let use_it = move || {
            client.snapshot();
            client.liveness();
            let mut call = Box::pin(
                client
                    .call::<_, Raw>("demo.Echo", "Bytes", &Raw(""))
                    .into_future(),
            );
            poll_once(call.as_mut());
        };
        use_it();
        Ok(AtEnd::run(move |_| use_it()))
    });
    let (one, _) = pair(streams().build().unwrap(), builder, 4096);
    client.set(one.clone()).unwrap();
    say(&one).await.unwrap();
    sleep_within(&one, secs(3), secs(2)).await.unwrap_err();
    let call = one.server_stream::<_, Raw>(SERVICE, "Flood", &Raw(""));
    drop(call.await.unwrap());
    let request = text("1000");
    let call = one.call::<_, StringValue>("demo.Echo", "Sleep", &request);
    let mut dropped = Box::pin(call.into_future());
    poll_once(dropped.as_mut());
    drop(dropped);
    say(&one).await.unwrap();
}
