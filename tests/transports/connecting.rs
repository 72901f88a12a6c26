//! Addresses, and what comes of connecting to them.

use std::io::{self, ErrorKind};
use std::net::TcpListener as StdTcpListener;
use std::os::unix::net::UnixListener as StdListener;

use protobuf::well_known_types::wrappers::StringValue;
use socket2::{Domain, SockAddr, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep};
use ttrpc_keepalive::keepalive::{Keepalive, PeerSupport};
use ttrpc_keepalive::{
    Client, ConnectError, Context, DeadReason, Listener, Server, Service, Socket, Unknown, Verdict,
};

use super::support::*;
use super::{bind_replacing, io_error, leave_stale, place, serve};

// F1, F9
#[tokio::test]
async fn a_vsock_address_is_dialled_with_its_feature_and_names_it_without() {
    let client = Client::builder().connect_timeout(secs(5));
    let error = client.connect("vsock://2:4294967000").await.unwrap_err();
    if cfg!(feature = "vsock") {
        // Nobody listens there, if this machine has vsock at all.
        assert!(io_error(&error).raw_os_error().is_some(), "{error:?}");
    } else {
        assert!(error.to_string().contains("feature `vsock`"), "{error}");
    }
}

// F7
#[tokio::test(start_paused = true)]
async fn a_server_that_is_not_there_is_told_at_once_unless_a_retry_is_asked_for() {
    let place = place();
    for kind in [ErrorKind::NotFound, ErrorKind::ConnectionRefused] {
        if kind == ErrorKind::ConnectionRefused {
            leave_stale(&place.path);
        }
        let start = Instant::now();
        let error = Client::builder().connect(&place.address).await.unwrap_err();
        assert_eq!(io_error(&error).kind(), kind);
        assert_passed(start, ms(0));

        let client = Client::builder().connect_timeout(secs(3));
        let client = client.connect_retry(ms(100));
        let error = client.connect(&place.address).await.unwrap_err();
        assert!(matches!(error, ConnectError::TimedOut { .. }), "{error:?}");
        assert_eq!(io_error(&error).kind(), kind, "of the last attempt");
        assert_passed(start, secs(3));
    }
}

// F7, F8
#[tokio::test(start_paused = true)]
async fn a_retry_meets_a_server_that_starts_later() {
    let place = place();
    leave_stale(&place.path);
    let address = place.address.clone();
    tokio::spawn(async move {
        sleep(secs(20)).await;
        serve(bind_replacing(&address).await.unwrap()).await
    });
    let start = Instant::now();
    let client = Client::builder().connect_timeout(secs(60));
    let client = client.connect_retry(ms(250));
    let client = client.connect(&place.address).await.unwrap();
    assert!(start.elapsed() < secs(21), "{:?}", start.elapsed());
    assert!(say(&client).await.is_ok());
}

// The twin of a blocking connect, which waits for room in the queue.
#[tokio::test(start_paused = true)]
async fn a_full_queue_of_connections_is_waited_for() {
    let place = place();
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    socket.bind(&SockAddr::unix(&place.path).unwrap()).unwrap();
    socket.listen(0).unwrap();
    let _first = Client::builder().connect(&place.address).await.unwrap();
    let start = Instant::now();
    let client = Client::builder().connect_timeout(secs(2));
    let error = client.clone().connect(&place.address).await.unwrap_err();
    assert_eq!(io_error(&error).kind(), ErrorKind::WouldBlock);
    assert_passed(start, secs(2));
    let accepting = tokio::spawn(async move {
        sleep(secs(1)).await;
        (socket.accept().unwrap(), socket)
    });
    client.connect(&place.address).await.unwrap();
    assert!(accepting.is_finished());
}

// F6: a socket of a process that is stuck before its first accept.
#[tokio::test(start_paused = true)]
async fn a_server_that_never_accepts_is_dead_if_it_was_assumed_to_answer_and_not_reading_if_not() {
    let place = place();
    let _stuck = StdListener::bind(&place.path).unwrap();
    for (support, dies) in [(PeerSupport::Assume, true), (PeerSupport::Learn, false)] {
        let keepalive = Keepalive::every(secs(2)).timeout(secs(5));
        let client = Client::builder().keepalive(keepalive.peer_support(support));
        let client = client.connect(&place.address).await.unwrap();
        let start = Instant::now();
        let error = say_within(&client, secs(60)).await.unwrap_err();
        if dies {
            let end = client.closed().await;
            assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
            assert!(error.is_connection());
            assert_passed(start, secs(5));
        } else {
            // Where the kernel tells so.
            let verdict = match cfg!(target_os = "linux") {
                true => Verdict::NotReading,
                false => Verdict::Unknown(Unknown::NoSupport),
            };
            assert_eq!(error.verdict(), Some(verdict));
            assert_passed(start, secs(60));
            assert!(!client.snapshot().state().is_final());
        }
    }
}

