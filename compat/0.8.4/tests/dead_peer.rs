//! An unmodified caller of ttrpc 0.8.4 whose peer is dead.

include!("../../unmodified/dead_peer.rs");

async fn connect(address: &str) -> ttrpc::Result<ttrpc::r#async::Client> {
    ttrpc::r#async::Client::connect(address)
}
