//! Verbs, faults of the link and raw bytes, mixed, at a live client and a live server, or at one of
//! them alone.

#[path = "../../tests/simulation/calls.rs"]
mod calls;
#[path = "../../tests/simulation/checks.rs"]
mod checks;
#[path = "../../tests/simulation/choices.rs"]
mod choices;
#[path = "../../tests/simulation/judge.rs"]
mod judge;
#[path = "../../tests/simulation/kernel.rs"]
mod kernel;
#[path = "../../tests/simulation/link.rs"]
mod link;
#[path = "../../tests/simulation/plan.rs"]
mod plan;
#[path = "../../tests/simulation/process.rs"]
mod process;
#[path = "../../tests/simulation/record.rs"]
mod record;
#[path = "../../tests/simulation/service.rs"]
mod service;
#[path = "../../tests/simulation/transport.rs"]
mod transport;
#[path = "../../tests/simulation/wire.rs"]
mod wire;
#[path = "../../tests/simulation/world.rs"]
mod world;

use ttrpc_keepalive::wire::{
    Flags, Header, MessageType, Raw, RequestHead, encode_data, encode_request, encode_response,
    encode_status, ping, pong,
};
use ttrpc_keepalive::{Code, Status};

use choices::Choices;
use link::End;
use plan::{Operation, Plan, operation};
use world::World;

/// The first byte says who is there, the next ones choose the settings, and the others make
/// operations.
pub fn check(data: &[u8]) {
    let mut choices = Choices::Bytes(data.iter().copied().collect());
    let absent = choices.pick(&[None, Some(End::Client), Some(End::Server)]);
    let mut plan = Plan::settings(&mut choices);
    plan.absent = absent;
    while !choices.is_over() {
        // Who is absent is heard all the same.
        let raw = choices.percent(if absent.is_some() { 50 } else { 5 });
        plan.operations.push(match raw {
            true => {
                let from = choices.pick(&[End::Client, End::Server]);
                Operation::Raw(absent.unwrap_or(from), bytes(&mut choices))
            }
            false => operation(&mut choices),
        });
    }
    let mut world = World::new(plan, Choices::Seed(0));
    world.play();
    assert!(world.faults.is_empty(), "{:#?}", world.faults);
}

/// Mostly a frame, and one that could have a meaning.
fn bytes(choices: &mut Choices) -> Vec<u8> {
    let id = match choices.below(8) {
        small @ 0..6 => u32::try_from(2 * small + 1).expect("small"),
        6 => u32::try_from(choices.below(256)).expect("a byte"),
        _ => u32::MAX - u32::try_from(choices.below(4)).expect("small"),
    };
    let flags = Flags::from(u8::try_from(choices.below(16)).expect("small"));
    let payload: Vec<u8> = {
        let size = choices.size(64);
        (0..size)
            .map(|_| u8::try_from(choices.below(256)).expect("a byte"))
            .collect()
    };
    let frame = match choices.below(9) {
        0 => encode_response(id, &Raw(&payload)).ok(),
        1 => {
            let method = choices.pick(&["Say", "Soft", "Cut", "Down", "Up", "Both", "None"]);
            let head = RequestHead {
                service: service::SERVICE,
                method,
                timeout_nano: choices.pick(&[0, 1, -1, 50_000_000]),
                metadata: &[],
            };
            encode_request(id, flags, &head, &Raw(&payload)).ok()
        }
        2 => encode_data(id, flags, &Raw(&payload)).ok(),
        3 => {
            let code = i32::try_from(choices.below(20)).expect("small");
            Some(encode_status(id, &Status::new(Code::from(code), "raw")))
        }
        4 => Some(ping(choices.below(256)).to_vec()),
        5 => Some(pong(id, flags, &payload)),
        // A header that announces more than follows, or something else.
        6 => Some(header(choices, id, flags, &payload)),
        _ => None,
    };
    frame.unwrap_or(payload)
}

fn header(choices: &mut Choices, stream_id: u32, flags: Flags, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(choices.below(256)).expect("a byte");
    let header = Header {
        length: length << choices.below(24),
        stream_id,
        message_type: MessageType::from(u8::try_from(choices.below(8)).expect("small")),
        flags,
    };
    [&header.encode()[..], payload].concat()
}
