//! The scripts in `interop/vectors/scripts`, played in virtual time.

use std::sync::{Arc, Mutex};

use protobuf::well_known_types::wrappers::StringValue;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::io::{DuplexStream, duplex, split};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{Flags, Frame, MessageType, pong};
use ttrpc_keepalive::{
    Client, Error, Peer, Raw, Receiver, Requests, Responses, Sender, Server, Service, Status,
    Support,
};

use crate::files::{Script, bytes, fits, frames, list, scripts, text, wrong_answers};
use crate::support::{echo, ms, raw};
use crate::{call, ended};

#[tokio::test(start_paused = true)]
async fn both_sides_follow_the_scripts() {
    let mut played = 0;
    for script in scripts() {
        play(&script).await;
        played += 1;
    }
    assert!(played > 20, "{played}");
}

/// The side that a script is played to.
enum Side {
    Server(JoinHandle<()>),
    Client(Box<Caller>),
}

/// A client, and what it has begun.
struct Caller {
    client: Client,
    calls: Vec<JoinHandle<Result<Raw, Error>>>,
    sender: Option<Sender<Raw>>,
    /// Kept, or the client would be told that nobody takes what comes.
    receiver: Option<Receiver<Raw>>,
}

async fn play(script: &Script) {
    let (name, start) = (&script.name, Instant::now());
    let steps = list(&script.entry["steps"]);
    // A pipe with hardly any room, where nothing is to be taken.
    let blocks = steps.iter().any(|step| step.get("blocked").is_some());
    let (here, there) = duplex(if blocks { 8 } else { 1 << 20 });
    let mut side = Side::new(script, here);
    let (reads, mut writes) = split(there);
    let taken = Taken::new(reads);
    let mut newest_ping = None;
    let mut at = ms(0);
    for (number, step) in steps.iter().enumerate() {
        let (verb, value) = step.as_object().unwrap().iter().next().unwrap();
        match &verb[..] {
            "in" => write(&mut writes, &bytes(value)).await,
            "pong" => {
                let ping: &Frame = newest_ping.as_ref().unwrap();
                let answer = pong(ping.header.stream_id, Flags::NONE, &ping.payload);
                write(&mut writes, &answer).await;
            }
            "out" => {
                let came = taken.frames();
                let is_ping = |frame: &&Frame| frame.header.message_type == MessageType::PING;
                newest_ping = came.iter().rfind(is_ping).cloned().or(newest_ping);
                let wrong = wrong_answers(&came, list(value));
                let wrong = wrong.unwrap_or_default();
                assert!(wrong.is_empty(), "{name}, step {number}: {wrong}");
            }
            "after_ms" => {
                at += ms(value.as_u64().unwrap());
                sleep_until(start + at).await;
            }
            "blocked" => taken.blocked.send(value == &json!(true)).unwrap(),
            "dead" => assert_eq!(json!(side.is_dead()), *value, "{name}, step {number}"),
            verb => side.caller().act(verb, value).await,
        }
        sleep(ms(1)).await;
    }
    side.check(script).await;
}

impl Side {
    fn new(script: &Script, stream: DuplexStream) -> Self {
        let time = |times: &Value, key: &str| ms(times[key].as_u64().unwrap());
        let keepalive = match script.entry.get("keepalive") {
            None => Keepalive::on_demand(),
            Some(times) => {
                Keepalive::every(time(times, "interval_ms")).timeout(time(times, "timeout_ms"))
            }
        };
        if script.role == "client" {
            let client = Client::builder().keepalive(keepalive);
            return Self::Client(Box::new(Caller {
                client: client.attach(stream).unwrap(),
                calls: Vec::new(),
                sender: None,
                receiver: None,
            }));
        }
        let server = server(keepalive);
        Self::Server(tokio::spawn(async move {
            server.serve_connection(stream).await;
        }))
    }

    fn is_dead(&self) -> bool {
        match self {
            Self::Server(served) => served.is_finished(),
            Self::Client(caller) => caller.client.peer() == Peer::Gone,
        }
    }

    fn caller(&mut self) -> &mut Caller {
        match self {
            Self::Client(caller) => caller,
            Self::Server(_) => panic!("a server calls nobody"),
        }
    }

