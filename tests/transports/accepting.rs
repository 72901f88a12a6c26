//! Where a server's connections come from, how many they are, and how serving ends.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use ttrpc_keepalive::{
    Accept, ByteStream, Client, ConnectionError, IntoTransport, Listener, Socket,
};

use super::support::*;
use super::{abstract_name, place, serve, sockets_of};

// C13, F5: a path, and a name without a file.
#[tokio::test]
async fn an_address_is_free_again_as_soon_as_its_server_has_stopped() {
    let place = place();
    let path = place.path.to_str().unwrap().to_owned();
    for name in [path, abstract_name("again")] {
        let address = format!("unix://{name}");
        for round in 0..100 {
            let server = echo().build().unwrap();
            let listener = Listener::bind(&address).await.unwrap();
            let serving = tokio::spawn({
                let server = server.clone();
                async move { server.serve(listener).await }
            });
            let client = Client::builder().connect(&address).await.unwrap();
            assert!(say(&client).await.is_ok(), "round {round}");
            assert_eq!(sockets_of(&name), 2);
            assert!(server.shutdown(secs(10)).await);
            assert_eq!(sockets_of(&name), 0, "round {round}");
            serving.await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_takes_connections_from_a_channel_and_ends_with_the_last_of_them() {
    let (connected, incoming) = mpsc::channel(1);
    let serving = serve(incoming);
    let mut clients = Vec::new();
    for _ in 0..3 {
        let (here, there) = tokio::io::duplex(4096);
        connected.send(ByteStream::new(there)).await.unwrap();
        clients.push(Client::builder().attach(here).unwrap());
    }
    drop(connected);
    sleep(secs(1)).await;
    for client in clients {
        assert!(say(&client).await.is_ok(), "it is served to its own end");
        assert!(!serving.is_finished());
    }
    timeout(secs(1), serving).await.unwrap().unwrap();
}

/// Yields what a test has put down, then nothing more.
struct Scripted<S>(Arc<Mutex<VecDeque<io::Result<S>>>>);

impl<S: IntoTransport + Send + 'static> Accept for Scripted<S> {
    type Stream = S;

    fn poll_accept(&mut self, _: &mut Context<'_>) -> Poll<Option<io::Result<S>>> {
        Poll::Ready(self.0.lock().unwrap().pop_front())
    }
}

#[tokio::test(start_paused = true)]
async fn errors_of_accepting_are_waited_out_ever_longer_and_end_nothing() {
    let (here, there) = tokio::io::duplex(4096);
    let descriptors_used_up = || Err(ErrorKind::Other.into());
    let mut script: VecDeque<_> = (0..10).map(|_| descriptors_used_up()).collect();
    script.push_back(Ok(there));
    let script = Arc::new(Mutex::new(script));
    let start = Instant::now();
    // A box is as good, so that a program may choose at run time what it serves on.
    let incoming: Box<dyn Accept<Stream = _>> = Box::new(Scripted(Arc::clone(&script)));
    let serving = serve(incoming);
    let client = Client::builder().attach(here).unwrap();
    assert!(say(&client).await.is_ok());
    // 5, 10, 20, ... 640 ms, and then 1 s.
    assert_passed(start, ms(1275 + 2000));
    drop(client);
    serving.await.unwrap();
}

#[tokio::test]
async fn beyond_its_limit_a_server_accepts_when_a_connection_has_ended() {
    let place = place();
    let server = echo().connection_limit(2).build().unwrap();
    let listener = Listener::bind(&place.address).await.unwrap();
    tokio::spawn(async move { server.serve(listener).await });
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(Client::builder().connect(&place.address).await.unwrap());
    }
    assert!(say(&clients[0]).await.is_ok() && say(&clients[1]).await.is_ok());
    let waiting = clients.split_off(2);
    assert!(say_within(&waiting[0], ms(100)).await.is_err());
    drop(clients.pop());
    assert!(say(&waiting[0]).await.is_ok(), "its turn has come");
    assert!(say_within(&waiting[1], ms(100)).await.is_err());
    assert!(echo().connection_limit(0).build().is_err());
}

// C19
#[tokio::test(start_paused = true)]
async fn who_serves_one_stream_is_told_how_it_ended() {
    let reset = || Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
    let (here, _there) = tokio::io::duplex(4096);
    let stream = Hooked::new(here).on_read(move || Some(reset()));
    let end = echo().build().unwrap().serve_connection(stream).await;
    let ConnectionError::Reset(error) = end else {
        panic!("{end:?}");
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);

    let (here, there) = tokio::io::duplex(4096);
    drop(there);
    let end = echo().build().unwrap().serve_connection(here).await;
    assert!(matches!(end, ConnectionError::PeerClosed));
}

// C4: whatever the end looks like, the descriptor is closed.
#[tokio::test]
async fn connections_that_end_in_any_way_leave_no_descriptor() {
    let place = place();
    let name = place.path.to_str().unwrap();
    let listener = Listener::bind(&place.address).await.unwrap();
    let (faulty, incoming) = mpsc::channel(1);
    let serving = serve(incoming);
    let endings = [
        None,
        Some(ErrorKind::ConnectionReset),
        Some(ErrorKind::BrokenPipe),
        Some(ErrorKind::UnexpectedEof),
        Some(ErrorKind::TimedOut),
        Some(ErrorKind::Other),
    ];
    for round in 0..50 {
        for (number, ending) in endings.into_iter().enumerate() {
            let (client, socket) =
                tokio::join!(Client::builder().connect(&place.address), listener.accept());
            let (client, socket): (Client, Socket) = (client.unwrap(), socket.unwrap());
            let mut calls = 0;
            let fail = move || {
                calls += 1;
                Some(Poll::Ready(Err(ending.filter(|_| calls > 1)?.into())))
            };
            let socket = Hooked::new(socket);
            // The other half of them fail in writing.
            faulty
                .send(match round % 2 {
                    0 => socket.on_read(fail),
                    _ => socket.on_write(fail).without_shortcut(),
                })
                .await
                .unwrap();
            for _ in 0..2 {
                let said = timeout(secs(10), say(&client)).await.unwrap();
                assert!(said.is_ok() || ending.is_some(), "{number}: {said:?}");
            }
            if ending.is_some() {
                timeout(secs(10), client.closed()).await.unwrap();
            }
        }
    }
    drop(faulty);
    serving.await.unwrap();
    assert_eq!(sockets_of(name), 1, "the listener's");
}
