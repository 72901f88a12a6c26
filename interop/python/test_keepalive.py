"""The watch on its own, and responder and prober as processes on both ends of a unix socket."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

import ttrpc
import watch
from connection import Client, Server
from ttrpc import PING, PING_ID, PONG, REQUEST, RESPONSE, Frame

HERE = pathlib.Path(__file__).parent


def pass_time(judge, seconds, start=0.0):
    """Ticks every 10 ms; returns at which times a PING was due. The PINGs are written at once."""
    due = []
    for tick in range(round(seconds * 100) + 1):
        if judge.tick(start + tick / 100):
            due.append(round(tick / 100, 2))
            judge.ping()
            judge.written()
    return due


def knowing(**options):
    judge = watch.Watch(interval=1, timeout=3, **options)
    judge.peer_knows(Frame(PONG, PING_ID, bytes(8)))
    judge.tick(0.0)
    return judge


class TheWatch(unittest.TestCase):
    def test_a_ping_is_due_after_an_idle_interval_and_only_one_is_under_way(self):
        self.assertEqual(pass_time(knowing(), 5), [1.0])

    def test_a_peer_that_knows_ping_and_is_silent_is_unresponsive(self):
        judge = knowing()
        pass_time(judge, 3.9)
        self.assertEqual(judge.verdict(), watch.SILENT)
        pass_time(judge, 0.2, start=3.9)
        self.assertEqual(judge.verdict(), watch.UNRESPONSIVE)

    def test_any_byte_is_a_sign_of_life(self):
        judge = knowing()
        pass_time(judge, 3.9)
        judge.heard()
        pass_time(judge, 2, start=3.9)
        self.assertNotEqual(judge.verdict(), watch.UNRESPONSIVE)

    def test_a_peer_that_may_not_know_ping_is_never_unresponsive(self):
        judge = watch.Watch(interval=1, timeout=3)
        pass_time(judge, 100)
        self.assertEqual((judge.support, judge.verdict()), (watch.UNDECIDED, watch.SILENT))

    def test_while_nothing_is_decided_the_distance_of_the_pings_doubles(self):
        judge = watch.Watch(interval=1, timeout=3)
        self.assertEqual(pass_time(judge, 20), [1.0, 2.0, 4.0, 8.0, 16.0])

    def test_a_pause_of_this_side_is_not_silence_of_the_peer(self):
        judge = knowing()
        pass_time(judge, 1.5)
        judge.tick(1000.0)
        self.assertNotEqual(judge.verdict(), watch.UNRESPONSIVE)

    def test_a_server_asks_only_who_has_asked_it(self):
        judge = watch.Watch(interval=1, timeout=3, is_server=True)
        self.assertEqual(pass_time(judge, 10), [])
        judge.peer_knows(Frame(PING, PING_ID, bytes(8)))
        self.assertEqual(pass_time(judge, 1, start=10.0)[0], 0.0)


class Support(unittest.TestCase):
    def client(self):
        judge = watch.Watch(interval=1, timeout=3)
        client = Client(lambda *_: None, judge)
        client.send(judge.ping())
        client.call("hi")
        return client, judge

    def test_a_pong_before_the_first_response_says_that_the_peer_knows(self):
        client, judge = self.client()
        client.receive(Frame(PONG, PING_ID, bytes(8)).encode() + Frame(RESPONSE, 1).encode())
        self.assertEqual(judge.support, watch.KNOWS)

    def test_a_response_without_a_pong_before_it_says_that_it_does_not(self):
        client, judge = self.client()
        client.receive(Frame(RESPONSE, 1).encode())
        self.assertEqual(judge.support, watch.DOES_NOT_KNOW)

    def test_a_call_in_front_of_the_ping_decides_nothing(self):
        judge = watch.Watch(interval=1, timeout=3)
        client = Client(lambda *_: None, judge)
        client.call("hi")
        client.send(judge.ping())
        client.receive(Frame(RESPONSE, 1).encode())
        self.assertEqual(judge.support, watch.UNDECIDED)

    def test_an_error_on_the_id_of_the_ping_says_that_it_does_not(self):
        client, judge = self.client()
        error = ttrpc.Response(code=3).encode()
        client.receive(Frame(RESPONSE, PING_ID, error).encode())
        self.assertEqual(judge.support, watch.DOES_NOT_KNOW)

    def test_an_unfinished_frame_is_a_sign_of_life(self):
        client, judge = self.client()
        client.receive(Frame(PONG, PING_ID, bytes(8)).encode())
        pass_time(judge, 3.5)
        client.receive(Frame(RESPONSE, 1, b"long").encode()[:11])
        pass_time(judge, 2.5, start=3.5)
        self.assertNotEqual(judge.verdict(), watch.UNRESPONSIVE)

    def test_a_late_pong_is_believed(self):
        client, judge = self.client()
        client.receive(Frame(RESPONSE, 1).encode() + Frame(PONG, PING_ID, bytes(8)).encode())
        self.assertEqual(judge.support, watch.KNOWS)


class TheResponder(unittest.TestCase):
    def test_a_pong_overtakes_the_answers_that_wait_and_pings_take_one_place(self):
        server = Server()
        request = ttrpc.Request("demo.Echo", "Say").encode()
        server.receive(Frame(REQUEST, 1, request).encode())
        for number in range(10_000):
            server.receive(Frame(PING, PING_ID, number.to_bytes(8, "big")).encode())
        frames = list(iter(server.next_frame, None))
        self.assertEqual([frame.type for frame in frames], [PONG, RESPONSE])
        self.assertEqual(frames[0].payload, (9_999).to_bytes(8, "big"))


    def test_a_server_stops_reading_while_its_answers_are_not_taken_and_a_client_never(self):
        server, client = Server(), Client(lambda *_: None)
        request = ttrpc.Request("demo.Echo", "Say").encode()
        for number in range(1000):
            server.receive(Frame(REQUEST, 2 * number + 1, request).encode())
            client.call("hi")
        self.assertEqual((server.wants_bytes(), client.wants_bytes()), (False, True))
        list(iter(server.next_frame, None))
        self.assertTrue(server.wants_bytes())


class Processes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "s")

    def start(self, program, *arguments):
        command = [sys.executable, str(HERE / program), self.path, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def respond(self, *arguments):
        process = self.start("responder.py", *arguments)
        self.assertEqual(process.stdout.readline(), "listening\n")
        return process

    def wait_for(self, process, words):
        for line in process.stdout:
            if words in line:
                return
        self.fail(f"ended before it printed {words!r}")

    def test_a_slow_responder_is_alive(self):
        self.respond("--delay", "1")
        expected = "alive, knows, answer ok"
        options = ("--call", "x", "--timeout", "0.2", "--expect", expected)
        prober = self.start("prober.py", *options)
        lines = prober.stdout.read()
        self.assertNotIn("unresponsive", lines)
        self.assertEqual(prober.wait(), 0, lines)

    def test_a_stopped_responder_is_unresponsive_until_it_goes_on(self):
        responder = self.respond()
        prober = self.start("prober.py", "--seconds", "30")
        self.wait_for(prober, "alive, knows")
        responder.send_signal(signal.SIGSTOP)
        self.wait_for(prober, "unresponsive, knows")
        responder.send_signal(signal.SIGCONT)
        self.wait_for(prober, "alive, knows")

    def test_a_server_judges_a_client_that_has_asked(self):
        responder = self.respond("--judge")
        prober = self.start("prober.py", "--seconds", "30")
        self.wait_for(responder, "knows, alive")
        prober.send_signal(signal.SIGSTOP)
        self.wait_for(responder, "knows, unresponsive")
        prober.send_signal(signal.SIGCONT)
        self.wait_for(responder, "knows, alive")

    def test_a_peer_that_reads_late_gets_whole_frames_and_its_pong(self):
        self.respond()
        peer = socket.socket(socket.AF_UNIX)
        self.addCleanup(peer.close)
        peer.connect(self.path)
        text = ttrpc.encode_string_value("x" * 1_000_000)
        request = ttrpc.Request("demo.Echo", "Say", text).encode()
        for stream_id in range(1, 9, 2):
            peer.sendall(Frame(REQUEST, stream_id, request).encode())
        peer.sendall(Frame(PING, PING_ID, b"late").encode())
        peer.sendall(Frame(REQUEST, 9, ttrpc.Request("demo.Echo", "Say").encode()).encode())
        reader, types = ttrpc.FrameReader(), []
        while len(types) < 6:
            types += [frame.type for frame in reader.feed(peer.recv(1 << 16))]
        self.assertEqual(sorted(types), [RESPONSE] * 5 + [PONG])
        self.assertLess(types.index(PONG), 5, "the answer to what came after the PING was first")


if __name__ == "__main__":
    unittest.main()
