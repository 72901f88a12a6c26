//! Connections that are replaced now and then, while calls are on them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ttrpc_keepalive::{Client, Keepalive};

use crate::work::{self, Failure};

/// So many connections at a time.
pub(crate) const LANES: usize = 4;

#[derive(Default)]
pub(crate) struct Tables {
    /// Calls and streams.
    pub(crate) in_flight: usize,
    /// Calls that ran out of time and are unanswered.
    pub(crate) late: usize,
    /// The age of the oldest call.
    pub(crate) oldest: Option<Duration>,
}

pub(crate) struct Lanes {
    address: String,
    clients: Vec<Mutex<Client>>,
}

impl Lanes {
    pub(crate) async fn connect(address: String) -> Result<Self, Failure> {
        let mut clients = Vec::new();
        for lane in 0..LANES {
            clients.push(Mutex::new(connect(&address, lane).await?));
        }
        Ok(Self { address, clients })
    }

    /// One call on each connection: then the server has accepted them all.
    pub(crate) async fn greet(&self) -> Result<(), Failure> {
        for lane in 0..LANES {
            work::echo(&self.client(lane), 0).await?;
        }
        Ok(())
    }

    pub(crate) fn client(&self, lane: usize) -> Client {
        self.with(lane, |client| client.clone())
    }

    /// Connects anew. The old connection is left to the calls that are on it, or aborted under them.
    pub(crate) async fn renew(&self, lane: usize, abort: bool) -> Result<(), Failure> {
        let new = connect(&self.address, lane).await?;
        let old = self.with(lane, |client| std::mem::replace(client, new));
        if abort {
            old.abort();
        }
        Ok(())
    }

    /// The sizes of the tables of all clients.
    pub(crate) fn tables(&self) -> Tables {
        let mut tables = Tables::default();
        for lane in 0..LANES {
            let seen = self.client(lane).snapshot();
            tables.in_flight += seen.calls_in_flight();
            tables.late += seen.late_calls_unanswered();
            tables.oldest = tables.oldest.max(seen.oldest_call_for());
        }
        tables
    }

    /// How many requests the servers of all connections are at.
    pub(crate) async fn served(&self) -> Result<usize, Failure> {
        let mut served = 0;
        for lane in 0..LANES {
            served += work::served(&self.client(lane)).await?;
        }
        Ok(served)
    }

    fn with<T>(&self, lane: usize, work: impl FnOnce(&mut Client) -> T) -> T {
        let client = &self.clients[lane % LANES];
        work(&mut client.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Watched or not, in turn.
async fn connect(address: &str, lane: usize) -> Result<Client, Failure> {
    let keepalive = if lane % 2 == 0 {
        Keepalive::every(Duration::from_secs(10)).timeout(Duration::from_secs(20))
    } else {
        Keepalive::on_demand()
    };
    let client = Client::builder().keepalive(keepalive);
    Ok(client.connect(address).await?)
}
