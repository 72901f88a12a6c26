//! A client of this crate and an unmodified server in Go.

use std::pin::Pin;
use std::time::{Duration, Instant};

use protobuf::Message;
use protobuf::well_known_types::wrappers::StringValue;
use ttrpc_keepalive::{Client, Code, Error, Keepalive, LateOutcome, State, Support, Verdict};

use crate::Result;
use crate::process::Process;
use crate::report::{NEWEST, Report, World, claim};
use crate::service::{UNARY, int, streams_of, text, unary_of, zeros};

const MAX: usize = 4 << 20;

pub(crate) async fn all(world: &World, report: &mut Report) {
    let all: [(&str, Played<'_>); 15] = [
        ("unary", Box::pin(unary(world))),
        ("client stream", Box::pin(client_stream(world))),
        ("server stream", Box::pin(server_stream(world))),
        ("bidi stream", Box::pin(bidi(world))),
        ("metadata", Box::pin(metadata(world))),
        ("timeouts", Box::pin(timeouts(world))),
        ("errors", Box::pin(errors(world))),
        ("oversize", Box::pin(oversize(world))),
        ("64 x 1,000 calls", Box::pin(many(world))),
        ("graceful shutdown", Box::pin(shutdown(world, &[]))),
        ("late response", Box::pin(late(world))),
        ("repeated responses", Box::pin(repeated(world))),
        ("server does not read", Box::pin(not_reading(world))),
        ("slow calls, no PING known", Box::pin(slow(world))),
        ("one PING in all", Box::pin(one_ping(world))),
    ];
    for (name, plays) in all {
        let name = format!("rust client, go server {NEWEST}: {name}");
        report.pairing(&name, plays).await;
    }
    let name =
        format!("rust client, go server {NEWEST} with keepalive: graceful shutdown, PINGs flow");
    report
        .pairing(&name, shutdown(world, &["-idle", "1h"]))
        .await;
    let name = "rust client, go server 1.2.5: oversize answer";
    report.pairing(name, oversize_answer(world)).await;
}

type Played<'a> = Pin<Box<dyn Future<Output = Result<String>> + 'a>>;

/// A server in Go, and a client with these settings.
async fn pair(world: &World, version: &str, keepalive: Keepalive) -> Result<(Process, Client)> {
    let (server, address) = world.go_server(version, &[]).await?;
    let client = Client::builder()
        .keepalive(keepalive)
        .connect(&address)
        .await?;
    Ok((server, client))
}

pub(crate) async fn say(client: &Client, value: &str) -> Result<()> {
    let limit = Duration::from_secs(20);
    let request = text(value);
    let call = unary_of(client).say(&request);
    let reply = call.timeout(limit).await?;
    claim!(
        reply.value == value,
        "{} bytes came back",
        reply.value.len()
    );
    Ok(())
}

async fn unary(world: &World) -> Result<String> {
    let (_server, client) = pair(world, NEWEST, Keepalive::on_demand()).await?;
    for value in ["", "hello", &"x".repeat(1 << 20)] {
        say(&client, value).await?;
    }
    Ok("messages of 0 B, 5 B and 1 MiB came back".into())
}

async fn client_stream(world: &World) -> Result<String> {
    let (_server, client) = pair(world, NEWEST, Keepalive::on_demand()).await?;
    let (numbers, sum) = streams_of(&client).sum().await?;
    for number in 0..1000 {
        numbers.send(&int(number)).await?;
    }
    numbers.finish();
    let sum = sum.await?.value;
    claim!(sum == 499_500, "the sum is {sum}");
    let (numbers, sum) = streams_of(&client).sum().await?;
    numbers.finish();
    let sum = sum.await?.value;
    claim!(sum == 0, "the sum of none is {sum}");
    Ok("1,000 messages summed up, and none".into())
}

async fn server_stream(world: &World) -> Result<String> {
    let (_server, client) = pair(world, NEWEST, Keepalive::on_demand()).await?;
    for limit in [1000, 0] {
        let mut numbers = streams_of(&client).count(&int(limit)).await?;
        let mut want = 0;
        while let Some(number) = numbers.next().await {
            let number = number?.value;
            claim!(number == want, "{number} came for {want}");
            want += 1;
        }
        claim!(want == limit, "{want} of {limit} came");
    }
    Ok("1,000 messages in order, and none".into())
}

async fn bidi(world: &World) -> Result<String> {
    let (_server, client) = pair(world, NEWEST, Keepalive::on_demand()).await?;
    let chat = streams_of(&client).chat();
    let (ours, mut theirs) = chat.await?;
    let texts = ["", "one", &"x".repeat(1 << 20)];
    for value in texts.iter().cycle().take(300) {
        ours.send(&text(value)).await?;
        let reply = theirs.next().await.ok_or("the stream ended")??;
        claim!(
            reply.value == *value,
            "{} bytes came back",
            reply.value.len()
        );
    }
    ours.finish();
    let end = theirs.next().await;
    claim!(end.is_none(), "the end is {end:?}");
    Ok("300 messages to and fro, empty ones too".into())
}

async fn metadata(world: &World) -> Result<String> {
    let (_server, client) = pair(world, NEWEST, Keepalive::on_demand()).await?;
    let key = text("zone");
    let reply = unary_of(&client)
        .metadata(&key)
        .metadata("zone", "one")
        .metadata("other", "three")
        .metadata("zone", "two")
        .metadata("zone", "")
        .await?;
    claim!(reply.value == "one,two,", "{:?}", reply.value);
    Ok("three values of one key in order".into())
}

async fn timeouts(world: &World) -> Result<String> {
    let (_server, client) = pair(world, NEWEST, Keepalive::on_demand()).await?;
    let nothing = text("");
    let limit = Duration::from_secs(30);
    let remaining = || unary_of(&client).remaining(&nothing);
    let left = remaining().timeout(limit).await?.value;
    let left = Duration::from_nanos(left.try_into()?);
    claim!(
        left <= limit && left > limit - Duration::from_secs(5),
        "of 30 s: {left:?}"
    );
    let left = remaining().await?.value;
    claim!(left == 0, "without a deadline: {left}");
    let expired = remaining().timeout(Duration::ZERO).await;
    claim!(
        expired.as_ref().is_err_and(Error::is_deadline),
        "expired: {expired:?}"
    );
    say(&client, "still there").await?;
    Ok("the handler sees what is left; an expired call ends so".into())
}

async fn errors(world: &World) -> Result<String> {
    let (_server, client) = pair(world, NEWEST, Keepalive::on_demand()).await?;
    for code in (1..17).chain([999]) {
        let request = int(code);
        let reply = unary_of(&client).fail(&request).await;
        let error = reply.err().ok_or("a call that fails succeeds")?;
        let status = error
            .status()
            .ok_or_else(|| format!("code {code}: {error}"))?;
        claim!(
            i64::from(status.code().value()) == code,
            "code {code}: {status}"
        );
        claim!(
            status.message() == format!("failed with {code}"),
            "{status}"
        );
        let [detail] = status.details() else {
            return Err(format!("details of code {code}: {:?}", status.details()).into());
        };
        let detail = StringValue::parse_from_bytes(&detail.value)?;
        claim!(detail.value == "detail", "{detail:?}");
        claim!(error.is_deadline() == (code == 4), "code {code}: {error}");
    }
    for (service, method) in [(UNARY, "Nothing"), ("interop.Nothing", "Say")] {
        let reply = client
            .call::<_, StringValue>(service, method, &text(""))
            .await;
        claim!(
            code(&reply) == Some(Code::UNIMPLEMENTED),
            "{service} {method}: {reply:?}"
        );
    }
    let chat = streams_of(&client).chat();
    let (ours, mut theirs) = chat.await?;
    ours.send(&text("fail")).await?;
    let end = theirs.next().await.ok_or("the stream ended well")?;
    claim!(
        code(&end) == Some(Code::ABORTED),
        "a stream that fails: {end:?}"
    );
    say(&client, "still there").await?;
    Ok("codes 1 to 16 and 999 with text and detail, UNIMPLEMENTED twice, and a stream's".into())
}

fn code<T>(reply: &std::result::Result<T, Error>) -> Option<Code> {
    Some(reply.as_ref().err()?.status()?.code())
}

async fn oversize(world: &World) -> Result<String> {
    let (_server, client) = pair(world, NEWEST, Keepalive::on_demand()).await?;
    let echo = async |size| unary_of(&client).bytes(&zeros(size)).await;
    let largest = MAX - 40;
    let reply = echo(largest).await?;
    claim!(
        reply.value.len() == largest,
        "{} bytes came back",
        reply.value.len()
    );
    let reply = echo(MAX + 1).await;
    claim!(
        matches!(reply, Err(Error::RequestTooLarge(_))),
        "too large a request: {reply:?}"
    );
    say(&client, "still there").await?;
    // From 1.2.6 on the server ends the connection instead of sending too much.
    let too_much = int(i64::try_from(MAX)? + 1);
    let reply = unary_of(&client).grow(&too_much).await;
    claim!(
        reply.as_ref().is_err_and(Error::is_connection),
        "too large an answer: {reply:?}"
    );
    Ok("4 MiB passes, more is refused here; a server that owes more hangs up, and the call says so".into())
}

/// A server before 1.2.6 sends what is too large.
async fn oversize_answer(world: &World) -> Result<String> {
    let (_server, client) = pair(world, "1.2.5", Keepalive::on_demand()).await?;
    let too_much = int(i64::try_from(MAX)? + 1);
    let reply = unary_of(&client).grow(&too_much).await;
    claim!(
        matches!(reply, Err(Error::ResponseTooLarge(_))),
        "{reply:?}"
    );
    say(&client, "still there").await?;
    Ok("5 MiB that the server sends cost their call only".into())
}

async fn many(world: &World) -> Result<String> {
    let (_server, client) = pair(world, NEWEST, Keepalive::on_demand()).await?;
    let begin = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..64 {
        let client = client.clone();
        callers.spawn(async move {
            for call in 0..1000 {
                say(&client, &format!("{caller} {call}")).await?;
            }
            Ok(())
        });
    }
    for done in callers.join_all().await {
        done.map_err(|error: Box<dyn std::error::Error + Send + Sync>| error)?;
    }
    Ok(format!(
        "64 x 1,000 calls in {:.1} s",
        begin.elapsed().as_secs_f64()
    ))
}

// T52
/// Other calls have ended before, and PINGs are on their way all the time.
async fn shutdown(world: &World, wrap: &[&str]) -> Result<String> {
    let (mut server, address) = world.go_server(NEWEST, wrap).await?;
    let keepalive = Keepalive::every(Duration::from_millis(50));
    let client = Client::builder()
        .keepalive(
            keepalive
                .peer_support(ttrpc_keepalive::PeerSupport::Assume)
                .timeout(Duration::from_secs(30)),
        )
        .connect(&address)
        .await?;
    for _ in 0..3 {
        say(&client, "warm").await?;
    }
    let flight = tokio::spawn({
        let client = client.clone();
        async move { sleep_for(&client, 900).await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    say(&client, "another").await?;
    server.tell("shutdown").await?;
    flight.await??;
    server.expect("down true").await?;
    let pings = client.snapshot().counters().keepalive.pings_sent;
    claim!(pings > 0, "no PING was sent");
    Ok(format!(
        "the call in flight was answered, {pings} PINGs meanwhile"
    ))
}

pub(crate) async fn sleep_for(client: &Client, ms: i64) -> Result<()> {
    unary_of(client).sleep(&int(ms)).await?;
    Ok(())
}

async fn late(world: &World) -> Result<String> {
    let (_server, client) = pair(world, NEWEST, Keepalive::on_demand()).await?;
    say(&client, "first").await?;
    let request = int(800);
    let call = unary_of(&client).sleep(&request);
    let late = call.timeout(Duration::from_millis(100)).await;
    let error = late.err().ok_or("it was not late")?;
    claim!(error.is_deadline(), "{error}");
    // The handler ends by itself at the deadline it was told, unless it does not look.
    let answer = error.late_answer().ok_or("no late answer to wait for")?;
    say(&client, "meanwhile").await?;
    let outcome = answer.await;
    claim!(
        matches!(outcome, LateOutcome::Answered { .. }),
        "{outcome:?}"
    );
    say(&client, "afterwards").await?;
    claim!(
        client.snapshot().counters().late_responses == 1,
        "it was not counted"
    );
    Ok("a late answer costs its call only, and can be waited for".into())
}

/// A server that has ended a stream answers what still comes on it, each time.
async fn repeated(world: &World) -> Result<String> {
    let (_server, client) = pair(world, NEWEST, Keepalive::on_demand()).await?;
    say(&client, "first").await?;
    let mut repeated = 0;
    for _ in 0..50 {
        let (ours, reply) = streams_of(&client).refuse().await?;
        for _ in 0..100 {
            if ours.send(&text("more")).await.is_err() {
                break;
            }
        }
        let reply = reply.await;
        claim!(code(&reply) == Some(Code::PERMISSION_DENIED), "{reply:?}");
        say(&client, "still there").await?;
        repeated = client.snapshot().counters().repeated_responses;
    }
    Ok(format!(
        "the first counts: {repeated} more of them were dropped in 50 streams"
    ))
}

async fn not_reading(world: &World) -> Result<String> {
    let (server, client) = pair(world, NEWEST, Keepalive::on_demand()).await?;
    say(&client, "first").await?;
    server.stop().await?;
    let begin = Instant::now();
    let request = zeros(3 << 20);
    let call = unary_of(&client).bytes(&request);
    let error = call
        .timeout(Duration::from_secs(1))
        .await
        .err()
        .ok_or("it was answered")?;
    let took = begin.elapsed();
    let verdict = error.verdict();
    claim!(
        matches!(verdict, Some(Verdict::NotReading | Verdict::LocalStall)),
        "{error}"
    );
    claim!(took < Duration::from_secs(10), "it took {took:?}");
    server.go_on()?;
    say(&client, "still there").await?;
    Ok(format!("3 MiB and 1 s: {error}"))
}

// T53
/// Watched, and known not to know PING: silence is not death.
async fn slow(world: &World) -> Result<String> {
    let keepalive =
        Keepalive::every(Duration::from_millis(100)).timeout(Duration::from_millis(200));
    let (_server, client) = pair(world, NEWEST, keepalive).await?;
    say(&client, "first").await?;
    sleep_for(&client, 3000).await?;
    let snapshot = client.snapshot();
    claim!(
        snapshot.support() == Support::No,
        "support {:?}",
        snapshot.support()
    );
    claim!(
        matches!(snapshot.state(), State::Alive),
        "{}",
        snapshot.state()
    );
    Ok("a call of 3 s with 0.1 s + 0.2 s of keepalive is answered".into())
}

// T83
async fn one_ping(world: &World) -> Result<String> {
    let keepalive =
        Keepalive::every(Duration::from_millis(100)).timeout(Duration::from_millis(200));
    let (server, client) = pair(world, NEWEST, keepalive).await?;
    for _ in 0..3 {
        say(&client, "call").await?;
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    let snapshot = client.snapshot();
    claim!(
        snapshot.support() == Support::No,
        "support {:?}",
        snapshot.support()
    );
    let pings = snapshot.counters().keepalive.pings_sent;
    claim!(pings == 1, "{pings} PINGs were sent");
    claim!(
        server.logged().is_empty(),
        "the server logs {}",
        server.logged()
    );
    Ok("one PING, no answer, no line in the server's log".into())
}
