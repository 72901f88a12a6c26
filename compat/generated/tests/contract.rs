//! What users of the crate `ttrpc` rely on, beyond the shape of its API.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::collections::HashMap;
use std::future::pending;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use ttrpc::r#async::transport::{Listener, Socket};
use ttrpc::r#async::{Client, MethodHandler, Server, Service, TtrpcContext};
use ttrpc::{Error, Request, Response, context};

/// `Say` answers with its payload, `Wait` never; and what became of the latter.
#[derive(Clone, Default)]
struct Handler {
    waits: Arc<AtomicBool>,
    dropped: Arc<AtomicBool>,
}

struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[async_trait]
impl MethodHandler for Handler {
    async fn handler(&self, context: TtrpcContext, request: Request) -> ttrpc::Result<Response> {
        if request.method == "Wait" {
            let _dropped = Dropped(Arc::clone(&self.dropped));
            self.waits.store(true, SeqCst);
            pending::<()>().await;
        }
        assert_eq!(context.mh.type_, ttrpc::proto::MESSAGE_TYPE_REQUEST);
        let mut response = Response::new();
        response.payload = request.payload;
        Ok(response)
    }
}

impl Handler {
    fn service(&self) -> HashMap<String, Service> {
        let mut service = Service {
            methods: HashMap::new(),
            streams: HashMap::new(),
        };
        for name in ["Say", "Wait"] {
            let handler = Box::new(self.clone());
            service.methods.insert(name.to_owned(), handler);
        }
        HashMap::from([("demo.Echo".to_owned(), service)])
    }
}

fn request(method: &str) -> Request {
    let mut request = Request::new();
    request.service = "demo.Echo".to_owned();
    request.method = method.to_owned();
    request.payload = b"hello".to_vec();
    request
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A client, and the other end of its stream.
fn half() -> (Client, DuplexStream) {
    let (here, there) = duplex(64 * 1024);
    (Client::new(Socket::new(here)), there)
}

// Users reconnect on `LocalClosed`, and others look for the words *early eof*.
#[tokio::test]
async fn a_call_at_the_end_of_its_connection_and_the_next_one_fail_as_they_did() {
    let (client, there) = half();
    let pending = tokio::spawn({
        let client = client.clone();
        async move { client.request(request("Say")).await }
    });
    tokio::task::yield_now().await;
    drop(there);
    let early = Error::Socket("early eof".to_owned());
    assert_eq!(pending.await.unwrap(), Err(early));
    assert_eq!(
        client.request(request("Say")).await,
        Err(Error::LocalClosed)
    );
    let stream = client.new_stream(request("Say"), false, true).await;
    assert_eq!(stream.err(), Some(Error::LocalClosed));
}

#[tokio::test]
async fn a_late_call_says_what_is_known_of_its_peer() {
    let (client, _there) = half();
    let mut late = request("Say");
    late.timeout_nano = 20_000_000;
    let Err(Error::Others(words)) = client.request(late).await else {
        panic!("it is not late");
    };
    let begin = "Receive packet timeout Elapsed(()): deadline exceeded";
    assert!(words.starts_with(begin), "{words}");
    // The connection goes on.
    assert_ne!(client.native().peer(), ttrpc::native::Peer::Gone);
}

/// A peer that answers the PING in front of the first request, and then neither reads nor says anything.
async fn freezes(mut there: DuplexStream) {
    let mut frame = [0; 18];
    there.read_exact(&mut frame).await.unwrap();
    assert_eq!(frame[8], 4, "a PING comes first");
    frame[8] = 5;
    there.write_all(&frame).await.unwrap();
    pending::<()>().await;
}

// The mission: a caller who has set nothing, in code that knows nothing of keepalive.
#[tokio::test(start_paused = true)]
async fn a_call_without_a_timeout_ends_when_its_peer_is_dead() {
    let every = ttrpc::keepalive::Keepalive::every(Duration::from_secs(10));
    ttrpc::keepalive::set(every).unwrap();
    let (client, there) = half();
    tokio::spawn(freezes(there));
    let ended = client.request(request("Say"));
    let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
    let Err(Error::Socket(words)) = ended.expect("it must not wait for ever") else {
        panic!("it is answered");
    };
    assert!(words.starts_with("keepalive: the peer is dead"), "{words}");
    assert_eq!(
        client.request(request("Say")).await,
        Err(Error::LocalClosed)
    );
    ttrpc::keepalive::set(ttrpc::keepalive::Keepalive::on_demand()).unwrap();
}

#[tokio::test]
async fn a_listener_that_was_stopped_is_served_again() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("unix://{}/socket", folder.path().display());
    let server = Server::new().bind(&address).unwrap();
    let mut server = server.register_service(Handler::default().service());
    server.start().await.unwrap();
    let first = Client::connect(&address).await.unwrap();
    first.request(request("Say")).await.unwrap();

    server.stop_listen().await;
    // What is connected goes on, and what connects waits.
    first.request(request("Say")).await.unwrap();
    let second = Client::connect(&address).await.unwrap();
    let waiting = tokio::spawn(async move { second.request(request("Say")).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    server.start().await.unwrap();
    waiting.await.unwrap().unwrap();

    server.shutdown().await.unwrap();
    assert!(first.request(request("Say")).await.is_err());
    let none = server.start().await.unwrap_err();
    let none_words = "ttrpc-rust server started with no bound listener";
    assert_eq!(none, Error::Others(none_words.to_owned()));
    // The file stays.
    assert!(folder.path().join("socket").exists());
    assert!(Client::connect(&address).await.is_err());
}

#[tokio::test]
async fn a_handler_ends_with_its_client_and_a_connection_with_its_last_clone() {
    let handler = Handler::default();
    let (here, there) = duplex(4096);
    let server = Server::new().register_service(handler.service());
    let serving = tokio::spawn(async move { server.start_connected(Socket::new(there)).await });
    let client = Client::new(Socket::new(here));
    let clone = client.clone();
    let call = tokio::spawn(async move { clone.request(request("Wait")).await });
    until(|| handler.waits.load(SeqCst)).await;
    drop(client);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!handler.dropped.load(SeqCst));
    call.abort();
    until(|| handler.dropped.load(SeqCst)).await;
    serving.await.unwrap().unwrap();
}

/// A stream of one connection, as users make who have no listener.
struct Once(Option<DuplexStream>);

impl futures_core::Stream for Once {
    type Item = std::io::Result<DuplexStream>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Ready(self.0.take().map(Ok))
    }
}

