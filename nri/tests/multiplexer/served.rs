//! Clients and servers on both ends.

use std::sync::{Arc, OnceLock};

use protobuf::well_known_types::wrappers::BytesValue;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use ttrpc_keepalive::{Client, Code, Context, DriverThread, Server, Service, Socket, Status};
use ttrpc_keepalive_nri::multiplexer::Multiplexer;

use super::support::*;

/// The clients on both ends of one socket: of the runtime, and of the plugin.
fn connect() -> (Client, Client) {
    let (here, there) = UnixStream::pair().unwrap();
    let plugin = Multiplexer::new().split(here);
    let runtime = Multiplexer::new().split(there);
    tokio::spawn(async move { echo().serve_connection(plugin.plugin_service).await });
    tokio::spawn(async move { echo().serve_connection(runtime.runtime_service).await });
    let to_plugin = Client::builder().attach(runtime.plugin_service).unwrap();
    let to_runtime = Client::builder().attach(plugin.runtime_service).unwrap();
    (to_plugin, to_runtime)
}

#[tokio::test]
async fn both_ends_call_each_other_over_one_socket() {
    let (to_plugin, to_runtime) = connect();
    for length in [0, 1, 4000, 4075, 4096, 5000, 70_000, 1 << 20, 4_000_000] {
        let both = tokio::join!(say(&to_plugin, length), say(&to_runtime, length));
        both.0.unwrap();
        both.1.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn many_calls_of_all_sizes_in_both_directions_are_answered() {
    let (to_plugin, to_runtime) = connect();
    let mut calls = JoinSet::new();
    for number in 0_usize..200 {
        let client = [&to_plugin, &to_runtime][number % 2].clone();
        calls.spawn(async move { say(&client, (number * 7919) % 150_000).await });
    }
    while let Some(ended) = calls.join_next().await {
        ended.unwrap().unwrap();
    }
}

// A plugin that asks its runtime for an update while it handles an event, and the other way round.
#[tokio::test]
async fn handlers_of_one_connection_may_call_on_the_other() {
    let (here, there) = UnixStream::pair().unwrap();
    let plugin = Multiplexer::new().split(here);
    let runtime = Multiplexer::new().split(there);
    let back: [Arc<OnceLock<Client>>; 2] = Default::default();
    let server = |back: &Arc<OnceLock<Client>>| {
        let ask = |back: Arc<OnceLock<Client>>, _: Context, request: BytesValue| async move {
            let client = back.get().unwrap();
            let answer = client.call("demo.Echo", "Say", &request).await;
            answer.map_err(|error| Status::new(Code::INTERNAL, error.to_string()))
        };
        let say = |_: Arc<OnceLock<Client>>, _: Context, request: BytesValue| async move {
            Ok::<_, Status>(request)
        };
        let service = Service::new("demo.Echo", Arc::clone(back));
        let service = service
            .unary("Say", say)
            .unary::<_, BytesValue, _>("Ask", ask);
        Server::builder().service(service).build().unwrap()
    };
    let (first, second) = (server(&back[0]), server(&back[1]));
    tokio::spawn(async move { first.serve_connection(plugin.plugin_service).await });
    tokio::spawn(async move { second.serve_connection(runtime.runtime_service).await });
    let to_plugin = Client::builder().attach(runtime.plugin_service).unwrap();
    let to_runtime = Client::builder().attach(plugin.runtime_service).unwrap();
    back[0].set(to_runtime.clone()).unwrap();
    back[1].set(to_plugin.clone()).unwrap();
    let mut calls = JoinSet::new();
    for number in 0..200 {
        let client = [&to_plugin, &to_runtime][number % 2].clone();
        calls.spawn(async move {
            let request = BytesValue::new();
            let answer = client.call("demo.Echo", "Ask", &request).await;
            answer.map(|_: BytesValue| ())
        });
    }
    while let Some(ended) = calls.join_next().await {
        ended.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_descriptor_that_was_passed_on_can_be_split_and_who_is_there_is_told() {
    let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    let plugin = Multiplexer::new().split(Socket::from_fd(here).unwrap());
    let runtime = Multiplexer::new().split(Socket::from_fd(there).unwrap());
    tokio::spawn(async move { echo().serve_connection(plugin.plugin_service).await });
    let client = Client::builder().attach(runtime.plugin_service).unwrap();
    say(&client, 10).await.unwrap();
    let peer = client.peer_credentials().unwrap();
    assert_eq!(peer.pid(), i32::try_from(std::process::id()).ok());
}

// The stream was made on the runtime that is blocked, and the driver of one connection lives there.
#[test]
fn a_runtime_that_is_blocked_stops_no_connection_that_is_driven_elsewhere() {
    let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let (free, is_free) = std::sync::mpsc::channel::<()>();
    let blocked = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(async {
            let plugin = Multiplexer::new().split(Socket::from_fd(here).unwrap());
            let client = Client::builder().attach(plugin.runtime_service).unwrap();
            // It drives, and is the one that was busy last.
            say(&client, 10).await.unwrap();
            let say =
                |_: Arc<()>, _: Context, request: BytesValue| async { Ok::<_, Status>(request) };
            let service = Service::new("demo.Echo", Arc::new(())).unary("Say", say);
            let server = Server::builder().service(service);
            let server = server
                .driver_thread(DriverThread::Dedicated)
                .build()
                .unwrap();
            tokio::spawn(async move { server.serve_connection(plugin.plugin_service).await });
            tokio::time::sleep(ms(200)).await;
            say_within(&client, secs(30)).await.unwrap();
            ready.send(()).unwrap();
            is_free.recv().unwrap();
            drop(client);
        });
    });
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(async {
        let there = Multiplexer::new().split(Socket::from_fd(there).unwrap());
        tokio::spawn(async move { echo().serve_connection(there.runtime_service).await });
        let client = Client::builder().attach(there.plugin_service).unwrap();
        while is_ready.try_recv().is_err() {
            tokio::time::sleep(ms(10)).await;
        }
        for _ in 0..20 {
            client.probe(secs(20)).await.unwrap();
        }
        free.send(()).unwrap();
    });
    blocked.join().unwrap();
}
