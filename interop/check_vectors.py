#!/usr/bin/env python3
"""Checks the test vectors against a small implementation of RFC.md and docs/ttrpc-as-it-is.md.

Needs nothing but Python 3. Prints a line for each file and the sum. The exit status is 1 if a vector
fails. Written from these texts and vectors/README.md alone, so that the vectors do not merely repeat
one implementation.
"""

import json
import pathlib
import sys

REQUEST, RESPONSE, DATA, PING, PONG = 1, 2, 3, 4, 5
NAMES = {REQUEST: "REQUEST", RESPONSE: "RESPONSE", DATA: "DATA", PING: "PING", PONG: "PONG"}
MAX_PAYLOAD = 4 << 20
LENGTH_LIMIT = 1 << 28
PING_ID = 0xFFFF_FFFF
MAX_ECHO = 64
INVALID_ARGUMENT, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNIMPLEMENTED = 3, 4, 8, 12
HI = bytes.fromhex("0a026869")


class ProtocolError(Exception):
    """The connection ends (KA-5)."""

    def __init__(self, length):
        super().__init__(length)
        self.length = length


class Malformed(Exception):
    """A protobuf message cannot be decoded."""


# --- frames --------------------------------------------------------------------------------------


class Frame:
    def __init__(self, kind, stream_id, flags, payload=b"", length=None, skipped=None):
        self.kind, self.stream_id, self.flags = kind, stream_id, flags
        self.payload = payload
        self.length = len(payload) if length is None else length
        self.skipped = skipped

    def encode(self):
        numbers = self.length.to_bytes(4, "big") + self.stream_id.to_bytes(4, "big")
        return numbers + bytes([self.kind, self.flags]) + self.payload


def skip_reason(kind, length):
    if kind in (PING, PONG):
        return "long_ping" if length > MAX_ECHO else None  # KA-13
    if kind in (REQUEST, RESPONSE, DATA):
        return "oversized" if length > MAX_PAYLOAD else None  # KA-3
    return "unknown_type"  # KA-6


def read_frames(stream):
    """Yields frames from bytes; raises ProtocolError. Bytes must not end inside a frame."""
    at = 0
    while at < len(stream):
        header = stream[at : at + 10]
        if len(header) < 10:
            raise AssertionError("the bytes end inside a header")
        length = int.from_bytes(header[0:4], "big")
        stream_id = int.from_bytes(header[4:8], "big")
        kind, flags = header[8], header[9]
        if length >= LENGTH_LIMIT:
            raise ProtocolError(length)
        payload = stream[at + 10 : at + 10 + length]
        if len(payload) < length:
            raise AssertionError("the bytes end inside a payload")
        at += 10 + length
        skipped = skip_reason(kind, length)
        yield Frame(kind, stream_id, flags, b"" if skipped else payload, length, skipped)


# --- envelopes -----------------------------------------------------------------------------------


def read_varint(data, at):
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise Malformed("a number is cut")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 1 << 64:
                break
            return value, at
    raise Malformed("a number of more than 64 bits")


def read_value(data, at, wire_type):
    if wire_type == 0:
        return read_varint(data, at)
    if wire_type == 2:
        size, at = read_varint(data, at)
    elif wire_type in (1, 5):
        size = 8 if wire_type == 1 else 4
    else:
        raise Malformed(f"wire type {wire_type}")
    if at + size > len(data):
        raise Malformed("a value is cut")
    return data[at : at + size], at + size


def read_fields(data):
    """Yields (number, wire type, value) of the fields that are not groups."""
    at, groups = 0, 0
    while at < len(data):
        tag, at = read_varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if number == 0 or tag >= 1 << 32:
            raise Malformed(f"tag {tag}")
        if wire_type == 3:
            groups += 1
        elif wire_type == 4 and groups:
            groups -= 1
        else:
            value, at = read_value(data, at, wire_type)
            if not groups:
                yield number, wire_type, value
    if groups:
        raise Malformed("a group does not end")


def signed(value, bits):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def text(value):
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Malformed(str(error)) from error


def read_texts(data, first, second, second_as):
    """A message of two fields, a text and another: KeyValue, Any."""
    message = {first: "", second: second_as(b"")}
    for field in read_fields(data):
        match field:
            case (1, 2, value):
                message[first] = text(value)
            case (2, 2, value):
                message[second] = second_as(value)
    return message


