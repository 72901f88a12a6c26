"""One end of a connection: what both sides of the texts do, and what each of the two adds.

Nothing here does I/O or looks at a clock. A driver gives the bytes that it read to `receive`, takes
what is to be written from `next_frame`, and asks the watch when a PING is due.
"""

from collections import deque

from ttrpc import (
    DEADLINE_EXCEEDED, INVALID_ARGUMENT, PING, PING_ID, PONG, REMOTE_OPEN, REQUEST,
    RESOURCE_EXHAUSTED, RESPONSE, UNIMPLEMENTED, Frame, FrameReader, Request, Response, Undecodable,
    decode_string_value, encode_string_value,
)  # fmt: skip
from watch import UNDECIDED

SERVICE, SAY, WAIT = "demo.Echo", "Say", "Wait"
MAX_WAITING = 256  # answers that wait to be written; see Server.wants_bytes


class Connection:
    """What a client and a server have in common: PINGs are answered, and the PONG goes ahead."""

    def __init__(self, watch=None):
        self.watch = watch
        self._reader = FrameReader()
        self._pong = None  # the answer to the newest PING; one place is enough (KA-16)
        self._waiting = deque()

    def receive(self, data):
        """Takes bytes as they come. Raises ProtocolError: then the connection ends."""
        if self.watch:
            self.watch.heard()  # KA-21: these may be part of a frame only
        for frame in self._reader.feed(data):
            self._take(frame)

    def _take(self, frame):
        # The type comes before the stream id: a PING may carry the id of a live call (KA-8).
        if frame.type in (PING, PONG):
            if frame.skipped:
                return  # KA-13
            if self.watch:
                self.watch.peer_knows(frame)
            if frame.type == PING:
                self._pong = Frame(PONG, frame.stream_id, frame.payload)
        else:
            self.take_message(frame)

    def take_message(self, frame):
        raise NotImplementedError

    def send(self, frame):
        self._waiting.append(frame)

    def wants_bytes(self):
        """Whether to go on reading. A client always does: if both ends stopped because of what they
        have to write, neither would go on (KA-50)."""
        return True

    def next_frame(self):
        """The next frame to be written whole, or None. A PONG overtakes all that waits (KA-15)."""
        if self._pong:
            frame, self._pong = self._pong, None
            return frame
        return self._waiting.popleft() if self._waiting else None


class Server(Connection):
    """Serves demo.Echo/Say, where `handle(stream_id, text)` answers, now or later, and Wait, which
    nobody answers."""

    def __init__(self, handle=None, watch=None):
        super().__init__(watch)
        self._handle = handle or self.answer
        self._last_id = 0

    def take_message(self, frame):
        if frame.type != REQUEST:
            return  # KA-6, KA-37, KA-48: without streams there is nothing that takes DATA
        stream_id = frame.stream_id
        if stream_id % 2 == 0 or stream_id == PING_ID or stream_id <= self._last_id:
            return self.refuse(stream_id, INVALID_ARGUMENT)  # KA-31
        self._last_id = frame.stream_id
        if frame.skipped:
            return self.refuse(frame.stream_id, RESOURCE_EXHAUSTED)  # KA-4
        try:
            request = Request.decode(frame.payload)
            known = request.service == SERVICE and request.method in (SAY, WAIT)
            if not known or frame.flags & REMOTE_OPEN:
                return self.refuse(frame.stream_id, UNIMPLEMENTED)  # KA-48, KA-49
            if request.timeout_nano < 0:
                return self.refuse(frame.stream_id, DEADLINE_EXCEEDED)  # KA-34
            if request.method == WAIT:
                return
            text = decode_string_value(request.payload)
        except Undecodable:
            return self.refuse(frame.stream_id, INVALID_ARGUMENT)  # KA-32
        self._handle(frame.stream_id, text)

    def wants_bytes(self):
        """A client that asks and does not read would fill our memory with answers (KA-50)."""
        return len(self._waiting) < MAX_WAITING

    def answer(self, stream_id, text):
        self.send(Frame(RESPONSE, stream_id, Response(payload=encode_string_value(text)).encode()))

    def refuse(self, stream_id, code):
        self.send(Frame(RESPONSE, stream_id, Response(code=code, message="refused").encode()))


class Client(Connection):
    """Calls demo.Echo/Say.

    `on_answer(stream_id, outcome)` gets ("ok", bytes), ("status", code, text) or ("failed",).
    """

    def __init__(self, on_answer, watch=None):
        super().__init__(watch)
        self._on_answer = on_answer
        self._next_id = 1
        self._calls = set()
        self._behind_ping = set()  # calls, given up or not, whose first RESPONSE decides (KA-23)

    def call(self, text, timeout_nano=0):
        stream_id, self._next_id = self._next_id, self._next_id + 2  # KA-30
        payload = encode_string_value(text)
        request = Request(SERVICE, SAY, payload, timeout_nano)
        if self.watch and self.watch.asked and self.watch.support == UNDECIDED:
            self._behind_ping.add(stream_id)
        self._calls.add(stream_id)
        self.send(Frame(REQUEST, stream_id, request.encode()))
        return stream_id

    def take_message(self, frame):
        if frame.type != RESPONSE:
            return
        if frame.stream_id in self._behind_ping:
            self._behind_ping.clear()
            self.watch.answered_without_pong()  # KA-23
        if frame.stream_id == PING_ID:
            if self.watch:
                self.watch.answered_without_pong()  # KA-25
            return
        if frame.stream_id in self._calls:  # a second RESPONSE is dropped (KA-37)
            self._calls.remove(frame.stream_id)
            self._on_answer(frame.stream_id, outcome(frame))


def outcome(frame):
    if frame.skipped:
        return ("failed",)  # KA-4
    try:
        response = Response.decode(frame.payload)
    except Undecodable:
        return ("failed",)  # KA-32
    if response.code:
        return ("status", response.code, response.message)
    return ("ok", response.payload)
