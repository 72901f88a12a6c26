//! ttrpc-keepalive-compat, in the place of ttrpc-rust.

use std::sync::Arc;

use generated::interop_ttrpc::{create_streams, create_unary};

include!("../ttrpc_rust.rs");

async fn connect(address: &str) -> ttrpc::Result<Client> {
    Client::connect(address).await
}

fn register(server: Server) -> Server {
    server
        .register_service(create_unary(Arc::new(Handler)))
        .register_service(create_streams(Arc::new(Handler)))
}
