//! The process of each end: a runtime with a paused clock, and what runs in it.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::advance;
use ttrpc_keepalive::{
    Client, ClientBuilder, Dispatch, Keepalive, OnSilence, PeerSupport, Server, ServerBuilder,
};

use super::plan::{Mode, Plan, Watch};
use super::record::Record;
use super::service::with_methods;

/// One end's process: its runtime, and until when it is stopped.
pub(crate) struct Process {
    pub(crate) runtime: Runtime,
    clock: u64,
    pub(crate) stopped_until: u64,
}

impl Process {
    pub(crate) fn new() -> Self {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build();
        Self {
            runtime: runtime.expect("a runtime without I/O"),
            clock: 0,
            stopped_until: 0,
        }
    }

    /// A root future that is never idle keeps the paused clock from moving by itself.
    pub(crate) fn run(&mut self, now: u64) {
        let late = now - self.clock;
        self.clock = now;
        self.runtime.block_on(async {
            if late > 0 {
                advance(Duration::from_millis(late)).await;
            }
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        });
    }
}

pub(crate) fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

fn keepalive(watch: Watch) -> Keepalive {
    let keepalive = match watch.mode {
        Mode::Off => Keepalive::off(),
        Mode::OnDemand => Keepalive::on_demand(),
        Mode::Every(interval) => Keepalive::every(ms(interval)),
    };
    let keepalive = keepalive
        .timeout(ms(watch.timeout))
        .while_idle(watch.while_idle)
        .watch_by_receipts(watch.by_receipts)
        .on_silence(match watch.reports {
            true => OnSilence::Report,
            false => OnSilence::Close,
        })
        .peer_support(match watch.assumes {
            true => PeerSupport::Assume,
            false => PeerSupport::Learn,
        });
    match watch.write_stall {
        Some(time) => keepalive.write_stall(ms(time)),
        None => keepalive,
    }
}

/// With this limit, if there is one.
fn limited<B>(builder: B, limit: Option<usize>, set: impl FnOnce(B, usize) -> B) -> B {
    match limit {
        Some(limit) => set(builder, limit),
        None => builder,
    }
}

pub(crate) fn client(plan: &Plan) -> ClientBuilder {
    let limits = plan.limits;
    let client = Client::builder().keepalive(keepalive(plan.client));
    let client = limited(client, limits.calls, ClientBuilder::call_limit);
    let client = limited(client, limits.outbox, ClientBuilder::outbox_limit);
    let client = limited(client, limits.client_stream, ClientBuilder::stream_limit);
    limited(client, limits.late, ClientBuilder::late_limit)
}

pub(crate) fn server(plan: &Plan, log: &Arc<Record>) -> Server {
    let limits = plan.limits;
    let server = with_methods(Server::builder(), log)
        .keepalive(keepalive(plan.server))
        .dispatch(match plan.inline {
            true => Dispatch::Inline,
            false => Dispatch::Spawn,
        });
    let server = limited(server, limits.handlers, ServerBuilder::handler_limit);
    let server = limited(server, limits.waiting, ServerBuilder::waiting_limit);
    let server = limited(server, limits.server_stream, ServerBuilder::stream_limit);
    let server = limited(server, limits.owed, ServerBuilder::owed_limit);
    server.build().expect("the settings are usable")
}
