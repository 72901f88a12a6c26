//! The server's methods. What a handler does is said by its request.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use protobuf::well_known_types::wrappers::BytesValue;
use tokio::time::sleep;
use ttrpc_keepalive::{
    Code, Context, MethodOptions, OnDeadline, Requests, Responses, ServerBuilder, Service,
    SoftReply, Status,
};

use super::plan::{Answer, Ask};
use super::record::Record;

pub(crate) const SERVICE: &str = "simulation.Echo";

/// How much of its time a call with a soft deadline has left when it is answered.
pub(crate) const MARGIN: u64 = 50;

/// The message with this number of a stream, or the only one: the number of the call, that of the
/// message, then bytes that tell if any is lost or moved.
pub(crate) fn message(call: usize, number: u64, size: usize) -> BytesValue {
    let call = u64::try_from(call).expect("small");
    let mut message = BytesValue::new();
    message.value = [call, number]
        .iter()
        .flat_map(|n| n.to_be_bytes())
        .collect();
    let filler = (0..size).map(|at| u8::try_from((at * 31 + 7) % 251).expect("below 251"));
    message.value.extend(filler);
    message
}

/// The call that a message is about.
fn call_of(message: &BytesValue) -> Option<usize> {
    let call = message.value.first_chunk()?;
    usize::try_from(u64::from_be_bytes(*call)).ok()
}

type Log = Arc<Record>;

fn ask_of(log: &Log, request: &BytesValue) -> Option<(usize, Ask)> {
    let call = call_of(request)?;
    Some((call, log.ask(call)?))
}

/// Nothing is known of a request that a fuzzer made.
fn unknown() -> Status {
    Status::new(Code::NOT_FOUND, "no such call")
}

async fn act(answer: Answer) -> Result<(), Status> {
    match answer {
        Answer::AtOnce => Ok(()),
        Answer::After(time) => {
            sleep(Duration::from_millis(time)).await;
            Ok(())
        }
        Answer::Never => std::future::pending().await,
        // Without the message of a panic that nobody expects.
        Answer::Panic => resume_unwind(Box::new("on purpose")),
        Answer::Refuse => Err(Status::new(Code::ABORTED, "refused")),
    }
}

async fn say(log: Log, request: BytesValue) -> Result<BytesValue, Status> {
    let (call, ask) = ask_of(&log, &request).ok_or_else(unknown)?;
    log.handler_began(call);
    act(ask.answer).await?;
    log.handler_answered(call);
    Ok(request)
}

async fn down(log: Log, request: BytesValue, out: Responses<BytesValue>) -> Result<(), Status> {
    let (call, ask) = ask_of(&log, &request).ok_or_else(unknown)?;
    log.handler_began(call);
    for number in 0..ask.messages {
        out.send(&message(call, number, ask.size)).await?;
        sleep(Duration::from_millis(ask.gap)).await;
    }
    act(ask.answer).await?;
    log.handler_answered(call);
    Ok(())
}

/// Returns the number of messages, behind that of the call. One that answers at once does so after
/// its first.
async fn up(log: Log, mut requests: Requests<BytesValue>) -> Result<BytesValue, Status> {
    let mut asked = None;
    let mut count = 0;
    while let Some(request) = requests.next().await {
        let request = request?;
        let (call, ask) = ask_of(&log, &request).ok_or_else(unknown)?;
        if asked.replace((call, ask)).is_none() {
            log.handler_began(call);
        }
        log.expect(
            request == message(call, count, ask.size),
            "a request in its order",
        );
        count += 1;
        if ask.answer != Answer::AtOnce {
            act(ask.answer).await?;
        }
    }
    let Some((call, _)) = asked else {
        return Ok(message(0, 0, 0));
    };
    log.handler_answered(call);
    Ok(message(call, count, 0))
}

async fn both(
    log: Log,
    mut requests: Requests<BytesValue>,
    out: Responses<BytesValue>,
) -> Result<(), Status> {
    let mut last = None;
    while let Some(request) = requests.next().await {
        let request = request?;
        let (call, ask) = ask_of(&log, &request).ok_or_else(unknown)?;
        if last.replace(call).is_none() {
            log.handler_began(call);
        }
        if ask.answer != Answer::AtOnce {
            act(ask.answer).await?;
        }
        out.send(&request).await?;
    }
    if let Some(call) = last {
        log.handler_answered(call);
    }
    Ok(())
}

pub(crate) fn with_methods(server: ServerBuilder, log: &Log) -> ServerBuilder {
    let soft = SoftReply::from_request(|request: BytesValue| Ok::<BytesValue, _>(request));
    let soft = MethodOptions::new().soft_deadline(Duration::from_millis(MARGIN), soft);
    let cut = MethodOptions::new().on_deadline(OnDeadline::Cancel);
    let mut server = server
        .method(SERVICE, "Soft", soft)
        .method(SERVICE, "Cut", cut);
    for method in ["Say", "Soft", "Cut"] {
        let log = Arc::clone(log);
        let handler = move |_: Context, request| say(Arc::clone(&log), request);
        server = server.service(
            Service::new(SERVICE, ()).unary(method, move |(), context, request| {
                handler(context, request)
            }),
        );
    }
    let [one, two, three] = [log; 3].map(Arc::clone);
    server.service(
        Service::new(SERVICE, ())
            .server_stream("Down", move |(), _, request, out| {
                down(Arc::clone(&one), request, out)
            })
            .client_stream("Up", move |(), _, requests| up(Arc::clone(&two), requests))
            .bidi_stream("Both", move |(), _, requests, out| {
                both(Arc::clone(&three), requests, out)
            }),
    )
}
