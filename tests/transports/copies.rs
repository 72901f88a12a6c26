//! Sockets of which another process has a copy, as a child that was forked does without knowing it.

use std::io::{ErrorKind, Read};
use std::net::{TcpListener as StdTcpListener, TcpStream as StdTcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use ttrpc_keepalive::keepalive::{Keepalive, PeerSupport};
use ttrpc_keepalive::{Client, Listener, Socket};

use super::support::*;
use super::{place, serve};

/// The other end of a socket.
trait Far: Read + Send {
    fn patience(&self, patience: Duration);
}

impl Far for StdStream {
    fn patience(&self, patience: Duration) {
        self.set_read_timeout(Some(patience)).unwrap();
    }
}

impl Far for StdTcpStream {
    fn patience(&self, patience: Duration) {
        self.set_read_timeout(Some(patience)).unwrap();
    }
}

/// A socket, a copy of its descriptor, and its peer.
fn sockets() -> [(Socket, OwnedFd, Box<dyn Far>); 2] {
    let (unix, far) = StdStream::pair().unwrap();
    let listener = StdTcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = StdTcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let accepted = listener.accept().unwrap().0;
    let descriptors = [OwnedFd::from(unix), OwnedFd::from(tcp)];
    let [unix, tcp] = descriptors.map(|descriptor| {
        let copy = descriptor.try_clone().unwrap();
        (Socket::from_fd(descriptor).unwrap(), copy)
    });
    [
        (unix.0, unix.1, Box::new(far)),
        (tcp.0, tcp.1, Box::new(accepted)),
    ]
}

/// The peer comes to the end of the stream.
async fn assert_ended(mut far: Box<dyn Far>, of: &str) {
    let ended = tokio::task::spawn_blocking(move || {
        far.patience(secs(5));
        std::io::copy(&mut far, &mut std::io::sink())
    });
    match ended.await.unwrap() {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{of}"),
    }
}

#[tokio::test]
async fn the_peer_sees_the_end_of_a_client_however_it_ends() {
    for (socket, _copy, far) in sockets() {
        let client = Client::builder().attach(socket).unwrap();
        client.abort();
        client.closed().await;
        assert_ended(far, "aborted").await;
    }
    for (socket, _copy, far) in sockets() {
        drop(Client::builder().attach(socket).unwrap());
        assert_ended(far, "the last handle is dropped").await;
    }
    for (socket, _copy, far) in sockets() {
        let keepalive = Keepalive::every(ms(20)).timeout(ms(50));
        let client = Client::builder().keepalive(keepalive.peer_support(PeerSupport::Assume));
        let client = client.attach(socket).unwrap();
        assert!(client.closed().await.dead_reason().is_some());
        assert_ended(far, "convicted").await;
    }
}

#[tokio::test]
async fn the_peer_sees_the_end_of_a_served_connection_however_it_ends() {
    for (socket, _copy, far) in sockets() {
        let server = echo().build().unwrap();
        let serving = tokio::spawn({
            let server = server.clone();
            async move { server.serve_connection(socket).await }
        });
        tokio::task::yield_now().await;
        assert!(server.shutdown(secs(5)).await);
        serving.await.unwrap();
        assert_ended(far, "shut down").await;
    }
    for (socket, _copy, far) in sockets() {
        let server = echo().build().unwrap();
        let serving = tokio::spawn(async move { server.serve_connection(socket).await });
        tokio::task::yield_now().await;
        serving.abort();
        assert!(serving.await.is_err());
        assert_ended(far, "the future is dropped").await;
    }
}

#[test]
fn the_peer_sees_the_end_of_connections_whose_runtime_is_dropped() {
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    for place in 0..2 {
        let driving = runtime();
        let (client, _copy, far) = driving.block_on(async {
            let [unix, tcp] = sockets();
            let (socket, copy, far) = if place == 0 { unix } else { tcp };
            (Client::builder().attach(socket).unwrap(), copy, far)
        });
        drop(driving);
        runtime().block_on(assert_ended(far, "the runtime is dropped"));
        drop(client);
    }
}

// A supervisor accepts connections and hands them to its workers.
#[tokio::test]
async fn a_socket_on_which_no_connection_was_begun_is_only_closed() {
    let (here, there) = StdStream::pair().unwrap();
    let copy = here.try_clone().unwrap();
    drop(Socket::from_fd(here).unwrap());
    let server = echo().build().unwrap();
    let socket = Socket::from_fd(copy).unwrap();
    tokio::spawn(async move { server.serve_connection(socket).await });
    let client = Client::builder().attach(Socket::from_fd(there).unwrap());
    assert!(say(&client.unwrap()).await.is_ok());
}

#[tokio::test]
async fn a_listener_that_is_closed_accepts_nothing_by_a_copy_and_tells_who_waits() {
    let place = place();
    for address in [place.address.as_str(), "tcp://127.0.0.1:0"] {
        let listener = Listener::bind(address).await.unwrap();
        let address = match listener.port() {
            Some(port) => format!("tcp://127.0.0.1:{port}"),
            None => address.to_owned(),
        };
        let _copy = listener.as_fd().try_clone_to_owned().unwrap();
        let waiting = Client::builder().connect(&address).await.unwrap();
        drop(listener);
        assert!(Client::builder().connect(&address).await.is_err());
        let told = tokio::time::timeout(secs(5), waiting.closed()).await;
        assert!(told.is_ok(), "{address}");
    }
}

#[tokio::test]
async fn a_listener_that_is_handed_on_keeps_its_file_and_goes_on_by_its_copy() {
    let place = place();
    let mut listener = Listener::bind(&place.address).await.unwrap();
    let copy = listener.as_fd().try_clone_to_owned().unwrap();
    listener.hand_on();
    drop(listener);
    let client = Client::builder().connect(&place.address).await.unwrap();
    serve(Listener::from_fd(copy).unwrap());
    assert!(say(&client).await.is_ok());
    assert!(place.path.exists());
}

// One that was not made here is somebody else's, who may go on with it.
#[tokio::test]
async fn a_listener_that_was_passed_on_is_only_closed() {
    let place = place();
    let theirs = std::os::unix::net::UnixListener::bind(&place.path).unwrap();
    let listener = Listener::from_fd(theirs.try_clone().unwrap()).unwrap();
    drop(listener);
    let client = Client::builder().connect(&place.address).await.unwrap();
    serve(Listener::from_fd(theirs).unwrap());
    assert!(say(&client).await.is_ok());
}
