#!/usr/bin/env python3
"""Judges the ttrpc server on a unix socket: does it know PING, is it alive, is it unresponsive?

    prober.py SOCKET [--call TEXT] [--interval S] [--timeout S] [--seconds S] [--expect WORDS]

Prints each change. With --call it makes one call of demo.Echo/Say first: without a call silence
says nothing about a peer that may not know PING. With --expect it ends as soon as a line begins
with these words, status 0; else after --seconds, status 1.
"""

import argparse
import asyncio
import socket
import sys

from connection import Client
from driver import Driver
from watch import Watch


async def probe(options):
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(options.socket)
    watch = Watch(options.interval, options.timeout)
    answers = []
    client = Client(lambda _, outcome: answers.append(outcome), watch)
    driver = Driver(peer, client)
    running = asyncio.ensure_future(driver.run())
    driver.send_ping()  # in front of the first REQUEST (KA-22)
    if options.call is not None:
        client.call(options.call)
    driver.wake()
    last = None
    loop = asyncio.get_running_loop()
    end = loop.time() + options.seconds
    while loop.time() < end:
        line = describe(watch, answers, running)
        if line != last:
            print(line, flush=True)
        last = line
        if options.expect and line.startswith(options.expect):
            return 0
        await asyncio.sleep(0.01)
    return 1 if options.expect else 0


def describe(watch, answers, running):
    if running.done():
        return f"gone: {running.result()}"
    line = f"{watch.verdict()}, {watch.support}"
    for outcome in answers:
        line += ", answer " + " ".join(str(part) for part in outcome)
    return line


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("socket")
    parser.add_argument("--call")
    parser.add_argument("--interval", type=float, default=0.1)
    parser.add_argument("--timeout", type=float, default=0.3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--expect")
    sys.exit(asyncio.run(probe(parser.parse_args())))
