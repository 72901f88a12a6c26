//! ttrpc-keepalive-compat, in the place of ttrpc-rust.

use std::sync::Arc;

use generated::interop_ttrpc::{create_streams, create_unary};

#[path = "../ttrpc-0.10/sync.rs"]
mod sync;

include!("../ttrpc_rust.rs");

async fn connect(address: &str) -> ttrpc::Result<Client> {
    Client::connect(address).await
}

fn register(server: Server, blocks: bool) -> Server {
    server
        .register_service(create_unary(Arc::new(Handler { blocks })))
        .register_service(create_streams(Arc::new(Handler { blocks })))
}

fn serve_sync(address: &str) -> Result<()> {
    sync::serve(address)
}
