// A caller of the crate ttrpc that knows nothing of keepalive and gives its calls no time, and the peers
// that it must not wait for. Each facade has this in a test of its own, with its way to connect.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Once, mpsc};
use std::thread;
use std::time::Duration;

use ttrpc::{Error, Request};

/// What a program says once, before it connects.
fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let (interval, timeout) = (Duration::from_millis(100), Duration::from_millis(500));
        let every = ttrpc::keepalive::Keepalive::every(interval).timeout(timeout);
        // Also where the peer is one of today, that knows no PING.
        let every = every.watch_by_receipts(true);
        ttrpc::keepalive::set(every).expect("both are in their ranges");
    });
}

/// A peer that takes a connection and does nothing more than hold it, once it has answered a PING if it
/// `answers`. One that never does is convicted by what it leaves unread.
fn freezes(path: &Path, answers: bool) {
    let listener = UnixListener::bind(path).expect("the folder is there");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody connects");
        if answers {
            let mut frame = [0; 18];
            stream.read_exact(&mut frame).expect("a PING comes first");
            assert_eq!(frame[8], 4, "a PING comes first");
            frame[8] = 5;
            stream.write_all(&frame).expect("it is connected");
        }
        loop {
            thread::park();
        }
    });
}

fn request() -> Request {
    let mut request = Request::new();
    request.service = "demo.Echo".to_owned();
    request.method = "Say".to_owned();
    request
}

/// What a call ends with, which must not wait for ever.
fn ends(call: impl FnOnce(String) -> Error + Send + 'static, answers: bool) -> String {
    watch();
    let folder = tempfile::tempdir().expect("there is a folder for what is temporary");
    let path = folder.path().join("socket");
    freezes(&path, answers);
    let (end, ended) = mpsc::channel();
    let address = format!("unix://{}", path.display());
    thread::spawn(move || end.send(call(address)));
    let ended = ended.recv_timeout(Duration::from_secs(60));
    let Error::Socket(words) = ended.expect("it must not wait for ever") else {
        panic!("it is said otherwise");
    };
    words
}

fn by_a_task(address: String) -> Error {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("there is a thread").block_on(async move {
        let client = connect(&address).await.expect("it listens");
        client.request(request()).await.expect_err("nobody answers")
    })
}

fn by_a_thread(address: String) -> Error {
    let client = ttrpc::Client::connect(&address).expect("it listens");
    client.request(request()).expect_err("nobody answers")
}

#[test]
fn a_call_without_a_timeout_ends_when_its_peer_is_dead() {
    for (call, kind) in [(by_a_task as fn(String) -> Error, "async"), (by_a_thread, "sync")] {
        for answers in [true, false] {
            let words = ends(call, answers);
            assert!(words.contains("keepalive: the peer"), "{kind}, {answers}: {words}");
        }
    }
}
