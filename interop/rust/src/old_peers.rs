//! Peers of today, unmodified: none of them knows PING. What is asked of them to be judged.

use std::path::PathBuf;
use std::sync::Arc;

use protobuf::well_known_types::wrappers::Int64Value;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use ttrpc_keepalive::{Call, Client, Context, Server, Status, Support};
use ttrpc_keepalive_nri::api::{
    ConfigureRequest, ConfigureResponse, Container, CreateContainerRequest,
    CreateContainerResponse, Empty, RegisterPluginRequest, SynchronizeRequest, SynchronizeResponse,
};
use ttrpc_keepalive_nri::multiplexer::Multiplexer;
use ttrpc_keepalive_nri::services::{self, plugin_names};

use crate::Result;
use crate::process::Process;
use crate::report::{World, claim};
use crate::service::{int, unary_of};
use crate::to_go::say;

/// How long a handler sleeps, in milliseconds. A plugin's sleeps as long for a container that is called slow.
const ASLEEP: i64 = 3000;

#[derive(Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    program: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A server, and how it serves.
    Server(&'static str),
    /// A server that reads on the thread that its handlers block.
    Blocking(&'static str),
    /// A plugin, which connects by itself, and is called behind its multiplexer.
    Plugin,
}

const RUST: &str = "debug/peer-ttrpc-rust-0-10";

pub(crate) const PEERS: &[Peer] = &[
    server("containerd/ttrpc 1.0.2", "interop/go/peer-1.0.2"),
    server("containerd/ttrpc 1.1.2", "interop/go/peer-1.1.2"),
    server("containerd/ttrpc 1.2.2", "interop/go/peer-1.2.2"),
    server("containerd/ttrpc 1.2.5", "interop/go/peer-1.2.5"),
    server("containerd/ttrpc 1.2.10", "interop/go/peer-1.2.10"),
    server("ttrpc-rust 0.8.4", "debug/peer-ttrpc-rust-0-8"),
    server("ttrpc-rust 0.9.0", "debug/peer-ttrpc-rust-0-9"),
    server("ttrpc-rust 0.10.0", RUST),
    Peer {
        kind: Kind::Server("serve-sync"),
        ..server("ttrpc-rust 0.10.0, sync", RUST)
    },
    Peer {
        kind: Kind::Blocking("serve-on-one-thread"),
        ..server("ttrpc-rust 0.10.0, on one thread, blocked", RUST)
    },
    server("trapeze 0.7.6", "debug/peer-trapeze-0-7"),
    plugin("Go's NRI stub 0.8.0", "interop/go/nri-plugin-0.8.0"),
    plugin("Go's NRI stub 0.12.5", "interop/go/nri-plugin-0.12.5"),
];

const fn server(name: &'static str, program: &'static str) -> Peer {
    Peer {
        name,
        program,
        kind: Kind::Server("serve"),
    }
}

const fn plugin(name: &'static str, program: &'static str) -> Peer {
    Peer {
        name,
        program,
        kind: Kind::Plugin,
    }
}

/// A peer that was just started, and a client with what it has by default, which has been answered.
pub(crate) struct Pair {
    kind: Kind,
    pub(crate) process: Process,
    pub(crate) socket: PathBuf,
    pub(crate) client: Client,
    /// Lines in its log before anything was late.
    logged: usize,
}

impl Peer {
    pub(crate) fn is_server(&self) -> bool {
        self.kind != Kind::Plugin
    }

    /// Whether it reads whatever its handlers do.
    pub(crate) fn reads(&self) -> bool {
        !matches!(self.kind, Kind::Blocking(_))
    }

    pub(crate) async fn start(&self, world: &World) -> Result<Pair> {
        let socket = world.socket();
        let path = socket.to_str().ok_or("the path is not UTF-8")?;
        let program = world.program(self.program);
        let (process, client) = match self.kind {
            Kind::Server(how) | Kind::Blocking(how) => {
                let mut process = Process::start(&program, &[how, path], &socket)?;
                process.expect("ready").await?;
                let client = Client::builder().connect(&format!("unix://{path}")).await?;
                (process, client)
            }
            Kind::Plugin => {
                let listener = UnixListener::bind(&socket)?;
                let process = Process::start(&program, &[path], &socket)?;
                (process, registered(&listener).await?)
            }
        };
        let mut pair = Pair {
            kind: self.kind,
            process,
            socket,
            client,
            logged: 0,
        };
        pair.answers().await?;
        let support = pair.client.snapshot().support();
        claim!(support == Support::No, "support {support:?}");
        if pair.kind == Kind::Plugin {
            // It says that it starts. A server of ttrpc-rust has a line of its first PING by now.
            pair.logged = pair.process.logged().lines().count();
        }
        Ok(pair)
    }
}

impl Pair {
    /// A call that is answered at once by a process that runs.
    pub(crate) async fn answers(&self) -> Result<()> {
        if self.kind != Kind::Plugin {
            return say(&self.client, "there").await;
        }
        let request = create("there");
        let (service, method) = (plugin_names::SERVICE, plugin_names::CREATE_CONTAINER);
        let call = self.client.call(service, method, &request);
        let created: CreateContainerResponse = call.await?;
        let env = created.adjust.env.first();
        claim!(
            env.is_some_and(|variable| variable.value == "there"),
            "{created}"
        );
        Ok(())
    }

    /// A call that takes its handler 3 s.
    pub(crate) fn sleep(&self) -> Call<Int64Value> {
        if self.kind != Kind::Plugin {
            return unary_of(&self.client).sleep(&int(ASLEEP));
        }
        let (service, method) = (plugin_names::SERVICE, plugin_names::CREATE_CONTAINER);
        self.client.call(service, method, &create("slow"))
    }

    /// Whether it has logged something since it was started.
    pub(crate) fn has_logged(&self) -> bool {
        self.process.logged().lines().count() > self.logged
    }
}

/// The next plugin that connects, registered and told what runs, which is nothing.
async fn registered(listener: &UnixListener) -> Result<Client> {
    let (stream, _) = listener.accept().await?;
    let connections = Multiplexer::new().split(stream);
    let (register, mut registers) = mpsc::unbounded_channel();
    let service = services::runtime_service(Arc::new(Registry(register)));
    let server = Server::builder().service(service).build()?;
    let served = connections.runtime_service;
    // Until the plugin's process ends.
    tokio::spawn(async move { server.serve_connection(served).await });
    let client = Client::builder().attach(connections.plugin_service)?;
    registers.recv().await.ok_or("it does not register")?;
    let plugin = services::PluginClient::new(client.clone());
    let _: ConfigureResponse = plugin.configure(&ConfigureRequest::new()).await?;
    let _: SynchronizeResponse = plugin.synchronize(&SynchronizeRequest::new()).await?;
    Ok(client)
}

struct Registry(mpsc::UnboundedSender<()>);

impl services::Runtime for Registry {
    async fn register_plugin(
        &self,
        _: Context,
        _: RegisterPluginRequest,
    ) -> std::result::Result<Empty, Status> {
        // Who waits for it may have given up.
        let _ = self.0.send(());
        Ok(Empty::new())
    }
}

fn create(name: &str) -> CreateContainerRequest {
    let mut container = Container::new();
    name.clone_into(&mut container.id);
    name.clone_into(&mut container.name);
    let mut request = CreateContainerRequest::new();
    request.container = Some(container).into();
    request
}
