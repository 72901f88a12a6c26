//! Ten thousand random connections: pauses on both sides, deaths, old peers, full sockets, late
//! calls. T70.

use super::end::{Job, Outcome};
use super::link::{MS, Pattern, S, at};
use super::world::World;
use ttrpc_keepalive::keepalive::{DeadReason, Keepalive, OnSilence, Support, Verdict};

const SEEDS: u64 = 10_000;
const THREADS: u64 = 2;
/// Random things happen until here; a peer that died is waited for much longer.
const BUSY: u64 = 20 * S;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        let index = usize::try_from(self.below(1 << 20)).expect("small") % choices.len();
        choices[index]
    }

    /// Mostly short pauses, now and then one of seconds, some seconds apart.
    fn pauses(&mut self) -> Vec<(u64, u64)> {
        let mut spans = Vec::new();
        let mut time = self.below(5 * S);
        while time < BUSY {
            let length =
                self.pick(&[20, 60, 60, 150, 400, 1000, 3000, 8000]) * MS + self.below(50 * MS);
            spans.push((time, time + length));
            time += length + MS + self.below(4 * S);
        }
        spans
    }
}

/// What was chosen for one seed, as far as it decides what may happen.
struct Scenario {
    interval: u64,
    timeout: u64,
    rtt: u64,
    periodic: bool,
    while_idle: bool,
    reports: bool,
    knows: bool,
    client_pauses: bool,
    longest_peer_pause: u64,
    dies_at: Option<u64>,
    wedged: bool,
    drips: bool,
    /// Write progress is evidence that carries no flag.
    bounded: bool,
}

fn build(seed: u64) -> (World, Scenario) {
    let mut random = Random(seed);
    let interval = random.pick(&[100, 300, 1000]) * MS;
    let timeout = random.pick(&[200, 500, 1000, 2000]) * MS;
    let rtt = random.pick(&[1, 5, 20, 80]) * MS;
    let (periodic, while_idle) = (random.percent(85), random.percent(60));
    let reports = random.percent(15);
    let on_silence = if reports {
        OnSilence::Report
    } else {
        OnSilence::Close
    };
    let base = if periodic {
        Keepalive::every(at(interval))
    } else {
        Keepalive::on_demand()
    };
    let keepalive = base
        .timeout(at(timeout))
        .while_idle(while_idle)
        .on_silence(on_silence);
    let mut world = World::new(keepalive, Keepalive::off(), rtt);

    let client_pauses = random.percent(55);
    if client_pauses {
        world.client.runs = if random.percent(70) {
            Pattern::Except(random.pauses())
        } else {
            Pattern::Slices {
                period: random.pick(&[300, 1000]) * MS,
                on: random.pick(&[50, 100]) * MS,
            }
        };
    }
    world.client.reads_are_stale = random.percent(50);
    let peer_pauses = if random.percent(40) {
        random.pauses()
    } else {
        Vec::new()
    };
    let longest_peer_pause = peer_pauses
        .iter()
        .map(|(from, to)| to - from)
        .max()
        .unwrap_or(0);
    world.server.runs = Pattern::Except(peer_pauses);
    let dies_at = random.percent(40).then(|| S + random.below(BUSY - 9 * S));
    world.server.dies_at = dies_at;
    let (knows, wedged) = (random.percent(80), random.percent(10));
    world.server.knows_ping = knows;
    world.server.handlers_stalled = wedged;
    world.server.drip = random
        .pick(&[
            None,
            None,
            None,
            Some(20),
            Some(50),
            Some(300),
            Some(900),
            Some(1500),
        ])
        .map(|drip| drip * MS);
    let bounded = random.percent(50);
    if bounded {
        world.capacity(200_000);
    }

    let mut jobs = Vec::new();
    let answer = random.pick(&[Some(0), Some(0), Some(20 * MS), Some(3 * S), None]);
    let mut job = |random: &mut Random, at| {
        let answer_after = if random.percent(70) {
            answer
        } else {
            Some(3 * S)
        };
        let timeout = random.pick(&[20, 50, 200, 1000, 2000]) * MS;
        jobs.push(Job {
            at,
            timeout,
            size: random.pick(&[100, 100, 100, 300_000]),
            answer_after,
        });
    };
    for _ in 0..random.pick(&[0, 1, 10, 60]) {
        let time = random.below(BUSY);
        job(&mut random, time);
    }
    if random.percent(10) {
        let burst = random.below(BUSY - S);
        for _ in 0..100 {
            let time = burst + random.below(S);
            job(&mut random, time);
        }
    }
    jobs.sort_by_key(|job| job.at);
    world.client.jobs = jobs.into();
    let drips = world.server.drip.is_some();
    let scenario = Scenario {
        interval,
        timeout,
        rtt,
        periodic,
        while_idle,
        reports,
        knows,
        client_pauses,
        longest_peer_pause,
        dies_at,
        wedged,
        drips,
        bounded,
    };
    (world, scenario)
}

