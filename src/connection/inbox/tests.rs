//! What a queue of received messages promises.

use super::*;

fn inbox(limit: usize) -> (Inbox<&'static str>, ByteLimit) {
    let inbox = Inbox::new(Waker::noop().clone()).with_messages(limit);
    (inbox, ByteLimit::new(usize::MAX))
}

fn own(bytes: impl Into<Bytes>) -> Received<'static> {
    Received::Own(bytes.into())
}

type Next = Poll<Option<Result<Vec<u8>, &'static str>>>;

/// The next message, out of what is taken at one time.
fn next(inbox: &mut Inbox<&'static str>, total: &mut ByteLimit, chunk: &mut Chunk) -> Next {
    if chunk.is_done() {
        match inbox.poll_take(
            mem::take(chunk),
            total,
            Waker::noop(),
            &mut Effects::default(),
        ) {
            Poll::Ready(Some(Ok(taken))) => *chunk = taken,
            other => return other.map_ok(|_| Vec::new()),
        }
    }
    Poll::Ready(chunk.pop().map(|message| Ok(message.to_vec())))
}

fn found(message: &[u8]) -> Next {
    Poll::Ready(Some(Ok(message.to_vec())))
}

#[test]
fn messages_come_in_order_and_before_the_error_that_follows_them() {
    let (mut inbox, mut total) = inbox(1000);
    let mut chunk = Chunk::default();
    assert!(next(&mut inbox, &mut total, &mut chunk).is_pending());
    inbox.push(Received::Shared(b"one"), &mut total).unwrap();
    inbox.push(Received::Shared(b""), &mut total).unwrap();
    inbox.push(own("two"), &mut total).unwrap();
    inbox.fail("reset");
    inbox.close();
    for message in [&b"one"[..], b"", b"two"] {
        assert_eq!(next(&mut inbox, &mut total, &mut chunk), found(message));
    }
    let failed = next(&mut inbox, &mut total, &mut chunk);
    assert_eq!(failed, Poll::Ready(Some(Err("reset"))));
    for _ in 0..2 {
        assert_eq!(next(&mut inbox, &mut total, &mut chunk), Poll::Ready(None));
    }
}

#[test]
fn bytes_are_bounded_and_empty_messages_are_not_free() {
    for (length, fit) in [(0, 15), (136, 5), (5000, 1)] {
        let (mut inbox, mut total) = inbox(1000);
        let message = Bytes::from(vec![0; length]);
        for _ in 0..fit {
            inbox.push(own(message.clone()), &mut total).unwrap();
        }
        let refused = inbox.push(own(message.clone()), &mut total).unwrap_err();
        assert_eq!(
            (refused.size, refused.limit),
            ((fit + 1) * (length + 64), 1000)
        );
        assert!(next(&mut inbox, &mut total, &mut Chunk::default()).is_ready());
        inbox.push(own(message), &mut total).unwrap();
    }
}

#[test]
fn a_receiver_that_is_gone_keeps_nothing() {
    let (mut inbox, mut total) = inbox(1000);
    inbox.push(own(vec![0; 900]), &mut total).unwrap();
    inbox.leave(&mut total, &mut Effects::default());
    for _ in 0..10 {
        inbox.push(own(vec![0; 900]), &mut total).unwrap();
    }
    assert!(inbox.messages.unwrap().chunks.is_empty());
    assert_eq!(total.bytes, 0);
}

#[test]
fn queues_with_a_bound_together_share_what_others_have_left() {
    let mut total = ByteLimit::new(1000);
    let queue = || Inbox::<&str>::new(Waker::noop().clone()).with_messages(800);
    let message = || own(vec![0; 336]);
    let (mut one, mut other) = (queue(), queue());
    one.push(message(), &mut total).unwrap();
    other.push(message(), &mut total).unwrap();
    let refused = other.push(message(), &mut total).unwrap_err();
    assert_eq!((refused.size, refused.limit), (1200, 1000));
    assert!(next(&mut one, &mut total, &mut Chunk::default()).is_ready());
    other.push(message(), &mut total).unwrap();
    one.push(message(), &mut total).unwrap_err();
    other.leave(&mut total, &mut Effects::default());
    one.push(message(), &mut total).unwrap();
    one.push(message(), &mut total).unwrap();
    assert_eq!(total.bytes, 800);
    one.leave(&mut total, &mut Effects::default());
    queue().push(own(vec![0; 5000]), &mut total).unwrap();
    assert_eq!(total.bytes, 5064, "nothing else waited");
}

#[test]
fn small_messages_share_memory_that_a_quiet_stream_gives_back() {
    let (mut inbox, mut total) = inbox(usize::MAX);
    let mut chunk = Chunk::default();
    let message = |number: usize| vec![number.to_le_bytes()[0]; number % 1000];
    for _ in 0..3 {
        for number in 0..2000 {
            let bytes = message(number);
            let received = match number % 7 {
                0 => own(bytes.clone()),
                _ => Received::Shared(&bytes),
            };
            inbox.push(received, &mut total).unwrap();
        }
        for number in 0..2000 {
            let taken = next(&mut inbox, &mut total, &mut chunk);
            assert_eq!(taken, found(&message(number)), "{number}");
        }
    }
    assert!(next(&mut inbox, &mut total, &mut chunk).is_pending());
    let messages = inbox.messages.unwrap();
    assert!(messages.chunks.capacity() <= KEPT_ENTRIES);
    assert!(messages.spare.bytes.capacity() <= KEPT_BUFFER);
    assert_eq!((total.bytes, messages.waiting.bytes), (0, 0));
}
