//! Whether a plugin is sent events: kept, set aside, brought back or given up.
//!
//! A pure rule, after J-11: no I/O, no clock. What happened goes in, what is to be done comes out. Nothing
//! but the end of its connection gives a plugin up.

use ttrpc_keepalive::{Peer, Verdict};

use crate::api::Event;

/// How a runtime stands to one plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has not answered *Synchronize* yet, because it is new, or because it missed events.
    Joining,
    /// It is sent events.
    Serving,
    /// It is sent none: whoever waited for it would wait in vain.
    Aside(Aside),
    /// Its connection has ended.
    Gone,
}

/// Why a plugin is set aside, and what it takes to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aside {
    /// What was found when its answer was late. `None` if it fell silent while nothing was asked.
    pub(crate) verdict: Option<Verdict>,
    /// How many late calls it has not answered.
    unanswered: usize,
    /// Whether there is an event that it does not know of, or knows of otherwise than the runtime does.
    missed: bool,
}

/// What is to be done after something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Step {
    Nothing,
    /// Synchronize it; it is sent events again when it has answered.
    Join,
    /// Forget it, its connection is over.
    Evict,
}

impl Standing {
    /// Whether it is sent the event that is there now.
    pub(crate) fn admits(&mut self, peer: Peer) -> bool {
        match (&mut *self, peer) {
            (Self::Serving, Peer::Alive) => return true,
            (Self::Serving, Peer::Doubtful) => {
                *self = Self::Aside(Aside {
                    verdict: None,
                    unanswered: 0,
                    missed: true,
                });
            }
            (Self::Aside(aside), _) => aside.missed = true,
            // Who is joining is told by Synchronize; the end of one that is gone is handled when it is
            // told.
            (Self::Serving, Peer::Gone) | (Self::Joining | Self::Gone, _) => {}
        }
        false
    }

    /// Its answer was late, with this verdict. `awaited`: it may still come.
    pub(crate) fn handle_late(&mut self, verdict: Verdict, awaited: bool, peer: Peer) -> Step {
        // These say something of this side: it was no late answer.
        if let Verdict::LocalStall | Verdict::NotSent = verdict {
            return Step::Nothing;
        }
        let unanswered = usize::from(awaited);
        match self {
            Self::Serving | Self::Joining => {
                *self = Self::Aside(Aside {
                    verdict: Some(verdict),
                    unanswered,
                    missed: true,
                });
            }
            Self::Aside(aside) => {
                aside.verdict = Some(verdict);
                aside.unanswered += unanswered;
                aside.missed = true;
            }
            Self::Gone => {}
        }
        self.bring_back(peer)
    }

    /// A late answer has come after all, or is not followed any more.
    pub(crate) fn handle_answer(&mut self, peer: Peer) -> Step {
        if let Self::Aside(aside) = self {
            aside.unanswered = aside.unanswered.saturating_sub(1);
        }
        self.bring_back(peer)
    }

    /// What is known of its process has changed.
    pub(crate) fn handle_peer(&mut self, peer: Peer) -> Step {
        match (&mut *self, peer) {
            (Self::Gone, _) => Step::Nothing,
            (_, Peer::Gone) => {
                *self = Self::Gone;
                Step::Evict
            }
            (Self::Serving, Peer::Doubtful) => {
                *self = Self::Aside(Aside {
                    verdict: None,
                    unanswered: 0,
                    missed: false,
                });
                Step::Nothing
            }
            (_, Peer::Alive | Peer::Doubtful) => self.bring_back(peer),
        }
    }

    /// It has answered *Synchronize*, and nothing has happened since that it does not know of.
    pub(crate) fn handle_joined(&mut self) {
        if *self == Self::Joining {
            *self = Self::Serving;
        }
    }

    /// It comes back when it has answered all that it was late with, and nothing speaks against it.
    fn bring_back(&mut self, peer: Peer) -> Step {
        match self {
            Self::Aside(aside) if aside.unanswered == 0 && peer == Peer::Alive => {
                if aside.missed {
                    *self = Self::Joining;
                    return Step::Join;
                }
                *self = Self::Serving;
                Step::Nothing
            }
            _ => Step::Nothing,
        }
    }
}

/// Whether an event fails because a plugin did not answer it: it was late, was not asked, or is not there.
///
/// `required` is what the runtime says of the plugin, `fail_request` what the plugin says of itself. A
/// runtime that fails what ends something could never end it: a required plugin that is stuck must not keep
/// pods from being stopped and removed. Who asks for that of himself gets it.
pub(crate) fn fails(event: Event, required: bool, fail_request: bool) -> bool {
    fail_request || (required && can_be_refused(event))
}

