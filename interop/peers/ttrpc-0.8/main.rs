//! ttrpc-rust 0.8.

use std::sync::Arc;

use generated::interop_ttrpc::{create_streams, create_unary};

include!("../ttrpc_rust.rs");

async fn connect(address: &str) -> ttrpc::Result<Client> {
    Client::connect(address)
}

fn register(server: Server, blocks: bool) -> Server {
    server
        .register_service(create_unary(Arc::new(Box::new(Handler { blocks }))))
        .register_service(create_streams(Arc::new(Box::new(Handler { blocks }))))
}

fn serve_sync(_: &str) -> Result<()> {
    Err("only with 0.10".into())
}
