//! Two ends joined by a simulated link, in virtual time.

use std::collections::VecDeque;

use ttrpc_keepalive::keepalive::{Keepalive, Role};

use super::end::{End, Job};
use super::link::Link;

/// A client, a server, and the link between them.
pub(crate) struct World {
    pub(crate) client: End,
    pub(crate) server: End,
    to_server: Link,
    to_client: Link,
    now: u64,
}

impl World {
    /// A world at time zero; the server answers PINGs and asks none unless given a keepalive of its
    /// own.
    pub(crate) fn new(client: Keepalive, server: Keepalive, rtt: u64) -> Self {
        let link = || Link {
            latency: rtt / 2,
            capacity: 1 << 40,
            held: 0,
            chunks: VecDeque::new(),
        };
        Self {
            client: End::new(client, Role::Client),
            server: End::new(server, Role::Server),
            to_server: link(),
            to_client: link(),
            now: 0,
        }
    }

    /// How many bytes the kernel takes of the client before the server reads.
    pub(crate) fn capacity(&mut self, bytes: u64) {
        self.to_server.capacity = bytes;
    }

    /// Runs until `end`, or until nothing is left to do before it.
    pub(crate) fn run(&mut self, end: u64) {
        loop {
            let client = self.client.wake(&self.to_client, &self.to_server, self.now);
            let server = self.server.wake(&self.to_server, &self.to_client, self.now);
            let next = client.into_iter().chain(server).min();
            let Some(next) = next.filter(|&next| next < end) else {
                break;
            };
            self.now = next;
            if client == Some(next) {
                self.client
                    .turn(&mut self.to_client, &mut self.to_server, next);
            }
            if server == Some(next) {
                self.server
                    .turn(&mut self.to_server, &mut self.to_client, next);
            }
        }
        self.now = end;
    }

    /// Starts a call of the client now, to be answered so long after it was read.
    pub(crate) fn call(&mut self, timeout: u64, answer_after: Option<u64>) -> usize {
        let index = self.client.calls.len() + self.client.jobs.len();
        self.client.jobs.push_back(Job {
            at: self.now,
            timeout,
            size: 100,
            answer_after,
        });
        index
    }
}
