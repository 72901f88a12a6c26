//! Two runtimes with paused clocks, a link between them, and the steps in which time passes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinHandle;
use ttrpc_keepalive::wire::ping;
use ttrpc_keepalive::{Client, ConnectionError, Liveness, Server};

use super::calls::Running;
use super::choices::Choices;
use super::link::{End, SharedLink};
use super::plan::{Break, Finale, Mode, Operation, Plan, Watch, When};
use super::process::{Process, client, ms, server};
use super::record::{Kind, Record};
use super::transport::Side;
use super::wire::Wire;

/// How often both ends may run at one instant: more is a loop without an end.
const ROUNDS: u32 = 100_000;

/// Something that can keep an end from being heard or read, from when until when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trouble {
    pub(crate) of: Option<End>,
    pub(crate) from: u64,
    pub(crate) until: u64,
}

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) now: u64,
    pub(crate) link: SharedLink,
    processes: [Process; 2],
    client: Option<Client>,
    server: Server,
    serving: Option<JoinHandle<ConnectionError>>,
    pub(crate) server_end: Option<ConnectionError>,
    /// When each began, and its limit.
    shutdowns: Vec<(u64, u64, JoinHandle<bool>)>,
    pub(crate) liveness: Liveness,
    pub(crate) log: Arc<Record>,
    running: Vec<Running>,
    held: Vec<(u64, usize)>,
    pub(crate) troubles: Vec<Trouble>,
    /// Whether this side has ended its connection on purpose.
    pub(crate) closes: [bool; 2],
    /// When `Client::abort` was called, as told by where it was.
    aborted: Arc<AtomicBool>,
    pub(crate) aborted_at: Option<u64>,
    /// When the client's connection was first seen to be over.
    pub(crate) client_ended_at: Option<u64>,
    pub(crate) nonsense: bool,
    /// Whether the link ever took nothing for a while.
    pub(crate) blocks: bool,
    pub(crate) faults: Vec<String>,
    pub(crate) seen: BTreeMap<String, u64>,
}

impl World {
    pub(crate) fn new(plan: Plan, choices: Choices) -> Self {
        let asks = |watch: Watch| watch.mode != Mode::Off;
        let wire = Wire::new([plan.client, plan.server].map(asks), plan.client.assumes);
        let link = SharedLink::new(plan.traits.clone(), wire, choices);
        let log = Arc::new(Record::default());
        let processes = [Process::new(), Process::new()];
        let (client, server) = (client(&plan), server(&plan, &log));
        let client = processes[0].runtime.block_on(async {
            let client = client.attach(Side::new(End::Client, &link));
            client.expect("the settings are usable")
        });
        let serving = {
            let (server, side) = (server.clone(), Side::new(End::Server, &link));
            let served = async move { server.serve_connection(side).await };
            processes[1].runtime.spawn(served)
        };
        Self {
            now: 0,
            link,
            processes,
            liveness: client.liveness(),
            client: Some(client),
            server,
            serving: Some(serving),
            server_end: None,
            shutdowns: Vec::new(),
            log,
            running: Vec::new(),
            held: Vec::new(),
            troubles: Vec::new(),
            closes: [false; 2],
            aborted: Arc::default(),
            aborted_at: None,
            client_ended_at: None,
            nonsense: plan.absent.is_some(),
            blocks: false,
            faults: Vec::new(),
            seen: BTreeMap::new(),
            plan,
        }
    }

    pub(crate) fn count(&mut self, what: impl Into<String>) {
        *self.seen.entry(what.into()).or_default() += 1;
    }

    pub(crate) fn fault(&mut self, fault: impl std::fmt::Display) {
        self.faults.push(format!("at {} ms: {fault}", self.now));
    }

    /// Plays the whole plan. What was wrong is in `faults`.
    pub(crate) fn play(&mut self) {
        for operation in self.plan.operations.clone() {
            self.apply(operation);
            if !self.faults.is_empty() {
                return;
            }
        }
        self.heal();
        self.finish();
        let (frames, pings) = {
            let link = self.link.lock();
            (link.wire.frames, link.wire.pings())
        };
        self.seen.insert("frames".to_owned(), frames);
        self.seen.insert("PINGs".to_owned(), pings);
        self.seen
            .insert("virtual seconds".to_owned(), self.now / 1000);
    }

