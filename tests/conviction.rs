//! What is known of a peer that keepalive has convicted.

use std::time::Duration;

use protobuf::well_known_types::empty::Empty;
use tokio::io::{copy_bidirectional, duplex};
use tokio::sync::oneshot;
use ttrpc_keepalive::{Client, ConnectionError, Keepalive, Peer, Server, Service};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_death_is_published_once_with_the_ping_that_it_was_convicted_on() {
    let (client_end, mut here) = duplex(4096);
    let (mut there, server_end) = duplex(4096);
    let (freeze, frozen) = oneshot::channel::<()>();
    tokio::spawn(async move {
        tokio::select! {
            _ = copy_bidirectional(&mut here, &mut there) => {}
            _ = frozen => {}
        }
        // Both ends stay open, and nothing moves between them any more.
        std::future::pending::<()>().await;
        drop((here, there));
    });
    tokio::spawn(async move {
        let server = Server::builder()
            .service(
                Service::new("demo.Echo", ())
                    .unary("Say", |(), _, empty: Empty| async { Ok(empty) }),
            )
            .build()
            .unwrap();
        server.serve_connection(server_end).await
    });
    let client = Client::builder()
        .keepalive(Keepalive::every(SECOND).timeout(2 * SECOND))
        .attach(client_end)
        .unwrap();
    let _: Empty = client
        .call("demo.Echo", "Say", &Empty::new())
        .await
        .unwrap();
    freeze.send(()).unwrap();

    let mut gone = Vec::new();
    let mut liveness = client.liveness();
    while let Some(seen) = liveness.next().await {
        if seen.peer() == Peer::Gone {
            gone.push(seen);
        }
    }
    assert_eq!(gone.len(), 1);
    let Some(ConnectionError::Dead { evidence, .. }) = gone[0].end() else {
        panic!("{:?}", gone[0].end());
    };
    let ping = evidence.awaiting_pong_for.expect("a PING was on trial");
    assert!(ping >= 2 * SECOND, "{ping:?}");
    assert!(evidence.silent_for >= 3 * SECOND, "{evidence}");
}
