//! Sockets that exist already, their options, and who is at their other end.

use std::io::ErrorKind;
use std::net::{TcpListener as StdTcpListener, TcpStream as StdTcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixListener as StdListener, UnixStream as StdStream};

use protobuf::well_known_types::wrappers::StringValue;
use socket2::SockRef;
use ttrpc_keepalive::transport::{ByteStream, Transport};
use ttrpc_keepalive::{Client, Context, Listener, PeerCredentials, Server, Service, Socket};

use super::support::*;
use super::{place, serve};

fn client_of_fd(descriptor: impl Into<OwnedFd>) -> Client {
    let socket = Socket::from_fd(descriptor).unwrap();
    Client::builder().attach(socket).unwrap()
}

#[tokio::test]
async fn sockets_of_the_standard_library_and_bare_descriptors_are_served_and_called() {
    let place = place();
    let listener = StdListener::bind(&place.path).unwrap();
    serve(Listener::from_fd(listener).unwrap());
    let client = client_of_fd(StdStream::connect(&place.path).unwrap());
    assert!(say(&client).await.is_ok());

    let listener = StdTcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let listener = Listener::from_fd(OwnedFd::from(listener)).unwrap();
    assert_eq!(listener.port(), Some(port.into()));
    serve(listener);
    let client = client_of_fd(StdTcpStream::connect(("127.0.0.1", port)).unwrap());
    assert!(say(&client).await.is_ok());

    // As a plugin gets one end from its runtime.
    let (here, there) = StdStream::pair().unwrap();
    let there = Socket::from_fd(OwnedFd::from(there)).unwrap();
    let server = echo().build().unwrap();
    tokio::spawn(async move { server.serve_connection(there).await });
    assert!(say(&client_of_fd(here)).await.is_ok());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_unix_socket_tells_what_is_unread_and_others_cannot() {
    use std::io::{Read, Write};

    let (mut here, mut there) = StdStream::pair().unwrap();
    here.write_all(&[0; 18]).unwrap();
    let unix = Socket::from_fd(here).unwrap();
    assert!(unix.unread().unwrap() >= 256);
    there.read_exact(&mut [0; 18]).unwrap();
    assert_eq!(unix.unread(), Some(0));
    assert_eq!(Box::new(unix).unread(), Some(0), "a box passes it through");

    let listener = StdTcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = StdTcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert_eq!(Socket::from_fd(tcp).unwrap().unread(), None);
    let (pipe, _other) = tokio::io::duplex(64);
    assert_eq!(ByteStream::new(pipe).unread(), None);
}

// F2
#[tokio::test]
async fn a_descriptor_of_another_kind_is_refused() {
    let place = place();
    let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let datagrams = || OwnedFd::from(UnixDatagram::unbound().unwrap());
    let udp = || OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap());
    let listening = || OwnedFd::from(StdTcpListener::bind("127.0.0.1:0").unwrap());
    let connected = || OwnedFd::from(StdStream::pair().unwrap().0);
    for wrong in [file(), datagrams(), udp(), listening()] {
        assert!(Socket::from_fd(wrong).is_err());
    }
    for wrong in [file(), datagrams(), udp(), connected()] {
        assert!(Listener::from_fd(wrong).is_err());
    }
    // Types do not help here: the standard library takes any descriptor for a unix stream.
    let disguised = StdStream::from(udp());
    let error = Socket::from_fd(disguised).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    drop(place);
}

// F1: the family is known, and so is what is missing.
#[tokio::test]
async fn a_vsock_descriptor_is_refused_by_the_name_of_the_feature_or_for_what_it_lacks() {
    let domain = socket2::Domain::VSOCK;
    let Ok(vsock) = socket2::Socket::new(domain, socket2::Type::STREAM, None) else {
        return; // this kernel has none
    };
    let error = Listener::from_fd(OwnedFd::from(vsock.try_clone().unwrap()));
    if cfg!(feature = "vsock") {
        assert!(error.is_ok());
    } else {
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("feature `vsock`"), "{error}");
    }
    let error = Socket::from_fd(vsock).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected);
}

// F4: kernels from 6.12 on refuse options of TCP on other sockets.
#[tokio::test]
async fn no_option_of_a_unix_socket_is_changed() {
    let options = |socket: &StdStream| {
        let socket = SockRef::from(socket);
        (
            socket.keepalive().unwrap(),
            socket.reuse_address().unwrap(),
            socket.reuse_port().ok(),
            socket.linger().unwrap(),
            socket.tcp_nodelay().ok(),
            (socket.send_buffer_size(), socket.recv_buffer_size())
                .0
                .unwrap(),
        )
    };
    let (here, there) = StdStream::pair().unwrap();
    let witness = here.try_clone().unwrap();
    let before = options(&witness);
    let mut socket = Socket::from_fd(here).unwrap();
    socket.abort();
    assert_eq!(options(&witness), before);
    let server = echo().build().unwrap();
    tokio::spawn(async move { server.serve_connection(socket).await });
    let client = client_of_fd(there);
    assert!(say(&client).await.is_ok());
    assert_eq!(options(&witness), before);
}

/// Answers with the caller's credentials.
fn who() -> Server {
    let handler = |call: Context, _: StringValue| async move {
        Ok(text(&format!("{:?}", call.peer_credentials())))
    };
    Server::builder()
        .service(
            Service::new("demo.Echo", ())
                .unary("Say", move |(), context, request| handler(context, request)),
        )
        .build()
        .unwrap()
}

async fn seen_by_server(client: &Client) -> String {
    say(client).await.unwrap().value
}

#[tokio::test]
async fn a_unix_peer_is_known_by_its_process_and_user_and_others_are_not() {
    let place = place();
    let listener = Listener::bind(&place.address).await.unwrap();
    tokio::spawn(async move { who().serve(listener).await });
    let client = Client::builder().connect(&place.address).await.unwrap();
    let process = std::fs::metadata("/proc/self").unwrap();
    let me = PeerCredentials::new(
        Some(std::process::id().try_into().unwrap()),
        process.uid(),
        process.gid(),
    );
    assert_eq!(client.peer_credentials(), Some(me));
    assert_eq!(seen_by_server(&client).await, format!("{:?}", Some(me)));

    let listener = Listener::bind("tcp://127.0.0.1:0").await.unwrap();
    let address = format!("tcp://127.0.0.1:{}", listener.port().unwrap());
    tokio::spawn(async move { who().serve(listener).await });
    let client = Client::builder().connect(&address).await.unwrap();
    assert_eq!(client.peer_credentials(), None);
    assert_eq!(seen_by_server(&client).await, "None");

    // One side of a multiplexer passes on what the socket below says.
    let (here, there) = tokio::io::duplex(4096);
    let other = PeerCredentials::new(None, 1000, 100);
    let there = Hooked::new(there).credentials(other);
    tokio::spawn(async move { who().serve_connection(there).await });
    let client = Client::builder().attach(here).unwrap();
    assert_eq!(seen_by_server(&client).await, format!("{:?}", Some(other)));
}