#[tokio::test]
async fn a_listener_of_one_connection_ends_and_stopping_it_does_no_harm() {
    let (here, there) = duplex(4096);
    let listener = Listener::new(Once(Some(there)));
    let server = Server::new().add_listener(listener);
    let mut server = server.register_service(Handler::default().service());
    server.start().await.unwrap();
    let client = Client::new(Socket::new(here));
    client.request(request("Say")).await.unwrap();
    server.stop_listen().await;
    client.request(request("Say")).await.unwrap();
    server.shutdown().await.unwrap();
    assert_eq!(
        client.request(request("Say")).await,
        Err(Error::LocalClosed)
    );
}

#[tokio::test]
async fn a_server_that_is_dropped_closes_its_connections_and_its_listener() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("unix://{}/socket", folder.path().display());
    let server = Server::new().bind(&address).unwrap();
    let mut server = server.register_service(Handler::default().service());
    server.start().await.unwrap();
    let client = Client::connect(&address).await.unwrap();
    client.request(request("Say")).await.unwrap();
    drop(server);
    client.native().closed().await;
    while Client::connect(&address).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn addresses_and_sizes_that_are_none_are_refused_in_the_known_words() {
    for (address, words) in [
        (
            "/bare",
            "Socket::connect error Scheme of \"/bare\" is not supported",
        ),
        (
            "unix:///none/such",
            "Socket::connect error No such file or directory (os error 2)",
        ),
        (
            "vsock://x:1",
            "Socket::connect error failed to parse cid from \"x\": invalid digit found in string",
        ),
    ] {
        let refused = Client::connect(address).await.unwrap_err();
        assert_eq!(refused, Error::Others(words.to_owned()));
    }
    let refused = Server::new().bind("/bare").unwrap_err();
    let words = "Listener::bind error Scheme of \"/bare\" is not supported";
    assert_eq!(refused, Error::Others(words.to_owned()));

    let (client, _there) = half();
    let mut large = request("Say");
    large.payload = vec![0; 4 << 20];
    let Err(Error::Others(words)) = client.request(large).await else {
        panic!("it was sent");
    };
    assert!(
        words.ends_with("exceed maximum message size of 4194304"),
        "{words}"
    );
    let refused = client
        .new_stream(request("Say"), true, true)
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::RpcStatus(_)));
}