#[derive(Debug, Default, Clone, Copy)]
struct Totals {
    runs_with_pauses: u64,
    late_looks: u64,
    deaths: u64,
    convictions_silent: u64,
    convictions_not_reading: u64,
    found_dead: u64,
    unresponsive: u64,
    slow: u64,
    not_reading: u64,
    local_stall: u64,
}

/// Runs one seed; `Err` says which promise was broken.
fn run(seed: u64, totals: &mut Totals) -> Result<(), String> {
    let (mut world, scenario) = build(seed);
    world.run(BUSY);
    let must_find = scenario.dies_at.is_some()
        && scenario.periodic
        && !scenario.reports
        && world.client.machine.support() == Support::Yes
        && (scenario.while_idle
            || world.client.calls.iter().any(|call| {
                call.late_answer.is_none()
                    && call
                        .outcome
                        .is_some_and(|(_, outcome)| outcome != Outcome::Answered)
            }));
    if must_find {
        // Pauses have ended by then; what remains is at most twelve looks in slices of a second.
        world.run(BUSY + 40 * S);
    }
    let ensure = |promise: bool, what: &str| {
        if promise {
            Ok(())
        } else {
            Err(what.to_owned())
        }
    };
    let client = &world.client;
    totals.runs_with_pauses += u64::from(scenario.client_pauses);
    totals.late_looks += client.late_looks;
    totals.deaths += u64::from(scenario.dies_at.is_some());

    for conviction in &client.convictions {
        ensure(!conviction.unread, "a byte was unread at a conviction")?;
        let Scenario { timeout, .. } = scenario;
        match conviction.reason {
            DeadReason::Silent => {
                totals.convictions_silent += 1;
                ensure(scenario.knows, "an old peer was convicted by silence")?;
                ensure(conviction.after >= timeout, "convicted before the timeout")?;
                let told_apart = !conviction.mixed;
                ensure(
                    !told_apart || conviction.looks <= 12,
                    "more than twelve looks",
                )?;
                let on_time = told_apart && conviction.longest_gap <= timeout.div_ceil(4);
                ensure(
                    !on_time || conviction.after == timeout,
                    "not at the timeout though each look was on time",
                )?;
                let half = told_apart && conviction.longest_gap <= timeout / 2;
                ensure(
                    !half || conviction.after <= 2 * timeout,
                    "later than twice the timeout without a late look",
                )?;
            }
            _ => totals.convictions_not_reading += 1,
        }
        let dead = scenario
            .dies_at
            .is_some_and(|dies_at| dies_at <= conviction.at);
        // Half of the timeout is left to a peer after our pause, and the PING may have been behind
        // a frame of ours.
        let healthy = scenario.longest_peer_pause + scenario.rtt + 2 * MS < timeout / 2;
        ensure(dead || !healthy, "a healthy peer was convicted")?;
    }
    if must_find {
        ensure(client.died_at().is_some(), "a dead peer was never found")?;
        totals.found_dead += 1;
        let dies_at = scenario.dies_at.unwrap_or_default();
        let bound = scenario.interval + 2 * scenario.timeout + scenario.rtt;
        let prompt = client.died_at().is_some_and(|at| at <= dies_at + bound);
        ensure(
            !scenario.while_idle || scenario.client_pauses || prompt,
            "a dead peer was found too late",
        )?;
    }

    let alive = scenario.longest_peer_pause == 0 && scenario.dies_at.is_none();
    for (call, verdict) in client.verdicts() {
        match verdict {
            Verdict::Unresponsive => {
                totals.unresponsive += 1;
                ensure(scenario.knows, "an old peer was unresponsive")?;
                ensure(!alive, "a healthy peer was unresponsive")?;
            }
            Verdict::NotReading => {
                totals.not_reading += 1;
                ensure(!alive, "a peer that reads did not read")?;
            }
            Verdict::LocalStall => {
                totals.local_stall += 1;
                ensure(
                    scenario.client_pauses,
                    "a local stall without a pause of ours",
                )?;
            }
            Verdict::Slow | Verdict::HandlersStalled => {
                totals.slow += 1;
                let ask_at = call.deadline.ask_at();
                let gone = scenario
                    .dies_at
                    .is_some_and(|dies_at| at(dies_at + scenario.rtt + 25 * MS) < ask_at);
                // A pause of ours over `ask_at` makes us read afterwards what came before.
                ensure(!gone || scenario.client_pauses, "a dead peer was slow")?;
                let wrong = verdict == Verdict::Slow
                    && scenario.wedged
                    && scenario.knows
                    && alive
                    && !scenario.drips
                    && !scenario.bounded;
                // A Response of another call is evidence that carries no flag.
                let answers = client.calls.iter().any(|call| call.late_answer.is_some())
                    || client.calls.iter().any(|call| {
                        call.outcome
                            .is_some_and(|(_, outcome)| outcome == Outcome::Answered)
                    });
                ensure(
                    !wrong || answers || scenario.client_pauses,
                    "a wedged peer was slow",
                )?;
            }
            _ => {}
        }
    }
    for pair in client.pings.windows(2) {
        ensure(pair[1] - pair[0] >= 5 * MS, "PINGs too close")?;
    }
    Ok(())
}

