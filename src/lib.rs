//! A ttrpc client and server that can tell a **slow** peer from a **dead** one.
//!
//! [ttrpc] is what containerd speaks with its shims, its NRI plugins and the agents in VMs. It has
//! no keepalive: when a call runs out of time, *deadline exceeded* is all that the caller ever
//! learns, and a runtime that takes it for *connection lost* throws out a plugin that was only
//! slow. This crate speaks the same bytes, adds two frames, PING and PONG, and puts into the error
//! of every late call what the caller needs to know: the peer lives and its answer is late, or it
//! does not respond, or the delay is on this side.
//!
//! Peers that do not know the two frames are served as before; they are never judged by their
//! silence.
//!
//! # A server
//!
//! Methods are closures over rust-protobuf messages, over bytes, which are [`Raw`], or over whatever
//! else implements [`Encode`] and [`Decode`]. No code generator is needed.
//!
//! ```
//! use protobuf::well_known_types::wrappers::StringValue;
//! use ttrpc_keepalive::{Code, Server, Service, Status};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let echo = Service::new("demo.Echo", ()) // without a state
//!     .unary("Say", |(), call, request: StringValue| async move {
//!         if request.value.is_empty() {
//!             return Err(Status::new(Code::INVALID_ARGUMENT, "nothing to say"));
//!         }
//!         println!("the caller waits for another {:?}", call.remaining());
//!         Ok(request)
//!     });
//! let server = Server::builder().service(echo).build()?;
//! # let _ = server; Ok(()) }
//! ```
//!
//! The methods of a [`Service`] share its state; what all calls have to pass is a
//! [hook](#a-hook-around-calls).
//!
//! [`Server::serve`] takes a [`Listener`], or whatever else yields connections ([`Accept`]);
//! [`Server::serve_connection`] takes one connected stream of any kind. A server answers PINGs
//! ahead of everything else that waits to be written, however long its handlers take. If they may
//! block their threads, see [below](#handlers-that-block).
//!
//! # A client
//!
//! ```
//! # use protobuf::well_known_types::wrappers::StringValue;
//! # use ttrpc_keepalive::{Server, Service};
//! use std::time::Duration;
//! use ttrpc_keepalive::{Client, Keepalive};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let echo = Service::new("demo.Echo", ())
//! #     .unary("Say", |(), _, request: StringValue| async move { Ok(request) });
//! # let server = Server::builder().service(echo).build()?;
//! // An in-memory pipe here; `Client::builder().connect("unix:///run/plugin.sock")` elsewhere.
//! let (here, there) = tokio::io::duplex(4096);
//! tokio::spawn(async move { server.serve_connection(there).await });
//!
//! let client = Client::builder()
//!     .keepalive(Keepalive::every(Duration::from_secs(10)).timeout(Duration::from_secs(10)))
//!     .attach(here)?;
//!
//! let mut request = StringValue::new();
//! request.value = "hello".into();
//! let reply: StringValue = client
//!     .call("demo.Echo", "Say", &request)
//!     .timeout(Duration::from_secs(2))
//!     .await?;
//! assert_eq!(reply.value, "hello");
//! # Ok(()) }
//! ```
//!
//! # A late call
//!
//! A call that runs out of time never ends its connection. Its error carries a [`Verdict`], the
//! [`Evidence`] behind it, and a future that ends when the answer comes after all.
//!
//! ```
//! # use protobuf::well_known_types::wrappers::StringValue;
//! # use std::time::Duration;
//! # use ttrpc_keepalive::{Client, Server, Service};
//! use ttrpc_keepalive::{LateOutcome, Peer, Verdict};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let echo = Service::new("demo.Echo", ())
//! #     .unary("Sleep", |(), _, request: StringValue| async move {
//! #         tokio::time::sleep(Duration::from_secs(5)).await;
//! #         Ok(request)
//! #     });
//! # let server = Server::builder().service(echo).build()?;
//! # let (here, there) = tokio::io::duplex(4096);
//! # tokio::spawn(async move { server.serve_connection(there).await });
//! # let client = Client::builder().attach(here)?;
//! # let request = StringValue::new();
//! // The handler of this method takes 5 s.
//! let call = client.call::<_, StringValue>("demo.Echo", "Sleep", &request);
//! let late = call.timeout(Duration::from_secs(2)).await.unwrap_err();
//!
//! assert!(late.is_deadline());
//! assert_eq!(late.verdict(), Some(Verdict::Slow)); // it answered a PING 250 ms ago
//! assert_eq!(late.peer(), Peer::Alive);
//!
//! // Set it aside until it is well again, instead of paying 2 s for each call.
//! if let Some(answer) = late.late_answer() {
//!     assert!(matches!(answer.await, LateOutcome::Answered { .. }));
//! }
//! # Ok(()) }
//! ```
//!
//! What a runtime with several plugins makes of it, as a loop. An event costs each of them its own
//! time only, the error names the cause, and whether a late plugin is called again on the same
//! connection, set aside, or [closed](Client::abort) is a decision of its own:
//!
//! ```
//! # use std::time::Duration;
//! # use protobuf::well_known_types::wrappers::StringValue as Event;
//! # use ttrpc_keepalive::{Client, Error, Peer};
//! # enum Outcome { Applied(Event), Absent, Late, Failed(Error) }
//! # struct Plugin { client: Client, set_aside: bool }
//! # impl Plugin { fn note_late(&mut self, _: Error) {} }
//! # const LIMIT: Duration = Duration::from_secs(2);
//! async fn deliver(plugin: &mut Plugin, event: &Event) -> Outcome {
//!     if plugin.client.peer() != Peer::Alive || plugin.set_aside {
//!         return Outcome::Absent; // costs the node nothing
//!     }
//!     match plugin.client.call("demo.Plugin", "Event", event).timeout(LIMIT).await {
//!         Ok(reply) => Outcome::Applied(reply),
//!         Err(error) if error.is_deadline() => {
//!             plugin.note_late(error); // nobody is disconnected here
//!             Outcome::Late
//!         }
//!         Err(error) => Outcome::Failed(error),
//!     }
//! }
//! ```
//!
//! # Timeouts
//!
//! A call waits as long as it is allowed to: by its own [`timeout`](Call::timeout), else by what the
//! builder says for its [method](ClientBuilder::method_timeout), else for
//! [all unary calls](ClientBuilder::call_timeout). It is counted on this side, whatever the peer
//! makes of it, and covers waiting for room and writing too.
//!
//! **Without any of them, and without [`Keepalive::every`], a call to a frozen peer never returns.**
//! A timeout is no good detector of dead peers, though: it must be longer than the longest work, and
//! it breaks calls that are only long. Watch the connection for that, and use timeouts for what the
//! caller cannot wait for. A call that is answered when something happens takes
//! [none](Call::no_timeout), and relies on the watch.
//!
//! ```
//! # use std::time::Duration;
//! # use ttrpc_keepalive::{Client, Keepalive};
//! let builder = Client::builder()
//!     .keepalive(Keepalive::every(Duration::from_secs(10)))
//!     .call_timeout(Duration::from_secs(2))
//!     .method_timeout("demo.Plugin", "Synchronize", Some(Duration::from_secs(60)))
//!     .method_timeout("demo.Plugin", "NextEvent", None); // answered when there is one
//! # let _ = builder;
//! ```
//!
//! The peer is told what is left when the request is written, and its handler sees it
//! ([`Context::remaining`]). Hand that on to what the handler calls in turn: a limit inside that is
//! longer than the one outside is work for nobody.
//!
//! What is in use can be read at any time from [`Client::settings`], and for a server from
//! [`Server::settings`]; it is logged once at debug level.
//!
//! # Streams
//!
//! A method may take many requests, give many responses, or both. Awaiting such a call opens the
//! stream and yields its halves, which may go to tasks of their own.
//!
//! ```
//! # use protobuf::well_known_types::wrappers::StringValue;
//! # use ttrpc_keepalive::{Client, Server, Service};
//! use ttrpc_keepalive::{Requests, Responses};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let echo = Service::new("demo.Echo", ()).bidi_stream(
//!     "Converse",
//!     |(), _, mut requests: Requests<StringValue>, responses: Responses<StringValue>| async move {
//!         while let Some(request) = requests.next().await {
//!             responses.send(&request?).await?;
//!         }
//!         Ok(()) // ends the stream; a status would end it too
//!     },
//! );
//! let server = Server::builder().service(echo).build()?;
//! # let (here, there) = tokio::io::duplex(4096);
//! # tokio::spawn(async move { server.serve_connection(there).await });
//! # let client = Client::builder().attach(here)?;
//! let call = client.bidi_stream::<StringValue, StringValue>("demo.Echo", "Converse");
//! let (sender, mut receiver) = call.await?;
//! # let mut hello = StringValue::new();
//! # hello.value = "hello".into();
//! sender.send(&hello).await?;
//! sender.finish(); // so does dropping it
//! while let Some(response) = receiver.next().await {
//!     assert_eq!(response?, hello);
//! }
//! # Ok(()) }
//! ```
//!
//! Order is kept, and what was received before a stream failed comes before its error. Sending
//! waits only while too much is unwritten; that it returned says that the message is queued, not
//! that the peer has seen it. Messages that nobody takes wait up to a limit, and then cost their own
//! stream: other calls and PONGs never wait for a slow consumer. An open stream is a call in flight
//! for [`Keepalive`], and has a deadline only if it is given one.
//!
//! # Liveness
//!
//! [`Client::liveness`] follows what is known about the peer: a stream of [`Snapshot`]s that yields
//! the present one and then each change. [`Client::peer`] is the summary to decide by,
//! [`Client::probe`] asks now, [`Client::closed`] waits for the one end with its reason.
//!
//! ```
//! # use std::time::Duration;
//! # use ttrpc_keepalive::{Client, Keepalive};
//! use ttrpc_keepalive::{DeadReason, State};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The process behind this stream never runs, and both ends ship together.
//! let (here, _frozen) = tokio::io::duplex(4096);
//! let keepalive = Keepalive::every(Duration::from_secs(2))
//!     .timeout(Duration::from_secs(5))
//!     .peer_support(ttrpc_keepalive::PeerSupport::Assume);
//! let client = Client::builder().keepalive(keepalive).attach(here)?;
//!
//! let mut liveness = client.liveness();
//! while let Some(seen) = liveness.next().await {
//!     println!("{} after {:?} of silence", seen.state(), seen.silent_for());
//! }
//! assert!(matches!(client.snapshot().state(), State::Dead(DeadReason::Silent)));
//! # Ok(()) }
//! ```
//!
//! *Alive* is said of the connection: somebody reads it and answers PINGs. Whether the work behind
//! it gets on is another question. [`Snapshot::oldest_call_for`], [`Snapshot::calls_in_flight`] and
//! [`Snapshot::late_calls_unanswered`] tell of it to whoever asks, without making a call.
//!
//! # A peer that does not know PING
//!
//! No server of today answers PINGs. On a unix socket Linux tells all the same how much of what was
//! written the *process* at the other end has not read, so such a peer is asked by a PING that it
//! ignores: shortly before a call to it is late, one, unless its request lies unread anyway.
//!
//! | what the kernel says | the verdict |
//! |---|---|
//! | it was read | [`Slow`](Verdict::Slow), and [`Evidence::only_reads`] |
//! | nobody has read it | [`NotReading`](Verdict::NotReading) |
//! | nothing: TCP, vsock, other streams and systems, or [turned off](Keepalive::read_receipts) | [`Unknown`](Verdict::Unknown) |
//!
//! That a process reads says nothing of a handler, and nothing of who is behind a proxy. A process that
//! reads on the thread that its handlers block does not read and lives. [`Snapshot::receipts`] says
//! whether the kernel tells, [`Keepalive::watch_by_receipts`] watches an idle connection by it.
//!
//! What that process is doing stands beside the verdict, in [`Evidence::process`] and in the text of the
//! error: running, stopped, frozen by its cgroup, waiting for the disk, or not known, and why. No verdict depends on
//! it. It is said only of a process that holds the other end of this very connection, and never of a
//! number: who listened or connected may have ended. [`Client::peer_process`] asks at any time.
//!
//! # The end of a connection
//!
//! All that waits on a connection fails with the one reason for which it ended, and whoever asks later
//! is told the same: a [`ConnectionError`], which displays as a line for a log. The page [`ends`] has each
//! cause, what either side sees, what was sent, and what to do.
//!
//! ```
//! # use protobuf::well_known_types::wrappers::StringValue;
//! # use ttrpc_keepalive::{Client, Error};
//! use ttrpc_keepalive::RequestProgress;
//!
//! # async fn example(client: Client, request: StringValue) -> Result<(), Box<dyn std::error::Error>> {
//! let call = client.call::<_, StringValue>("demo.Store", "Create", &request);
//! match call.await {
//!     Ok(reply) => println!("{}", reply.value),
//!     // Nothing of it has left, so it may be made again, on a new connection.
//!     Err(error) if error.request() == RequestProgress::NotSent => println!("again: {error}"),
//!     // *the connection has ended: the peer closed it*; whether it was executed is unknown.
//!     Err(error) => println!("ask first: {error}"),
//! }
//! client.close().await?; // sends what is queued; dropping the last handle does not
//! # Ok(()) }
//! ```
//!
//! A connection is never made anew behind the application's back: it owns the loop, and [`Backoff`]
//! says how long to wait in it.
//!
//! # Deadlines on a server
//!
//! A handler sees by its [`Context`] how long its caller waits. A request that has expired is
//! answered DEADLINE_EXCEEDED without it; a handler that began in time runs to its end, and its late
//! answer tells the caller that this side is well again. [`MethodOptions`] say otherwise, for one
//! method or for all: a [`timeout`](MethodOptions::timeout) of its own,
//! [`OnDeadline::Cancel`] to be dropped when its caller gives up, or a
//! [`soft_deadline`](MethodOptions::soft_deadline), for callers to whom a late answer is a lost
//! connection: the call is answered shortly before its deadline, and the handler runs on.
//!
//! ```
//! # use protobuf::well_known_types::wrappers::StringValue;
//! # use std::time::Duration;
//! # use ttrpc_keepalive::{Client, Server, Service};
//! use ttrpc_keepalive::{MethodOptions, SoftReply};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let nothing_yet = SoftReply::message(&StringValue::new());
//! let in_time = MethodOptions::new().soft_deadline(Duration::from_millis(150), nothing_yet);
//! let plugin = Service::new("demo.Plugin", ())
//!     .unary("Event", |(), _, event: StringValue| async move {
//!         tokio::time::sleep(Duration::from_secs(3)).await; // the caller waits for 2 s
//!         Ok(event)
//!     })
//!     .method("Event", in_time);
//! let server = Server::builder().service(plugin).build()?;
//! # let (here, there) = tokio::io::duplex(4096);
//! # tokio::spawn(async move { server.serve_connection(there).await });
//! # let client = Client::builder().attach(here)?;
//! # let mut event = StringValue::new();
//! # event.value = "pod".into();
//! let call = client.call::<_, StringValue>("demo.Plugin", "Event", &event);
//! let reply = call.timeout(Duration::from_secs(2)).await?; // after 1.85 s
//! assert_eq!(reply.value, "");
//! # Ok(()) }
//! ```
//!
//! A handler that blocks its thread is answered for, too, where the driver has
//! [a thread of its own](DriverThread::Dedicated). The handler asks [`Context::is_answered`].
//!
//! A request says how long its caller waits, not since when. One that is found after this process was
//! stopped looks fresh, though its caller may have given up long ago. A server that
//! [looks for pauses](ServerBuilder::observe_pauses) tells its handlers how long a request
//! [may have waited](Context::may_have_waited), and [refuses](MethodOptions::refuse_waited) it for
//! methods that do harm when they are late.
//!
//! A handler whose connection has ended runs on, unless [`OnDisconnect::Cancel`] says otherwise. One
//! that had not begun does not: requests behind which the end lies are for nobody.
//!
//! [`Server::shutdown`] lets what runs end, within a limit. [`Context::draining`] tells handlers
//! that would not end by themselves, and [`Context::cancelled`] those whose caller is gone.
//!
//! # A hook around calls
//!
//! One function sees every call when it begins and when it has ended, unary or a stream, on a
//! [client](ClientBuilder::hook) or on a [server](ServerBuilder::hook): its method, its metadata,
//! its time, its outcome and how long it took. It may set metadata and refuse the call. See
//! [`CallStart`].
//!
//! # Handlers that block
//!
//! A handler that keeps its thread, by a lock or a call that does not come back, keeps everything
//! else on that thread from running. If that is the task that answers PINGs, a process at work
//! looks dead. A runtime with several threads does not prevent it: a task that is woken by one that
//! then blocks waits for that very thread, although others are free. With
//! [`DriverThread::Dedicated`] a thread of its own answers, and handlers run where they did:
//!
//! ```
//! # use protobuf::well_known_types::wrappers::StringValue;
//! # use ttrpc_keepalive::{Server, Service};
//! use std::time::Duration;
//! use ttrpc_keepalive::{Client, DriverThread, Verdict};
//! # use ttrpc_keepalive::Keepalive;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let echo = Service::new("demo.Echo", ()).unary("Block", |(), _, q: StringValue| async {
//! #     std::thread::sleep(Duration::from_secs(4));
//! #     Ok(q)
//! # });
//! # let server = Server::builder().service(echo);
//! let server = server.driver_thread(DriverThread::Dedicated).build()?;
//! # let (here, there) = std::os::unix::net::UnixStream::pair()?;
//! # here.set_nonblocking(true)?;
//! # there.set_nonblocking(true)?;
//! # std::thread::spawn(move || {
//! #     let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! #     runtime.block_on(async {
//! #         let there = tokio::net::UnixStream::from_std(there).unwrap();
//! #         server.serve_connection(there).await
//! #     })
//! # });
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let here = tokio::net::UnixStream::from_std(here)?;
//! # let keepalive = Keepalive::on_demand().probe_before_deadline(Duration::from_secs(1));
//! # let client = Client::builder().keepalive(keepalive).attach(here)?;
//! # let request = StringValue::new();
//!
//! // The handler of this method blocks the only thread there is for handlers.
//! let call = client.call::<_, StringValue>("demo.Echo", "Block", &request);
//! let late = call.timeout(Duration::from_secs(2)).await.unwrap_err();
//! assert_eq!(late.verdict(), Some(Verdict::HandlersStalled));
//! # Ok(()) })}
//! ```
//!
//! So that such a thread does not hide an application that is stuck, its PONGs say so: a server
//! sends a task that does nothing, its *canary*, where its handlers run, at each PING and when a
//! request has waited for 100 ms, and while the canary has not run for 100 ms it sets a flag that
//! makes the verdict on a late call [`HandlersStalled`](Verdict::HandlersStalled) instead of
//! [`Slow`](Verdict::Slow).
//!
//! The canary sees threads that do not come back, all of them where there are several, and a
//! runtime that is gone. It does not see tasks that wait for each other and leave the threads free,
//! nor a handler that blocks later than it was sent: the next PING tells of that one.
//!
//! # How a peer is judged
//!
//! - **Evidence of life** is any byte received, and a write that moves again after having been
//!   blocked. Not a frame: a large one may take its time, and a peer that sends a byte now and then and
//!   never a frame is alive for as long as [`header_timeout`](ServerBuilder::header_timeout) lets it.
//!   Not what is sent: a write that the kernel takes at once says nothing of the peer, so one who
//!   only sends is asked like one who is idle.
//! - **A verdict** is found at the deadline of each late call. A quarter of a second before it the
//!   peer is asked with a PING, and at the deadline the socket is looked at once more. If the driver
//!   does not run, the caller's own clock ends the call, later by a quarter of that time.
//! - **A conviction** ends a connection that is watched ([`Keepalive::every`]): the peer left a
//!   PING without any evidence of life for the whole timeout, while this side was looking. So does
//!   a peer that takes no bytes and sends none. One that speaks is alive, whatever it does not read,
//!   unless [`Keepalive::write_stall`] says for how long it may not.
//! - *The timer fired* is not *the peer was silent*. Time in which this process did not run is not
//!   held against the peer, and before it is judged the kernel is asked whether bytes wait.
//!
//! What it cannot tell: a PONG proves that the peer's driver runs, not that its application is
//! well; and a live peer that does not run for longer than the timeout is convicted, by this and
//! by every other rule.
//!
//! # Transports
//!
//! | address | |
//! |---|---|
//! | `unix:///run/plugin.sock`, `/run/plugin.sock` | a path; the file is removed with its [`Listener`], and [a stale one](ListenerBuilder::replace_stale) can be replaced |
//! | `unix://@name` | a name of Linux's abstract namespace, which leaves no file |
//! | `tcp://host:port` | also `tcp://[::1]:port` |
//! | `vsock://CID:PORT` | between a machine and its virtual machines, with the feature `vsock`; the CID -1 is any, for a server |
//!
//! A socket that exists already, one of the standard library or a descriptor that was passed on, is
//! taken by [`Socket::from_fd`] and [`Listener::from_fd`]; any other byte stream, a pipe in memory
//! or TLS, by [`ByteStream`]; and the channels of a multiplexer by [`transport::Transport`], whose
//! documentation is the contract for it, and [`Accept`]. All of them are timed, watched and judged alike.
//! What has to be done on a socket before ttrpc is spoken there is a part of connecting by
//! [`ClientBuilder::connect_with`]. On a unix socket both sides know the
//! other's process and user, [`Client::peer_credentials`], [`Context::peer_credentials`], and on TCP the
//! other's address, [`Client::remote_address`], [`Context::remote_address`].
//!
//! A connection that ends in order ends its stream in order, within a second: TLS says farewell, what
//! was taken is passed on. One that ends by a conviction says nothing more. Either way the socket itself
//! is shut down, whoever has a copy of its descriptor.
//!
//! Connecting fails at the first refusal of the operating system, unless
//! [a retry is asked for](ClientBuilder::connect_retry). That it succeeded says that somebody
//! listens, not that anybody accepts.
//!
//! TCP's own keepalive is not used: it is for TCP alone, other sockets refuse its options, and it
//! asks the peer's kernel, which answers for a process that is stuck.
//!
//! Traffic over vsock is not part of the tests, for want of a virtual machine: they parse its
//! addresses, refuse its descriptors without the feature, and put a socket of another family into
//! its transport.
//!
//! # Cancel safety
//!
//! Every future here may be dropped at any moment; what that does is written on each. A frame that
//! has begun to be written is finished by the connection, so a dropped call never breaks it.
//!
//! # Events
//!
//! What happens on a connection is told to [`tracing`](https://docs.rs/tracing): what an operator should
//! know as warnings and errors, the rest at debug level and below. With the feature `log` users of the
//! crate `log` see the same, where no subscriber of `tracing` is set.
//!
//! # Limits
//!
//! | queue | bound | default | at the bound |
//! |---|---|---|---|
//! | requests waiting to be written | [`outbox_limit`](ClientBuilder::outbox_limit) | 16 MiB | calls wait, within their timeouts; messages of streams wait in their senders |
//! | calls in flight | [`call_limit`](ClientBuilder::call_limit) | 65,536 | calls wait, within their timeouts |
//! | those who wait for room, and probes | by their callers | | each is a future that somebody holds, and goes with it |
//! | messages of one stream that nobody has taken | [`stream_limit`](ClientBuilder::stream_limit), [also of a server](ServerBuilder::stream_limit) | 16 MiB | that stream fails: [`Error::StreamOverflow`], RESOURCE_EXHAUSTED |
//! | messages of all streams of a client that nobody has taken | [`download_limit`](ClientBuilder::download_limit) | 64 MiB | the stream whose message comes fails: [`Error::StreamOverflow`] |
//! | messages of all streams that no handler has taken | [`upload_limit`](ServerBuilder::upload_limit) | 64 MiB a connection | the stream whose message comes fails: RESOURCE_EXHAUSTED |
//! | late calls that are followed | [`late_limit`](ClientBuilder::late_limit) | 1,024 | the oldest is forgotten |
//! | handlers that run | [`handler_limit`](ServerBuilder::handler_limit) | 1,024 a connection | requests wait |
//! | handlers that run on all connections | [`total_handler_limit`](ServerBuilder::total_handler_limit) | none | requests wait, and connections have their turns |
//! | calls of one method | [`call_limit`](MethodOptions::call_limit) | none | RESOURCE_EXHAUSTED at once |
//! | requests that wait for a handler | [`waiting_limit`](ServerBuilder::waiting_limit) | 1,024 a connection | expired ones make room, then RESOURCE_EXHAUSTED at once |
//! | bytes of these requests, and of their streams' messages | [`waiting_byte_limit`](ServerBuilder::waiting_byte_limit) | 16 MiB a connection | RESOURCE_EXHAUSTED at once |
//! | answers not taken by the client | [`owed_limit`](ServerBuilder::owed_limit) | 16 MiB | requests are not read, and those that wait do not begin, until it takes some; messages of streams wait in their senders |
//! | PONGs waiting to be written | fixed | 1, of up to 64 bytes | the newest PING is answered |
//! | a frame | fixed | 4 MiB | costs its own call |
//! | pairs of metadata, details of a status | fixed | 4,096 | INVALID_ARGUMENT; [`Error::InvalidResponse`] |
//! | buffers kept for the next frames | fixed | 8 MiB a process | the oldest are freed |
//! | connections of a listener | [`connection_limit`](ServerBuilder::connection_limit) | 65,536 | none is accepted until one has ended; the operating system's queue holds some more |
//!
//! What handlers were given and what they answer is beside that: with a frame of the largest size
//! for each, a connection has 4 GiB of requests in its 1,024 handlers, and as much of their answers.
//! A server whose clients are not trusted lowers [`handler_limit`](ServerBuilder::handler_limit), or
//! the [`call_limit`](MethodOptions::call_limit) of methods whose messages are large.
//!
//! What was let in below a limit may exceed it: a message by its own size, and answers by those of
//! the handlers that run when their client stops taking them. A frame is as large as ttrpc allows,
//! which no setting changes, since the peer has the same limit. What may be larger is split by the
//! application, or sent as a stream.
//!
//! Memory and time follow the load down. Of 60,000 calls at once a side keeps less than 256 KiB after a
//! quiet second; beside as many that are near their deadlines a call takes 1.2 times as long as alone; to
//! drop one of 50,000 that are not written takes 4 µs; and a frame of 4 MiB that is announced and does not
//! come takes 4 KiB.
//! `cargo bench --bench peers -- --counts` and `cargo run --release --example soak -- --peaks` say it of
//! the machine at hand.
//!
//! # Map
//!
//! [`Client`] and [`Server`] are the doors. [`wire`] holds the frames and [`keepalive`] the rules,
//! both without I/O and without a clock, for whoever builds something else of them. [`transport`]
//! is what a connection runs over. PING and PONG are specified in [`rfc`], which is `RFC.md`; what
//! ttrpc is otherwise in [`rfc::ttrpc_as_it_is`], and how a peer is judged in [`rfc::judging`]. The
//! code cites their rules and sections by their ids (`RFC KA-14`, `J-7`).
//!
//! [ttrpc]: https://github.com/containerd/ttrpc

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod backoff;
mod buffers;
mod call;
mod client;
mod clock;
mod close;
mod config;
mod connection;
#[cfg(doc)]
pub mod ends;
mod error;
mod hook;
pub mod keepalive;
mod liveness;
mod panics;
#[cfg(doc)]
#[doc = include_str!("../RFC.md")]
pub mod rfc {
    #[doc = include_str!("../docs/judging.md")]
    pub mod judging {}
    #[doc = include_str!("../docs/ttrpc-as-it-is.md")]
    pub mod ttrpc_as_it_is {}
}
mod seed;
mod server;
pub mod status;
mod streaming;
mod streams;
pub mod testing;
mod text;
pub mod transport;
mod tuning;
pub mod wire;

