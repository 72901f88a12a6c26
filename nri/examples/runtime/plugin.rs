//! A plugin: a process of its own, which sets a variable in each container.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use ttrpc_keepalive::Status;
use ttrpc_keepalive_nri::api::{ContainerAdjustment, CreateContainerRequest};
use ttrpc_keepalive_nri::{EventContext, Late, Plugin};

use crate::{FROZEN_IN, FROZEN_WORK, Result, SLOW_IN, SLOW_WORK, WEDGED_FOR, WEDGED_IN};

/// Plays a plugin until the runtime's process is gone. It registers anew when it is disconnected.
pub(crate) async fn play(name: &str, socket: &Path) -> Result<()> {
    end_with_the_runtime();
    let (index, name) = name.split_once('-').ok_or("a plugin is called 10-name")?;
    let playing = Arc::new(Playing {
        name: name.to_owned(),
    });
    Plugin::new(index, name, playing)
        .synchronize(|_, _, _| async {
            note("synchronized");
            Ok(())
        })
        .create_container(Playing::adjust)
        // This runtime keeps a plugin that is late: an answer that it is given in time would hide it.
        .late(Late::never())
        .socket(socket)
        .on_end(|_| note("disconnected"))
        .run()
        .await?;
    Ok(())
}

struct Playing {
    name: String,
}

impl Playing {
    async fn adjust(
        self: Arc<Self>,
        _: EventContext,
        event: CreateContainerRequest,
    ) -> std::result::Result<ContainerAdjustment, Status> {
        let number = event.container.name.parse().unwrap_or(0);
        note(&format!("got {number}"));
        match (self.name.as_str(), number) {
            ("slow", SLOW_IN) => tokio::time::sleep(SLOW_WORK).await,
            // As a lock does that is never released, or a call into code that does not come back.
            ("wedged", WEDGED_IN) => std::thread::sleep(WEDGED_FOR),
            ("frozen", FROZEN_IN) => tokio::time::sleep(FROZEN_WORK).await,
            _ => {}
        }
        let mut adjustment = ContainerAdjustment::new();
        adjustment.add_env(&self.name, "here");
        Ok(adjustment)
    }
}

/// Writes a line of this process's own record.
fn note(line: &str) {
    // Nobody reads it any more when the runtime is gone, and then this process ends too.
    let _ = writeln!(io::stdout(), "{line}");
}

/// The runtime holds the other end of standard input and never writes: however it ends, the pipe ends with it,
/// and so does this process.
fn end_with_the_runtime() {
    // A thread, because a read of standard input cannot be cancelled.
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(0);
    });
}
