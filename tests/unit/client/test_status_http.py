"""The status server over real sockets: the answer to every path, and every limit."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from protocol import status_http
from protocol.status import PartState, PartStatus, Problem, StatusUnavailable, fetch_status
from protocol.status_http import REQUEST_BYTES_MAX, StatusServer


def a_status(ready: bool = True) -> PartStatus:
    state = PartState.RUNNING if ready else PartState.STARTING
    return PartStatus("broker-1", state, ready, started_at_ms=1, now_ms=2, details={"n": 1})


def served(
    test: Callable[[StatusServer], Awaitable[None]],
    *,
    status: Callable[[], PartStatus] = a_status,
    request_timeout_s: float = 5.0,
    connections_max: int = 32,
) -> None:
    async def run() -> None:
        server = StatusServer(
            "127.0.0.1",
            0,
            status,
            lambda: "lines_total 3\n",
            request_timeout_s=request_timeout_s,
            connections_max=connections_max,
        )
        await server.start()
        try:
            await test(server)
        finally:
            await server.close()

    asyncio.run(run())


async def exchange(server: StatusServer, request: bytes) -> tuple[int, bytes, bytes]:
    """Return the code, the head and the body of the answer to `request`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), head, body


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def test_paths() -> None:
    async def test(server: StatusServer) -> None:
        assert (await exchange(server, get("/healthz")))[::2] == (200, b"ok\n")
        code, head, body = await exchange(server, get("/status?pretty=1"))
        assert code == 200
        assert b"Content-Type: application/json" in head
        assert PartStatus.decode(body) == a_status()
        assert (await exchange(server, get("/metrics")))[::2] == (200, b"lines_total 3\n")
        assert (await exchange(server, get("/")))[0] == 404
        code, head, _ = await exchange(server, b"POST /status HTTP/1.1\r\n\r\n")
        assert code == 405
        assert b"Allow: GET" in head
        assert (await exchange(server, b"nonsense\r\n\r\n"))[0] == 400

    served(test)


def test_not_ready_is_503_with_the_reason() -> None:
    async def test(server: StatusServer) -> None:
        answer = await exchange(server, get("/healthz"))
        assert answer[::2] == (503, b"broker-1 is starting\n")

    served(test, status=lambda: a_status(ready=False))


def test_degraded_is_said_though_the_part_works() -> None:
    problems = (Problem("poison", "a line cannot be counted"),)
    status = PartStatus("stream", PartState.DEGRADED, True, 1, 2, problems)

    async def test(server: StatusServer) -> None:
        answer = await exchange(server, get("/healthz"))
        assert answer[::2] == (200, b"degraded: poison: a line cannot be counted\n")

    served(test, status=lambda: status)


def test_a_failing_status_is_500_and_the_server_lives() -> None:
    def fail() -> PartStatus:
        raise RuntimeError("secret detail")

    async def test(server: StatusServer) -> None:
        code, _, body = await exchange(server, get("/status"))
        assert code == 500
        assert b"secret" not in body
        assert (await exchange(server, get("/metrics")))[0] == 200

    served(test, status=fail)


def test_an_oversize_request_is_refused() -> None:
    async def test(server: StatusServer) -> None:
        request = b"GET /" + b"a" * (REQUEST_BYTES_MAX + 1)
        assert (await exchange(server, request))[0] == 431

    served(test)


def test_a_slow_request_is_ended() -> None:
    async def test(server: StatusServer) -> None:
        assert (await exchange(server, b"GET /healthz HT"))[0] == 408

    served(test, request_timeout_s=0.05)


def test_connections_are_bounded() -> None:
    async def test(server: StatusServer) -> None:
        held = await asyncio.open_connection("127.0.0.1", server.port)
        held[1].write(b"GET ")
        while not server._tasks:
            await asyncio.sleep(0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
        held[1].close()

    served(test, connections_max=1)


def test_fetch_status_reads_what_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.new_event_loop()
    server = StatusServer("127.0.0.1", 0, a_status, lambda: "")
    loop.run_until_complete(server.start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        assert fetch_status("127.0.0.1", server.port, 5.0) == a_status()
        monkeypatch.setattr("protocol.status.STATUS_BYTES_MAX", 10)
        with pytest.raises(StatusUnavailable, match="more than 10 bytes"):
            fetch_status("127.0.0.1", server.port, 5.0)
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_every_code_has_a_reason() -> None:
    for code in status_http._REASONS:
        assert status_http.HttpAnswer(code, "text/plain", b"").encode().startswith(b"HTTP/1.1 ")
