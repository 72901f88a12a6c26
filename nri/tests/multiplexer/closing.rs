//! One of the two connections is closed by the side that has it.

use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use ttrpc_keepalive::keepalive::{Keepalive, PeerSupport};
use ttrpc_keepalive::{Client, Code, ConnectionError, DeadReason, IntoTransport, Server};
use ttrpc_keepalive_nri::multiplexer::Multiplexer;

use super::support::*;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Plugin,
    Runtime,
}

/// Which connection of a side, by what the side has on it.
#[derive(Clone, Copy, Debug)]
enum Use {
    Client,
    Server,
}

/// One process: a client on one connection, a server on the other.
struct Side {
    client: Client,
    server: Server,
    serving: JoinHandle<ConnectionError>,
}

impl Side {
    fn new(stream: impl IntoTransport, role: Role) -> Self {
        Self::watching(stream, role, Keepalive::on_demand())
    }

    fn watching(stream: impl IntoTransport, role: Role, keepalive: Keepalive) -> Self {
        let both = Multiplexer::new().split(stream);
        let (calls, serves) = match role {
            Role::Plugin => (both.runtime_service, both.plugin_service),
            Role::Runtime => (both.plugin_service, both.runtime_service),
        };
        let client = Client::builder().keepalive(keepalive);
        let server = echo();
        let serving = server.clone();
        Self {
            client: client.attach(calls).unwrap(),
            serving: tokio::spawn(async move { serving.serve_connection(serves).await }),
            server,
        }
    }
}

/// A side of which one connection after the other is closed, and its peer.
async fn pair(role: Role) -> (Side, Side) {
    let (here, there) = UnixStream::pair().unwrap();
    let other = match role {
        Role::Plugin => Role::Runtime,
        Role::Runtime => Role::Plugin,
    };
    let (side, peer) = (Side::new(here, role), Side::new(there, other));
    say(&side.client, 100).await.unwrap();
    say(&peer.client, 100).await.unwrap();
    (side, peer)
}

/// How a connection is closed. In each way the peer learns nothing of it.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Handles and futures are dropped.
    Dropped,
    /// `close` and `shutdown`.
    Asked,
}

async fn close(
    used: Use,
    way: Way,
    client: &mut Option<Client>,
    server: &mut Option<(Server, JoinHandle<ConnectionError>)>,
) {
    match used {
        Use::Client => {
            let client = client.take().unwrap();
            if let Way::Asked = way {
                client.close().await.unwrap();
            }
        }
        Use::Server => {
            let (server, serving) = server.take().unwrap();
            match way {
                Way::Dropped => serving.abort(),
                Way::Asked => {
                    server.shutdown(secs(1)).await;
                    assert!(serving.await.unwrap().is_local_close());
                }
            }
        }
    }
}

// The other one calls or serves as before, and the peer's calls on the closed one are not answered. With the second
// the stream closes, for both connections of the peer.
#[tokio::test]
async fn one_that_is_closed_leaves_the_other_and_the_stream_alone_in_both_roles_and_orders() {
    for role in [Role::Plugin, Role::Runtime] {
        for order in [[Use::Client, Use::Server], [Use::Server, Use::Client]] {
            for way in [Way::Dropped, Way::Asked] {
                let case = format!("{role:?} {order:?} {way:?}");
                let (side, peer) = pair(role).await;
                let mut client = Some(side.client);
                let mut server = Some((side.server, side.serving));
                close(order[0], way, &mut client, &mut server).await;
                sleep(ms(50)).await;

                match &client {
                    Some(client) => {
                        say(client, 100_000).await.expect(&case);
                        let late = say_within(&peer.client, ms(200)).await.unwrap_err();
                        assert!(late.is_deadline(), "{case}: {late}");
                    }
                    None => say(&peer.client, 100_000).await.expect(&case),
                }
                assert!(!peer.serving.is_finished(), "{case}");
                assert!(peer.client.snapshot().end().is_none(), "{case}");

                close(order[1], way, &mut client, &mut server).await;
                let end = timeout(secs(30), peer.client.closed()).await.expect(&case);
                let ended = timeout(secs(30), peer.serving).await.expect(&case);
                for end in [end, ended.unwrap()] {
                    let is_close =
                        matches!(end, ConnectionError::PeerClosed | ConnectionError::Reset(_));
                    assert!(is_close, "{case}: {end:?}");
                }
            }
        }
    }
}

// A call that was under way on it ends as the handle's own doing, and its handler runs on.
#[tokio::test]
async fn calls_on_a_client_that_is_aborted_end_and_the_side_goes_on_serving() {
    for role in [Role::Plugin, Role::Runtime] {
        let (side, peer) = pair(role).await;
        let calling = tokio::spawn({
            let client = side.client.clone();
            async move { say(&client, 3 << 20).await }
        });
        while side.client.snapshot().calls_in_flight() == 0 && !calling.is_finished() {
            tokio::task::yield_now().await;
        }
        side.client.abort();
        if let Err(error) = calling.await.unwrap() {
            assert!(error.is_connection(), "{error}");
        }
        assert!(side.client.closed().await.is_local_close());
        say(&peer.client, 100_000).await.unwrap();
        let other = say(&peer.client, 100);
        timeout(secs(30), other).await.unwrap().unwrap();
    }
}

// It has no answer to its PINGs on that connection, and goes by the bytes of the other one.
#[tokio::test(start_paused = true)]
async fn a_peer_that_watches_a_connection_which_was_closed_goes_by_what_the_other_one_carries() {
    let (here, there) = tokio::io::duplex(64 << 10);
    let watch = Keepalive::every(secs(1)).timeout(secs(1));
    let watch = watch.peer_support(PeerSupport::Assume);
    let runtime = Side::watching(here, Role::Runtime, watch);
    let plugin = Side::new(there, Role::Plugin);
    say(&runtime.client, 100).await.unwrap();
    plugin.serving.abort();
    for _ in 0..50 {
        sleep(ms(200)).await;
        say(&plugin.client, 100).await.unwrap();
    }
    assert!(runtime.client.snapshot().end().is_none());
    let quiet = Instant::now();
    let end = runtime.client.closed().await;
    assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
    assert!(
        quiet.elapsed() <= secs(2) + ms(100),
        "{:?}",
        quiet.elapsed()
    );
    let ended = plugin.client.closed().await;
    assert!(
        matches!(
            ended,
            ConnectionError::PeerClosed | ConnectionError::Reset(_)
        ),
        "{ended:?}"
    );
}

// What keeps a connection that has no use: its calls are refused and its PINGs answered.
#[tokio::test(start_paused = true)]
async fn a_server_without_services_keeps_a_connection_that_is_not_used() {
    let (here, there) = tokio::io::duplex(64 << 10);
    let watch = Keepalive::every(secs(1)).timeout(secs(1));
    let watch = watch.peer_support(PeerSupport::Assume);
    let runtime = Side::watching(here, Role::Runtime, watch);
    let both = Multiplexer::new().split(there);
    let nothing = Server::builder().build().unwrap();
    let serving = tokio::spawn(async move { nothing.serve_connection(both.plugin_service).await });
    let refused = say(&runtime.client, 1).await.unwrap_err();
    assert_eq!(refused.status().unwrap().code(), Code::UNIMPLEMENTED);
    sleep(secs(60)).await;
    assert!(runtime.client.snapshot().end().is_none());
    drop(both.runtime_service);
    serving.abort();
}
