//! A plugin: a process of its own, which sets a variable in each container.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixStream;
use ttrpc_keepalive::{Client, Context, DriverThread, Server, Status};
use ttrpc_keepalive_nri::api::{
    ConfigureRequest, ConfigureResponse, CreateContainerRequest, CreateContainerResponse, Event,
    KeyValue, RegisterPluginRequest, SynchronizeRequest, SynchronizeResponse,
};
use ttrpc_keepalive_nri::multiplexer::Multiplexer;
use ttrpc_keepalive_nri::services::{Plugin, RuntimeClient, plugin_service};

use crate::{FROZEN_IN, FROZEN_WORK, Result, SLOW_IN, SLOW_WORK, WEDGED_FOR, WEDGED_IN};

struct Playing {
    name: String,
}

/// Plays a plugin until the runtime's process is gone. It registers anew when it is disconnected.
pub(crate) async fn play(name: &str, socket: &Path) -> Result<()> {
    end_with_the_runtime();
    let (index, base) = name.split_once('-').ok_or("a plugin is called 10-name")?;
    let playing = Arc::new(Playing {
        name: base.to_owned(),
    });
    // A thread of its own answers PINGs, whatever blocks the one of the handlers.
    let server = Server::builder()
        .driver_thread(DriverThread::Dedicated)
        .service(plugin_service(playing))
        .build()?;
    loop {
        let Ok(stream) = UnixStream::connect(socket).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let connections = Multiplexer::new().split(stream);
        let serving = server.serve_connection(connections.plugin_service);
        let client = Client::builder()
            .driver_thread(DriverThread::Dedicated)
            .attach(connections.runtime_service)?;
        let mut request = RegisterPluginRequest::new();
        request.plugin_idx = index.to_owned();
        request.plugin_name = base.to_owned();
        let registering = async {
            note("connected");
            if let Err(error) = RuntimeClient::new(client.clone())
                .register_plugin(&request)
                .await
            {
                eprintln!("{name}: {error}");
            }
            std::future::pending::<()>().await
        };
        tokio::select! {
            _ = serving => note("disconnected"),
            () = registering => {}
        }
    }
}

impl Plugin for Playing {
    async fn configure(
        &self,
        _: Context,
        _: ConfigureRequest,
    ) -> std::result::Result<ConfigureResponse, Status> {
        let mut response = ConfigureResponse::new();
        response.events = 1 << (protobuf::Enum::value(&Event::CREATE_CONTAINER) - 1);
        Ok(response)
    }

    async fn synchronize(
        &self,
        _: Context,
        _: SynchronizeRequest,
    ) -> std::result::Result<SynchronizeResponse, Status> {
        note("synchronized");
        Ok(SynchronizeResponse::new())
    }

    async fn create_container(
        &self,
        _: Context,
        request: CreateContainerRequest,
    ) -> std::result::Result<CreateContainerResponse, Status> {
        let number = request.container.name.parse().unwrap_or(0);
        note(&format!("got {number}"));
        match (self.name.as_str(), number) {
            ("slow", SLOW_IN) => tokio::time::sleep(SLOW_WORK).await,
            // As a lock does that is never released, or a call into code that does not come back.
            ("wedged", WEDGED_IN) => std::thread::sleep(WEDGED_FOR),
            ("frozen", FROZEN_IN) => tokio::time::sleep(FROZEN_WORK).await,
            _ => {}
        }
        let mut variable = KeyValue::new();
        variable.key.clone_from(&self.name);
        let mut response = CreateContainerResponse::new();
        response.adjust.mut_or_insert_default().env.push(variable);
        Ok(response)
    }
}

/// Writes a line of this process's own record.
fn note(line: &str) {
    // Nobody reads it any more when the runtime is gone, and then this process ends too.
    let _ = writeln!(io::stdout(), "{line}");
}

/// The runtime holds the other end of standard input and never writes: however it ends, the pipe ends with it,
/// and so does this process.
fn end_with_the_runtime() {
    // A thread, because a read of standard input cannot be cancelled.
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(0);
    });
}
