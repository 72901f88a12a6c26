"""The vectors of ../vectors: what the roles write, how calls end, whether the connection does."""

import json
import pathlib
import sys
import unittest

import ttrpc
import watch
from connection import Client, Server

HERE = pathlib.Path(__file__).parent
VECTORS = HERE.parent / "vectors"
sys.path.insert(0, str(HERE.parent))

from check_vectors import expect, expect_answers, read_frames, unhex  # noqa: E402

SUPPORT = {watch.KNOWS: "yes", watch.DOES_NOT_KNOW: "no", watch.UNDECIDED: "undecided"}
HOURS = 1e5
ENVELOPES = {"REQUEST": ("request", ttrpc.Request), "RESPONSE": ("response", ttrpc.Response)}


def written(connection):
    """The frames that the connection has to write, in order."""
    return list(iter(connection.next_frame, None))


def run(entry):
    """Gives a role the pieces: frames out, how the call ends, whether the connection ends."""
    answers = []
    if entry["role"] == "server":
        peer = Server()
    else:
        peer = Client(lambda _, outcome: answers.append(outcome))
        peer.call("hi")
        written(peer)
    out = []
    try:
        for piece in entry["frames_in"]:
            peer.receive(unhex(piece))
            out += written(peer)
    except ttrpc.ProtocolError:
        return out, ("failed",), True
    return out, answers[0] if answers else None, False


def check_answers(frames, listed):
    expect_answers(list(read_frames(b"".join(frame.encode() for frame in frames))), listed, "answers")


def outcome(call):
    """How a call has ended, as the vectors say it."""
    match call:
        case None:
            return "waits"
        case ("failed",):
            return "fails"
        case ("ok", message):
            return {"ok": message.hex()}
        case ("status", code, message):
            return {"code": code, "message": message}


class Vectors(unittest.TestCase):
    def entries(self, folder=VECTORS):
        for path in sorted(folder.glob("*.json")):
            for entry in json.loads(path.read_text()):
                with self.subTest(path.stem + "/" + entry["name"]):
                    yield entry

    def test_both_roles_answer_as_the_vectors_say(self):
        for entry in self.entries():
            out, call, ended = run(entry)
            check_answers(out, entry["frames_out"])
            self.assertEqual(ended, entry["ends"])
            if "call" in entry:
                expect(outcome(call), entry["call"], "call")

    def test_both_roles_follow_the_scripts(self):
        for entry in self.entries(VECTORS / "scripts"):
            if "needs" not in entry:
                Script(entry).play()

    def test_frames_are_the_same_in_pieces_of_one_byte(self):
        for entry in self.entries():
            data = b"".join(unhex(piece) for piece in entry["frames_in"])
            if len(data) > 1 << 16:
                continue
            self.assertEqual(read([data]), read(data[i : i + 1] for i in range(len(data))))

    def test_envelopes_decode_and_encode_as_the_vectors_say(self):
        for entry in self.entries():
            frames = read(unhex(piece) for piece in entry["frames_in"])
            for frame, expected in zip(frames, entry["decoded"], strict=True):
                self.check(frame, expected)

    def check(self, frame, expected):
        if frame == "protocol error":
            return self.assertTrue(expected["protocol_error"])
        kind, envelope = ENVELOPES.get(expected["type"], (None, None))
        self.assertEqual(frame.skipped, "skipped" in expected)
        if expected.get("undecodable"):
            with self.assertRaises(ttrpc.Undecodable):
                envelope.decode(frame.payload)
        elif kind in expected:
            message = envelope(**plain(expected[kind]))
            self.assertEqual(envelope.decode(frame.payload), message)
            if expected.get("canonical"):
                self.assertEqual(message.encode(), frame.payload)


class Script:
    """One end of a connection with a watch whose time is a number. What it writes is taken at once,
    unless the script says that nothing is."""

    def __init__(self, entry):
        self.entry, self.role = entry, entry["role"]
        times = entry.get("keepalive", {"interval_ms": HOURS, "timeout_ms": HOURS})
        seconds = {key: times[key + "_ms"] / 1000 for key in ("interval", "timeout")}
        is_server = self.role == "server"
        self.watch = watch.Watch(**seconds, is_server=is_server)
        self.ended = {}
        if is_server:
            self.side = Server(watch=self.watch)
        else:
            self.side = Client(self.ended.__setitem__, self.watch)
        self.ids = []  # of calls
        self.now = 0.0
        self.blocked, self.written, self.newest_ping = False, [], None
        self.watch.tick(self.now)

    def play(self):
        for step in self.entry["steps"]:
            ((key, value),) = step.items()
            getattr(self, "do_" + key)(value)
            self.take()
        knows = SUPPORT[self.watch.support]
        expect(knows, self.entry.get("knows", knows), "knows")
        for stream_id, ends in zip(self.ids, self.entry.get("calls", []), strict=True):
            expect(self.outcome(stream_id), ends, "call")

    def outcome(self, stream_id):
        """The programs of this folder say that a peer is dead, and keep the connection."""
        ended = self.ended.get(stream_id)
        return "fails" if ended is None and self.is_dead() else outcome(ended)

    def is_dead(self):
        return self.watch.verdict() == watch.UNRESPONSIVE

    def take(self):
        while not self.blocked and (frame := self.side.next_frame()):
            self.written.append(frame)
            if frame.type == ttrpc.PING:
                self.newest_ping = frame
                self.watch.written()

    def do_call(self, _):
        if not self.watch.asked:
            self.side.send(self.watch.ping())  # KA-22
        self.ids.append(self.side.call("hi"))

    def do_in(self, value):
        self.side.receive(unhex(value))

    def do_pong(self, _):
        ping = self.newest_ping
        self.side.receive(ttrpc.Frame(ttrpc.PONG, ping.stream_id, ping.payload).encode())

    def do_out(self, listed):
        check_answers(self.written, listed)
        self.written.clear()

    def do_after_ms(self, value):
        for _ in range(value // 10):
            self.now += 0.01
            if self.watch.tick(self.now):
                self.side.send(self.watch.ping())
                self.take()

    def do_blocked(self, value):
        self.blocked = value

    def do_dead(self, value):
        expect(self.is_dead(), value, "dead")


def plain(fields):
    fields = dict(fields, payload=unhex(fields["payload"]))
    if "timeout_nano" in fields:
        fields["timeout_nano"] = int(fields["timeout_nano"])
    if "metadata" in fields:
        fields["metadata"] = [tuple(pair) for pair in fields["metadata"]]
    if "details" in fields:
        fields["details"] = [(d["type_url"], unhex(d["value"])) for d in fields["details"]]
    return fields


def read(pieces):
    reader, frames = ttrpc.FrameReader(), []
    try:
        for piece in pieces:
            frames.extend(reader.feed(piece))
    except ttrpc.ProtocolError:
        frames.append("protocol error")
    return frames


if __name__ == "__main__":
    unittest.main()