def read_request(data):
    request = {"service": "", "method": "", "payload": b"", "timeout_nano": 0, "metadata": []}
    for field in read_fields(data):
        match field:
            case (1, 2, value):
                request["service"] = text(value)
            case (2, 2, value):
                request["method"] = text(value)
            case (3, 2, value):
                request["payload"] = value
            case (4, 0, value):
                request["timeout_nano"] = signed(value, 64)
            case (5, 2, value):
                pair = read_texts(value, "key", "value", text)
                request["metadata"].append([pair["key"], pair["value"]])
    return request


def read_response(data):
    response = {"code": 0, "message": "", "details": [], "payload": b""}
    for field in read_fields(data):
        match field:
            case (1, 2, value):
                read_status(value, response)
            case (2, 2, value):
                response["payload"] = value
    if response["code"] == 0:
        response.update(message="", details=[])  # KA-35: a success, whatever stands beside it
    return response


def read_status(data, response):
    for field in read_fields(data):
        match field:
            case (1, 0, value):
                response["code"] = signed(value, 32)
            case (2, 2, value):
                response["message"] = text(value)
            case (3, 2, value):
                response["details"].append(read_texts(value, "type_url", "value", bytes))


def read_string_value(data):
    value = ""
    for field in read_fields(data):
        if field[:2] == (1, 2):
            value = text(field[2])
    return value


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number_field(number, value):
    return varint(number << 3) + varint(value) if value else b""


def bytes_field(number, value):
    return present_field(number, value) if value else b""


def present_field(number, value):
    return varint(number << 3 | 2) + varint(len(value)) + value


def write_request(request):
    out = bytes_field(1, request["service"].encode()) + bytes_field(2, request["method"].encode())
    out += bytes_field(3, request["payload"]) + number_field(4, request["timeout_nano"])
    for key, value in request["metadata"]:
        out += present_field(5, bytes_field(1, key.encode()) + bytes_field(2, value.encode()))
    return out


def write_response(response):
    status = number_field(1, response["code"]) + bytes_field(2, response["message"].encode())
    for detail in response["details"]:
        any_message = bytes_field(1, detail["type_url"].encode()) + bytes_field(2, detail["value"])
        status += present_field(3, any_message)
    return bytes_field(1, status) + bytes_field(2, response["payload"])


def write_string_value(value):
    return bytes_field(1, value.encode())


# --- the two roles -------------------------------------------------------------------------------

REMOTE_CLOSED, REMOTE_OPEN, NO_DATA = 1, 2, 4
ECHO = "demo.Echo"
UNDECIDED, KNOWS, DOES_NOT_KNOW = "undecided", "yes", "no"


class Side:
    """One end of a connection: its PINGs and PONGs, and what it has to write."""

    def __init__(self, keepalive=None):
        self.queue, self.slot = [], None
        self.blocked, self.written = False, []
        self.now = 0
        self.interval = keepalive and keepalive["interval_ms"]
        self.timeout = keepalive and keepalive["timeout_ms"]
        self.knows = UNDECIDED
        self.pinged = False  # a PING was received
        self.number = 0  # of the newest PING
        self.heard = self.asked = 0
        self.distance = self.interval
        self.out_since = None
        self.dead = False

    def receive(self, data):
        """Takes bytes that are whole frames, or the beginning of one."""
        self.heard, self.out_since = self.now, None  # KA-21
        for frame in read_frames(data):
            yield frame
            self.take(frame)
            self.pump()

    def take(self, frame):
        if frame.kind not in (PING, PONG):
            self.take_message(frame)
        elif not frame.skipped:  # KA-13
            self.knows = KNOWS  # KA-24
            if frame.kind == PING:
                self.pinged = True
                self.slot = Frame(PONG, frame.stream_id, 0, frame.payload)  # KA-16

    def send(self, *frames):
        self.queue += frames
        self.pump()

    def pump(self):
        while not self.blocked and (self.slot or self.queue):
            if self.slot:  # KA-14
                self.written.append(self.slot)
                self.slot = None
            else:
                frame = self.queue.pop(0)
                self.written.append(frame)
                if frame.kind == PING:
                    self.out_since = self.now

    def ping(self):
        self.number += 1
        self.asked = self.now
        first = [Frame(PING, PING_ID, 0, self.number.to_bytes(8, "big"))]
        self.queue = first + self.queue
        self.pump()

    def may_ask(self):
        return self.pinged  # KA-28

    def due(self):
        """When it does something by itself: the time, and what."""
        if not self.interval or self.dead or not self.may_ask():
            return None
        if self.knows == KNOWS and self.out_since is not None:
            return self.out_since + self.timeout, self.convict
        if self.knows == KNOWS:
            return max(self.heard, self.asked) + self.interval, self.ping
        if self.knows == UNDECIDED and self.number:
            return self.asked + self.distance, self.repeat  # KA-26
        return None  # KA-27, KA-29

    def repeat(self):
        self.distance *= 2
        self.ping()

    def convict(self):
        self.dead = True

    def pass_time(self, until):
        while (due := self.due()) and due[0] <= until:
            self.now = max(self.now, due[0])
            due[1]()
        self.now = until