/// A TCP socket that is connected to itself, as the system makes one when it chooses the port for it
/// that it was to reach.
fn connected_to_itself() -> socket2::Socket {
    let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    socket.connect(&socket.local_addr().unwrap()).unwrap();
    socket
}

#[tokio::test]
async fn a_socket_that_is_connected_to_itself_is_refused() {
    let error = Socket::from_fd(connected_to_itself()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("itself"), "{error}");
}

// The port is one that the system may choose itself, and somebody who tries it again and again meets that.
#[tokio::test]
async fn a_retry_never_connects_to_itself_and_leaves_the_port_to_the_server() {
    let free = StdTcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", free.local_addr().unwrap());
    drop(free);
    let mut trying = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let client = Client::builder().connect_timeout(secs(3));
        let (client, address) = (client.connect_retry(ms(1)), address.clone());
        trying.spawn(async move { client.connect(&address).await });
    }
    while let Some(tried) = trying.join_next().await {
        let error = tried.unwrap().unwrap_err();
        assert!(matches!(error, ConnectError::TimedOut { .. }), "{error:?}");
    }
    let listener = Listener::bind(&address).await.unwrap();
    serve(listener);
    let client = Client::builder().connect(&address).await.unwrap();
    assert!(say(&client).await.is_ok());
}

#[tokio::test]
async fn both_sides_of_a_tcp_connection_know_the_address_of_the_other() {
    let listener = Listener::bind("tcp://127.0.0.1:0").await.unwrap();
    let port = listener.port().unwrap();
    let who = |call: Context, _: StringValue| async move {
        Ok(text(&call.remote_address().unwrap().to_string()))
    };
    let server = Server::builder().service(
        Service::new("demo.Echo", ())
            .unary("Say", move |(), context, request| who(context, request)),
    );
    let server = server.build().unwrap();
    tokio::spawn(async move { server.serve(listener).await });
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", u16::try_from(port).unwrap()));
    let stream = stream.await.unwrap();
    let here = stream.local_addr().unwrap();
    let client = Client::builder().attach(stream).unwrap();
    assert_eq!(
        client.remote_address().unwrap().port(),
        u16::try_from(port).unwrap()
    );
    assert_eq!(say(&client).await.unwrap().value, here.to_string());

    let place = place();
    serve(Listener::bind(&place.address).await.unwrap());
    let client = Client::builder().connect(&place.address).await.unwrap();
    assert_eq!(client.remote_address(), None);
}

#[tokio::test]
async fn a_bare_path_is_an_address() {
    let place = place();
    let path = place.path.to_str().unwrap();
    serve(Listener::bind(path).await.unwrap());
    let client = Client::builder().connect(path).await.unwrap();
    assert!(say(&client).await.is_ok());
}

/// The line of a monitor's socket, before a virtual machine's port is reached.
async fn enter(mut socket: Socket) -> io::Result<Socket> {
    socket.write_all(b"CONNECT 1024\n").await?;
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        line.push(socket.read_u8().await?);
    }
    match line.starts_with(b"OK ") {
        true => Ok(socket),
        false => Err(ErrorKind::ConnectionRefused.into()),
    }
}

#[tokio::test]
async fn a_handshake_is_a_part_of_each_attempt_to_connect() {
    let place = place();
    let listener = tokio::net::UnixListener::bind(&place.path).unwrap();
    tokio::spawn(async move {
        // The machine boots: its port is closed, then the monitor hangs up, then it is there.
        for answer in [Some("NO\n"), None, Some("OK 1073741824\n")] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut line = [0; 13];
            stream.read_exact(&mut line).await.unwrap();
            assert_eq!(&line, b"CONNECT 1024\n");
            let Some(answer) = answer else { continue };
            stream.write_all(answer.as_bytes()).await.unwrap();
            if answer.starts_with("OK") {
                echo().build().unwrap().serve_connection(stream).await;
            }
        }
    });
    let client = Client::builder().connect_retry(ms(10));
    let connecting = tokio::spawn({
        let address = place.address.clone();
        async move { client.connect_with(&address, enter).await }
    });
    let client = connecting.await.unwrap().unwrap();
    assert!(say(&client).await.is_ok());
}

// A monitor that never answers costs the time that was given, and no more.
#[tokio::test]
async fn a_handshake_that_hangs_ends_with_the_time_to_connect() {
    let place = place();
    let _silent = StdListener::bind(&place.path).unwrap();
    let start = Instant::now();
    let client = Client::builder().connect_timeout(ms(300));
    let error = client
        .connect_with(&place.address, enter)
        .await
        .unwrap_err();
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error:?}");
    assert!(start.elapsed() < secs(5));
}
