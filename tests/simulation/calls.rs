//! The client's verbs: each is a task that notes how it has ended.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use protobuf::well_known_types::wrappers::BytesValue;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use ttrpc_keepalive::{Client, Error, Receiver, Sender, StreamCall};

use super::plan::{Ask, Method};
use super::record::{Kind, Outcome, Record};
use super::service::{SERVICE, message};

/// A verb under way.
pub(crate) struct Running {
    pub(crate) call: usize,
    task: JoinHandle<()>,
    hold: Arc<Mutex<Hold>>,
}

#[derive(Default)]
struct Hold {
    is_held: bool,
    waker: Option<Waker>,
}

/// A future that is kept and not polled while it is held, as one in a `select!` may be.
struct Held<F> {
    future: Pin<Box<F>>,
    hold: Arc<Mutex<Hold>>,
}

impl<F: Future> Future for Held<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        {
            let mut hold = self.hold.lock().expect("nothing panics under it");
            if hold.is_held {
                hold.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
        }
        self.future.as_mut().poll(cx)
    }
}

impl Running {
    /// Within the client's runtime.
    pub(crate) fn start(client: &Client, log: &Arc<Record>, kind: Kind) -> Self {
        let call = log.start(kind);
        let (client, log) = (client.clone(), Arc::clone(log));
        let hold = Arc::new(Mutex::new(Hold::default()));
        let held = Held {
            future: Box::pin(async move {
                log.begin(call);
                let outcome = outcome(client, call, kind, &log).await;
                log.end(call, outcome);
            }),
            hold: Arc::clone(&hold),
        };
        let task = tokio::spawn(held);
        Self { call, task, hold }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    pub(crate) fn drop_future(&self) {
        self.task.abort();
    }

    pub(crate) fn hold(&self, is_held: bool) {
        let mut hold = self.hold.lock().expect("nothing panics under it");
        hold.is_held = is_held;
        if let Some(waker) = hold.waker.take_if(|_| !is_held) {
            waker.wake();
        }
    }
}

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

async fn outcome(client: Client, call: usize, kind: Kind, log: &Record) -> Outcome {
    match kind {
        Kind::Closed => Outcome::Closed(client.closed().await),
        Kind::Probe(budget) => match client.probe(ms(budget)).await {
            Ok(_) => Outcome::Probed,
            Err(error) => Outcome::Failed(error),
        },
        Kind::Call(ask) => {
            let result = match ask.method {
                Method::Down => down(&client, call, ask, log).await,
                Method::Up => up(&client, call, ask).await,
                Method::Both => both(&client, call, ask, log).await,
                Method::Say | Method::Soft | Method::Cut => unary(&client, call, ask).await,
            };
            match result {
                Ok(None) => Outcome::Answered,
                Ok(Some(wrong)) => Outcome::Wrong(wrong),
                Err(error) => Outcome::Failed(error),
            }
        }
    }
}

/// What is wrong with the answer, if anything.
type Answered = Result<Option<String>, Error>;

fn wrong(right: bool, what: impl FnOnce() -> String) -> Answered {
    Ok((!right).then(what))
}

async fn unary(client: &Client, call: usize, ask: Ask) -> Answered {
    let request = message(call, 0, ask.size);
    let method = format!("{:?}", ask.method);
    let calling = client.call::<_, BytesValue>(SERVICE, &method, &request);
    let calling = match ask.timeout {
        Some(timeout) => calling.timeout(ms(timeout)),
        None => calling.no_timeout(),
    };
    let reply = calling.await?;
    wrong(reply == request, || "another answer".to_owned())
}

async fn open<H>(stream: StreamCall<H>, ask: Ask) -> Result<H, Error> {
    match ask.timeout {
        Some(timeout) => stream.timeout(ms(timeout)).await,
        None => stream.no_timeout().await,
    }
}

async fn down(client: &Client, call: usize, ask: Ask, log: &Record) -> Answered {
    let request = message(call, 0, ask.size);
    let stream = client.server_stream(SERVICE, "Down", &request);
    let count = receive(open(stream, ask).await?, call, ask, log).await?;
    wrong(count == ask.messages, || {
        format!("an end after {count} of {} messages", ask.messages)
    })
}

async fn up(client: &Client, call: usize, ask: Ask) -> Answered {
    let stream = client.client_stream(SERVICE, "Up");
    let (sender, reply) = open(stream, ask).await?;
    let (sent, reply): (_, BytesValue) = tokio::try_join!(send(sender, call, ask), reply)?;
    let right = match sent {
        Sent::All if ask.messages == 0 => reply == message(0, 0, 0),
        Sent::All => reply == message(call, ask.messages, 0),
        Sent::Some => true,
    };
    wrong(right, || "another count of messages".to_owned())
}

async fn both(client: &Client, call: usize, ask: Ask, log: &Record) -> Answered {
    let stream = client.bidi_stream(SERVICE, "Both");
    let (sender, receiver) = open(stream, ask).await?;
    let sending = send(sender, call, ask);
    let (sent, count) = tokio::try_join!(sending, receive(receiver, call, ask, log))?;
    let right = matches!(sent, Sent::Some) || count == ask.messages;
    wrong(right, || format!("{count} echoes of {}", ask.messages))
}

enum Sent {
    All,
    /// The stream ended first.
    Some,
}

/// What ends the stream is told by its other half, which is asked too.
async fn send(sender: Sender<BytesValue>, call: usize, ask: Ask) -> Result<Sent, Error> {
    for number in 0..ask.messages {
        match sender.send(&message(call, number, ask.size)).await {
            Ok(()) => sleep(ms(ask.gap)).await,
            Err(Error::StreamEnded | Error::Connection(..)) => return Ok(Sent::Some),
            Err(error) => return Err(error),
        }
    }
    sender.finish();
    Ok(Sent::All)
}

async fn receive(
    mut receiver: Receiver<BytesValue>,
    call: usize,
    ask: Ask,
    log: &Record,
) -> Result<u64, Error> {
    let mut count = 0;
    while let Some(received) = receiver.next().await {
        let expected = message(call, count, ask.size);
        log.expect(received? == expected, "a message in its order");
        count += 1;
    }
    Ok(count)
}
