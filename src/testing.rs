//! Calls with both ends in the hands of a test.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::duplex;
use tokio::sync::oneshot;

use crate::call::CallOptions;
use crate::client::Client;
use crate::server::{Context, Requests, Responses, Server, Service};
use crate::status::{Code, Status};
use crate::streaming::{Receiver, Sender};
use crate::wire::{Decode, Encode};

/// Bytes in the pipe between the two ends.
const PIPE: usize = 64 * 1024;

/// Both ends of one call, for unit tests of handlers, and of what sends and receives.
///
/// Nothing is feigned: it is a stream between a [`Client`] and a [`Server`] that are joined by a pipe in
/// memory, and what a handler finds in its [`Context`] is what a caller's [`CallOptions`] said. So a
/// handler is called by the test itself, with arguments of its choice:
///
/// ```
/// use protobuf::well_known_types::wrappers::StringValue;
/// use ttrpc_keepalive::testing::TestCall;
/// use ttrpc_keepalive::{CallOptions, Context, Requests, Responses, Status};
///
/// async fn echo(
///     context: Context,
///     mut requests: Requests<StringValue>,
///     responses: Responses<StringValue>,
/// ) -> Result<(), Status> {
///     assert_eq!(context.values("tenant").next(), Some("one"));
///     while let Some(request) = requests.next().await {
///         responses.send(&request?).await?;
///     }
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let options = CallOptions::new().metadata("tenant", "one");
/// let mut call = TestCall::open("demo.Echo", "All", &options).await?;
/// call.sender.send(&StringValue::new()).await?;
/// call.sender.finish();
///
/// let ended = echo(call.context, call.requests, call.responses).await;
/// assert_eq!(ended, Ok(()));
/// assert_eq!(call.receiver.next().await.transpose()?, Some(StringValue::new()));
/// # Ok(()) }
/// ```
///
/// For a unary handler its `context` is enough.
#[non_exhaustive]
pub struct TestCall<Q, R> {
    /// What a handler is told of the call.
    pub context: Context,
    /// What a handler receives by.
    pub requests: Requests<Q>,
    /// What a handler sends by.
    pub responses: Responses<R>,
    /// What a caller sends by.
    pub sender: Sender<Q>,
    /// What a caller receives by.
    pub receiver: Receiver<R>,
    /// What ends the call, in the place of a handler that returns.
    pub handler: TestHandler<R>,
    /// The client's end of the connection. Dropping it and what it was called by is how a caller goes
    /// away, which [`Context::cancelled`] tells.
    pub client: Client,
    /// The server. [`Server::shutdown`] is what [`Context::draining`] tells.
    pub server: Server,
}

/// Ends a [`TestCall`] as its handler would. Dropping it ends the call with INTERNAL.
pub struct TestHandler<R> {
    end: oneshot::Sender<Result<Option<R>, Status>>,
}

type Halves<Q, R> = (Context, Requests<Q>, Responses<R>);
type HandlerEnd<R> = Result<Option<R>, Status>;

/// What the handler of the one call does: hands out what it was given, and ends as it is told.
struct Once<Q, R> {
    begun: oneshot::Sender<Halves<Q, R>>,
    end: oneshot::Receiver<HandlerEnd<R>>,
}

impl<Q, R> TestCall<Q, R>
where
    Q: Encode + Decode + Send + 'static,
    R: Encode + Decode + Send + 'static,
{
    /// Makes a call, and waits until its handler has begun.
    ///
    /// # Errors
    ///
    /// If the call expires before that, by the timeout in its options.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with time enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops both ends.
    pub async fn open(
        service: &str,
        method: &str,
        options: &CallOptions,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let (begun, begins) = oneshot::channel();
        let (end, ends) = oneshot::channel();
        let once = Mutex::new(Some(Once { begun, end: ends }));
        let methods = Service::new(service, Arc::new(once)).stream(method, hand_out);
        let server = Server::builder().service(methods).build()?;
        let (here, there) = duplex(PIPE);
        let serving = server.clone();
        tokio::spawn(async move { serving.serve_connection(there).await });
        let client = Client::builder().attach(here)?;
        let call = client.bidi_stream(service, method).options(options);
        let (sender, mut receiver) = call.await?;
        let (context, requests, responses) = tokio::select! {
            biased;
            Ok(halves) = begins => halves,
            end = receiver.next() => {
                return Err(match end {
                    Some(Err(error)) => error.into(),
                    _ => "the call has ended before its handler began".into(),
                });
            }
        };
        let handler = TestHandler { end };
        Ok(Self {
            context,
            requests,
            responses,
            sender,
            receiver,
            handler,
            client,
            server,
        })
    }
}

async fn hand_out<Q, R>(
    once: Arc<Mutex<Option<Once<Q, R>>>>,
    context: Context,
    requests: Requests<Q>,
    responses: Responses<R>,
) -> HandlerEnd<R> {
    let taken = once.lock().unwrap_or_else(PoisonError::into_inner).take();
    // A second call, by the client that the test has been given.
    let Once { begun, end } = taken.ok_or_else(|| gone("the one call of this test was made"))?;
    let _ = begun.send((context, requests, responses));
    end.await
        .unwrap_or_else(|_| Err(gone("the handler was dropped")))
}

fn gone(reason: &str) -> Status {
    Status::new(Code::INTERNAL, reason)
}

impl<R> TestHandler<R> {
    /// Ends the call: by a status, by a last response, or plainly.
    pub fn end(self, end: Result<Option<R>, Status>) {
        let _ = self.end.send(end);
    }
}

impl<Q, R> fmt::Debug for TestCall<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestCall")
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}

impl<R> fmt::Debug for TestHandler<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestHandler").finish_non_exhaustive()
    }
}
