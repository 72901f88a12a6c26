//! The driver's part that differs between the sides, outside of the lock.

use std::sync::Arc;
use std::time::Duration;

use super::calls::{Calls, ClientInput};
use super::shared::Shared;
use super::state::Side;
use crate::wire::{Flags, Frame};

/// The driver's part of one side of a connection.
pub(crate) trait SideDriver: Send + 'static {
    type Side: Side;

    /// Takes a REQUEST or RESPONSE apart.
    fn decode(&mut self, now: Duration, frame: Frame) -> <Self::Side as Side>::Input;

    /// A PING has come. Yields the flags of its PONG.
    fn handle_ping(&mut self) -> Flags {
        Flags::NONE
    }

    /// A turn begins. `acts` if the state says so.
    fn handle_run(&mut self, _acts: bool) {}

    /// Reading is about to begin.
    fn begin_read(&mut self, _now: Duration) {}

    /// So many bytes were read in this turn. `drained` if there were no more.
    fn handle_read(&mut self, _now: Duration, _bytes: usize, _drained: bool) {}

    /// Starts what may run.
    fn start(&mut self, _shared: &Arc<Shared<Self::Side>>) {}
}

/// The client's: callers do all the rest.
#[derive(Debug)]
pub(crate) struct ClientSide;

impl SideDriver for ClientSide {
    type Side = Calls;

    fn decode(&mut self, _now: Duration, frame: Frame) -> ClientInput {
        ClientInput::new(frame)
    }
}