class Server(Side):
    """Serves the three methods of demo.Echo."""

    def __init__(self, keepalive=None):
        super().__init__(keepalive)
        self.last_id = 0
        self.chats = set()  # streams whose client has not ended

    def take_message(self, frame):
        answer = self.answer(frame)
        if answer:
            self.queue += answer

    def answer(self, frame):
        if frame.kind == DATA and frame.stream_id in self.chats:
            return self.chat(frame)
        if frame.kind != REQUEST:
            return []  # KA-6, KA-37
        if frame.stream_id % 2 == 0 or frame.stream_id == PING_ID or frame.stream_id <= self.last_id:
            return [status(frame, INVALID_ARGUMENT)]  # KA-31
        self.last_id = frame.stream_id
        if frame.skipped:
            return [status(frame, RESOURCE_EXHAUSTED)]  # KA-4
        try:
            return self.call(frame, read_request(frame.payload))
        except Malformed:
            return [status(frame, INVALID_ARGUMENT)]  # KA-32

    def call(self, frame, request):
        if request["service"] != ECHO or request["method"] not in ("Say", "Wait", "Chat"):
            return [status(frame, UNIMPLEMENTED)]  # KA-49
        if request["method"] != "Chat" and frame.flags & REMOTE_OPEN:
            return [status(frame, UNIMPLEMENTED)]  # KA-48
        if request["timeout_nano"] < 0:
            return [status(frame, DEADLINE_EXCEEDED)]  # KA-34
        if request["method"] == "Wait":
            return []
        if request["method"] == "Say":
            message = write_string_value(read_string_value(request["payload"]))
            return [Frame(RESPONSE, frame.stream_id, 0, bytes_field(2, message))]
        self.chats.add(frame.stream_id)
        has_message = request["payload"] and not frame.flags & NO_DATA  # KA-44
        return [Frame(DATA, frame.stream_id, 0, request["payload"])] if has_message else []

    def chat(self, frame):
        """KA-42, KA-43: flags say what DATA brings, not its length."""
        echo = [] if frame.flags & NO_DATA else [Frame(DATA, frame.stream_id, 0, frame.payload)]
        if frame.flags & REMOTE_CLOSED:
            self.chats.discard(frame.stream_id)
            echo.append(Frame(DATA, frame.stream_id, REMOTE_CLOSED | NO_DATA))
        return echo


class Client(Side):
    """Calls the three methods of demo.Echo."""

    def __init__(self, keepalive=None):
        super().__init__(keepalive)
        self.next_id = 1
        self.calls = {}  # how those that have begun end, by their ids
        self.open = set()  # streams that this side has not ended

    def may_ask(self):
        return True

    def begin(self, method):
        if not self.number:
            self.ping()  # KA-22
        stream_id, self.next_id = self.next_id, self.next_id + 2  # KA-30
        self.calls[stream_id] = "waits"
        flags = 0
        if method == "Chat":
            self.open.add(stream_id)
            flags = REMOTE_OPEN | NO_DATA  # KA-44
        payload = b"" if method == "Chat" else HI
        request = {"service": ECHO, "method": method, "payload": payload}
        request.update(timeout_nano=0, metadata=[])
        self.send(Frame(REQUEST, stream_id, flags, write_request(request)))

    def send_message(self, message):
        for stream_id in self.open:
            self.send(Frame(DATA, stream_id, 0, message))

    def finish(self):
        for stream_id in self.open:
            self.send(Frame(DATA, stream_id, REMOTE_CLOSED | NO_DATA))  # KA-43
        self.open.clear()

    def take_message(self, frame):
        answers_request = frame.stream_id in self.calls and frame.kind == RESPONSE  # KA-23
        on_ping = frame.stream_id == PING_ID and frame.kind == RESPONSE  # KA-25
        if (answers_request or on_ping) and self.knows == UNDECIDED and self.number:
            self.knows = DOES_NOT_KNOW
        if answers_request and self.calls[frame.stream_id] == "waits":
            self.calls[frame.stream_id] = outcome(frame)
            self.open.discard(frame.stream_id)  # KA-39
        elif frame.kind == DATA and frame.flags & REMOTE_CLOSED:
            self.open.discard(frame.stream_id)

    def convict(self):
        super().convict()
        self.fail()

    def fail(self):
        waiting = [stream_id for stream_id, call in self.calls.items() if call == "waits"]
        self.calls.update(dict.fromkeys(waiting, "fails"))


