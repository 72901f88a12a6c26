//! Unary calls between a client and a server of this crate.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::future::IntoFuture;
use std::sync::Mutex;

use protobuf::well_known_types::any::Any;
use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::time::{Instant, sleep, timeout};
use tracing::Level;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::{Client, Code, ConnectError, Listener, Raw, Server, Service, Status};

#[tokio::test(start_paused = true)]
async fn a_call_returns_what_the_handler_answers() {
    for capacity in [1, 7, 64, 4096, 1 << 20] {
        let (client, _) = pair(echo().build().unwrap(), Client::builder(), capacity);
        assert_eq!(say(&client).await.unwrap().value, "hello");
        let large = say_large(&client, 5000).await.unwrap();
        assert_eq!(large.value.len(), 5000);
    }
}

#[tokio::test]
async fn every_kind_of_address_is_served_and_called() {
    let directory = std::env::temp_dir().join(format!("ttrpc-keepalive-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("echo.sock");
    let name = format!("unix://@ttrpc-keepalive-{}", std::process::id());
    for address in [
        format!("unix://{}", path.display()),
        name.clone(),
        "tcp://127.0.0.1:0".to_owned(),
    ] {
        let server = echo().build().unwrap();
        let listener = Listener::bind(&address).await.unwrap();
        let address = match listener.port() {
            Some(port) => format!("tcp://127.0.0.1:{port}"),
            None => address,
        };
        let serving = {
            let server = server.clone();
            tokio::spawn(async move { server.serve(listener).await })
        };
        let client = Client::builder().connect(&address).await.unwrap();
        say(&client).await.unwrap();
        // More than a socket takes at one time.
        let large = timeout(secs(20), say_large(&client, 2 << 20)).await;
        assert_eq!(large.unwrap().unwrap().value.len(), 2 << 20);
        assert!(client.probe(secs(5)).await.is_ok());
        // What it says of the peer is tested where no other work can come between.
        let late = sleep_within(&client, secs(60), ms(50)).await.unwrap_err();
        assert!(late.is_deadline(), "{address}: {late}");
        drop((client, late));
        assert!(server.shutdown(secs(10)).await);
        serving.await.unwrap();
        // F5: the name is free at once.
        let again = Listener::bind(&address).await;
        assert!(
            again.is_ok() || address.starts_with("tcp"),
            "{address}: {again:?}"
        );
    }
    assert!(!path.exists(), "the socket's file is removed");
    std::fs::remove_dir(&directory).unwrap();
}

#[tokio::test]
async fn an_address_where_nobody_listens_is_refused_with_the_systems_error() {
    let error = Client::builder()
        .connect("unix:///nowhere/at/all.sock")
        .await
        .unwrap_err();
    let ConnectError::Io { address, source } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(address, "unix:///nowhere/at/all.sock");
    assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
    let error = Client::builder()
        .connect("http://example")
        .await
        .unwrap_err();
    assert!(matches!(error, ConnectError::Address { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn metadata_arrives_in_order_with_repeated_keys() {
    let server = Server::builder()
        .service(Service::new("demo.Echo", ()).unary(
            "Say",
            |(), context, _: StringValue| async move {
                assert_eq!((context.service(), context.method()), ("demo.Echo", "Say"));
                let pairs: Vec<_> = context.metadata().to_vec();
                let values: Vec<_> = context.values("KEY").collect();
                Ok(text(&format!("{pairs:?} {values:?}")))
            },
        ))
        .build()
        .unwrap();
    let (client, _) = pair(server, Client::builder(), 4096);
    let reply: StringValue = client
        .call("demo.Echo", "Say", &text(""))
        .metadata("Key", "one")
        .metadata("other", "ö")
        .metadata("key", "")
        .await
        .unwrap();
    let pairs = [("key", "one"), ("other", "ö"), ("key", "")];
    assert_eq!(reply.value, format!("{pairs:?} {:?}", ["one", ""]));
}

#[tokio::test(start_paused = true)]
async fn a_handler_sees_how_long_its_caller_waits() {
    let server = Server::builder()
        .service(Service::new("demo.Echo", ()).unary(
            "Say",
            |(), context, _: StringValue| async move {
                let first = context.remaining();
                sleep(secs(1)).await;
                let until = context.deadline().map(|at| at - Instant::now());
                Ok(text(&format!(
                    "{first:?} {:?} {until:?}",
                    context.remaining()
                )))
            },
        ))
        .build()
        .unwrap();
    let (client, _) = pair(server, Client::builder(), 4096);
    let reply = say_within(&client, secs(3)).await.unwrap();
    let mut parts = reply.value.split(' ');
    assert_eq!(parts.next(), Some("Some(3s)"));
    // The sleep may have been rounded up to the next millisecond.
    for part in parts {
        assert!(
            part == "Some(2s)" || part.starts_with("Some(1.99"),
            "{part}"
        );
    }
    assert_eq!(say(&client).await.unwrap().value, "None None None");
}

#[tokio::test(start_paused = true)]
async fn a_status_arrives_with_its_code_message_and_details() {
    let server = Server::builder()
        .service(Service::new("demo.Echo", ()).unary(
            "Fail",
            |(), _, code: StringValue| async move {
                let mut detail = Any::new();
                detail.type_url = "type.googleapis.com/demo.Detail".to_owned();
                detail.value = vec![1, 2, 3];
                let code: i32 = code.value.parse().unwrap();
                let status = Status::new(Code::from(code), "as told");
                Err::<StringValue, _>(status.with_details(vec![detail]))
            },
        ))
        .build()
        .unwrap();
    let (client, _) = pair(server, Client::builder(), 4096);
    for code in [1, 2, 3, 5, 8, 16, 17, 1000, -1] {
        let request = text(&code.to_string());
        let error = client
            .call::<_, StringValue>("demo.Echo", "Fail", &request)
            .await
            .unwrap_err();
        let status = error.status().unwrap();
        assert_eq!(status.code().value(), code);
        assert_eq!(status.message(), "as told");
        assert_eq!(status.details()[0].value, [1, 2, 3]);
        assert!(!error.is_deadline() && !error.is_connection());
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_go_through_as_they_are() {
    let (client, _) = echo_pair(Keepalive::on_demand());
    for payload in [&b""[..], b"\xff\x00\xff", &[7; 100_000]] {
        let call = client.call::<_, Raw>("demo.Echo", "Bytes", &Raw(payload));
        assert_eq!(*call.await.unwrap(), payload);
    }
}

#[tokio::test(start_paused = true)]
async fn settings_out_of_range_are_refused_with_their_name_and_value() {
    let refused = |builder: ttrpc_keepalive::ClientBuilder| {
        let (here, _) = tokio::io::duplex(64);
        builder.attach(here).unwrap_err().to_string()
    };
    let keepalive = |keepalive| refused(Client::builder().keepalive(keepalive));
    let every = || Keepalive::every(secs(1));
    for (text, parts) in [
        (keepalive(Keepalive::every(ms(9))), ["`every`", "9ms"]),
        (keepalive(every().timeout(ms(19))), ["`timeout`", "19ms"]),
        (
            keepalive(every().write_stall(ms(1))),
            ["`write_stall`", "1ms"],
        ),
        (keepalive(every().jitter(11)), ["`jitter`", "11"]),
        (
            keepalive(every().probe_before_deadline(secs(0))),
            ["`probe_before_deadline`", "0ns"],
        ),
        (
            refused(Client::builder().call_limit(0)),
            ["`call_limit`", "0"],
        ),
        (
            refused(Client::builder().call_timeout(secs(0))),
            ["`call_timeout`", "0"],
        ),
        (
            refused(Client::builder().method_timeout("a", "B", Some(secs(0)))),
            ["`method_timeout`", "0"],
        ),
        (
            refused(Client::builder().late_limit(0)),
            ["`late_limit`", "0"],
        ),
        (
            refused(Client::builder().outbox_limit(0)),
            ["`outbox_limit`", "0"],
        ),
    ] {
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
    for (built, part) in [
        (echo().handler_limit(0).build(), "`handler_limit`"),
        (echo().waiting_limit(0).build(), "`waiting_limit`"),
        (echo().owed_limit(0).build(), "`owed_limit`"),
        (echo().keepalive(Keepalive::every(ms(1))).build(), "`every`"),
    ] {
        let text = built.unwrap_err().to_string();
        assert!(text.contains(part), "{text}");
    }
    let address = "unix:///nowhere.sock";
    let connected = Client::builder().call_limit(0).connect(address).await;
    assert!(
        matches!(connected, Err(ConnectError::Config(_))),
        "nothing was tried"
    );
}

// A19: what a call may take is said by itself, else for its method, else for all unary calls.
#[tokio::test(start_paused = true)]
async fn a_default_timeout_is_for_unary_calls_and_what_is_said_closer_counts() {
    let (here, there) = tokio::io::duplex(64 << 10);
    let client = Client::builder()
        .keepalive(Keepalive::off())
        .call_timeout(secs(2))
        .method_timeout("demo.Echo", "Slow", Some(secs(30)))
        .method_timeout("demo.Echo", "Wait", None)
        .attach(here)
        .unwrap();
    let mut peer = Peer::new(there);
    let request = text("hello");
    let call = |service, method| client.call::<_, StringValue>(service, method, &request);
    let stream = |method| client.server_stream::<_, StringValue>("demo.Echo", method, &request);
    for (call, expected) in [
        (call("demo.Echo", "Say"), 2),
        (call("demo.Echo", "Slow"), 30),
        (call("demo.Other", "Slow"), 2),
        (call("demo.Echo", "Wait"), 0),
        (call("demo.Echo", "Say").timeout(secs(7)), 7),
        (call("demo.Echo", "Wait").timeout(secs(7)), 7),
        (call("demo.Echo", "Slow").no_timeout(), 0),
    ] {
        let name = format!("{call:?}");
        let mut call = Box::pin(call.into_future());
        poll_once(call.as_mut());
        let (_, request) = peer.request().await;
        assert_eq!(request.timeout_nano, expected * 1_000_000_000, "{name}");
    }
    for (call, expected) in [
        (stream("Say"), 0),
        (stream("Slow"), 30),
        (stream("Wait"), 0),
        (stream("Slow").timeout(secs(7)), 7),
        (stream("Slow").no_timeout(), 0),
    ] {
        let name = format!("{call:?}");
        let _receiver = call.await.unwrap();
        let (_, request) = peer.request().await;
        assert_eq!(request.timeout_nano, expected * 1_000_000_000, "{name}");
    }
    // B16: it is this side that keeps it.
    let start = Instant::now();
    let late = call("demo.Echo", "Say").await.unwrap_err();
    assert!(late.is_deadline());
    assert_passed(start, secs(2));
}

// G9
#[tokio::test(start_paused = true)]
async fn settings_in_use_can_be_read_and_are_logged_once() {
    let (log, _guard) = Log::begin();
    let builder = Client::builder()
        .keepalive(Keepalive::every(secs(7)).timeout(secs(8)).jitter(9))
        .call_timeout(secs(3))
        .method_timeout("demo.Echo", "Wait", None)
        .call_limit(5);
    let (client, _) = pair(echo().build().unwrap(), builder, 64 << 10);
    for _ in 0..10 {
        say(&client).await.unwrap();
    }
    let settings = client.settings();
    let keepalive = settings.keepalive.settings();
    assert_eq!(keepalive.every, Some(secs(7)));
    let timeouts = (keepalive.timeout, keepalive.write_stall);
    assert_eq!(timeouts, (secs(8), None));
    assert_eq!(keepalive.jitter, 9);
    assert_eq!(
        (settings.call_timeout, settings.limits.calls),
        (Some(secs(3)), 5)
    );
    assert_eq!(settings.timeout_of("demo.Echo", "Say"), Some(secs(3)));
    assert_eq!(settings.timeout_of("demo.Echo", "Wait"), None);

    assert_eq!(log.count("Every(7s)"), 1);
    let line = log.at_least(Level::DEBUG);
    let line = line.iter().find(|line| line.contains("Every(7s)")).unwrap();
    for part in ["8s", "call_timeout: Some(3s)", "Wait", "calls: 5"] {
        assert!(line.contains(part), "{part} is missing in {line}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_on_one_connection_overtake_each_other() {
    let order = std::sync::Arc::new(Mutex::new(Vec::new()));
    let (client, _) = echo_pair(Keepalive::on_demand());
    let calls: Vec<_> = [300, 100, 200]
        .map(|millis| {
            let (client, order) = (client.clone(), order.clone());
            tokio::spawn(async move {
                sleep_within(&client, ms(millis), secs(1)).await.unwrap();
                order.lock().unwrap().push(millis);
            })
        })
        .into();
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [100, 200, 300]);
}
