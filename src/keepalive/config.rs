//! What a connection does to learn whether its peer lives.

use std::fmt;
use std::time::Duration;

/// RFC KA-51.
const INTERVAL_FLOOR: Duration = Duration::from_millis(10);
const TIMEOUT_FLOOR: Duration = Duration::from_millis(20);
const LEAD_FLOOR: Duration = Duration::from_millis(1);
const JITTER_CEILING: u8 = 10;

/// The keepalive settings of one connection.
///
/// Three ways to begin: [`off`](Self::off), [`on_demand`](Self::on_demand) (the default) and
/// [`every`](Self::every). Setters take and return the value and accept anything;
/// [`validate`](Self::validate) says whether the values are in range, and
/// [`Machine::new`](super::Machine::new) raises those below a floor to it.
///
/// ```
/// use std::time::Duration;
/// use ttrpc_keepalive::keepalive::{Keepalive, OnSilence};
///
/// let keepalive = Keepalive::every(Duration::from_secs(10))
///     .timeout(Duration::from_secs(10))
///     .on_silence(OnSilence::Report);
/// assert!(keepalive.validate().is_ok());
///
/// let error = Keepalive::every(Duration::ZERO).validate().unwrap_err();
/// assert_eq!(error.to_string(), "keepalive setting `every` is 0ns, allowed is 10ms or more");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keepalive {
    mode: Mode,
    timeout: Duration,
    while_idle: bool,
    on_silence: OnSilence,
    write_stall: Option<Duration>,
    lead: Duration,
    jitter: u8,
    peer_support: PeerSupport,
    read_receipts: bool,
    watch_by_receipts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Off,
    OnDemand,
    Every(Duration),
}

/// What happens when a watched peer is found dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnSilence {
    /// The connection ends and its calls fail. The default.
    #[default]
    Close,
    /// The connection stays open: the state remains *suspect* with *overdue* set, and the next byte
    /// makes it *alive* again.
    Report,
}

/// Whether the peer has to show that it knows PING before its silence counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PeerSupport {
    /// Learn it from the first exchange. An old peer, which never answers a PING, is never judged
    /// by silence. The default.
    #[default]
    Learn,
    /// Take it as known, because both ends ship together. An old peer is then judged dead although
    /// it is well.
    Assume,
}

impl Keepalive {
    /// Answers PINGs, sends none. The verdict on a late call is then never *unresponsive*.
    #[must_use]
    pub const fn off() -> Self {
        Self::with_mode(Mode::Off)
    }

    /// Asks at the first exchange and when a call is about to run out of time; sends nothing
    /// periodic, wakes up for nothing else and closes nothing for silence. The default.
    #[must_use]
    pub const fn on_demand() -> Self {
        Self::with_mode(Mode::OnDemand)
    }

    /// Watches the connection: as [`on_demand`](Self::on_demand), and a PING after each `interval`
    /// without a byte from the peer. At least 10 ms.
    ///
    /// A peer that dies is found after `interval` and [`timeout`](Self::timeout) together.
    #[must_use]
    pub const fn every(interval: Duration) -> Self {
        Self::with_mode(Mode::Every(interval))
    }

    const fn with_mode(mode: Mode) -> Self {
        Self {
            mode,
            timeout: Duration::from_secs(10),
            while_idle: true,
            on_silence: OnSilence::Close,
            write_stall: None,
            lead: Duration::from_millis(250),
            jitter: 0,
            peer_support: PeerSupport::Learn,
            read_receipts: true,
            watch_by_receipts: false,
        }
    }

    /// How long a watched peer may leave a PING without any sign of life. At least 20 ms, 10 s by
    /// default.
    ///
    /// Below 5 s an idle peer that is only throttled may be convicted. The verdict at a call's
    /// deadline gives speed; this gives certainty.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Whether a connection without calls in flight is watched too: true by default, of effect only
    /// with [`every`](Self::every).
    ///
    /// With false an idle connection costs no frame and no wake-up, and a dead peer is found only
    /// once a call starts. A plain bool, because the question has two answers and no third one
    /// is in sight.
    #[must_use]
    pub const fn while_idle(mut self, yes: bool) -> Self {
        self.while_idle = yes;
        self
    }

    /// What happens when a watched peer is found dead. [`OnSilence::Close`] by default.
    #[must_use]
    pub const fn on_silence(mut self, on_silence: OnSilence) -> Self {
        self.on_silence = on_silence;
        self
    }

    /// How long a watched peer may take no byte of what we want to write, whatever it sends
    /// meanwhile. At least 20 ms.
    ///
    /// If it is not set, that is the [`timeout`](Self::timeout), which each byte received restarts as
    /// well: a peer that speaks lives, and may have a reason not to read. A verdict and
    /// [`write_blocked_for`](crate::Snapshot::write_blocked_for) say that it does not.
    ///
    /// On TCP a byte that was taken says that the peer's kernel lives, not that its process does.
    #[must_use]
    pub const fn write_stall(mut self, write_stall: Duration) -> Self {
        self.write_stall = Some(write_stall);
        self
    }

