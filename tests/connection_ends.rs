//! Each row of the table of causes in the page *How a connection ends*: both sides see what it says, and
//! everybody on one side sees the same.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::collections::BTreeMap;
use std::future::Future;
use std::io::ErrorKind;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use ttrpc_keepalive::keepalive::{Keepalive, PeerSupport};
use ttrpc_keepalive::{Client, ConnectionError, Error, RequestProgress, Server, Service, State};

/// What was seen of one end.
#[derive(Default)]
struct Seen {
    client: Option<ConnectionError>,
    server: Option<ConnectionError>,
    request: Option<RequestProgress>,
}

type Call = JoinHandle<Result<StringValue, Error>>;
type Played = Pin<Box<dyn Future<Output = Seen>>>;

/// A call of this method, in a task, as far as it comes.
async fn calling(client: &Client, method: &str, size: usize) -> Call {
    let request = text(&"x".repeat(size));
    let call = tokio::spawn(client.call("demo.Wait", method, &request));
    sleep(ms(5)).await;
    call
}

/// The end as everybody on the client sees it, which is the same for all.
async fn told(client: &Client, call: Call) -> Seen {
    let mut liveness = client.liveness();
    let end = timeout(secs(60), client.closed()).await.expect("it ends");
    let same = |other: &ConnectionError| assert_eq!(format!("{other:?}"), format!("{end:?}"));
    let mut last = liveness.next().await.unwrap();
    while let Some(seen) = liveness.next().await {
        last = seen;
    }
    same(last.end().unwrap());
    match last.state() {
        State::Dead(reason) => assert_eq!(Some(reason), end.dead_reason()),
        State::Closed(other) => same(&other),
        other => panic!("{other} is no end"),
    }
    let later = say(client).await.unwrap_err();
    assert_eq!(later.request(), RequestProgress::NotSent);
    let error = call.await.unwrap().err();
    for error in [Some(&later), error.as_ref()].into_iter().flatten() {
        let Error::Connection(other, _) = error else {
            panic!("{error} is no end of a connection");
        };
        same(other);
        assert_eq!(
            error.to_string(),
            format!("the connection has ended: {end}")
        );
    }
    Seen {
        client: Some(end),
        request: error.map(|error| error.request()),
        server: None,
    }
}

/// Client and server of this crate. The handler of `demo.Wait/For` waits until nobody waits for it, of
/// `demo.Wait/Drain` until its server shuts down.
struct Both {
    client: Client,
    server: Server,
    serving: JoinHandle<ConnectionError>,
    freezer: Freezer,
    /// As the handler sees it.
    seen: Arc<Mutex<Option<ConnectionError>>>,
}

impl Both {
    fn new(keepalive: Keepalive) -> Self {
        let seen = Arc::new(Mutex::new(None));
        let noted = Arc::clone(&seen);
        let server = echo()
            .service(
                Service::new("demo.Wait", ())
                    .unary("For", move |(), call, q: StringValue| {
                        let noted = Arc::clone(&noted);
                        async move {
                            let end = call.cancelled().await;
                            *noted.lock().unwrap() = Some(end);
                            Ok(q)
                        }
                    })
                    .unary("Drain", |(), call, q: StringValue| async move {
                        call.draining().await;
                        sleep(ms(10)).await;
                        Ok(q)
                    }),
            )
            .build()
            .unwrap();
        let (here, there) = tokio::io::duplex(64 << 10);
        let freezer = Freezer::default();
        let there = ttrpc_keepalive::ByteStream::new(Freezable::new(there, &freezer));
        let serving = {
            let server = server.clone();
            tokio::spawn(async move { server.serve_connection(there).await })
        };
        let client = Client::builder().keepalive(keepalive).attach(here).unwrap();
        Self {
            client,
            server,
            serving,
            freezer,
            seen,
        }
    }

    /// What both see.
    async fn told(self, call: Call) -> Seen {
        let mut seen = told(&self.client, call).await;
        self.freezer.thaw();
        sleep(ms(50)).await;
        let by_handler = self.seen.lock().unwrap().take();
        seen.server = match self.serving.await {
            Ok(end) => {
                if let Some(other) = by_handler {
                    assert_eq!(format!("{other:?}"), format!("{end:?}"));
                }
                Some(end)
            }
            Err(_) => by_handler,
        };
        seen
    }
}

