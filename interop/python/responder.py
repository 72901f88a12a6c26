#!/usr/bin/env python3
"""A ttrpc server on a unix socket that knows PING. Serves demo.Echo/Say.

    responder.py SOCKET [--delay SECONDS] [--judge]

--delay: a call takes so long; PINGs are answered meanwhile.
--judge: also judges its clients, once one has sent a PING (KA-28), and prints what it finds.
"""

import argparse
import asyncio
import socket

from connection import Server
from driver import Driver
from watch import Watch

MAX_CALLS = 1024  # at work on one connection; those beyond are refused


async def serve(path, delay, judge):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    listener.setblocking(False)
    print("listening", flush=True)
    loop = asyncio.get_running_loop()
    peers = set()  # asyncio keeps no task alive by itself
    while True:
        peer, _ = await loop.sock_accept(listener)
        task = asyncio.ensure_future(serve_peer(peer, delay, judge))
        peers.add(task)
        task.add_done_callback(peers.discard)


async def serve_peer(peer, delay, judge):
    loop = asyncio.get_running_loop()
    watch = Watch(interval=0.1, timeout=0.3, is_server=True) if judge else None
    calls = 0

    def handle(stream_id, text):
        nonlocal calls
        if not delay:
            return server.answer(stream_id, text)
        if calls == MAX_CALLS:
            return server.refuse(stream_id, 8)
        calls += 1
        loop.call_later(delay, finish, stream_id, text)

    def finish(stream_id, text):
        nonlocal calls
        calls -= 1
        server.answer(stream_id, text)
        driver.wake()

    server = Server(handle, watch)
    driver = Driver(peer, server)
    tell = asyncio.ensure_future(print_changes(watch)) if judge else None
    print("client:", await driver.run(), flush=True)
    if tell:
        tell.cancel()


async def print_changes(watch):
    before = None
    while True:
        now = (watch.support, watch.verdict())
        if now != before:
            print("client:", ", ".join(now), flush=True)
        before = now
        await asyncio.sleep(0.02)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("socket")
    parser.add_argument("--delay", type=float, default=0)
    parser.add_argument("--judge", action="store_true")
    options = parser.parse_args()
    asyncio.run(serve(options.socket, options.delay, options.judge))