    fn apply(&mut self, operation: Operation) {
        let name = format!("{operation:?}");
        let name = name.split(['(', ' ']).next().unwrap_or_default().to_owned();
        self.count(format!("operation {name}"));
        let now = self.now;
        match operation {
            Operation::Wait(time) => self.wait(time),
            Operation::Call(ask) => self.start(Kind::Call(ask)),
            Operation::Probe(budget) => self.start(Kind::Probe(budget)),
            Operation::Closed => self.start(Kind::Closed),
            Operation::Drop(back) => {
                if let Some(running) = self.running.iter().rev().nth(back) {
                    self.log.drop_call(running.call);
                    running.drop_future();
                }
            }
            Operation::Hold(back, time) => {
                if let Some(running) = self.running.iter().rev().nth(back) {
                    running.hold(true);
                    self.log.hold(running.call, now + time);
                    self.held.push((now + time, running.call));
                }
            }
            Operation::CloseClient => {
                let _entered = self.processes[0].runtime.enter();
                self.closes[0] = true;
                self.client = None;
            }
            Operation::Abort(when) => self.abort(when),
            Operation::Shutdown(limit) => self.shutdown(limit),
            Operation::Stop(end, time) => {
                let process = &mut self.processes[end.index()];
                process.stopped_until = process.stopped_until.max(now + time);
                self.trouble(Some(end), time);
            }
            Operation::PauseLink(from, time) => {
                self.link.lock().pause(from, now + time);
                self.trouble(None, time);
            }
            Operation::BlockLink(from, time) => {
                self.blocks = true;
                self.link.lock().block(from, now + time);
                self.trouble(None, time);
            }
            // Who knows no PING sends none.
            Operation::Flood(End::Server, _) if self.plan.traits.old => {}
            Operation::Flood(from, count) => {
                let pings: Vec<u8> = (0..count)
                    .flat_map(|n| ping(n | now << 20 | 1 << 60))
                    .collect();
                self.link.lock().inject(from, &pings);
            }
            Operation::Break(kind) => self.link.lock().break_off(kind),
            Operation::Raw(from, bytes) => {
                self.nonsense = true;
                self.link.lock().inject(from, &bytes);
            }
        }
    }

    fn trouble(&mut self, of: Option<End>, time: u64) {
        let (from, until) = (self.now, self.now + time);
        self.troubles.push(Trouble { of, from, until });
    }

    fn start(&mut self, kind: Kind) {
        if let Some(client) = self
            .client
            .as_ref()
            .filter(|_| !self.is_absent(End::Client))
        {
            let _entered = self.processes[0].runtime.enter();
            self.running.push(Running::start(client, &self.log, kind));
        }
    }

    fn abort(&mut self, when: When) {
        let Some(client) = self.client.clone() else {
            return;
        };
        self.closes[0] = true;
        let aborted = Arc::clone(&self.aborted);
        let hook = Box::new(move || {
            client.abort();
            aborted.store(true, Ordering::Relaxed);
        });
        match when {
            When::Now => {
                let _entered = self.processes[0].runtime.enter();
                hook();
            }
            When::WithinRead => self.link.lock().hook(End::Client, true, hook),
            When::WithinWrite => self.link.lock().hook(End::Client, false, hook),
        }
    }

    fn shutdown(&mut self, limit: u64) {
        self.closes[1] = true;
        let server = self.server.clone();
        let shutdown = async move { server.shutdown(ms(limit)).await };
        let task = self.processes[1].runtime.spawn(shutdown);
        self.shutdowns.push((self.now, limit, task));
    }

    fn wait(&mut self, time: u64) {
        let end = self.now + time;
        loop {
            let step = self.plan.quantum.min(end - self.now);
            self.step(step);
            if self.now == end || !self.faults.is_empty() {
                return;
            }
        }
    }

