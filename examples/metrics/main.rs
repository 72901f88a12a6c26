//! Metrics of calls and of peers, by the hook and the liveness stream alone: `record.rs` is made to be
//! taken along. With the `metrics` crate any recorder will do; here it is that of Prometheus.
//!
//! A client calls two servers: one answers, refuses and is late, the other blocks its only thread, is
//! convicted, and its calls fail. The page that Prometheus would fetch is printed. Exits with 1 if a
//! line is missing.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

mod record;

use std::error::Error;
use std::thread;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use protobuf::well_known_types::empty::Empty;
use tokio::net::UnixStream;
use ttrpc_keepalive::{Client, Code, Keepalive, Server, Service, Socket, Status};

const SERVICE: &str = "demo.Work";
const EVERY: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(1);

/// What the page must say at the end, in the form in which Prometheus reads it.
const EXPECTED: &[&str] = &[
    r#"ttrpc_calls_total{method="demo.Work/Do",outcome="answered"} 3"#,
    r#"ttrpc_calls_total{method="demo.Work/Refuse",outcome="refused"} 1"#,
    r#"ttrpc_calls_total{method="demo.Work/Late",outcome="late: slow"} 1"#,
    r#"ttrpc_calls_total{method="demo.Work/Block",outcome="late: unresponsive"} 1"#,
    r#"ttrpc_calls_total{method="demo.Work/Do",outcome="connection ended"} 1"#,
    r#"ttrpc_peer{peer="well"} 2"#,
    r#"ttrpc_peer{peer="stuck"} 0"#,
    r#"ttrpc_late_calls{peer="well"} 1"#,
    r#"ttrpc_silences_total{peer="stuck"} 1"#,
    r#"ttrpc_convictions_total{peer="stuck",reason="silent"} 1"#,
];

fn server() -> Result<Server, Box<dyn Error>> {
    let server = Server::builder().service(
        Service::new(SERVICE, ())
            .unary("Do", |(), _, _: Empty| async { Ok(Empty::new()) })
            .unary("Refuse", |(), _, _: Empty| async {
                Err::<Empty, _>(Status::new(Code::FAILED_PRECONDITION, "not now"))
            })
            .unary("Late", |(), _, _: Empty| async {
                tokio::time::sleep(Duration::from_secs(60)).await;
                Ok(Empty::new())
            })
            .unary("Block", |(), _, _: Empty| async {
                thread::sleep(Duration::from_secs(5));
                Ok(Empty::new())
            }),
    );
    Ok(server.build()?)
}

/// A server in a thread of its own, and a client of it whose calls are counted.
async fn client(name: &'static str) -> Result<Client, Box<dyn Error>> {
    let (here, there) = std::os::unix::net::UnixStream::pair()?;
    there.set_nonblocking(true)?;
    let server = server()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    thread::spawn(move || {
        runtime.block_on(async {
            if let Ok(there) = UnixStream::from_std(there) {
                server.serve_connection(there).await;
            }
        });
    });
    let client = Client::builder()
        .keepalive(Keepalive::every(EVERY).timeout(TIMEOUT))
        .hook(record::count_call)
        .attach(Socket::from_fd(here)?)?;
    tokio::spawn(record::watch(name, client.liveness(), EVERY));
    Ok(client)
}

async fn call(client: &Client, method: &str) -> Result<Empty, ttrpc_keepalive::Error> {
    client
        .call(SERVICE, method, &Empty::new())
        .timeout(LIMIT)
        .await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let page = PrometheusBuilder::new().install_recorder()?;
    record::describe();

    let (well, stuck) = (client("well").await?, client("stuck").await?);
    call(&well, "Do").await?;
    call(&stuck, "Do").await?;
    for (client, method) in [(&well, "Refuse"), (&well, "Late"), (&stuck, "Block")] {
        if let Err(error) = call(client, method).await {
            println!("{method}: {error}");
        }
    }
    println!("the other: {}", stuck.closed().await);
    if let Err(error) = call(&stuck, "Do").await {
        println!("Do: {error}");
    }
    call(&well, "Do").await?;
    tokio::time::sleep(2 * EVERY).await;

    let page = page.render();
    println!("\n{page}");
    let missing: Vec<_> = EXPECTED
        .iter()
        .filter(|line| !page.contains(**line))
        .collect();
    if !missing.is_empty() {
        return Err(format!("the page lacks {missing:#?}").into());
    }
    Ok(())
}
