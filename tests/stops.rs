//! A process that watches its peers is stopped and continued over and over, while its connections have
//! work. Its own pauses convict nobody, whatever it hears its peers by and however many threads it has.
//!
//! A few stops each; `STOPS=200 cargo test --release --test stops -- --nocapture` makes more, in seven
//! minutes, and prints what was seen.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]
#![allow(
    clippy::print_stdout,
    reason = "children tell their parent, and long runs tell what was seen"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use support::*;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::MessageType;
use ttrpc_keepalive::{
    ByteStream, Client, DeadReason, IntoTransport, Listener, Raw, Responses, Server, Service,
};

/// Connections without calls, whose peers answer PINGs after a while, each after another one: at any time
/// some PINGs are out.
const QUIET: usize = 10;
const ANSWERS: [u64; 5] = [50, 90, 150, 210, 290];

/// Connections with calls and messages, both ways, all the time.
const BUSY: usize = 2;

const TIMEOUT: Duration = ms(1000);

/// What the quiet peers of one process have in common.
#[derive(Default)]
struct Quiet {
    silent: AtomicBool,
    /// Whether the process that watches them is stopped, and how often one has answered meanwhile.
    stopped: AtomicBool,
    answered: AtomicU32,
    peers: AtomicUsize,
}

impl Quiet {
    async fn answer(self: Arc<Self>, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let mut peer = Peer::new(stream);
        let number = self.peers.fetch_add(1, Ordering::Relaxed);
        let after = ms(ANSWERS[number % ANSWERS.len()]);
        while let Some(frame) = peer.next().await {
            assert_eq!(frame.header.message_type, MessageType::PING);
            sleep(after).await;
            if !self.silent.load(Ordering::Relaxed) {
                let stopped = self.stopped.load(Ordering::Relaxed);
                self.answered.fetch_add(stopped.into(), Ordering::Relaxed);
                peer.pong(&frame).await;
            }
        }
    }
}

/// `Flow` sends 8 KiB each until it cannot, `Bytes` yields what it got.
fn busy() -> Server {
    let flow = |(), _, _: Raw, out: Responses<Raw>| async move {
        loop {
            out.send(&raw([7; 8 << 10])).await?;
            sleep(ms(2)).await;
        }
    };
    let service = Service::new("demo.Busy", ()).server_stream("Flow", flow);
    echo().service(service).build().unwrap()
}

/// Keeps a connection busy until it ends.
async fn work(client: Client) {
    let call = client.server_stream::<_, Raw>("demo.Busy", "Flow", &raw(""));
    let mut flow = call.await.unwrap();
    let receives = async { while let Some(Ok(_)) = flow.next().await {} };
    let calls = async {
        let request = raw([7; 32 << 10]);
        while client
            .call::<_, Raw>("demo.Echo", "Bytes", &request)
            .await
            .is_ok()
        {
            sleep(ms(2)).await;
        }
    };
    tokio::join!(receives, calls);
}

