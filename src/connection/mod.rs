//! One connection: its state behind one short lock, the driver that moves its bytes, and the hands of
//! its users.
//!
//! The invariant: what is true of the connection is in its [`State`], and changes by its verbs. The
//! driver and the handles call them; what a verb leaves to do is carried out behind the lock.

mod calls;
mod dedicated;
mod driver;
mod effects;
mod give_way;
mod handle;
mod inbox;
mod outbox;
mod own_clock;
mod patience;
mod peer_process;
mod reader;
mod shared;
mod side;
mod state;
mod stream;
mod streaming;
mod thread;

pub(crate) use calls::{Calls, StreamEnd};
pub(crate) use effects::{Effects, Note};
pub(crate) use handle::{Exchange, Handle, Outgoing};
pub(crate) use inbox::{Inbox, Overflow, Received};
pub(crate) use own_clock::OwnClock;
pub(crate) use patience::PeerLimits;
pub(crate) use shared::Shared;
pub(crate) use side::{ClientSide, SideDriver};
pub(crate) use state::{Closing, NotSent, Side, State, half_close};
pub(crate) use stream::{Local, Stream, StreamRecord};
pub(crate) use streaming::{Messages, Outlet, StreamGuard};
pub(crate) use thread::Connection;

#[cfg(test)]
mod model;
#[cfg(test)]
mod schedule;
