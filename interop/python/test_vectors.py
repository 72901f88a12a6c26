"""The vectors of ../vectors: what the roles write, how calls end, whether the connection does."""

import json
import pathlib
import unittest

import ttrpc
from connection import Client, Server

VECTORS = pathlib.Path(__file__).parent.parent / "vectors"
ENVELOPES = {"REQUEST": ("request", ttrpc.Request), "RESPONSE": ("response", ttrpc.Response)}


def unhex(written):
    out = bytearray()
    for token in written.split():
        digits, _, count = token.partition("*")
        out += bytes.fromhex(digits) * int(count or 1)
    return bytes(out)


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


def matches(frame, expected):
    if isinstance(expected, str):
        return frame.encode() == unhex(expected)
    if "hex" in expected:
        return frame.encode() == unhex(expected["hex"])
    code = ttrpc.Response.decode(frame.payload).code
    return (frame.type, frame.stream_id, code) == (2, expected["stream_id"], expected["code"])


def outcome_of(call):
    if call == "waits":
        return None
    if call == "fails":
        return ("failed",)
    if "ok" in call:
        return ("ok", unhex(call["ok"]))
    return ("status", call["code"], call["message"])


class Vectors(unittest.TestCase):
    def entries(self):
        for path in sorted(VECTORS.glob("*.json")):
            for entry in json.loads(path.read_text()):
                with self.subTest(path.stem + "/" + entry["name"]):
                    yield entry

    def test_both_roles_answer_as_the_vectors_say(self):
        for entry in self.entries():
            out, call, ended = run(entry)
            for expected in entry["frames_out"]:
                if out and matches(out[0], expected):
                    out.pop(0)
                else:
                    optional = isinstance(expected, dict) and expected.get("optional")
                    self.assertTrue(optional, expected)
            self.assertEqual(out, [])
            self.assertEqual(ended, entry["ends"])
            if "call" in entry:
                self.assertEqual(call, outcome_of(entry["call"]))

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


def plain(fields):
    fields = dict(fields, payload=unhex(fields["payload"]))
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
