//! The keepalive rules: when to ask whether a peer lives, and when to believe that it does not.
//!
//! Nothing here touches a socket or reads a clock. [`Machine`] holds the rules of one connection,
//! and [`Deadlines`] those of its open calls; a driver feeds them what happened and when, and does
//! what they ask for. Times are [`Duration`](std::time::Duration)s since the connection began.
//!
//! ```text
//!                         a look: half of the timeout attended
//!              ┌─────────────────────────────────────────────────────┐
//!              │                                                     ▼
//!          ┌───────┐          any byte, or nobody watches        ┌─────────┐
//!  ───────►│ Alive │◄────────────────────────────────────────────│ Suspect │◄─┐ overdue, with
//!          └───────┘                                             └─────────┘──┘ OnSilence::Report
//!                                                                     │
//!                                 a look: all of it attended, Close   ▼
//!                                                                 ┌──────┐
//!                                                                 │ Dead │
//!                                                                 └──────┘
//!
//!  the newest PING:  rest ──due, wished──► unwritten ──flushed──► out (on trial if watched and known)
//!                     ▲                                            │
//!                     └─────any byte, conviction, nobody waits─────┘
//! ```
//!
//! Four ideas carry it:
//!
//! - **Any byte is life**, whatever frame it belongs to, and so is a write that moves again.
//! - **A timer that fired is not a peer that was silent.** Only looks at the socket count, each for
//!   a quarter of the timeout at most, and a late one gives time back to the peer.
//! - **A call that runs out of time gets a [`Verdict`]**, prepared by a PING shortly before its
//!   deadline.
//! - **A peer that cannot be asked may still be seen to read**: where the kernel tells what its
//!   process has not read, a PING that it ignores is a question all the same.
//!
//! Limits: a PONG proves that the peer's driver runs, not that its application is well. And a live
//! peer that does not run for longer than the timeout is convicted; no observer can repair that.

mod attended;
mod config;
mod deadline;
mod deadlines;
mod events;
mod evidence;
mod machine;
mod process;
mod receipts;
mod slot;
mod state;
mod verdict;
mod view;

pub use config::{ConfigError, Keepalive, KeepaliveSettings, OnSilence, PeerSupport};
pub use deadline::CallDeadline;
pub use deadlines::{Deadlines, Expired, Writes};
pub use events::{Counters, Event};
pub use evidence::Evidence;
pub use machine::Machine;
pub use process::{ProcessState, ProcessUnknown};
pub use slot::{Reply, ReplySlot};
pub use state::{DeadReason, Look, Peer, Role, State, Support, Unread};
pub use verdict::{Facts, Unknown, Verdict, WriteFacts, judge};
pub use view::View;
