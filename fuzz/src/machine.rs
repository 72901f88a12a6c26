//! Any list of operations on the keepalive machine: it keeps its promises and agrees with the model.

#[path = "../../tests/keepalive_model/compare.rs"]
mod compare;
#[path = "../../tests/keepalive_model/model.rs"]
mod model;
#[path = "../../tests/keepalive_model/operations.rs"]
mod operations;

/// The first byte chooses the settings, then three bytes make a step.
pub fn check(data: &[u8]) {
    let (choice, steps) = operations::decode(data);
    compare::compare(choice, &steps);
}
