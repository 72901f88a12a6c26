//! The soak of `examples/soak`, for some seconds; and that it notices what it is there for.

#![allow(
    clippy::print_stdout,
    reason = "the example says what it does on its standard output"
)]

#[path = "../examples/soak/gauges.rs"]
mod gauges;
#[path = "../examples/soak/lanes.rs"]
mod lanes;
#[path = "../examples/soak/plan.rs"]
mod plan;
#[path = "../examples/soak/service.rs"]
mod service;
#[path = "../examples/soak/soak.rs"]
mod soak;
#[path = "../examples/soak/work.rs"]
mod work;

use plan::Plan;

/// One test, because memory and descriptors are those of the whole process.
#[test]
fn ill_treated_calls_and_streams_leave_nothing_behind_and_a_leak_is_noticed() {
    let plan = Plan::from_arguments(
        ["--calls", "8000", "--streams", "800"]
            .map(str::to_owned)
            .into_iter(),
    );
    soak::run(&plan.unwrap()).unwrap();

    let mut leaking = Plan::new(4_000, 200);
    // More than what the run before has left free: that would be used first, and hide it.
    leaking.leak = 16 << 10;
    let reason = soak::run(&leaking).unwrap_err();
    assert!(reason.contains("memory grows"), "{reason}");
}
