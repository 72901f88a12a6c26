//! The server without async: each handler has a thread.

use std::sync::Arc;
use std::time::Duration;

use generated::unary::{Number, Text};
use generated::unary_ttrpc::{Unary, create_unary};
use ttrpc::sync::{Server, TtrpcContext};

#[allow(clippy::all, clippy::pedantic, unused, renamed_and_removed_lints)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/sync/mod.rs"));
}

struct Handler;

impl Unary for Handler {
    fn say(&self, _: &TtrpcContext, request: Text) -> ttrpc::Result<Text> {
        Ok(request)
    }

    fn sleep(&self, _: &TtrpcContext, ms: Number) -> ttrpc::Result<Number> {
        std::thread::sleep(Duration::from_millis(ms.value.unsigned_abs()));
        Ok(ms)
    }
}

/// Serves until the input ends.
pub(crate) fn serve(address: &str) -> super::Result<()> {
    let server = Server::new().bind(address)?;
    let mut server = server.register_service(create_unary(Arc::new(Handler)));
    server.start()?;
    println!("ready");
    for line in std::io::stdin().lines() {
        line?;
    }
    Ok(())
}
