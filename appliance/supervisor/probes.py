"""Asks parts whether they work: with `/healthz`, Redis's PING, or a MySQL login. This module never
blocks the event loop.

A probe distinguishes "not ready" (the part answered, and said why it cannot work yet) from "no
answer", because only a part that gives no answer at all can be hanging.
"""

import asyncio
import os
import socket
from contextlib import suppress
from pathlib import Path

from appliance.mill.home import Home
from appliance.mill.init import InitError, read_secret
from appliance.mill.parts import MONITOR, Part, ProbeKind
from appliance.mill.sinks import MONITOR_USER, READER, socket_of
from appliance.supervisor.effects import ProbeResult
from protocol.control import short_path

TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 16 * 1024
MYSQL_REFUSALS = (1040, 1045)
"""Errors of a server that works: it has too many connections, or denies the access."""

Found = tuple[ProbeResult, str]


async def probe(part: Part, home: Home) -> Found:
    """Return the part's answer, or no answer after TIMEOUT_S."""
    if part.probe is ProbeKind.HTTP:
        if part.name == MONITOR and home.monitor_socket.exists():
            return await probe_http(str(home.monitor_socket), 0)
        return await probe_http(part.host, part.port)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            if part.probe is ProbeKind.REDIS:
                return await _probe_redis(part, home)
            return await asyncio.to_thread(_probe_mysql, part, home)
    except (TimeoutError, OSError) as error:
        return _silent(part.host, part.port, error)


async def probe_http(host: str, port: int) -> Found:
    """Return the answer of `/healthz` at an address, or no answer after TIMEOUT_S.

    A host that begins with `/` is a socket file.
    """
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await _probe_http(host, port)
    except (TimeoutError, OSError) as error:
        return _silent(host, port, error)


def _silent(host: str, port: int, error: Exception) -> Found:
    if isinstance(error, OSError) and error.errno is not None:
        # asyncio's own text would repeat the address. The error number of an unknown host name is
        # negative.
        reason = os.strerror(error.errno) if error.errno > 0 else error.strerror
        return ProbeResult.SILENT, f"{host}:{port}: {reason}"
    return ProbeResult.SILENT, f"no answer from {host}:{port} within {TIMEOUT_S:.0f} s"


async def _exchange(host: str, port: int, request: bytes, until: bytes | None) -> bytes:
    """Send a request. Return the answer, up to the text `until` or to the end of the connection."""
    if host.startswith("/"):
        with short_path(Path(host)) as name:
            reader, writer = await asyncio.open_unix_connection(name, limit=ANSWER_BYTES_MAX)
    else:
        reader, writer = await asyncio.open_connection(host, port, limit=ANSWER_BYTES_MAX)
    try:
        writer.write(request)
        await writer.drain()
        if until is not None:
            return await reader.readuntil(until)
        answer = b""
        while len(answer) < ANSWER_BYTES_MAX and (more := await reader.read(ANSWER_BYTES_MAX)):
            answer += more
        return answer
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return b""
    finally:
        writer.transport.abort()


async def _probe_http(host: str, port: int) -> Found:
    name = "localhost" if host.startswith("/") else f"{host}:{port}"
    request = f"GET /healthz HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode()
    answer = await _exchange(host, port, request, None)
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1."):
        return ProbeResult.SILENT, f"{host}:{port} answered something that is not HTTP"
    if words[1] == b"200":
        return ProbeResult.OK, ""
    reason = body.decode(errors="replace").strip()[:500]
    return ProbeResult.NOT_READY, reason or f"/healthz answered {words[1].decode(errors='replace')}"


async def _probe_redis(part: Part, home: Home) -> Found:
    path = socket_of(home, part)
    if path is None:
        answer = await _exchange(part.host, part.port, _redis_request(READER, READER), None)
    else:
        try:
            password = read_secret(home, "monitor/redis")
        except InitError as error:
            return ProbeResult.NOT_READY, str(error)
        answer = await asyncio.to_thread(_exchange_on, path, _redis_request(MONITOR_USER, password))
    answers = answer.decode(errors="replace").split("\r\n")
    text = next((answer for answer in answers if answer != "+OK"), "")
    if text == "+PONG":
        return ProbeResult.OK, ""
    if text.startswith("-"):
        return ProbeResult.NOT_READY, text[1:]
    return ProbeResult.SILENT, f"{path or part.address} answered something that is not Redis"


def _redis_request(user: str, password: str) -> bytes:
    return f"AUTH {user} {password}\r\nPING\r\nQUIT\r\n".encode()


def _exchange_on(path: str, request: bytes) -> bytes:
    """Send a request to a Unix socket. Return the answer, up to the end of the connection.

    A server with too many clients sends its answer and closes before it reads the request. A
    blocking socket still returns that answer.
    """
    answer = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(TIMEOUT_S / 2)
        with short_path(Path(path)) as name:
            link.connect(name)
        with suppress(ConnectionError):
            link.sendall(request)
        with suppress(ConnectionError):
            while len(answer) < ANSWER_BYTES_MAX and (more := link.recv(ANSWER_BYTES_MAX)):
                answer += more
    return answer


def _probe_mysql(part: Part, home: Home) -> Found:
    import pymysql

    from sinks.config import MySqlSettings
    from sinks.connections import connect_mysql

    try:
        settings = MySqlSettings(
            host=part.host,
            port=part.port,
            user=READER,
            password=read_secret(home, "monitor/mysql"),
            socket=socket_of(home, part),
        )
        connection = connect_mysql(settings, database=None, connect_timeout=3, read_timeout=3)
    except InitError as error:
        return ProbeResult.NOT_READY, str(error)
    except pymysql.MySQLError as error:
        code, text = (*error.args, "", "")[:2]
        answer = ProbeResult.NOT_READY if code in MYSQL_REFUSALS else ProbeResult.SILENT
        return answer, f"{text} ({code})"
    connection.close()
    return ProbeResult.OK, ""