/// Whether an event fails because a plugin that is required for it has not registered.
pub(crate) fn fails_without(event: Event) -> bool {
    matches!(event, Event::RUN_POD_SANDBOX | Event::CREATE_CONTAINER)
}

fn can_be_refused(event: Event) -> bool {
    match event {
        Event::RUN_POD_SANDBOX
        | Event::UPDATE_POD_SANDBOX
        | Event::CREATE_CONTAINER
        | Event::START_CONTAINER
        | Event::UPDATE_CONTAINER
        | Event::VALIDATE_CONTAINER_ADJUSTMENT => true,
        Event::POST_UPDATE_POD_SANDBOX
        | Event::STOP_POD_SANDBOX
        | Event::REMOVE_POD_SANDBOX
        | Event::POST_CREATE_CONTAINER
        | Event::POST_START_CONTAINER
        | Event::POST_UPDATE_CONTAINER
        | Event::STOP_CONTAINER
        | Event::REMOVE_CONTAINER
        | Event::UNKNOWN
        | Event::LAST => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ttrpc_keepalive::Unknown;

    use super::*;

    fn aside(verdict: impl Into<Option<Verdict>>, unanswered: usize, missed: bool) -> Standing {
        Standing::Aside(Aside {
            verdict: verdict.into(),
            unanswered,
            missed,
        })
    }

    #[test]
    fn a_late_plugin_is_kept_and_only_its_own_lateness_sets_it_aside() {
        let too_early = Verdict::Unknown(Unknown::TooEarly);
        let no_support = Verdict::Unknown(Unknown::NoSupport);
        let table = [
            // (verdict, its answer may come, the peer) -> standing, what is to be done
            (
                Verdict::Slow,
                true,
                Peer::Alive,
                aside(Verdict::Slow, 1, true),
                Step::Nothing,
            ),
            (
                Verdict::HandlersStalled,
                true,
                Peer::Alive,
                aside(Verdict::HandlersStalled, 1, true),
                Step::Nothing,
            ),
            (
                Verdict::Unresponsive,
                true,
                Peer::Doubtful,
                aside(Verdict::Unresponsive, 1, true),
                Step::Nothing,
            ),
            (
                Verdict::NotReading,
                true,
                Peer::Doubtful,
                aside(Verdict::NotReading, 1, true),
                Step::Nothing,
            ),
            // The request never left: there is nothing to wait for but a sign of life.
            (
                Verdict::NotReading,
                false,
                Peer::Doubtful,
                aside(Verdict::NotReading, 0, true),
                Step::Nothing,
            ),
            (
                too_early,
                true,
                Peer::Doubtful,
                aside(too_early, 1, true),
                Step::Nothing,
            ),
            // An old plugin, over a stream that tells nothing.
            (
                no_support,
                true,
                Peer::Alive,
                aside(no_support, 1, true),
                Step::Nothing,
            ),
            // The fault is on this side.
            (
                Verdict::LocalStall,
                true,
                Peer::Alive,
                Standing::Serving,
                Step::Nothing,
            ),
            (
                Verdict::NotSent,
                false,
                Peer::Alive,
                Standing::Serving,
                Step::Nothing,
            ),
        ];
        for (verdict, awaited, peer, standing, step) in table {
            let mut plugin = Standing::Serving;
            assert_eq!(
                plugin.handle_late(verdict, awaited, peer),
                step,
                "{verdict:?}"
            );
            assert_eq!(plugin, standing, "{verdict:?}");
        }
    }

    #[test]
    fn it_comes_back_when_it_has_answered_and_been_synchronized() {
        let mut plugin = Standing::Serving;
        assert!(plugin.admits(Peer::Alive));
        let _ = plugin.handle_late(Verdict::Unresponsive, true, Peer::Doubtful);
        assert!(!plugin.admits(Peer::Doubtful));
        // It was heard, and is still at work on the late event.
        assert_eq!(plugin.handle_peer(Peer::Alive), Step::Nothing);
        assert!(!plugin.admits(Peer::Alive));
        assert_eq!(plugin.handle_answer(Peer::Alive), Step::Join);
        assert!(!plugin.admits(Peer::Alive));
        plugin.handle_joined();
        assert!(plugin.admits(Peer::Alive));
    }

    #[test]
    fn one_that_was_silent_and_missed_nothing_needs_no_synchronize() {
        let mut plugin = Standing::Serving;
        assert_eq!(plugin.handle_peer(Peer::Doubtful), Step::Nothing);
        assert_eq!(plugin.handle_peer(Peer::Alive), Step::Nothing);
        assert_eq!(plugin, Standing::Serving);

        let _ = plugin.handle_peer(Peer::Doubtful);
        assert!(!plugin.admits(Peer::Doubtful));
        assert_eq!(plugin.handle_peer(Peer::Alive), Step::Join);
    }

    #[test]
    fn an_answer_from_one_that_is_still_in_doubt_brings_it_back_when_it_is_heard() {
        let mut plugin = Standing::Serving;
        let _ = plugin.handle_late(Verdict::NotReading, true, Peer::Doubtful);
        assert_eq!(plugin.handle_answer(Peer::Doubtful), Step::Nothing);
        assert_eq!(plugin.handle_peer(Peer::Alive), Step::Join);
    }

    #[test]
    fn what_ends_something_is_not_failed_for_a_required_plugin() {
        use Event::{CREATE_CONTAINER, POST_START_CONTAINER, REMOVE_POD_SANDBOX, STOP_CONTAINER};
        let table = [
            (CREATE_CONTAINER, false, false, false),
            (CREATE_CONTAINER, true, false, true),
            (CREATE_CONTAINER, false, true, true),
            (STOP_CONTAINER, true, false, false),
            (STOP_CONTAINER, true, true, true),
            (REMOVE_POD_SANDBOX, true, false, false),
            (POST_START_CONTAINER, true, false, false),
        ];
        for (event, required, fail_request, failed) in table {
            assert_eq!(fails(event, required, fail_request), failed, "{event:?}");
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Happening {
        Event,
        Late(Verdict, bool),
        Answer,
        Peer(Peer),
        Joined,
    }

    fn happenings() -> impl Strategy<Value = Happening> {
        let verdict = prop_oneof![
            Just(Verdict::Slow),
            Just(Verdict::HandlersStalled),
            Just(Verdict::Unresponsive),
            Just(Verdict::NotReading),
            Just(Verdict::NotSent),
            Just(Verdict::LocalStall),
            Just(Verdict::Unknown(Unknown::TooEarly)),
            Just(Verdict::Unknown(Unknown::NoSupport)),
        ];
        prop_oneof![
            4 => Just(Happening::Event),
            3 => (verdict, any::<bool>()).prop_map(|(v, awaited)| Happening::Late(v, awaited)),
            3 => Just(Happening::Answer),
            2 => Just(Happening::Peer(Peer::Alive)),
            2 => Just(Happening::Peer(Peer::Doubtful)),
            1 => Just(Happening::Peer(Peer::Gone)),
            2 => Just(Happening::Joined),
        ]
    }

    proptest! {
        /// Counted beside the rule: what it still owes, what it missed, whether it is gone.
        #[test]
        fn nothing_is_sent_to_one_that_owes_an_answer_or_missed_something_and_only_the_gone_are_evicted(
            happenings in prop::collection::vec(happenings(), 0..60),
        ) {
            let (mut plugin, mut peer) = (Standing::Joining, Peer::Alive);
            let (mut owes, mut stale, mut gone, mut in_flight) = (0_usize, true, false, false);
            for happening in happenings {
                let step = match happening {
                    Happening::Event => {
                        let sent = plugin.admits(peer);
                        prop_assert!(!sent || (owes == 0 && !stale && peer == Peer::Alive));
                        in_flight = sent;
                        stale |= !sent;
                        Step::Nothing
                    }
                    Happening::Late(verdict, awaited) if in_flight => {
                        in_flight = false;
                        if !matches!(verdict, Verdict::LocalStall | Verdict::NotSent) {
                            owes += usize::from(awaited);
                            stale = true;
                        }
                        plugin.handle_late(verdict, awaited, peer)
                    }
                    Happening::Answer if owes > 0 => {
                        owes -= 1;
                        plugin.handle_answer(peer)
                    }
                    Happening::Peer(_) if gone => Step::Nothing,
                    Happening::Peer(seen) => {
                        peer = seen;
                        let step = plugin.handle_peer(seen);
                        prop_assert_eq!(step == Step::Evict, seen == Peer::Gone);
                        gone |= seen == Peer::Gone;
                        step
                    }
                    Happening::Joined if plugin == Standing::Joining => {
                        plugin.handle_joined();
                        stale = false;
                        Step::Nothing
                    }
                    Happening::Late(..) | Happening::Answer | Happening::Joined => Step::Nothing,
                };
                prop_assert_eq!(step == Step::Join, step == Step::Join && plugin == Standing::Joining);
                // It is never left behind: who owes nothing and is heard is on its way.
                if owes == 0 && peer == Peer::Alive && !gone && !in_flight {
                    prop_assert!(!matches!(plugin, Standing::Aside(_)));
                }
            }
        }
    }
}
