"""Whether the peer is alive: when to send a PING, what the silence after it means."""

from ttrpc import PING, PING_ID, PONG, Frame

SMALLEST_INTERVAL = 0.01  # KA-51
UNDECIDED, KNOWS, DOES_NOT_KNOW = "undecided", "knows", "does not know"
ALIVE, SILENT, UNRESPONSIVE = "alive", "silent", "unresponsive"


class Watch:
    """Judges one peer. Seconds count from any beginning; `tick` is to be called often.

    `interval`: so long nothing was heard, then a PING is sent; at least 10 ms (KA-51).
    `timeout`: so long nothing was heard after the PING was written, then the peer is unresponsive.
    `step`: a pause of this side between two ticks counts as this much at most. When this process
    was stopped, the peer was not silent: nobody listened.
    `is_server`: sends no PING before it has received one (KA-28).
    `assume`: who runs this side has said that the peer knows PING (KA-29).
    """

    def __init__(self, interval, timeout, step=None, is_server=False, assume=False):
        self.interval, self.timeout = max(interval, SMALLEST_INTERVAL), timeout
        self.step = step or min(interval, timeout) / 4
        self.is_server, self.assume = is_server, assume
        self.support = UNDECIDED
        self.asked = False  # a PING has been sent
        self.was_asked = False  # a PING has come
        self.round_trip = None
        self._number = 0
        self._waits_for_pong = False
        self._written = False
        self._silence = 0.0  # since the last byte, in attended time
        self._wait = 0.0  # since the last byte or the writing of the PING, whichever is later
        self._distance = self.interval
        self._last_tick = None
        self._sent_at = None

    def heard(self):
        # Any byte retires a PING that is out, not only its PONG (J-3). One that is not written stays.
        self._silence = self._wait = 0.0
        if self._written:
            self._waits_for_pong = False

    def peer_knows(self, frame):
        self.support = KNOWS  # KA-24, whatever was decided before
        if frame.type == PING:
            self.was_asked = True
        elif frame.payload == self._number.to_bytes(8, "big"):
            if self._last_tick is not None and self._sent_at is not None:
                self.round_trip = self._last_tick - self._sent_at

    def answered_without_pong(self):
        if self.support == UNDECIDED:
            self.support = DOES_NOT_KNOW

    def ping(self):
        """The next PING, to be written at once. `written` says when its last byte has gone."""
        self._number += 1
        self.asked = self._waits_for_pong = True
        self._written = False
        self._silence = self._wait = 0.0
        self._sent_at = self._last_tick
        return Frame(PING, PING_ID, self._number.to_bytes(8, "big"))

    def written(self):
        self._written = True
        self._wait = 0.0

    def tick(self, now):
        """Lets time pass. True: a PING is due."""
        passed = 0.0 if self._last_tick is None else min(now - self._last_tick, self.step)
        self._last_tick = now
        self._silence += passed
        self._wait += passed
        if self.support == DOES_NOT_KNOW or (self.is_server and not self.was_asked):
            return False  # KA-27, KA-28
        if self._silence < (self._distance if self.support == UNDECIDED else self.interval):
            return False
        if self._waits_for_pong and self.support == KNOWS:
            return False  # one at a time
        if self.support == UNDECIDED and self.asked:
            self._distance *= 2  # KA-26
        return True

    def verdict(self):
        if not self._waits_for_pong or self._wait < self.timeout:
            return ALIVE if self._wait < self.interval else SILENT
        if self.support == KNOWS or self.assume:
            return UNRESPONSIVE
        return SILENT  # KA-29
