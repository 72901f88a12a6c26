"""Runs a Connection over a socket: a task that reads, one that writes, one that lets time pass."""

import asyncio
import select
import time

from ttrpc import ProtocolError

READ_AT_ONCE = 64 << 10


class Driver:
    def __init__(self, socket, connection):
        socket.setblocking(False)
        self._socket = socket
        self.connection = connection
        self._work = asyncio.Event()  # something may have to be written
        self._room = asyncio.Event()  # something was written

    async def run(self):
        """Until the peer is gone or breaks the protocol; returns which of the two."""
        tasks = [asyncio.ensure_future(t) for t in (self._read(), self._write(), self._watch())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        except (BrokenPipeError, ConnectionResetError):
            return "the peer is gone"
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._socket.close()

    def wake(self):
        """To be called after something was sent on the connection."""
        self._work.set()

    async def _read(self):
        loop = asyncio.get_running_loop()
        while True:
            while not self.connection.wants_bytes():
                self._room.clear()
                await self._room.wait()
            data = await loop.sock_recv(self._socket, READ_AT_ONCE)
            if not data:
                return "the peer is gone"
            try:
                self.connection.receive(data)
            except ProtocolError as error:
                return f"protocol error: {error}"
            self.wake()

    async def _write(self):
        loop = asyncio.get_running_loop()
        watch = self.connection.watch
        while True:
            frame = self.connection.next_frame()
            if frame is None:
                self._work.clear()
                await self._work.wait()
                continue
            # Nothing else is written before this returns: no frame is torn (KA-15).
            await loop.sock_sendall(self._socket, frame.encode())
            if watch and frame is self._ping:
                watch.written()
            self._room.set()

    _ping = None

    def send_ping(self):
        self._ping = self.connection.watch.ping()
        self.connection.send(self._ping)
        self.wake()

    async def _watch(self):
        watch = self.connection.watch
        if watch is None:
            return await asyncio.Event().wait()
        while True:
            # Bytes that lie in the socket were sent before now: they are read first.
            while select.select([self._socket], [], [], 0)[0] and self.connection.wants_bytes():
                await asyncio.sleep(0)
            if watch.tick(time.monotonic()):
                self.send_ping()
            await asyncio.sleep(watch.step / 2)
