//! How a connection ends: each cause, what either side sees, what was sent, and what to do.
//!
//! A connection ends once, for one reason, a [`ConnectionError`]. Everybody on the same side is told the
//! same one: [`Client::closed`], each open call and each later one, every message that waits to be sent,
//! the last [`Snapshot`] of every [`Liveness`]; on a server the future of [`Server::serve_connection`],
//! [`Context::cancelled`] and [`Context::liveness`]. What it displays is its reason in one line, and an
//! [`Error`] displays that behind *the connection has ended*.
//!
//! A call that is late is no end: its connection goes on ([`Error::is_deadline`]).
//!
//! # Causes
//!
//! *Request* is what [`Error::request`] says of a unary call that was open when the end came, and had
//! been written if it says nothing else. `-` stands where there is nobody, or nothing, that could see
//! an end.
//!
//! | cause | client | server | request | what to do |
//! |---|---|---|---|---|
//! | the client is [closed](Client::close) | `LocalClose` | `PeerClosed` | `Sent` | nothing; if not all could be sent, [`CloseError`] says how much |
//! | the last handle and the last call of the client are gone | `LocalClose` | `PeerClosed` | `-` | close it, if something is queued: what was not written by then is lost |
//! | the client [aborts](Client::abort) | `LocalClose` | `PeerClosed`; within a frame `Torn` | `Sent` | nothing: what is queued is not sent |
//! | the client [expects](Client::expect_close) the end, and the server closes | `Announced` | `-` | `Sent` | what the application has agreed on |
//! | the server [shuts down](Server::shutdown), and has refused a call | `Announced` | `LocalClose` | `-` | connect anew when it is back; open calls were answered |
//! | the server shuts down, and no call has met that | `PeerClosed` | `LocalClose` | `-` | connect anew |
//! | the limit of a shutdown is over | `PeerClosed` | `LocalClose` | `Sent` | connect anew; ask what became of the call |
//! | the future that serves is dropped, or its runtime is | `PeerClosed` | `Abandoned` | `Sent` | connect anew; ask what became of the call |
//! | the runtime that drives the client is gone | `Abandoned` | `PeerClosed` | `Sent` | keep the runtime as long as its clients, or ask for a [thread](ClientBuilder::driver_thread) |
//! | the server's process ends or is killed | `PeerClosed`; within a frame `Torn` | `-` | `Sent` | connect anew; ask what became of the call |
//! | the server's process ends, and has not read all | `Reset` | `-` | `Sent` | the same; it may not have read the call either |
//! | the server's socket is closed for reading | `BrokenPipe` | `-` | `NotSent` | connect anew, and repeat the call |
//! | the client's process ends or is killed | `-` | `PeerClosed`; within a frame `Torn` | `-` | handlers run on unless they look for it ([`Context::cancelled`]) |
//! | the client's process ends, and has not read all | `-` | `Reset` | `-` | the same |
//! | the operating system, or the byte stream, reports another error | `Io` | `-` | `Sent` | what the error says; its source is the stream's own |
//! | what was sent comes back | `Echo` | `-` | `Sent` | look where it was connected to: nobody is there |
//! | what comes is not ttrpc | `Protocol` | `-` | `Sent` | look who is at the other end; the error names what it looks like |
//! | no request of the client comes in the [time for it](ServerBuilder::first_request_timeout) | `PeerClosed` | `NoRequest` | `-` | connect when there is something to ask |
//! | a header of the client does not come whole in the [time for it](ServerBuilder::header_timeout) | `PeerClosed` | `HeaderTimeout` | `-` | what was cut off was not executed |
//! | a header of the server does not come whole in the [time for it](ClientBuilder::header_timeout) | `HeaderTimeout` | `-` | `Sent` | connect anew; ask what became of the call |
//! | the server is silent while it is [watched](Keepalive::every) | `Dead` | `PeerClosed` | `Sent` | evict it, and let it register anew; ask what became of the call |
//! | the server takes no bytes while it is watched | `Dead` | `Torn` | `PartlySent` | the same; the call was not executed |
//!
//! `Dead` is the only end by which a side says something against its peer. It has the [`DeadReason`] and
//! the [`Evidence`], its snapshot's state is [`State::Dead`], and it is final for this connection only.
//! With [`OnSilence::Report`] nothing ends, and the application closes for itself. Connections that share
//! a stream, as NRI's two, end together: what one was convicted for is the end of the other, with its
//! evidence.
//!
//! # What was sent
//!
//! | [`Error::request`] | meaning | may a call that must not be executed twice be repeated? |
//! |---|---|---|
//! | [`NotSent`](RequestProgress::NotSent) | no byte of it was written, and none will be | yes |
//! | [`PartlySent`](RequestProgress::PartlySent) | the connection ended within it | a unary one, yes: what is cut off is not executed |
//! | [`Sent`](RequestProgress::Sent) | all of it was given to the operating system | not without asking: nobody here knows what became of it |
//! | [`Answered`](RequestProgress::Answered) | the peer has read it, and has answered | what the answer says |
//!
//! A call that waited for room, and one made after the end, is `NotSent`, whatever the cause. Of a
//! stream the request is all that was queued for it, messages and their end included: `PartlySent` if
//! some of that was not written, and `Answered` as soon as a message has come. What nobody waits for any
//! more has no error to tell of it; [`Client::close`] does.
//!
//! # In which order
//!
//! What was received is delivered before the end, and an answer that came before it is an answer. Then
//! the state is known, open calls and streams fail, the socket is closed, and [`Client::closed`] is the
//! last to return. A frame that has begun is finished unless the end comes within it, and a side that
//! closes tells its peer nothing: ttrpc has no frame for *I am going*. A server of this crate that shuts
//! down refuses calls with [`Status::shutting_down`], by which its clients know; where an application has
//! a call for it, as NRI has `Shutdown`, it says so by [`Client::expect_close`] or
//! [`Context::expect_close`].
//!
//! A process that is killed has its sockets closed like one that ends well, so `PeerClosed` does not say
//! which of the two it was; and an end that the peer meets while bytes lie unread in its socket is a
//! `Reset` on this side, however orderly it was.
//!
//! # Afterwards
//!
//! A connection is never made anew behind the application's back, since only that knows what has to be
//! registered again. It owns the loop, and [`Backoff`] says how long to wait in it. Nor does this crate
//! ever end the process: one that would rather exit than go on alone waits for [`Client::closed`].
//!
//! ```no_run
//! # use std::time::Duration;
//! # use ttrpc_keepalive::{Backoff, Client, Error, RequestProgress};
//! # async fn register(_: &Client) -> Result<(), Error> { Ok(()) }
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
//! loop {
//!     let client = Client::builder().connect("unix:///run/runtime.sock").await?;
//!     match register(&client).await {
//!         Ok(()) => println!("{}", client.closed().await), // why, in one line
//!         Err(error) if error.request() == RequestProgress::NotSent => println!("again: {error}"),
//!         Err(error) => return Err(error.into()),
//!     }
//!     if let Some(wait) = backoff.delay_after(Duration::ZERO) {
//!         tokio::time::sleep(wait).await;
//!     }
//! }
//! # }
//! ```

#![allow(unused_imports, reason = "names for the links above")]

use crate::backoff::Backoff;
use crate::client::{Client, ClientBuilder};
use crate::error::{CloseError, ConnectionError, Error, RequestProgress};
use crate::keepalive::{DeadReason, Evidence, Keepalive, OnSilence};
use crate::liveness::{Liveness, Snapshot, State};
use crate::server::{Context, Server, ServerBuilder};
use crate::status::Status;
