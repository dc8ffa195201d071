"""The connections between the brokers of a cluster, which pass through this process so that they
can fail.

    with Links({1: port, 2: port, 3: port}) as links:
        links.ports            # the ports at which the brokers reach each other
        links.cut(1, 2)        # nothing that 1 sends reaches 2 any more
        links.heal()           # the delayed bytes arrive

A cut connection stays open: both ends stay connected, and the bytes wait in this process. `reset`
closes a connection. The client id of the first request names the broker that connected. A
connection without a request (a probe) is never forwarded.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Self

from broker.sessions.peers import CATCH_UP_NAME
from tests.harness.ports import free_port
from tests.harness.processes import Server

HEAD_BYTES = 14
"""Size, key, version, correlation id and the length of the client id (KIP-511's header v1)."""

CHUNK_BYTES = 1 << 16
CALL_S = 10.0


class Links(Server):
    """One listener per broker. The other brokers connect to it instead of the broker's own
    listener. Any thread may call the methods."""

    def __init__(self, targets: Mapping[int, int]) -> None:
        """`targets` maps each broker to the port on which it really listens."""
        self.ports = {node_id: free_port() for node_id in targets}
        self._targets = dict(targets)
        self._servers: dict[int, asyncio.Server] = {}
        self._open: dict[tuple[int, int], set[asyncio.StreamWriter]] = {}
        self._delays_s: dict[tuple[int, int], float] = {}
        self._passable: dict[tuple[int, int], asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links")

    # Methods for tests.

    def cut(self, source: int, target: int) -> None:
        """Hold back everything from `source` to `target` from now on."""
        self._call(self._cut(source, target))

    def isolate(self, node_id: int) -> None:
        """Cut a broker off from all others in both directions."""
        for other in self._targets.keys() - {node_id}:
            self.cut(node_id, other)
            self.cut(other, node_id)

    def delay(self, source: int, target: int, delay_s: float) -> None:
        """Delay everything from `source` to `target` by this time."""
        self._delays_s[source, target] = delay_s

    def reset(self, one: int, other: int) -> None:
        """Close every connection between two brokers with a TCP reset."""
        self._call(self._reset(one, other))

    def heal(self) -> None:
        """Let everything pass again, including the bytes that were held back."""
        self._delays_s.clear()
        self._call(self._heal())

    def shut(self, node_id: int) -> None:
        """Refuse connections for a broker whose process has ended."""
        self._call(self._shut(node_id))

    def serve(self, node_id: int) -> None:
        """Accept connections for a broker whose process is about to listen."""
        self._call(self._serve(node_id))

    # Coroutines of the proxy's event loop.

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_S)

    def _gate(self, source: int, target: int) -> asyncio.Event:
        gate = self._passable.get((source, target))
        if gate is None:
            gate = self._passable[source, target] = asyncio.Event()
            gate.set()
        return gate

    async def _cut(self, source: int, target: int) -> None:
        self._gate(source, target).clear()

    async def _heal(self) -> None:
        for gate in self._passable.values():
            gate.set()

    async def _reset(self, one: int, other: int) -> None:
        for pair in ((one, other), (other, one)):
            for writer in list(self._open.get(pair, ())):
                _abort(writer)

    async def _shut(self, node_id: int) -> None:
        server = self._servers.pop(node_id, None)
        if server is not None:
            server.close()

    async def _serve(self, node_id: int) -> None:
        if node_id not in self._servers:

            def arrived(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = self._loop.create_task(self._link(node_id, reader, writer))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

            self._servers[node_id] = await asyncio.start_server(
                arrived, "127.0.0.1", self.ports[node_id]
            )

    async def _link(
        self, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve one connection from its first request to its end."""
        onward: asyncio.StreamWriter | None = None
        try:
            head = await reader.readexactly(HEAD_BYTES)
            name = await reader.readexactly(struct.unpack(">h", head[-2:])[0])
            source = int(name.removeprefix(b"broker-").removesuffix(CATCH_UP_NAME.encode()))
            await self._gate(source, target).wait()
            answers, onward = await asyncio.open_connection("127.0.0.1", self._targets[target])
            onward.write(head + name)
            mine = self._open.setdefault((source, target), set())
            mine |= {writer, onward}
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pump(source, target, reader, onward))
                    both.create_task(self._pump(target, source, answers, writer))
            finally:
                mine -= {writer, onward}
        except (OSError, EOFError, ExceptionGroup):
            pass  # One end has closed the connection, so close the other end, too.
        finally:
            for one in (writer, onward):
                if one is not None:
                    _abort(one)

    async def _pump(
        self,
        source: int,
        target: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        while True:
            chunk = await reader.read(CHUNK_BYTES)
            if delay_s := self._delays_s.get((source, target)):
                await asyncio.sleep(delay_s)
            await self._gate(source, target).wait()
            if not chunk:
                raise EOFError
            writer.write(chunk)
            await writer.drain()

    # Start and stop.

    def start(self) -> Self:
        """Accept connections for all brokers."""
        self._thread.start()
        for node_id in self._targets:
            self.serve(node_id)
        return self

    def close(self) -> None:
        """Close everything."""
        if self._thread.is_alive():
            self._call(self._close(list(self._servers)))
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    async def _close(self, node_ids: Iterable[int]) -> None:
        for node_id in node_ids:
            await self._shut(node_id)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _abort(writer: asyncio.StreamWriter) -> None:
    """Close a connection with a reset, without sending the remaining bytes."""
    link = writer.get_extra_info("socket")
    if link is not None and link.fileno() >= 0:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
