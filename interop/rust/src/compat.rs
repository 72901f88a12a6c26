//! What a PING and a PONG of the RFC are to peers that do not know them, and the table of it that
//! stands in `RFC.md`.

mod client;
mod server;

use std::path::Path;
use std::sync::Arc;

use tokio::time::{Duration, timeout};
use ttrpc_keepalive::wire::{Flags, Frame, Header, MessageType, PING_STREAM_ID, Response};

use crate::Result;
use crate::process::Process;
use crate::report::World;
use crate::table::Place;

const PLACE: Place = Place {
    file: "RFC.md",
    begin: "<!-- Written by `interop/run compat --write`. -->",
};

/// How many frames of a kind are sent, besides the first.
const MANY: usize = 20;

/// A program that serves and calls as `interop/go/peer` does.
struct Peer {
    name: &'static str,
    version: &'static str,
    /// What was done to it.
    but: &'static str,
    program: &'static str,
    options: &'static [&'static str],
    /// Whether it has streams.
    streams: bool,
    /// Whether the program is a client, too.
    calls: bool,
}

const fn peer(name: &'static str, version: &'static str, program: &'static str) -> Peer {
    Peer {
        name,
        version,
        but: "",
        program,
        options: &[],
        streams: true,
        calls: true,
    }
}

const fn without_streams(peer: Peer) -> Peer {
    Peer {
        streams: false,
        ..peer
    }
}

const PEERS: &[Peer] = &[
    without_streams(peer("containerd/ttrpc", "1.0.2", "interop/go/peer-1.0.2")),
    without_streams(peer("containerd/ttrpc", "1.1.2", "interop/go/peer-1.1.2")),
    peer("containerd/ttrpc", "1.2.2", "interop/go/peer-1.2.2"),
    peer("containerd/ttrpc", "1.2.5", "interop/go/peer-1.2.5"),
    peer("containerd/ttrpc", "1.2.10", "interop/go/peer-1.2.10"),
    peer("ttrpc-rust", "0.8.4", "debug/peer-ttrpc-rust-0-8"),
    peer("ttrpc-rust", "0.9.0", "debug/peer-ttrpc-rust-0-9"),
    peer("ttrpc-rust", "0.10.0", "debug/peer-ttrpc-rust-0-10"),
    peer("trapeze", "0.7.6", "debug/peer-trapeze-0-7"),
    // For comparison, and to see that the measurement can say something else.
    Peer {
        but: ", wrapped",
        options: &["-idle", "10s"],
        ..peer("containerd/ttrpc", "1.2.10", "interop/go/peer-1.2.10")
    },
    Peer {
        but: ", native",
        ..peer("containerd/ttrpc", "1.2.10", "interop/go/peer-native")
    },
    Peer {
        calls: false,
        ..peer("this repository", "0.1", "debug/interop")
    },
];

impl Peer {
    /// What the first column says of it.
    fn label(&self) -> String {
        format!("{} {}{}", self.name, self.version, self.but)
    }

    fn start(&self, world: &World, verb: &str, socket: &Path) -> Result<Process> {
        let path = socket.to_str().ok_or("the path is not UTF-8")?;
        let arguments = [self.options, &[verb, path]].concat();
        Process::start(&world.program(self.program), &arguments, socket)
    }
}

/// Measures all peers and prints the table, or writes it into RFC.md.
pub(crate) async fn show(world: &Arc<World>, write: bool) -> Result<()> {
    let table = measure(world).await?;
    if write {
        return PLACE.write(&table);
    }
    crate::print(&table);
    Ok(())
}

/// Measures all peers, and compares the table with the one in RFC.md.
pub(crate) async fn check(world: &Arc<World>) -> Result<String> {
    PLACE.check(&measure(world).await?)?;
    Ok(format!(
        "{} servers and clients as it says there",
        PEERS.len()
    ))
}

/// The tables of servers and of clients. All peers are measured at once: most of it is waiting.
async fn measure(world: &Arc<World>) -> Result<String> {
    let mut rows = vec![SERVERS.to_owned()];
    let mut measured = Vec::new();
    for peer in PEERS {
        let world = Arc::clone(world);
        measured.push(tokio::spawn(async move { server::row(&world, peer).await }));
    }
    for row in measured.split_off(0) {
        rows.push(row.await??);
    }
    rows.push(CLIENTS.to_owned());
    for peer in PEERS.iter().filter(|peer| peer.calls) {
        let world = Arc::clone(world);
        measured.push(tokio::spawn(async move { client::row(&world, peer).await }));
    }
    for row in measured {
        rows.push(row.await??);
    }
    Ok(rows.join("\n"))
}

const SERVERS: &str = "\
| server | PING gets | PONG gets | calls | shutdown | log | knows |
|---|---|---|---|---|---|---|";

const CLIENTS: &str = "
| client | PING gets | PONG gets | calls | log |
|---|---|---|---|---|";

/// PING or PONG as the RFC has every sender send it.
fn control(message_type: MessageType, number: u64) -> Vec<u8> {
    let header = Header {
        length: 8,
        stream_id: PING_STREAM_ID,
        message_type,
        flags: Flags::NONE,
    };
    [&header.encode()[..], &number.to_be_bytes()].concat()
}

/// How a peer answered: the word that stands in the table.
fn answer(frame: Option<&Frame>) -> Result<String> {
    let Some(frame) = frame else {
        return Ok("nothing".into());
    };
    Ok(match frame.header.message_type {
        MessageType::PONG => "PONG".into(),
        MessageType::RESPONSE => {
            let status = Response::decode(&frame.payload)?.status;
            let code = status.ok_or("a success without a call")?.code();
            code.name().map_or_else(|| code.to_string(), str::to_owned)
        }
        other => format!("a frame of type {other:?}"),
    })
}

/// The lines that a peer has logged for so many frames. They may come a moment after the frame.
async fn lines(process: &Process, frames: usize) -> &'static str {
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        match process.logged().lines().count() {
            0 => return "no line",
            count if count == frames => return "a line a frame",
            _ => {}
        }
    }
    "some lines"
}

/// What comes within so short a time that it can only be an answer.
async fn soon<T>(comes: impl Future<Output = T>) -> Option<T> {
    timeout(Duration::from_millis(500), comes).await.ok()
}
