//! Every seed through the check of its target.

use std::fs;
use std::path::Path;

/// Calls `check` with every file in the seeds of this target.
fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("seeds")
        .join(target);
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // Tells which seed it was, if the check panics.
        println!("{}", path.display());
        check(&fs::read(path).unwrap());
        seen += 1;
    }
    assert!(seen > 0, "no seeds");
}

#[test]
fn connection() {
    replay("connection", ttrpc_keepalive_fuzz::connection::check);
}

#[test]
fn decoder() {
    replay("decoder", ttrpc_keepalive_fuzz::decoder::check);
}

#[test]
fn machine() {
    replay("machine", ttrpc_keepalive_fuzz::machine::check);
}

#[test]
fn multiplexer() {
    replay("multiplexer", ttrpc_keepalive_fuzz::multiplexer::check);
}

#[test]
fn server() {
    replay("server", ttrpc_keepalive_fuzz::server::check);
}