pub use backoff::Backoff;
pub use call::{Call, CallOptions};
pub use client::{Client, ClientBuilder};
pub use close::Close;
pub use config::{
    ClientLimits, ClientSettings, Dispatch, DriverThread, HandlerFuture, ServerLimits,
    ServerSettings,
};
pub use error::{
    CloseError, ConfigError, ConnectError, ConnectionError, DeadlineError, Error, LateAnswer,
    LateOutcome, RequestProgress,
};
pub use hook::{AtEnd, CallEnd, CallStart, Outcome};
pub use keepalive::{
    DeadReason, Evidence, Keepalive, OnSilence, Peer, PeerSupport, ProcessState, ProcessUnknown,
    Support, Unknown, Verdict,
};
pub use liveness::{Counters, Liveness, Publisher, Snapshot, State, Traffic};
pub use server::{
    Context, MethodOptions, OnDeadline, OnDisconnect, Requests, Responses, Server, ServerBuilder,
    ServerCounters, Service, SoftReply,
};
pub use status::{Code, Status};
pub use streaming::{Receiver, Reply, Sender, StreamCall};
pub use transport::{
    Accept, ByteStream, IntoTransport, Listener, ListenerBuilder, PeerCredentials, PeerProcess,
    Socket,
};
pub use wire::{Decode, Encode, Raw};