    /// How long before its deadline an unanswered call asks whether the peer lives. At least 1 ms,
    /// 250 ms by default, and never more than a quarter of the call's timeout.
    #[must_use]
    pub const fn probe_before_deadline(mut self, lead: Duration) -> Self {
        self.lead = lead;
        self
    }

    /// By how much an interval may be lengthened at random, in percent: 0 to 10, 0 by default.
    ///
    /// It keeps connections that were opened together from asking together for ever.
    #[must_use]
    pub const fn jitter(mut self, percent: u8) -> Self {
        self.jitter = percent;
        self
    }

    /// Whether the peer must first show that it knows PING. [`PeerSupport::Learn`] by default.
    #[must_use]
    pub const fn peer_support(mut self, peer_support: PeerSupport) -> Self {
        self.peer_support = peer_support;
        self
    }

    /// Whether a peer that does not answer PING is judged by what its process reads, where the kernel
    /// tells: on unix sockets, by Linux. True by default.
    ///
    /// A call to such a peer that is about to be late then sends it one PING, unless something lies
    /// unread anyway. It ignores the PING, but that it was read shows that its process runs, and the
    /// verdict is *slow*; that nobody has read it makes it *not reading*. ttrpc-rust writes a line to
    /// its log for each such PING, which is why this can be turned off; then the verdict on such a peer
    /// is *unknown*, as it is on other transports.
    ///
    /// It proves that the process at the other end of this socket reads. It proves nothing of a
    /// handler, nor of what is behind a proxy. A peer that reads on the thread that its handlers block
    /// does not read, and lives.
    #[must_use]
    pub const fn read_receipts(mut self, yes: bool) -> Self {
        self.read_receipts = yes;
        self
    }

    /// Whether a connection that is watched with [`every`](Self::every) is watched by what the peer's
    /// process reads, too. False by default, and of no effect without
    /// [`read_receipts`](Self::read_receipts) or where the kernel does not tell.
    ///
    /// A peer that does not answer PING is then sent one after each interval without a sign of life,
    /// to be read. If that, or anything else, lies unread for the [`timeout`](Self::timeout) (or the
    /// [`write_stall`](Self::write_stall) that was set) the peer is found dead as *not reading*,
    /// long before its socket is full. Of a large write only pieces of some 32 KiB are seen to be
    /// read: a peer that takes less than that in this time should not be watched so.
    #[must_use]
    pub const fn watch_by_receipts(mut self, yes: bool) -> Self {
        self.watch_by_receipts = yes;
        self
    }

    /// Checks that all values are in range.
    ///
    /// # Errors
    ///
    /// The first setting that is out of range, with its value and what is allowed.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if let Mode::Every(interval) = self.mode {
            at_least(INTERVAL_FLOOR, "every", interval)?;
        }
        at_least(TIMEOUT_FLOOR, "timeout", self.timeout)?;
        if let Some(write_stall) = self.write_stall {
            at_least(TIMEOUT_FLOOR, "write_stall", write_stall)?;
        }
        at_least(LEAD_FLOOR, "probe_before_deadline", self.lead)?;
        if self.jitter > JITTER_CEILING {
            return Err(ConfigError {
                setting: "jitter",
                value: Value::Percent(self.jitter),
            });
        }
        Ok(())
    }

    /// The values in use: those that were set, brought into range.
    #[must_use]
    pub fn settings(&self) -> KeepaliveSettings {
        KeepaliveSettings {
            off: matches!(self.mode, Mode::Off),
            every: match self.mode {
                Mode::Every(interval) => Some(interval.max(INTERVAL_FLOOR)),
                Mode::Off | Mode::OnDemand => None,
            },
            timeout: self.timeout.max(TIMEOUT_FLOOR),
            while_idle: self.while_idle,
            on_silence: self.on_silence,
            write_stall: self.write_stall.map(|time| time.max(TIMEOUT_FLOOR)),
            probe_before_deadline: self.lead.max(LEAD_FLOOR),
            jitter: self.jitter.min(JITTER_CEILING),
            peer_support: self.peer_support,
            read_receipts: self.read_receipts,
            watch_by_receipts: self.watch_by_receipts,
        }
    }

    /// How long before its deadline a call with this timeout asks whether the peer lives.
    #[must_use]
    pub fn lead_for(&self, call_timeout: Duration) -> Duration {
        self.lead.max(LEAD_FLOOR).min(call_timeout / 4)
    }
}

