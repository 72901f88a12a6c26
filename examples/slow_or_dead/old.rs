//! A plugin as plugins are today: one that knows no PING. It is served by the few lines below, which do
//! as containerd's Go server does: one thread reads, each request has one of its own, a frame of unknown
//! type is dropped, and a handler goes on when its caller has given up.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use protobuf::Message;
use protobuf::well_known_types::empty::Empty;
use protobuf::well_known_types::wrappers::{StringValue, UInt32Value};
use ttrpc_keepalive::wire::{Decoded, Decoder, Frame, MessageType, Request, encode_response};

use crate::plugin::{end_with_the_runtime, work};
use crate::record::{Deed, note};
use crate::{REGISTER, Result};

/// Plays a plugin until the runtime is gone.
pub(crate) fn play(name: &str, socket: &Path) -> Result<()> {
    end_with_the_runtime();
    loop {
        let Ok(stream) = UnixStream::connect(socket) else {
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        note(Deed::Connected);
        let end = match serve(name, &stream) {
            Ok(()) => "the runtime has closed it".to_owned(),
            Err(error) => error.to_string(),
        };
        note(Deed::Disconnected(end));
    }
}

/// Reads until the end of the stream.
fn serve(name: &str, mut stream: &UnixStream) -> Result<()> {
    let answers = Arc::new(Mutex::new(stream.try_clone()?));
    let mut decoder = Decoder::new();
    let mut bytes = [0; 4096];
    loop {
        let count = stream.read(&mut bytes)?;
        let mut input = &bytes[..count];
        if input.is_empty() {
            return Ok(());
        }
        while let Some(decoded) = decoder.decode(&mut input)? {
            let Decoded::Frame(frame) = decoded else {
                continue;
            };
            // A PING is none, and that is all that is known of it.
            if frame.header.message_type == MessageType::REQUEST {
                let (name, answers) = (name.to_owned(), Arc::clone(&answers));
                thread::spawn(move || {
                    // The runtime is gone, or has disconnected it: the reader finds that, too.
                    let _ = answer(name, &frame, &answers);
                });
            }
        }
    }
}

fn answer(name: String, frame: &Frame, answers: &Mutex<UnixStream>) -> Result<()> {
    let request = Request::decode(&frame.payload)?;
    let id = frame.header.stream_id;
    let response = if &*request.method == REGISTER {
        let mut registration = StringValue::new();
        registration.value = format!("{name} {}", process::id());
        encode_response(id, &registration)?
    } else {
        let event = UInt32Value::parse_from_bytes(&request.payload)?.value;
        note(Deed::Got(event));
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build()?.block_on(work(name, event));
        note(Deed::Ended(event));
        encode_response(id, &Empty::new())?
    };
    let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
    answers.write_all(&response).map_err(io::Error::into)
}
