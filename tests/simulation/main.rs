//! A real client and a real server in virtual time, joined by a link that does what links do: after
//! each run every call has ended once and for a reason, and every rule of the wire was kept.
//!
//! `SIMULATION_SEEDS=100000` says how many seeds are run. A seed that fails is shrunk and printed,
//! and `SIMULATION_SEED=7` runs that one alone.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod calls;
mod checks;
mod choices;
mod judge;
mod kernel;
mod link;
mod plan;
mod process;
mod record;
mod service;
mod transport;
mod wire;
mod world;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use choices::Choices;
use plan::{Plan, operation};
use world::World;

/// About five seconds of a debug build.
const SEEDS: u64 = 500;

type Seen = BTreeMap<String, u64>;

fn plan(seed: u64) -> Plan {
    let mut choices = Choices::Seed(seed);
    let mut plan = Plan::settings(&mut choices);
    let count = 1 + choices.pick(&[30, 5, 10, 60]);
    let operations = 0..choices.size(count);
    plan.operations = operations.map(|_| operation(&mut choices)).collect();
    plan
}

fn play(plan: Plan, seed: u64) -> World {
    let mut world = World::new(plan, Choices::Seed(!seed));
    world.play();
    world
}

/// Takes out operations as long as it still fails.
fn shrink(mut plan: Plan, seed: u64) -> World {
    let fails = |plan: &Plan| !play(plan.clone(), seed).faults.is_empty();
    let mut size = plan.operations.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < plan.operations.len() {
            let mut shorter = plan.clone();
            let end = (at + size).min(plan.operations.len());
            shorter.operations.drain(at..end);
            if fails(&shorter) {
                plan = shorter;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    play(plan, seed)
}

/// What was seen, or the first failure, shrunk.
fn run(seeds: Range<u64>, failed: &AtomicBool) -> Result<Seen, String> {
    let mut seen = Seen::new();
    for seed in seeds {
        if failed.load(Ordering::Relaxed) {
            break;
        }
        let plan = plan(seed);
        let world = play(plan.clone(), seed);
        if !world.faults.is_empty() {
            failed.store(true, Ordering::Relaxed);
            let first = world.faults.join("\n");
            let World { plan, faults, .. } = shrink(plan, seed);
            let faults = faults.join("\n");
            return Err(format!(
                "SIMULATION_SEED={seed} fails:\n{first}\n\nshrunk: {faults}\n{plan:#?}"
            ));
        }
        for (what, count) in world.seen {
            *seen.entry(what).or_default() += count;
        }
    }
    Ok(seen)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn every_call_ends_once_and_every_rule_of_the_wire_is_kept() {
    let seeds = match number("SIMULATION_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIMULATION_SEEDS").unwrap_or(SEEDS),
    };
    let failed = AtomicBool::new(false);
    let half = seeds.start + (seeds.end - seeds.start) / 2;
    let (one, other) = thread::scope(|scope| {
        let one = scope.spawn(|| run(seeds.start..half, &failed));
        let other = scope.spawn(|| run(half..seeds.end, &failed));
        (one.join().unwrap(), other.join().unwrap())
    });
    let mut seen = Seen::new();
    for part in [one, other] {
        match part {
            Ok(part) => part
                .into_iter()
                .for_each(|(what, count)| *seen.entry(what).or_default() += count),
            Err(failure) => panic!("{failure}"),
        }
    }
    println!("{} seeds", seeds.end - seeds.start);
    for (what, count) in seen {
        println!("{count:10} {what}");
    }
}

#[test]
fn a_seed_plays_the_same_each_time() {
    for seed in 0..20 {
        let plan = plan(seed);
        let [one, other] = [(); 2].map(|()| {
            let world = play(plan.clone(), seed);
            let activity = world.link.lock().activity;
            (world.now, activity, world.seen)
        });
        assert_eq!(one, other, "seed {seed}");
    }
}