/// Watches its peers for as long as it is stopped and continued, and says how many of them it has
/// convicted. Then the quiet ones really are silent.
#[test]
fn child_observer() {
    let Some(told) = plays("child_observer") else {
        return;
    };
    let [kind, threads, quiet, busy] = *told.split(' ').collect::<Vec<_>>() else {
        panic!("{told}");
    };
    let mut runtime = match threads {
        "one" => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(observe(kind, quiet, busy));
}

async fn observe(kind: &str, quiet: &str, busy: &str) {
    let here = Arc::new(Quiet::default());
    let mut watched = Vec::new();
    for _ in 0..QUIET {
        watched.push(connect(kind, quiet, &here, None).await);
    }
    let server = self::busy();
    for _ in 0..BUSY {
        let client = connect(kind, busy, &here, Some(&server)).await;
        tokio::spawn(work(client.clone()));
        watched.push(client);
    }
    println!("\nready");
    tokio::task::spawn_blocking(wait_for_parent).await.unwrap();
    for client in &watched {
        if let Some(end) = client.snapshot().end() {
            println!("{end}");
        }
    }
    let sum = |of: &dyn Fn(&Client) -> u64| watched.iter().map(of).sum::<u64>();
    println!(
        "\nended {}",
        sum(&|client| client.snapshot().state().is_final().into())
    );
    println!(
        "\nstalls {}",
        sum(&|client| client.snapshot().counters().keepalive.local_stalls)
    );
    here.silent.store(true, Ordering::Relaxed);
    println!("\nasked");
    for client in &watched[..QUIET] {
        assert_eq!(
            client.closed().await.dead_reason(),
            Some(DeadReason::Silent)
        );
    }
    println!("\nfound");
}

/// A watched connection to this address, or to a peer in this process where its kind has none.
async fn connect(kind: &str, address: &str, quiet: &Arc<Quiet>, busy: Option<&Server>) -> Client {
    match kind {
        "tcp" => attached_to(TcpStream::connect(address).await.unwrap()),
        "unix" => attached_to(UnixStream::connect(format!("\0{address}")).await.unwrap()),
        // As TLS: nobody can ask the socket below.
        "wrapped" => {
            let stream = UnixStream::connect(format!("\0{address}")).await.unwrap();
            attached_to(ByteStream::new(stream))
        }
        _ => {
            let (here, there) = tokio::io::duplex(64 << 10);
            if let Some(server) = busy.cloned() {
                tokio::spawn(async move { server.serve_connection(there).await });
            } else {
                tokio::spawn(Arc::clone(quiet).answer(there));
            }
            attached_to(here)
        }
    }
}

fn attached_to(stream: impl IntoTransport<Transport: Send> + Send + 'static) -> Client {
    let keepalive = Keepalive::every(ms(100)).timeout(TIMEOUT);
    let client = Client::builder().keepalive(keepalive);
    client.attach(stream).unwrap()
}

/// Serves quiet and busy connections of this kind, and yields their addresses.
async fn serve(kind: &str, name: &str, quiet: Arc<Quiet>) -> [String; 2] {
    let server = busy();
    if kind == "tcp" {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            loop {
                let stream = listener.accept().await.unwrap().0;
                tokio::spawn(Arc::clone(&quiet).answer(stream));
            }
        });
        let listener = Listener::bind("tcp://127.0.0.1:0").await.unwrap();
        let port = listener.port().unwrap();
        tokio::spawn(async move { server.serve(listener).await });
        return [address, format!("127.0.0.1:{port}")];
    }
    let [quietly, busily] = ["quiet", "busy"].map(|of| address(&format!("{name}-{of}")));
    let listener = UnixListener::bind(format!("\0{quietly}")).unwrap();
    tokio::spawn(async move {
        loop {
            let stream = listener.accept().await.unwrap().0;
            tokio::spawn(Arc::clone(&quiet).answer(stream));
        }
    });
    let listener = Listener::bind(&format!("unix://@{busily}")).await.unwrap();
    tokio::spawn(async move { server.serve(listener).await });
    [quietly, busily]
}

/// Stops and continues such a process so often, and says what came of it.
fn stop(runtime: &Runtime, kind: &str, threads: &str, stops: u32) -> String {
    let name = format!("{kind}-{threads}");
    let quiet = Arc::new(Quiet::default());
    let addresses = runtime.block_on(serve(kind, &name, Arc::clone(&quiet)));
    let told = format!("{kind} {threads} {}", addresses.join(" "));
    let mut observer = Process::start("child_observer", &told);
    std::thread::sleep(ms(500));
    for round in 0..stops {
        observer.signal("-STOP");
        quiet.stopped.store(true, Ordering::Relaxed);
        std::thread::sleep(TIMEOUT + ms(200));
        quiet.stopped.store(false, Ordering::Relaxed);
        observer.signal("-CONT");
        // At any point of what it does between two PINGs.
        std::thread::sleep(ms(350) + ms(17) * (round % 13));
    }
    observer.tell();
    let ended = observer.told("ended");
    let stalls = observer.told("stalls");
    observer.told("asked");
    // The twin: it was watching.
    let silent = Instant::now();
    quiet.silent.store(true, Ordering::Relaxed);
    observer.told("found");
    let found = silent.elapsed();
    let answered = quiet.answered.load(Ordering::Relaxed);
    let seen = format!(
        "{name}: stopped {stops} times, {ended} of {} ended, {answered} PONGs came meanwhile, {stalls} \
         pauses seen; then silence found in {found:.1?}",
        QUIET + BUSY
    );
    assert_eq!(ended, "0", "{seen}");
    assert_ne!(stalls, "0", "{seen}");
    assert!(kind == "memory" || answered >= stops, "{seen}");
    assert!(found < secs(20), "{seen}");
    seen
}

#[test]
fn a_process_that_was_stopped_within_its_work_convicts_nobody() {
    let stops = std::env::var("STOPS").map_or(3, |stops| stops.parse().unwrap());
    let runtime = Runtime::new().unwrap();
    std::thread::scope(|scope| {
        let all: Vec<_> = ["unix", "tcp", "wrapped", "memory"]
            .into_iter()
            .flat_map(|kind| ["one", "several"].map(|threads| (kind, threads)))
            .map(|(kind, threads)| {
                let runtime = &runtime;
                scope.spawn(move || println!("{}", stop(runtime, kind, threads, stops)))
            })
            .collect();
        for one in all {
            one.join().unwrap();
        }
    });
    runtime.shutdown_background();
}
