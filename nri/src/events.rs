//! Events by name and as sets.

use std::fmt;
use std::ops::BitOr;

use crate::api::Event;

/// All events, in the order of their numbers.
pub(crate) const EVENTS: [Event; 14] = [
    Event::RUN_POD_SANDBOX,
    Event::STOP_POD_SANDBOX,
    Event::REMOVE_POD_SANDBOX,
    Event::CREATE_CONTAINER,
    Event::POST_CREATE_CONTAINER,
    Event::START_CONTAINER,
    Event::POST_START_CONTAINER,
    Event::UPDATE_CONTAINER,
    Event::POST_UPDATE_CONTAINER,
    Event::STOP_CONTAINER,
    Event::REMOVE_CONTAINER,
    Event::UPDATE_POD_SANDBOX,
    Event::POST_UPDATE_POD_SANDBOX,
    Event::VALIDATE_CONTAINER_ADJUSTMENT,
];

impl Event {
    /// The name of the call that tells of it, as `CreateContainer`. Empty for what is no event.
    pub fn method_name(self) -> &'static str {
        match self {
            Self::RUN_POD_SANDBOX => "RunPodSandbox",
            Self::STOP_POD_SANDBOX => "StopPodSandbox",
            Self::REMOVE_POD_SANDBOX => "RemovePodSandbox",
            Self::CREATE_CONTAINER => "CreateContainer",
            Self::POST_CREATE_CONTAINER => "PostCreateContainer",
            Self::START_CONTAINER => "StartContainer",
            Self::POST_START_CONTAINER => "PostStartContainer",
            Self::UPDATE_CONTAINER => "UpdateContainer",
            Self::POST_UPDATE_CONTAINER => "PostUpdateContainer",
            Self::STOP_CONTAINER => "StopContainer",
            Self::REMOVE_CONTAINER => "RemoveContainer",
            Self::UPDATE_POD_SANDBOX => "UpdatePodSandbox",
            Self::POST_UPDATE_POD_SANDBOX => "PostUpdatePodSandbox",
            Self::VALIDATE_CONTAINER_ADJUSTMENT => "ValidateContainerAdjustment",
            Self::UNKNOWN | Self::LAST => "",
        }
    }
}

/// A set of events, as a plugin subscribes to them: bit `e - 1` stands for event `e`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct EventMask(i32);

impl EventMask {
    /// No event. On the wire it stands for all.
    pub const NONE: Self = Self(0);
    /// Events 1 to 14, which is all up to release 0.12.5.
    pub const ALL: Self = Self((1 << 14) - 1);
    /// Events 1 to 11. A release before 0.10.0 refuses plugins that ask for others.
    pub const BEFORE_0_10: Self = Self((1 << 11) - 1);

    /// What is on the wire; there may be bits that stand for no event known here.
    pub const fn from_bits(bits: i32) -> Self {
        Self(bits)
    }

    /// What goes on the wire.
    pub const fn bits(self) -> i32 {
        self.0
    }

    /// The set with this event too.
    #[must_use]
    pub fn with(self, event: Event) -> Self {
        Self(self.0 | bit(event))
    }

    /// The events that are in both.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The events that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether this event is in it.
    pub fn contains(self, event: Event) -> bool {
        self.0 & bit(event) != 0
    }

    /// Whether no event is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

fn bit(event: Event) -> i32 {
    EVENTS
        .iter()
        .position(|other| *other == event)
        .map_or(0, |place| 1 << place)
}

impl BitOr for EventMask {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl FromIterator<Event> for EventMask {
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> Self {
        events.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Display for EventMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for event in EVENTS.into_iter().filter(|event| self.contains(*event)) {
            write!(f, "{separator}{}", event.method_name())?;
            separator = ", ";
        }
        match self.without(Self::ALL) {
            Self::NONE if self.is_empty() => f.write_str("none"),
            Self::NONE => Ok(()),
            others => write!(f, "{separator}unknown {:#x}", others.0),
        }
    }
}

impl fmt::Debug for EventMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventMask({self})")
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        reason = "a test says what it expects by panicking"
    )]

    use protobuf::Enum;

    use super::*;

    #[test]
    fn the_bit_of_an_event_is_one_less_than_its_number() {
        for event in EVENTS {
            let mask = EventMask::NONE.with(event);
            assert_eq!(mask.bits(), 1 << (event.value() - 1), "{event:?}");
            assert!(mask.contains(event) && EventMask::ALL.contains(event));
            assert!(!event.method_name().is_empty());
        }
        assert_eq!(EVENTS.len() + 2, Event::VALUES.len());
        assert_eq!(EVENTS.into_iter().collect::<EventMask>(), EventMask::ALL);
        assert_eq!(EventMask::NONE.with(Event::LAST), EventMask::NONE);
    }

    #[test]
    fn a_set_is_shown_by_the_names_of_its_events() {
        let mask = EventMask::from_bits(1 << 3 | 1 << 9 | 1 << 20);
        let shown = "CreateContainer, StopContainer, unknown 0x100000";
        assert_eq!(mask.to_string(), shown);
        assert_eq!(EventMask::NONE.to_string(), "none");
        assert_eq!(
            EventMask::from_bits(1 << 20).to_string(),
            "unknown 0x100000"
        );
    }
}