    /// Time passes, then both ends run until neither has anything to do.
    fn step(&mut self, time: u64) {
        self.now += time;
        let now = self.now;
        self.log.advance(now);
        self.link.lock().advance(now);
        let (due, held) = self.held.drain(..).partition(|(until, _)| *until <= now);
        self.held = held;
        let due: Vec<(u64, usize)> = due;
        for (_, call) in due {
            self.release(call);
        }
        let order = [self.plan.first, self.plan.first.other()];
        for round in 0.. {
            let before = self.link.lock().activity;
            for end in order {
                if self.is_absent(end) {
                    self.link.lock().discard(end);
                } else if !self.is_stopped(end) {
                    self.processes[end.index()].run(now);
                }
            }
            if self.link.lock().activity == before {
                break;
            }
            if round > ROUNDS {
                self.fault("an end goes on without an end at one instant");
                break;
            }
        }
        if self.aborted.load(Ordering::Relaxed) {
            self.aborted_at.get_or_insert(now);
        }
        if self.liveness.snapshot().state().is_final() {
            self.client_ended_at.get_or_insert(now);
        }
        if self.serving.as_ref().is_some_and(JoinHandle::is_finished) {
            let serving = self.serving.take().expect("it is there");
            match self.processes[1].runtime.block_on(serving) {
                Ok(end) => self.server_end = Some(end),
                Err(error) => self.fault(format_args!("the server's driver: {error}")),
            }
            self.judge_server_end();
        }
        self.check();
    }

    fn release(&mut self, call: usize) {
        for running in &self.running {
            if running.call == call {
                running.hold(false);
            }
        }
    }

    pub(crate) fn is_absent(&self, end: End) -> bool {
        self.plan.absent == Some(end)
    }

    pub(crate) fn is_stopped(&self, end: End) -> bool {
        self.processes[end.index()].stopped_until > self.now
    }

    pub(crate) fn open_calls(&self) -> usize {
        let open = |running: &&Running| !running.is_over();
        self.running.iter().filter(open).count()
    }

    /// From here on nothing hinders anything.
    fn heal(&mut self) {
        let now = self.now;
        for trouble in &mut self.troubles {
            trouble.until = trouble.until.min(now);
        }
        for process in &mut self.processes {
            process.stopped_until = 0;
        }
        let hooks = self.link.lock().heal();
        {
            let _entered = self.processes[0].runtime.enter();
            drop(hooks);
        }
        for (_, call) in std::mem::take(&mut self.held) {
            self.log.hold(call, now);
            self.release(call);
        }
        while self.now < now + 3000 && self.faults.is_empty() {
            self.step(self.plan.quantum);
            let late = self.liveness.snapshot().late_calls_unanswered();
            if self.open_calls() == 0 && late == 0 && self.now > now + 50 {
                break;
            }
        }
        self.check_healed();
    }

    fn finish(&mut self) {
        let finale = self.plan.finale;
        match finale {
            Finale::Close => {
                let _entered = self.processes[0].runtime.enter();
                for running in &self.running {
                    self.log.drop_call(running.call);
                    running.drop_future();
                }
                self.closes[0] = true;
                self.client = None;
            }
            Finale::Abort => {
                self.abort(When::Now);
                self.closes[0] = true;
            }
            Finale::Shutdown(limit) => self.shutdown(limit),
            Finale::Break => self.link.lock().break_off(Break::Clean),
        }
        if self.plan.absent.is_some() || finale == Finale::Abort && self.client.is_none() {
            self.link.lock().break_off(Break::Clean);
        }
        let begun = self.now;
        while self.now < begun + 2500 && self.faults.is_empty() {
            self.step(self.plan.quantum.max(5));
            let served = self.serving.is_none() || self.is_absent(End::Server);
            let called = self.client_ended_at.is_some() || self.is_absent(End::Client);
            if self.open_calls() == 0 && served && called && self.now > begun + 20 {
                break;
            }
        }
        self.client = None;
        if self.faults.is_empty() {
            self.step(self.plan.quantum);
            self.check_finished(self.processes[0].runtime.metrics().num_alive_tasks());
        }
    }

    /// Whether a shutdown goes on, or its server serves, that should have ended before `since`.
    pub(crate) fn outlasts(&self, since: u64) -> bool {
        self.shutdowns.iter().any(|(began, limit, task)| {
            began + limit < since
                && !self.was_stopped(End::Server, *began, self.now)
                && (!task.is_finished() || self.serving.is_some())
        })
    }
}
