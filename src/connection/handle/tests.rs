//! What no test can reach by making calls: there are 2^31 of them.

use std::pin::pin;
use std::task::Waker;

use super::*;
use crate::clock::Clock;
use crate::keepalive::{Machine, Peer, Role};

// RFC KA-30
#[tokio::test]
async fn the_last_id_is_followed_by_an_error_and_never_by_the_first() {
    let settings = ClientSettings::default();
    let machine = Machine::new(&settings.keepalive, Role::Client, 0);
    let shared = Arc::new(Shared::new(Clock::start(), &machine, None));
    let handle = Handle::new(Arc::clone(&shared), settings);
    shared.desk().next_id = Some(PING_STREAM_ID - 4);
    let outgoing = || Outgoing {
        service: "demo.Echo",
        method: "Say",
        flags: Flags::NONE,
        metadata: Vec::new(),
        payload: Payload::Bytes(b""),
        timeout: None,
    };
    let mut cx = Context::from_waker(Waker::noop());
    let mut calls: Vec<_> = (0..2)
        .map(|_| Box::pin(handle.exchange(outgoing())))
        .collect();
    for call in &mut calls {
        assert!(call.as_mut().poll(&mut cx).is_pending());
    }
    let ids: Vec<_> = shared
        .desk()
        .commands
        .iter()
        .map(|command| match command {
            Command::Open { id, .. } => *id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids, [PING_STREAM_ID - 4, PING_STREAM_ID - 2]);
    for _ in 0..2 {
        let refused = pin!(handle.exchange(outgoing())).poll(&mut cx);
        let Poll::Ready(Err(error)) = refused else {
            panic!("{refused:?}")
        };
        assert!(matches!(error, Error::IdsExhausted), "{error}");
        assert!(error.to_string().contains("id"));
        assert_eq!(error.peer(), Peer::Gone, "a new connection is needed");
    }
    assert_eq!(shared.open(), 2, "what was refused holds nothing");
}
