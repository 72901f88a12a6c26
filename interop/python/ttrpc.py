"""Frames and envelopes of ttrpc with PING and PONG, after the texts: no sockets and no clock."""

from dataclasses import dataclass, field

REQUEST, RESPONSE, DATA, PING, PONG = 1, 2, 3, 4, 5
HEADER = 10
MAX_PAYLOAD = 4 << 20  # KA-2
LENGTH_LIMIT = 1 << 28  # KA-5
MAX_ECHO = 64  # KA-10
PING_ID = 0xFFFF_FFFF  # KA-9
REMOTE_OPEN = 0x02  # KA-48
INVALID_ARGUMENT, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNIMPLEMENTED = 3, 4, 8, 12
MAX_ENTRIES = 4096  # KA-32


class ProtocolError(Exception):
    """The connection ends, and nothing behind this is interpreted (KA-5)."""


class Undecodable(Exception):
    """A protobuf message that is none (KA-32)."""


# --- frames ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Frame:
    type: int
    stream_id: int
    payload: bytes = b""
    flags: int = 0
    skipped: bool = False  # the payload was too long, or the type is unknown: it was not kept

    def encode(self):
        assert len(self.payload) <= MAX_PAYLOAD  # KA-2
        header = len(self.payload).to_bytes(4, "big") + self.stream_id.to_bytes(4, "big")
        return header + bytes((self.type, self.flags)) + self.payload


class FrameReader:
    """Turns bytes that arrive in pieces of any size into frames.

    Keeps one unfinished frame of at most 4 MiB. What is skipped is counted, not kept: a frame may
    be announced with 256 MiB.
    """

    def __init__(self):
        self._bytes = bytearray()
        self._to_skip = 0
        self._broken = False

    def feed(self, data):
        """Yields the frames that these bytes complete. Raises ProtocolError."""
        self._bytes += data
        while not self._broken:
            frame = self._next()
            if frame is None:
                return
            yield frame

    def _next(self):
        if self._to_skip:
            dropped = min(self._to_skip, len(self._bytes))
            del self._bytes[:dropped]
            self._to_skip -= dropped
        if self._to_skip or len(self._bytes) < HEADER:
            return None
        length = int.from_bytes(self._bytes[0:4], "big")
        stream_id = int.from_bytes(self._bytes[4:8], "big")
        kind, flags = self._bytes[8], self._bytes[9]
        if length >= LENGTH_LIMIT:
            self._broken = True
            raise ProtocolError(f"a length of {length}")
        if length > longest_kept(kind):
            del self._bytes[:HEADER]
            self._to_skip = length
            return Frame(kind, stream_id, b"", flags, skipped=True)
        if len(self._bytes) < HEADER + length:
            return None
        payload = bytes(self._bytes[HEADER : HEADER + length])
        del self._bytes[: HEADER + length]
        return Frame(kind, stream_id, payload, flags, skipped=kind not in NAMES)


NAMES = {REQUEST: "REQUEST", RESPONSE: "RESPONSE", DATA: "DATA", PING: "PING", PONG: "PONG"}


def longest_kept(kind):
    if kind in (PING, PONG):
        return MAX_ECHO  # KA-13
    return MAX_PAYLOAD if kind in NAMES else 0  # KA-3, KA-6


# --- protobuf -------------------------------------------------------------------------------------


def _varint(data, at):
    value = 0
    for count in range(10):
        if at == len(data):
            raise Undecodable("a number is cut")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            if value >> 64:
                break
            return value, at
    raise Undecodable("a number does not fit into 64 bits")


def fields(data):
    """Yields (number, wire type, value) for every field that is not in a group."""
    at, groups = 0, []
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise Undecodable(f"field number {number}")
        if wire == 0:
            value, at = _varint(data, at)
        elif wire in (1, 2, 5):
            size = {1: 8, 5: 4}.get(wire)
            if size is None:
                size, at = _varint(data, at)
            if size > len(data) - at:
                raise Undecodable("a value is cut")
            value, at = data[at : at + size], at + size
        elif wire == 3:
            groups.append(number)
            continue
        elif wire == 4:
            if not groups or groups.pop() != number:
                raise Undecodable("the end of a group that has not begun")
            continue
        else:
            raise Undecodable(f"wire type {wire}")
        if not groups:
            yield number, wire, value
    if groups:
        raise Undecodable("a group does not end")


def _text(value):
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Undecodable("text that is not UTF-8") from error  # KA-47


def _signed(value, bits):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _put(number, value):
    """A field, or nothing for the default value (KA-45)."""
    if not value:
        return b""
    if isinstance(value, int):
        return _put_varint(number << 3) + _put_varint(value)
    return _put_always(number, value.encode() if isinstance(value, str) else value)


def _put_always(number, value):
    return _put_varint(number << 3 | 2) + _put_varint(len(value)) + value


def _put_varint(value):
    value &= (1 << 64) - 1  # a negative number takes ten bytes (KA-45)
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# --- envelopes ------------------------------------------------------------------------------------


@dataclass
class Request:
    service: str = ""
    method: str = ""
    payload: bytes = b""
    timeout_nano: int = 0
    metadata: list = field(default_factory=list)

    def encode(self):
        out = _put(1, self.service) + _put(2, self.method) + _put(3, self.payload)
        out += _put(4, self.timeout_nano)
        return out + b"".join(_put_always(5, _put(1, k) + _put(2, v)) for k, v in self.metadata)

    @classmethod
    def decode(cls, data):
        request = cls()
        for number, wire, value in fields(data):
            if (number, wire) == (1, 2):
                request.service = _text(value)
            elif (number, wire) == (2, 2):
                request.method = _text(value)
            elif (number, wire) == (3, 2):
                request.payload = value
            elif (number, wire) == (4, 0):
                request.timeout_nano = _signed(value, 64)
            elif (number, wire) == (5, 2):
                request.metadata.append(_pair(value, _text))
                if len(request.metadata) > MAX_ENTRIES:
                    raise Undecodable("too much metadata")
        return request


@dataclass
class Response:
    code: int = 0
    message: str = ""
    details: list = field(default_factory=list)
    payload: bytes = b""

    def encode(self):
        status = _put(1, self.code) + _put(2, self.message)
        status += b"".join(_put_always(3, _put(1, u) + _put(2, v)) for u, v in self.details)
        return _put(1, status) + _put(2, self.payload)

    @classmethod
    def decode(cls, data):
        response = cls()
        for number, wire, value in fields(data):
            if (number, wire) == (1, 2):
                response._merge_status(value)  # two parts of a message are one (KA-46)
            elif (number, wire) == (2, 2):
                response.payload = value
        if response.code == 0:
            response.message, response.details = "", []  # KA-35
        return response

    def _merge_status(self, data):
        for number, wire, value in fields(data):
            if (number, wire) == (1, 0):
                self.code = _signed(value, 32)
            elif (number, wire) == (2, 2):
                self.message = _text(value)
            elif (number, wire) == (3, 2):
                self.details.append(_pair(value, bytes))
                if len(self.details) > MAX_ENTRIES:
                    raise Undecodable("too many details")


def _pair(data, second_as):
    first, second = "", second_as(b"")
    for number, wire, value in fields(data):
        if (number, wire) == (1, 2):
            first = _text(value)
        elif (number, wire) == (2, 2):
            second = second_as(value)
    return first, second


def encode_string_value(text):
    return _put(1, text)


def decode_string_value(data):
    """The text of a google.protobuf.StringValue."""
    text = ""
    for number, wire, value in fields(data):
        if (number, wire) == (1, 2):
            text = _text(value)
    return text
