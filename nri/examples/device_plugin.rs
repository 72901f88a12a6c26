//! A plugin that gives containers a device, which it takes a while to find.
//!
//! ```text
//! cargo run -p ttrpc-keepalive-nri --example device_plugin -- --socket /var/run/nri/nri.sock --late then
//! ```
//!
//! A container asks for it by annotations, of itself or of its pod:
//!
//! - `device.example.com/path`: a device node of the host, which the container gets;
//! - `device.example.com/takes`: for how many seconds it is looked for. Without it, three for a container whose
//!   name begins with `slow`, `soft`, `fail`, `late` or `block`, so that every way to be late can be tried
//!   without annotations; `block` keeps the thread meanwhile. One whose name begins with `err` is refused.
//!
//! Each container is told by NRI_PROBE=was-here that it was adjusted, and those called `late` or `res` get limits
//! of processors and memory. `--late` says what the runtime is told in time about a container whose device is not
//! found yet: `empty` (it goes without), `fail` (it is not created), `never` (nothing), `then` (it goes without,
//! and its limits follow later).

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::collections::HashMap;
use std::error::Error;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::Arc;
use std::time::Duration;

use ttrpc_keepalive::{Code, Status};
use ttrpc_keepalive_nri::api::*;
use ttrpc_keepalive_nri::{DEFAULT_SOCKET, EventContext, Late, LateResult, Plugin};

const PATH: &str = "device.example.com/path";
const TAKES: &str = "device.example.com/takes";
const SLOW: [&str; 5] = ["slow", "soft", "fail", "late", "block"];

struct Devices;

impl Devices {
    async fn create(
        self: Arc<Self>,
        event: EventContext,
        request: CreateContainerRequest,
    ) -> Result<ContainerAdjustment, Status> {
        let (pod, container) = (&request.pod, &request.container);
        let (shown, name) = (format!("{}/{}", pod.name, container.name), &container.name);
        println!("got CreateContainer {shown}, {:?} left", event.remaining());
        if name.starts_with("err") {
            return Err(Status::new(Code::UNKNOWN, "the plugin says no"));
        }

        let begins = |names: &[&str]| names.iter().any(|start| name.starts_with(start));
        let asked = |key| {
            container
                .annotations
                .get(key)
                .or_else(|| pod.annotations.get(key))
        };
        let takes = asked(TAKES).and_then(|takes| takes.parse().ok());
        let default = if begins(&SLOW) { 3 } else { 0 };
        let takes = Duration::from_secs(takes.unwrap_or(default));
        if begins(&["block"]) {
            std::thread::sleep(takes);
        } else {
            tokio::time::sleep(takes).await;
        }

        let mut adjustment = ContainerAdjustment::new();
        if let Some(path) = asked(PATH) {
            adjustment.add_device(device(path)?);
        }
        adjustment.add_env("NRI_PROBE", "was-here");
        if begins(&["late", "res"]) {
            adjustment.resources_mut().set_cpu_shares(512);
            adjustment.resources_mut().set_memory_limit(64 << 20);
        }
        let when = if event.is_answered() {
            "late"
        } else {
            "in time"
        };
        println!("done CreateContainer {shown}, {when}");
        Ok(adjustment)
    }

    async fn created(
        self: Arc<Self>,
        _: EventContext,
        request: PostCreateContainerRequest,
    ) -> Result<(), Status> {
        println!(
            "got PostCreateContainer {}/{}",
            request.pod.name, request.container.name
        );
        Ok(())
    }

    async fn synchronize(
        self: Arc<Self>,
        event: EventContext,
        all: SynchronizeRequest,
    ) -> Result<(), Status> {
        let (runtime, pods, containers) =
            (event.runtime_info(), all.pods.len(), all.containers.len());
        println!(
            "got Synchronize of {} {} with {pods} pods, {containers} containers",
            runtime.name, runtime.version
        );
        Ok(())
    }
}

/// A device node as it is on the host.
fn device(path: &str) -> Result<LinuxDevice, Status> {
    let failed = |error| Status::new(Code::NOT_FOUND, format!("{path}: {error}"));
    let metadata = std::fs::metadata(path).map_err(failed)?;
    let kind = match metadata.file_type() {
        kind if kind.is_char_device() => "c",
        kind if kind.is_block_device() => "b",
        _ => {
            return Err(Status::new(
                Code::INVALID_ARGUMENT,
                format!("{path} is no device"),
            ));
        }
    };
    // As the C library takes the number of a device apart.
    let number = metadata.rdev();
    let major = ((number >> 32) & 0xFFFF_F000) | ((number >> 8) & 0xFFF);
    let minor = ((number >> 12) & 0xFFFF_FF00) | (number & 0xFF);
    let out_of_range = |_| Status::new(Code::OUT_OF_RANGE, format!("{path} has no such number"));
    Ok(LinuxDevice {
        path: path.to_owned(),
        type_: kind.to_owned(),
        major: i64::try_from(major).map_err(out_of_range)?,
        minor: i64::try_from(minor).map_err(out_of_range)?,
        ..LinuxDevice::new()
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut options = HashMap::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(option) = arguments.next() {
        let value = arguments.next();
        let value = value.ok_or_else(|| format!("{option} needs a value"))?;
        options.insert(option, value);
    }
    let mut option = |name: &str, default: &str| {
        let given = options.remove(name);
        given.unwrap_or_else(|| default.to_owned())
    };
    let socket = option("--socket", DEFAULT_SOCKET);
    let (index, name) = (option("--idx", "10"), option("--name", "device"));
    let late = match &*option("--late", "empty") {
        "empty" => Late::empty(),
        "fail" => Late::fail("the device is not there yet"),
        "never" => Late::never(),
        "then" => Late::empty().then(LateResult::into_updates),
        other => return Err(format!("--late {other}: empty, fail, never or then").into()),
    };
    if let Some(unknown) = options.keys().next() {
        return Err(format!("{unknown}: --socket, --idx, --name or --late").into());
    }

    let end = Plugin::new(&index, &name, Arc::new(Devices))
        .socket(socket)
        .synchronize(Devices::synchronize)
        .create_container(Devices::create)
        .late(late)
        .post_create_container(Devices::created)
        .on_end(|end| println!("CLOSED {end}"))
        .run()
        .await?;
    // Only one that its runtime has started comes here.
    Err(end.to_string().into())
}