async fn both() -> (Both, Call) {
    let both = Both::new(Keepalive::on_demand());
    let call = calling(&both.client, "For", 1).await;
    (both, call)
}

/// A client, with a call that is sent, of a bare socket.
async fn bare(keepalive: Keepalive) -> (Client, UnixStream, Call) {
    let (here, there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    let here = tokio::net::UnixStream::from_std(here).unwrap();
    let client = Client::builder().keepalive(keepalive).attach(here).unwrap();
    let call = calling(&client, "For", 1).await;
    (client, there, call)
}

/// A server whose client sends this and no more, and then sees the end.
async fn patient(server: Server, sent: &[u8]) -> Seen {
    let (here, mut there) = tokio::io::duplex(4096);
    let serving = tokio::spawn(async move { server.serve_connection(here).await });
    there.write_all(sent).await.unwrap();
    let end = of_server(serving).await;
    let client = Client::builder().attach(there).unwrap();
    Seen {
        client: Some(client.closed().await),
        ..end
    }
}

fn read_all(mut socket: &UnixStream) {
    socket.set_nonblocking(true).unwrap();
    while std::io::Read::read(&mut socket, &mut [0; 1024]).is_ok_and(|read| read > 0) {}
}

async fn of_server(end: JoinHandle<ConnectionError>) -> Seen {
    Seen {
        server: Some(end.await.unwrap()),
        ..Seen::default()
    }
}

fn watch() -> Keepalive {
    let watch = Keepalive::every(secs(1)).timeout(secs(1));
    watch.peer_support(PeerSupport::Assume)
}

/// Each cause, as it is called in the table. A second one of a cause is what its cell says behind the
/// semicolon.
fn causes() -> Vec<(&'static str, Played)> {
    vec![
        (
            "the client is [closed](Client::close)",
            Box::pin(async {
                let (both, call) = both().await;
                both.client.close().await.unwrap();
                both.told(call).await
            }),
        ),
        (
            "the last handle and the last call of the client are gone",
            Box::pin(async {
                let Both {
                    client, serving, ..
                } = Both::new(Keepalive::on_demand());
                say(&client).await.unwrap();
                let mut liveness = client.liveness();
                drop(client);
                let mut end = None;
                while let Some(seen) = liveness.next().await {
                    end = seen.end().cloned();
                }
                Seen {
                    client: end,
                    ..of_server(serving).await
                }
            }),
        ),
        (
            "the client [aborts](Client::abort)",
            Box::pin(async {
                let (both, call) = both().await;
                both.client.abort();
                both.told(call).await
            }),
        ),
        (
            "the client [aborts](Client::abort)",
            Box::pin(async {
                let (both, call) = both().await;
                both.freezer.freeze();
                // More than the pipe holds.
                let large = calling(&both.client, "For", 100_000).await;
                both.client.abort();
                large.await.unwrap().unwrap_err();
                both.told(call).await
            }),
        ),
        (
            "the client [expects](Client::expect_close) the end, and the server closes",
            Box::pin(async {
                let (client, socket, call) = bare(Keepalive::off()).await;
                client.expect_close();
                read_all(&socket);
                drop(socket);
                told(&client, call).await
            }),
        ),
        (
            "the server [shuts down](Server::shutdown), and has refused a call",
            Box::pin(async {
                let both = Both::new(Keepalive::on_demand());
                let call = calling(&both.client, "Drain", 1).await;
                let server = both.server.clone();
                let refused = async {
                    sleep(ms(2)).await;
                    say(&both.client).await.unwrap_err()
                };
                let (drained, refused) = tokio::join!(server.shutdown(secs(5)), refused);
                assert!(drained);
                assert_eq!(refused.request(), RequestProgress::Answered);
                both.told(call).await
            }),
        ),
        (
            "the server shuts down, and no call has met that",
            Box::pin(async {
                let both = Both::new(Keepalive::on_demand());
                let call = calling(&both.client, "Drain", 1).await;
                assert!(both.server.clone().shutdown(secs(5)).await);
                both.told(call).await
            }),
        ),
        (
            "the limit of a shutdown is over",
            Box::pin(async {
                let (both, call) = both().await;
                assert!(!both.server.clone().shutdown(secs(5)).await);
                both.told(call).await
            }),
        ),
        (
            "the future that serves is dropped, or its runtime is",
            Box::pin(async {
                let (both, call) = both().await;
                both.serving.abort();
                both.told(call).await
            }),
        ),
        (
            "the runtime that drives the client is gone",
            Box::pin(async {
                let runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = { runtime }.enable_all().build().unwrap();
                let (here, there) = tokio::io::duplex(4096);
                let server = Both::new(Keepalive::off()).server;
                let serving = tokio::spawn(async move { server.serve_connection(there).await });
                let client = {
                    let _entered = runtime.enter();
                    let client = Client::builder().keepalive(Keepalive::off());
                    client.attach(here).unwrap()
                };
                let call = calling(&client, "For", 1).await;
                // It drives for a moment, and is gone.
                let drives = move || runtime.block_on(async { sleep(ms(20)).await });
                std::thread::spawn(drives).join().unwrap();
                let seen = told(&client, call).await;
                Seen {
                    server: of_server(serving).await.server,
                    ..seen
                }
            }),
        ),
        (
            "the server's process ends or is killed",
            Box::pin(async {
                let (client, socket, call) = bare(Keepalive::off()).await;
                read_all(&socket);
                drop(socket);
                told(&client, call).await
            }),
        ),
        (
            "the server's process ends or is killed",
            Box::pin(async {
                let (client, mut socket, call) = bare(Keepalive::off()).await;
                read_all(&socket);
                std::io::Write::write_all(&mut socket, &[0, 0]).unwrap();
                drop(socket);
                told(&client, call).await
            }),
        ),
        (
            "the server's process ends, and has not read all",
            Box::pin(async {
                let (client, socket, call) = bare(Keepalive::off()).await;
                drop(socket);
                told(&client, call).await
            }),
        ),
        (
            "the server's socket is closed for reading",
            Box::pin(async {
                let (here, there) = UnixStream::pair().unwrap();
                here.set_nonblocking(true).unwrap();
                there.shutdown(Shutdown::Read).unwrap();
                let here = tokio::net::UnixStream::from_std(here).unwrap();
                let client = Client::builder().keepalive(Keepalive::off());
                let client = client.attach(here).unwrap();
                let call = calling(&client, "For", 1).await;
                let seen = told(&client, call).await;
                drop(there);
                seen
            }),
        ),
        (
            "the client's process ends or is killed",
            Box::pin(async {
                let (peer, end) = served_until();
                drop(peer);
                of_server(end).await
            }),
        ),
        (
            "the client's process ends or is killed",
            Box::pin(async {
                let (mut peer, end) = served_until();
                peer.stream.write_all(&[0, 0]).await.unwrap();
                drop(peer);
                of_server(end).await
            }),
        ),
        (
            "the client's process ends, and has not read all",
            Box::pin(async {
                let (here, there) = tokio::net::UnixStream::pair().unwrap();
                let server = echo().build().unwrap();
                let end = tokio::spawn(async move { server.serve_connection(here).await });
                let mut peer = Peer::new(there);
                peer.call(1, "Say", "x").await;
                sleep(ms(5)).await;
                drop(peer);
                of_server(end).await
            }),
        ),
        (
            "the operating system, or the byte stream, reports another error",
            Box::pin(async {
                let (here, there) = tokio::io::duplex(4096);
                let fails = Arc::new(AtomicBool::new(false));
                let failing = Arc::clone(&fails);
                let transport = Hooked::new(here).on_read(move || {
                    let fails = failing.load(Ordering::Relaxed);
                    fails.then(|| Poll::Ready(Err(ErrorKind::TimedOut.into())))
                });
                let client = Client::builder().keepalive(Keepalive::off());
                let client = client.attach(transport).unwrap();
                let call = calling(&client, "For", 1).await;
                fails.store(true, Ordering::Relaxed);
                let mut peer = Peer::new(there);
                peer.send([0]).await;
                told(&client, call).await
            }),
        ),
        (
            "what was sent comes back",
            Box::pin(async {
                let (client, mut socket, call) = bare(Keepalive::off()).await;
                let mut sent = vec![0; 1024];
                let read = std::io::Read::read(&mut socket, &mut sent).unwrap();
                std::io::Write::write_all(&mut socket, &sent[..read]).unwrap();
                told(&client, call).await
            }),
        ),
        (
            "no request of the client comes in the [time for it](ServerBuilder::first_request_timeout)",
            Box::pin(async {
                let server = echo().first_request_timeout(secs(1)).build().unwrap();
                patient(server, &[]).await
            }),
        ),
        (
            "a header of the client does not come whole in the [time for it](ServerBuilder::header_timeout)",
            Box::pin(async {
                let server = echo().header_timeout(secs(1)).build().unwrap();
                patient(server, &[0; 3]).await
            }),
        ),
        (
            "a header of the server does not come whole in the [time for it](ClientBuilder::header_timeout)",
            Box::pin(async {
                let (here, there) = tokio::io::duplex(4096);
                let client = Client::builder().keepalive(Keepalive::off());
                let client = client.header_timeout(secs(1)).attach(here).unwrap();
                let call = calling(&client, "For", 1).await;
                let mut peer = Peer::new(there);
                peer.send([0; 3]).await;
                told(&client, call).await
            }),
        ),
        (
            "what comes is not ttrpc",
            Box::pin(async {
                let (client, mut socket, call) = bare(Keepalive::off()).await;
                std::io::Write::write_all(&mut socket, b"HTTP/1.1 400\r\n\r\n").unwrap();
                told(&client, call).await
            }),
        ),
        (
            "the server is silent while it is [watched](Keepalive::every)",
            Box::pin(async {
                let both = Both::new(watch());
                let call = calling(&both.client, "For", 1).await;
                both.freezer.freeze();
                both.told(call).await
            }),
        ),
        (
            "the server takes no bytes while it is watched",
            Box::pin(async {
                let both = Both::new(watch().write_stall(secs(2)));
                both.freezer.freeze();
                let call = calling(&both.client, "For", 100_000).await;
                both.told(call).await
            }),
        ),
    ]
}

/// The rows of the table of causes: what is in the cells behind the cause.
fn rows() -> BTreeMap<&'static str, Vec<&'static str>> {
    let page = include_str!("../src/ends.rs");
    let (_, causes) = page.split_once("//! # Causes").unwrap();
    let rows = causes
        .lines()
        .skip_while(|line| !line.starts_with("//! |---"));
    let rows = rows.skip(1).take_while(|line| line.starts_with("//! |"));
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        (cells[1], cells[2..5].to_vec())
    })
    .collect()
}

