//! A plugin: a process of its own that dials the runtime and serves on the stream it dialled.

use std::io;
use std::path::Path;
use std::process;
use std::thread;
use std::time::Duration;

use protobuf::well_known_types::empty::Empty;
use protobuf::well_known_types::wrappers::{StringValue, UInt32Value};
use tokio::net::UnixStream;
use ttrpc_keepalive::{DriverThread, Server, Service};

use crate::record::{Deed, note};
use crate::{
    FROZEN_IN, HANDLE_EVENT, PLUGIN_SERVICE, REGISTER, Result, SLOW_IN, SLOW_WORK, WEDGED_FOR,
    WEDGED_IN,
};

/// How long the plugin that will be frozen works on that event: enough for the signal to find it
/// at work, and well within the limit if it were not stopped.
const FROZEN_WORK: Duration = Duration::from_secs(1);

/// What a plugin does when its connection has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnClose {
    /// It dials again and so registers anew.
    Reconnect,
    /// Its process ends, as NRI's stub does unless told otherwise.
    Exit,
}

/// Plays a plugin until the runtime is gone.
pub(crate) async fn play(name: &str, socket: &Path, on_close: OnClose) -> Result<()> {
    end_with_the_runtime();
    let server = server(name)?;
    loop {
        let Ok(stream) = UnixStream::connect(socket).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        note(Deed::Connected);
        let end = server.serve_connection(stream).await;
        note(Deed::Disconnected(end.to_string()));
        if on_close == OnClose::Exit {
            return Ok(());
        }
    }
}

fn server(name: &str) -> Result<Server> {
    let mut registration = StringValue::new();
    registration.value = format!("{name} {}", process::id());
    // What may block its handlers' thread needs another one that answers PINGs.
    let driver_thread = match name {
        "wedged" => DriverThread::Dedicated,
        _ => DriverThread::Shared,
    };
    let name = name.to_owned();
    let server = Server::builder()
        .driver_thread(driver_thread)
        .service(
            Service::new(PLUGIN_SERVICE, ())
                .unary(REGISTER, move |(), _, _: Empty| {
                    let registration = registration.clone();
                    async move { Ok(registration) }
                })
                .unary(HANDLE_EVENT, move |(), _, event: UInt32Value| {
                    let work = work(name.clone(), event.value);
                    async move {
                        note(Deed::Got(event.value));
                        work.await;
                        note(Deed::Ended(event.value));
                        Ok(Empty::new())
                    }
                }),
        )
        .build()?;
    Ok(server)
}

async fn work(name: String, event: u32) {
    let time = takes(&name, event, WEDGED_FOR);
    match name.as_str() {
        // As a lock does that is never released, or a call into code that does not come back.
        "wedged" => thread::sleep(time),
        _ => tokio::time::sleep(time).await,
    }
}

/// How long a plugin is at work on an event.
pub(crate) fn takes(name: &str, event: u32, wedged_for: Duration) -> Duration {
    match (name, event) {
        ("slow", SLOW_IN) => SLOW_WORK,
        ("wedged", WEDGED_IN) => wedged_for,
        ("frozen", FROZEN_IN) => FROZEN_WORK,
        _ => Duration::ZERO,
    }
}

/// The runtime holds the other end of standard input and never writes. However it ends, the pipe
/// ends with it, and so does this process: it must not outlive the run.
pub(crate) fn end_with_the_runtime() {
    // While it is stopped it cannot read. The runtime ends that by SIGKILL, and where the runtime
    // was itself killed, Linux does.
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    // A thread, because a read of standard input cannot be cancelled.
    thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        process::exit(0);
    });
}
