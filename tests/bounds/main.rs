//! Every row of the table of limits on the front page, walked to its bound with nothing set: the
//! default is what the table says, and what happens there too.
//!
//! A test stands below the name of its row, or the row says where its test is.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says what it expects by panicking"
)]

mod both;
mod client;
mod server;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::path::Path;

use support::*;
use tokio::io::DuplexStream;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::{Client, Status};

const MIB: usize = 1 << 20;

/// A client without keepalive of a scripted peer.
fn client(capacity: usize) -> (Client, Peer<DuplexStream>) {
    scripted(Keepalive::off(), capacity)
}

/// The status on this stream; the next frame is its RESPONSE.
async fn refused(peer: &mut Peer<DuplexStream>, stream_id: u32) -> Status {
    let (id, response) = peer.expect_response().await;
    assert_eq!(id, stream_id);
    response.status.expect("it is refused")
}

/// A row that is added without a test, or a test whose row is gone, fails here.
#[test]
fn every_row_of_the_table_has_a_test_and_every_test_its_row() {
    let front_page = include_str!("../../src/lib.rs");
    let (_, limits) = front_page.split_once("//! # Limits").unwrap();
    let table: BTreeSet<&str> = limits
        .lines()
        .skip_while(|line| !line.starts_with("//! |---"))
        .skip(1)
        .take_while(|line| line.starts_with("//! |"))
        .map(|line| line.split('|').nth(1).unwrap().trim())
        .collect();
    let mut tested = BTreeSet::new();
    let files = [
        include_str!("both.rs"),
        include_str!("client.rs"),
        include_str!("server.rs"),
    ];
    for file in files {
        let mut lines = file.lines();
        while let Some(line) = lines.next() {
            let Some(row) = line.strip_prefix("// row: ") else {
                continue;
            };
            if let Some((row, place)) = row.split_once(", in ") {
                let (file, test) = place.split_once(": ").unwrap();
                let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
                let source = std::fs::read_to_string(file).unwrap();
                assert!(source.contains(&format!("fn {test}()")), "{row}: {place}");
                tested.insert(row);
            } else {
                let next = lines.next().unwrap_or_default();
                assert!(next.starts_with("#[tokio::test"), "{row}: {next}");
                tested.insert(row);
            }
        }
    }
    assert!(table.len() > 5, "{table:?}");
    assert_eq!(tested, table);
}
