"""A double of a broker: a server on the loopback that exchanges real frames and follows a script.

    async with ScriptedServer(answer) as server: ...

`answer(request)` returns a message, raw bytes, HANG (send nothing), or CLOSE (close the
connection). The server answers ApiVersions itself unless `versions` is None.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import TracebackType

from protocol.messages.api import ApiKey, request_class
from protocol.messages.cluster import ApiVersion, ApiVersionsResponse
from protocol.messages.headers import decode_request_header, encode_response
from protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.wire.schema import Message

ALL_VERSIONS: dict[int, range] = {int(key): key.valid_versions for key in ApiKey}


class Do(Enum):
    """What a script can demand instead of a response."""

    HANG = 1
    CLOSE = 2


HANG = Do.HANG
CLOSE = Do.CLOSE


@dataclass
class Received:
    """One request that the server has received."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    message: Message

    def encode(self, answer: Message) -> bytes:
        return encode_response(answer, self.version, self.correlation_id, self.api_key)


Answer = Message | bytes | Do
Script = Callable[[Received], Answer | Awaitable[Answer]]


class ScriptedServer:
    """A server that answers by a script. It keeps the requests in `received` and counts
    connections."""

    def __init__(
        self, script: Script, *, versions: Mapping[int, range] | None = ALL_VERSIONS
    ) -> None:
        self.script = script
        self.versions = versions
        self.received: list[Received] = []
        self.connection_count = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and drop every connection, as a killed process does."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> "ScriptedServer":
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        self._writers.add(writer)
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                request = _decode(await reader.readexactly(size))
                if request.api_key == ApiKey.API_VERSIONS and self.versions is not None:
                    writer.write(request.encode(api_versions(self.versions)))
                    continue
                self.received.append(request)
                answer = self.script(request)
                if isinstance(answer, Awaitable):
                    answer = await answer
                if answer is CLOSE:
                    return
                if isinstance(answer, bytes):
                    writer.write(answer)
                elif isinstance(answer, Message):
                    writer.write(request.encode(answer))
        except (asyncio.IncompleteReadError, OSError):
            return
        finally:
            self._writers.discard(writer)
            writer.transport.abort()


def _decode(frame: bytes) -> Received:
    header, position = decode_request_header(frame)
    message, _ = request_class(header.request_api_key).decode(
        frame, header.request_api_version, position
    )
    return Received(
        header.request_api_key,
        header.request_api_version,
        header.correlation_id,
        header.client_id,
        message,
    )


def api_versions(versions: Mapping[int, range]) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=int(key), min_version=offered[0], max_version=offered[-1])
            for key, offered in versions.items()
        ]
    )


def metadata(
    nodes: Mapping[int, int], topics: Mapping[str, Mapping[int, tuple[int, int]]] | None = None
) -> MetadataResponse:
    """Return a Metadata response. `nodes` maps ids to ports. `topics` maps names to {partition:
    (leader id, leader epoch)}."""
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=port)
            for node_id, port in nodes.items()
        ],
        cluster_id="cluster",
        controller_id=next(iter(nodes), -1),
        topics=[
            MetadataResponseTopic(
                name=name,
                partitions=[
                    MetadataResponsePartition(
                        partition_index=index, leader_id=leader_id, leader_epoch=epoch
                    )
                    for index, (leader_id, epoch) in partitions.items()
                ],
            )
            for name, partitions in (topics or {}).items()
        ],
    )