/// The name of a variant.
fn name<T: std::fmt::Debug>(value: Option<T>) -> String {
    let value = value.map_or_else(|| "-".to_owned(), |value| format!("{value:?}"));
    let end = value.find([' ', '(', '{']).unwrap_or(value.len());
    value[..end].to_owned()
}

#[tokio::test(start_paused = true)]
async fn each_cause_is_seen_as_the_page_says_and_by_everybody_alike() {
    let rows = rows();
    assert!(rows.len() > 10, "{rows:?}");
    let mut seen_of: BTreeMap<&str, Vec<[String; 3]>> = BTreeMap::new();
    for (cause, played) in causes() {
        let seen = timeout(secs(600), played).await.expect(cause);
        let cells = [name(seen.client), name(seen.server), name(seen.request)];
        seen_of.entry(cause).or_default().push(cells);
    }
    assert_eq!(
        rows.keys().collect::<Vec<_>>(),
        seen_of.keys().collect::<Vec<_>>()
    );
    let mut wrong = Vec::new();
    for (cause, seen) in seen_of {
        for (column, cell) in rows[cause].iter().enumerate() {
            let said: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
            let mut found: Vec<&str> = seen.iter().map(|cells| &*cells[column]).collect();
            found.dedup();
            if found != said {
                wrong.push(format!("{cause}, column {column}: {found:?}, not {said:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