#[test]
fn no_healthy_peer_is_convicted_and_every_dead_one_is() {
    let each = SEEDS / THREADS;
    let workers: Vec<_> = (0..THREADS)
        .map(|worker| {
            std::thread::spawn(move || {
                let mut totals = Totals::default();
                for seed in worker * each..(worker + 1) * each {
                    if let Err(promise) = run(seed, &mut totals) {
                        panic!("seed {seed}: {promise}");
                    }
                }
                totals
            })
        })
        .collect();
    let mut sums = [0; 10];
    for worker in workers {
        let t = worker.join().unwrap();
        let counts = [
            t.runs_with_pauses,
            t.late_looks,
            t.deaths,
            t.convictions_silent,
            t.convictions_not_reading,
            t.found_dead,
            t.unresponsive,
            t.slow,
            t.not_reading,
            t.local_stall,
        ];
        sums.iter_mut()
            .zip(counts)
            .for_each(|(sum, count)| *sum += count);
    }
    let names = [
        "runs with pauses of ours",
        "late looks",
        "deaths",
        "convictions by silence",
        "convictions by writes",
        "dead peers that had to be found",
        "unresponsive",
        "slow",
        "not reading",
        "local stall",
    ];
    for (name, sum) in names.iter().zip(sums) {
        println!("{sum:>7} {name}");
    }
    assert!(
        sums.iter().all(|&sum| sum > 0),
        "a run that shows nothing of one kind proves nothing of it"
    );
}

#[test]
fn pauses_of_ours_are_what_late_looks_come_from() {
    let (mut world, _) = build(0);
    world.client.runs = Pattern::Always;
    world.run(BUSY);
    assert_eq!(world.client.late_looks, 0);
}