def outcome(frame):
    if frame.skipped:
        return "fails"  # KA-4
    try:
        response = read_response(frame.payload)
    except Malformed:
        return "fails"  # KA-32
    if response["code"] == 0:
        return {"ok": response["payload"].hex()}  # KA-35
    return {"code": response["code"], "message": response["message"]}


def status(frame, code):
    response = {"code": code, "message": "", "details": [], "payload": b""}
    return Frame(RESPONSE, frame.stream_id, 0, write_response(response))


# --- checking ------------------------------------------------------------------------------------


def unhex(written):
    out = bytearray()
    for token in written.split():
        digits, _, count = token.partition("*")
        out += bytes.fromhex(digits) * int(count or 1)
    return bytes(out)


def with_values(message):
    """The message with its hexadecimal fields as bytes, and numbers of 64 bits as numbers."""
    message = dict(message)
    message["payload"] = unhex(message["payload"])
    if "timeout_nano" in message:
        assert isinstance(message["timeout_nano"], str), "a number of 64 bits is a string"
        message["timeout_nano"] = int(message["timeout_nano"])
    if "details" in message:
        message["details"] = [dict(d, value=unhex(d["value"])) for d in message["details"]]
    return message


def expect(actual, expected, what):
    if isinstance(expected, dict) and "one_of" in expected:
        if actual in expected["one_of"]:
            return
    if actual != expected:
        raise AssertionError(f"{what}: {str(actual)[:200]} instead of {str(expected)[:200]}")


def check_decoded(frame, entry):
    expect(NAMES.get(frame.kind, frame.kind), entry["type"], "type")
    for key in ("stream_id", "flags", "length"):
        expect(getattr(frame, key), entry[key], key)
    expect(frame.skipped, entry.get("skipped"), "skipped")
    if frame.skipped:
        return
    codecs = {REQUEST: (read_request, write_request), RESPONSE: (read_response, write_response)}
    read, write = codecs.get(frame.kind, (None, None))
    if entry.get("undecodable"):
        try:
            read(frame.payload)
        except Malformed:
            return
        raise AssertionError("the envelope can be decoded")
    if read is None:
        expect(frame.payload, unhex(entry["payload"]), "payload")
        return
    key = NAMES[frame.kind].lower()
    message = with_values(entry[key])
    expect(read(frame.payload), message, key)
    if entry["canonical"]:
        expect(write(message), frame.payload, "the envelope")


# --- answers -------------------------------------------------------------------------------------


class Answer:
    """One frame that is expected."""

    def __init__(self, wanted):
        self.wanted = wanted if isinstance(wanted, dict) else {"hex": wanted}
        self.optional = self.wanted.get("optional", False)
        self.bytes = unhex(self.wanted["hex"]) if "hex" in self.wanted else None
        if self.bytes is not None:
            (frame,) = read_frames(self.bytes)
            self.lane = lane(frame)
        elif "ping" in self.wanted:
            self.lane = PING
        else:
            self.lane = ("stream", self.wanted.get("stream_id", self.wanted.get("last")))

    def is_it(self, frame):
        if self.bytes is not None:
            return frame.encode() == self.bytes
        if "ping" in self.wanted:
            return (frame.stream_id, frame.flags, frame.length) == (PING_ID, 0, 8)  # KA-9
        if "last" in self.wanted:
            if frame.kind == DATA:
                return (frame.flags, frame.length) == (REMOTE_CLOSED | NO_DATA, 0)
            return frame.kind == RESPONSE and read_response(frame.payload)["code"] == 0
        return frame.kind == RESPONSE and read_response(frame.payload)["code"] == self.wanted["code"]


def lane(frame):
    """What frames come in order among themselves: those of a stream, PINGs, PONGs."""
    return frame.kind if frame.kind in (PING, PONG) else ("stream", frame.stream_id)