#[test]
fn sync_clients_fail_as_they_did() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let address = format!("unix://{}", path.display());
    assert!(matches!(
        ttrpc::Client::connect(&address),
        Err(Error::Nix(_))
    ));
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let client = ttrpc::Client::connect(&address).unwrap();
    let (peer, _) = listener.accept().unwrap();
    let mut late = request("Say");
    late.timeout_nano = 20_000_000;
    assert!(matches!(client.request(late), Err(Error::Others(_))));
    let pending = {
        let client = client.clone();
        std::thread::spawn(move || client.request(request("Say")))
    };
    std::thread::sleep(Duration::from_millis(50));
    drop(peer);
    // Bytes of ours were unread there: the system says *reset*, or *end*.
    assert!(matches!(pending.join().unwrap(), Err(Error::Socket(_))));
    assert!(matches!(
        client.request(request("Say")),
        Err(Error::Socket(_))
    ));
    let taken = ttrpc::Server::new().bind(&address).unwrap_err();
    let words = "EADDRINUSE: Address already in use";
    assert_eq!(taken, Error::Others(words.to_owned()));
}

/// The next frame of this type.
fn frame(peer: &mut UnixStream, kind: u8) -> Vec<u8> {
    loop {
        let mut frame = vec![0; 10];
        peer.read_exact(&mut frame).unwrap();
        let length = u32::from_be_bytes(frame[..4].try_into().unwrap());
        frame.resize(10 + usize::try_from(length).unwrap(), 0);
        peer.read_exact(&mut frame[10..]).unwrap();
        if frame[8] == kind {
            return frame;
        }
    }
}

// Callers drive the connections of the process, and a thread does where none can.
#[test]
fn pings_are_answered_while_a_thread_calls_a_runtime_does_and_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let client = ttrpc::Client::connect(&format!("unix://{}", path.display())).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let ping = [0, 0, 0, 8, 255, 255, 255, 255, 4, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let asks = |peer: &mut UnixStream| {
        peer.write_all(&ping).unwrap();
        assert_eq!(frame(peer, 5)[10..], ping[10..]);
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let (kept, in_a_runtime) = (client.clone(), client.clone());
    let callers: [Box<dyn FnOnce() -> ttrpc::Result<Response> + Send>; 2] = [
        Box::new(move || client.request(request("Say"))),
        Box::new(move || runtime.block_on(async move { in_a_runtime.request(request("Say")) })),
    ];
    for caller in callers {
        let calling = std::thread::spawn(caller);
        let mut answer = frame(&mut peer, 1)[..10].to_vec();
        asks(&mut peer);
        assert!(!calling.is_finished());
        answer[..4].fill(0);
        answer[8..].copy_from_slice(&[2, 0]);
        peer.write_all(&answer).unwrap();
        calling.join().unwrap().unwrap();
        asks(&mut peer);
    }
    drop(kept);
}

// After 128 of them a task is out of its budget, and all that tokio has would wait for it to give way.
#[test]
fn a_task_that_does_not_give_way_connects_by_threads_as_often_as_it_likes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        listener
            .incoming()
            .map_while(Result::ok)
            .collect::<Vec<_>>()
    });
    let (end, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let address = format!("unix://{}", path.display());
        runtime.block_on(async {
            for _ in 0..200 {
                ttrpc::Client::connect(&address).unwrap();
            }
        });
        end.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(60)).unwrap();
}

#[test]
fn contexts_hold_what_they_are_given() {
    let mut context = context::with_duration(Duration::from_millis(5));
    assert_eq!(context.timeout_nano, 5_000_000);
    context.set("Key".to_owned(), vec!["1".to_owned()]);
    context.add("key".to_owned(), "2".to_owned());
    let pairs = context::to_pb(context.metadata.clone());
    assert_eq!(context::from_pb(&pairs), context.metadata);
    assert_eq!(context.metadata["key"], ["1", "2"]);
    context.set("key".to_owned(), Vec::new());
    assert!(context.metadata.is_empty());
    // Literals of the released versions.
    let _ = TtrpcContext {
        mh: ttrpc::MessageHeader::default(),
        metadata: HashMap::new(),
        timeout_nano: 0,
    };
    let _ = TtrpcContext {
        timeout_nano: 1,
        ..Default::default()
    };
}
