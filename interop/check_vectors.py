#!/usr/bin/env python3
"""Checks the test vectors against a small implementation of RFC.md.

Needs nothing but Python 3. Prints a line for each file and the sum. The exit status is 1 if a vector fails.
Written from RFC.md and vectors/README.md alone, so that the vectors do not merely repeat one implementation.
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


class Server:
    """Answers as a server with demo.Echo/Say does, one frame after the other."""

    def __init__(self):
        self.last_id = 0

    def receive(self, frame):
        if frame.kind == PING and not frame.skipped:
            return [Frame(PONG, frame.stream_id, 0, frame.payload)]
        if frame.kind != REQUEST:
            return []  # KA-6, KA-17, KA-37: there are no streams but unary ones here
        if frame.stream_id % 2 == 0 or frame.stream_id == PING_ID or frame.stream_id <= self.last_id:
            return [status(frame, INVALID_ARGUMENT)]  # KA-31
        self.last_id = frame.stream_id
        if frame.skipped:
            return [status(frame, RESOURCE_EXHAUSTED)]  # KA-4
        try:
            request = read_request(frame.payload)
            if (request["service"], request["method"]) != ("demo.Echo", "Say"):
                return [status(frame, UNIMPLEMENTED)]
            if request["timeout_nano"] < 0:
                return [status(frame, DEADLINE_EXCEEDED)]  # KA-34
            message = write_string_value(read_string_value(request["payload"]))
        except Malformed:
            return [status(frame, INVALID_ARGUMENT)]  # KA-32
        return [Frame(RESPONSE, frame.stream_id, 0, bytes_field(2, message))]


class Client:
    """Waits for the answer to a call on stream 1."""

    def __init__(self):
        self.call = "waits"

    def receive(self, frame):
        if frame.kind == PING and not frame.skipped:
            return [Frame(PONG, frame.stream_id, 0, frame.payload)]
        if frame.kind == RESPONSE and frame.stream_id == 1 and self.call == "waits":
            self.call = self.outcome(frame)
        return []

    @staticmethod
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


def with_bytes(message):
    """The message with its hexadecimal fields as bytes."""
    message = dict(message)
    message["payload"] = unhex(message["payload"])
    if "details" in message:
        message["details"] = [dict(d, value=unhex(d["value"])) for d in message["details"]]
    return message


def expect(actual, expected, what):
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
    message = with_bytes(entry[key])
    expect(read(frame.payload), message, key)
    if entry["canonical"]:
        expect(write(message), frame.payload, "encoded")


def answered_by(answers, expected):
    """Whether these answers are what is expected; all answers of the model are given."""
    for wanted in expected:
        optional = isinstance(wanted, dict) and wanted.get("optional", False)
        if answers and matches(answers[0], wanted):
            answers = answers[1:]
        elif not optional:
            return False
    return not answers


def matches(answer, wanted):
    if isinstance(wanted, str):
        return answer.encode() == unhex(wanted)
    if "hex" in wanted:
        return answer.encode() == unhex(wanted["hex"])
    if answer.kind != RESPONSE or answer.stream_id != wanted["stream_id"]:
        return False
    return read_response(answer.payload)["code"] == wanted["code"]


def check(vector):
    peer = {"server": Server, "client": Client}[vector["role"]]()
    decoded = iter(vector["decoded"])
    answers, ended = [], False
    try:
        for frame in read_frames(b"".join(unhex(piece) for piece in vector["frames_in"])):
            check_decoded(frame, next(decoded))
            answers += peer.receive(frame)
    except ProtocolError as error:
        ended = True
        expect({"protocol_error": True, "length": error.length}, next(decoded), "decoded")
        if vector["role"] == "client" and peer.call == "waits":
            peer.call = "fails"
    expect(list(decoded), [], "frames that did not come")
    expect(ended, vector["ends"], "ends")
    if not answered_by(answers, vector["frames_out"]):
        written = [answer.encode()[:40].hex() for answer in answers]
        raise AssertionError(f"answers: {written} instead of {str(vector['frames_out'])[:200]}")
    if vector["role"] == "client":
        expect(peer.call, vector["call"], "call")


def main():
    folder = pathlib.Path(__file__).parent / "vectors"
    passed = failed = 0
    for path in sorted(folder.glob("*.json")):
        vectors = json.loads(path.read_text(encoding="utf-8"))
        wrong = 0
        for vector in vectors:
            try:
                check(vector)
            except (AssertionError, Malformed, LookupError, StopIteration) as error:
                wrong += 1
                print(f"{path.name}: {vector.get('name')}: {error or type(error).__name__}")
        names = {vector.get("name") for vector in vectors}
        if len(names) < len(vectors):
            wrong += 1
            print(f"{path.name}: a name is used twice")
        print(f"{path.name}: {len(vectors)} vectors, {wrong} wrong")
        passed += len(vectors) - wrong
        failed += wrong
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