    /// The two keys that are read behind the last step.
    async fn check(self, script: &Script) {
        let (name, entry) = (&script.name, &script.entry);
        let Self::Client(caller) = self else {
            return; // A server shows nobody what it knows of PING.
        };
        let Caller { client, calls, .. } = *caller;
        let knows = match client.snapshot().support() {
            Support::Yes => "yes",
            Support::No => "no",
            _ => "undecided",
        };
        if let Some(expected) = entry.get("knows") {
            assert!(fits(&json!(knows), expected), "{name}: {knows}");
        }
        let expected = entry.get("calls").map(list).cloned().unwrap_or_default();
        assert_eq!(calls.len(), expected.len(), "{name}");
        for (call, expected) in calls.into_iter().zip(&expected) {
            let ended = ended(call).await;
            assert!(fits(&ended, expected), "{name}: {ended} and not {expected}");
        }
    }
}

impl Caller {
    async fn act(&mut self, verb: &str, value: &Value) {
        match (verb, value.as_str()) {
            ("call", Some("Say")) => self.calls.push(tokio::spawn(call(self.client.clone()))),
            ("call", Some("Chat")) => {
                let opened = self
                    .client
                    .bidi_stream::<Raw, Raw>("demo.Echo", "Chat")
                    .await;
                let (sender, receiver) = opened.unwrap();
                (self.sender, self.receiver) = (Some(sender), Some(receiver));
            }
            ("send", _) => {
                let sender = self.sender.as_mut().unwrap();
                sender.send(&raw(bytes(value))).await.unwrap();
            }
            ("finish", _) => self.sender.take().unwrap().finish(),
            other => panic!("{other:?}"),
        }
    }
}

/// The server of the scripts.
fn server(keepalive: Keepalive) -> Server {
    let server = echo()
        .keepalive(keepalive)
        .service(
            Service::new("demo.Echo", ()).unary("Wait", |(), _, _: StringValue| async move {
                std::future::pending::<Result<StringValue, Status>>().await
            }),
        );
    let server = server.service(Service::new("demo.Echo", ()).bidi_stream(
        "Chat",
        |(), _, mut messages: Requests<Raw>, out: Responses<Raw>| async move {
            while let Some(message) = messages.next().await {
                out.send(&message?).await?;
            }
            Ok::<_, Status>(())
        },
    ));
    server.build().unwrap()
}

async fn write(writes: &mut WriteHalf<DuplexStream>, bytes: &[u8]) {
    writes.write_all(bytes).await.unwrap();
}

/// What the side has written, read whenever it may be.
struct Taken {
    bytes: Arc<Mutex<Vec<u8>>>,
    blocked: watch::Sender<bool>,
}

impl Taken {
    fn new(mut reads: ReadHalf<DuplexStream>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (blocked, mut is_blocked) = watch::channel(false);
        let all = Arc::clone(&bytes);
        tokio::spawn(async move {
            let mut piece = Vec::with_capacity(64 << 10);
            loop {
                let reading = !*is_blocked.borrow_and_update();
                tokio::select! {
                    changed = is_blocked.changed() => if changed.is_err() { return },
                    read = reads.read_buf(&mut piece), if reading => match read {
                        Ok(0) | Err(_) => return,
                        Ok(_) => all.lock().unwrap().append(&mut piece),
                    },
                }
                piece.reserve(64 << 10);
            }
        });
        Self { bytes, blocked }
    }

    /// The frames since the last time.
    fn frames(&self) -> Vec<Frame> {
        frames(&std::mem::take(&mut *self.bytes.lock().unwrap()))
    }
}

#[test]
fn every_script_is_made_of_known_keys() {
    let keys = [
        "name",
        "meaning",
        "rules",
        "needs",
        "role",
        "keepalive",
        "steps",
        "calls",
        "knows",
    ];
    for script in scripts() {
        for key in script.entry.as_object().unwrap().keys() {
            assert!(keys.contains(&&key[..]), "{}: {key}", script.name);
        }
        assert!(
            !text(&script.entry["meaning"]).is_empty(),
            "{}",
            script.name
        );
    }
}