def expect_answers(frames, listed, what):
    expected = []
    for wanted in listed:
        times = wanted.get("times", 1) if isinstance(wanted, dict) else 1
        expected += [Answer(wanted) for _ in range(times)]
    written = [frame.encode()[:40].hex() for frame in frames]
    wrong = AssertionError(f"{what}: {written} instead of {str(listed)[:300]}")
    left = list(enumerate(expected))
    latest = -1  # of the places of frames that have come
    for frame in frames:
        mine = [(place, answer) for place, answer in left if answer.lane == lane(frame)]
        while mine and not mine[0][1].is_it(frame) and mine[0][1].optional:
            left.remove(mine.pop(0))
        if not mine or not mine[0][1].is_it(frame):
            raise wrong
        if frame.kind in (PING, PONG) and latest > mine[0][0]:
            raise AssertionError(f"{what}: a PING or PONG behind what is listed behind it: {written}")
        latest = max(latest, mine[0][0])
        left.remove(mine[0])
    if any(not answer.optional for _, answer in left):
        raise wrong


# --- checking ------------------------------------------------------------------------------------


def check_exchange(vector):
    side = {"server": Server, "client": Client}[vector["role"]]()
    if vector["role"] == "client":
        side.begin("Say")
        side.written.clear()
    decoded = iter(vector["decoded"])
    ended = False
    try:
        for frame in side.receive(b"".join(unhex(piece) for piece in vector["frames_in"])):
            check_decoded(frame, next(decoded))
    except ProtocolError as error:
        ended = True
        expect({"protocol_error": True, "length": error.length}, next(decoded), "decoded")
        if vector["role"] == "client":
            side.fail()
    expect(list(decoded), [], "frames that did not come")
    expect(ended, vector["ends"], "ends")
    expect_answers(side.written, vector["frames_out"], "answers")
    if vector["role"] == "client":
        expect(side.calls[1], vector["call"], "call")


def check_script(vector):
    side = {"server": Server, "client": Client}[vector["role"]](vector.get("keepalive"))
    unread, newest_ping, time = b"", None, 0
    for number, step in enumerate(vector["steps"], 1):
        ((key, value),) = step.items()
        match key:
            case "call":
                side.begin(value)
            case "send":
                side.send_message(unhex(value))
            case "finish":
                side.finish()
            case "in":
                whole = whole_frames(unread + unhex(value))
                unread = (unread + unhex(value))[len(whole) :]
                list(side.receive(whole))
            case "pong":
                assert not unread, "a PONG inside a frame"
                list(side.receive(Frame(PONG, newest_ping.stream_id, 0, newest_ping.payload).encode()))
            case "out":
                pings = [frame for frame in side.written if frame.kind == PING]
                newest_ping = pings[-1] if pings else newest_ping
                expect_answers(side.written, value, f"step {number}")
                side.written.clear()
            case "after_ms":
                time += value
                side.pass_time(time)
            case "blocked":
                side.blocked = value
                side.pump()
            case "dead":
                expect(side.dead, value, f"step {number}, dead")
            case _:
                raise AssertionError(f"step {number}: {key}")
    if vector["role"] == "client":
        calls = list(side.calls.values())
        for call, ends in zip(calls, vector.get("calls", calls), strict=True):
            expect(call, ends, "call")
    expect(side.knows, vector.get("knows", side.knows), "knows")


def whole_frames(data):
    at = 0
    while len(data) - at >= 10:
        length = 10 + int.from_bytes(data[at : at + 4], "big")
        if at + length > len(data):
            break
        at += length
    return data[:at]


def main():
    folder = pathlib.Path(__file__).parent / "vectors"
    passed = failed = 0
    for path in sorted(folder.glob("*.json")) + sorted(folder.glob("scripts/*.json")):
        check = check_script if path.parent.name == "scripts" else check_exchange
        vectors = json.loads(path.read_text(encoding="utf-8"))
        wrong = 0
        for vector in vectors:
            try:
                check(vector)
            except (AssertionError, Malformed, LookupError, StopIteration) as error:
                wrong += 1
                print(f"{path.relative_to(folder)}: {vector.get('name')}: {error or type(error).__name__}")
        names = {vector.get("name") for vector in vectors}
        if len(names) < len(vectors):
            wrong += 1
            print(f"{path.relative_to(folder)}: a name is used twice")
        print(f"{path.relative_to(folder)}: {len(vectors)} vectors, {wrong} wrong")
        passed += len(vectors) - wrong
        failed += wrong
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