/// The keepalive settings of a connection, as they are in use. To be read from
/// [`Keepalive::settings`]; each is described where it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeepaliveSettings {
    /// [`Keepalive::off`]: no PING is ever sent.
    pub off: bool,
    /// The interval of [`Keepalive::every`], `None` if nothing is sent periodically.
    pub every: Option<Duration>,
    /// [`Keepalive::timeout`].
    pub timeout: Duration,
    /// [`Keepalive::while_idle`].
    pub while_idle: bool,
    /// [`Keepalive::on_silence`].
    pub on_silence: OnSilence,
    /// [`Keepalive::write_stall`], `None` if it was not set.
    pub write_stall: Option<Duration>,
    /// [`Keepalive::probe_before_deadline`]. A short call has less, see [`Keepalive::lead_for`].
    pub probe_before_deadline: Duration,
    /// [`Keepalive::jitter`], in percent.
    pub jitter: u8,
    /// [`Keepalive::peer_support`].
    pub peer_support: PeerSupport,
    /// [`Keepalive::read_receipts`].
    pub read_receipts: bool,
    /// [`Keepalive::watch_by_receipts`].
    pub watch_by_receipts: bool,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self::on_demand()
    }
}

fn at_least(floor: Duration, setting: &'static str, value: Duration) -> Result<(), ConfigError> {
    if value < floor {
        return Err(ConfigError {
            setting,
            value: Value::TooShort { value, floor },
        });
    }
    Ok(())
}

/// A keepalive setting that is out of range: which one, its value, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("keepalive setting `{setting}` is {value}")]
pub struct ConfigError {
    setting: &'static str,
    value: Value,
}

impl ConfigError {
    /// The name of the setter that was given the value.
    #[must_use]
    pub const fn setting(&self) -> &'static str {
        self.setting
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    TooShort { value: Duration, floor: Duration },
    Percent(u8),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { value, floor } => write!(f, "{value:?}, allowed is {floor:?} or more"),
            Self::Percent(percent) => {
                write!(f, "{percent} percent, allowed is 0 to {JITTER_CEILING}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    // RFC KA-51
    #[test]
    fn values_out_of_range_are_named_with_their_bounds() {
        let every = || Keepalive::every(ms(1000));
        for (keepalive, setting, message) in [
            (
                Keepalive::every(ms(9)),
                "every",
                "`every` is 9ms, allowed is 10ms or more",
            ),
            (
                every().timeout(ms(19)),
                "timeout",
                "`timeout` is 19ms, allowed is 20ms or more",
            ),
            (
                every().write_stall(ms(0)),
                "write_stall",
                "`write_stall` is 0ns, allowed is 20ms or more",
            ),
            (
                Keepalive::on_demand().probe_before_deadline(Duration::from_micros(999)),
                "probe_before_deadline",
                "`probe_before_deadline` is 999µs, allowed is 1ms or more",
            ),
            (
                every().jitter(11),
                "jitter",
                "`jitter` is 11 percent, allowed is 0 to 10",
            ),
        ] {
            let error = keepalive.validate().unwrap_err();
            assert_eq!(error.setting(), setting);
            assert!(error.to_string().ends_with(message), "{error}");
        }
    }

    #[test]
    fn bounds_themselves_are_allowed() {
        let lowest = Keepalive::every(ms(10))
            .timeout(ms(20))
            .write_stall(ms(20))
            .probe_before_deadline(ms(1));
        assert_eq!(lowest.jitter(10).validate(), Ok(()));
        let longest = Keepalive::every(Duration::MAX)
            .timeout(Duration::MAX)
            .write_stall(Duration::MAX);
        assert_eq!(
            longest.probe_before_deadline(Duration::MAX).validate(),
            Ok(())
        );
        for preset in [
            Keepalive::off(),
            Keepalive::on_demand(),
            Keepalive::default(),
        ] {
            assert_eq!(preset.validate(), Ok(()));
        }
    }

    #[test]
    fn settings_are_the_values_that_were_set_in_range() {
        let keepalive = Keepalive::every(ms(0))
            .timeout(ms(0))
            .write_stall(ms(0))
            .probe_before_deadline(ms(0))
            .jitter(200);
        let settings = keepalive.settings();
        assert_eq!(settings.every, Some(ms(10)));
        assert_eq!(
            (settings.timeout, settings.write_stall),
            (ms(20), Some(ms(20)))
        );
        assert_eq!(
            (settings.probe_before_deadline, settings.jitter),
            (ms(1), 10)
        );
        assert_eq!(keepalive.lead_for(ms(1000)), ms(1));

        let settings = Keepalive::on_demand().timeout(ms(300)).settings();
        assert_eq!((settings.off, settings.every), (false, None));
        assert_eq!(settings.write_stall, None);
        assert!(Keepalive::off().settings().off);
    }
}
