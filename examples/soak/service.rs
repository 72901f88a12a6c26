//! The server: methods that answer at once, too late, or as a stream, and the number of handlers
//! that run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use protobuf::well_known_types::wrappers::{BytesValue, UInt32Value};
use tokio::time::sleep;
use ttrpc_keepalive::{ConfigError, Keepalive, Requests, Responses, Server, Service, Status};

pub(crate) const SERVICE: &str = "soak.Work";

/// Handlers that run, as they count themselves.
#[derive(Clone, Default)]
pub(crate) struct Running(Arc<AtomicUsize>);

impl Running {
    pub(crate) fn now(&self) -> usize {
        self.0.load(Relaxed)
    }

    fn begin(&self) -> Handler {
        self.0.fetch_add(1, Relaxed);
        Handler(self.clone())
    }
}

/// Counts for as long as it lives.
struct Handler(Running);

impl Drop for Handler {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

pub(crate) fn server(keepalive: Keepalive, running: &Running) -> Result<Server, ConfigError> {
    let counted = || running.clone();
    let (echo, wait, count, converse, gather) =
        (counted(), counted(), counted(), counted(), counted());
    Server::builder()
        .keepalive(keepalive)
        .service(
            Service::new(SERVICE, ()).unary("Echo", move |(), _, request: BytesValue| {
                let handler = echo.begin();
                async move {
                    let _handler = handler;
                    Ok(request)
                }
            }),
        )
        // Answers after as many milliseconds as asked for.
        .service(
            Service::new(SERVICE, ()).unary("Wait", move |(), _, request: UInt32Value| {
                let handler = wait.begin();
                async move {
                    let _handler = handler;
                    sleep(Duration::from_millis(request.value.into())).await;
                    Ok(request)
                }
            }),
        )
        // How many requests this connection's server is at, besides this one.
        .service(
            Service::new(SERVICE, ()).unary("Served", |(), call, _: UInt32Value| async move {
                let others = call.snapshot().calls_in_flight().saturating_sub(1);
                Ok(message(others.try_into().unwrap_or(u32::MAX)))
            }),
        )
        // As many messages as asked for.
        .service(
            Service::new(SERVICE, ())
                .server_stream(
                    "Count",
                    move |(), _, request: UInt32Value, responses: Responses<UInt32Value>| {
                        let handler = count.begin();
                        async move {
                            let _handler = handler;
                            for number in 0..request.value {
                                responses.send(&message(number)).await?;
                            }
                            Ok(())
                        }
                    },
                )
                .bidi_stream(
                    "Converse",
                    move |_,
                          _,
                          mut requests: Requests<UInt32Value>,
                          responses: Responses<UInt32Value>| {
                        let handler = converse.begin();
                        async move {
                            let _handler = handler;
                            while let Some(request) = requests.next().await {
                                responses.send(&request?).await?;
                            }
                            Ok(())
                        }
                    },
                ),
        )
        // The number of requests.
        .service(Service::new(SERVICE, ()).client_stream(
            "Gather",
            move |(), _, mut requests: Requests<UInt32Value>| {
                let handler = gather.begin();
                async move {
                    let _handler = handler;
                    let mut received = 0;
                    while let Some(request) = requests.next().await {
                        request?;
                        received += 1;
                    }
                    Ok::<_, Status>(message(received))
                }
            },
        ))
        .build()
}

pub(crate) fn message(number: u32) -> UInt32Value {
    let mut message = UInt32Value::new();
    message.value = number;
    message
}
