"""How the command line talks to the supervisor: one JSON line each way on a Unix socket.

The socket lies in `data/`, readable by its owner only. Its path may be longer than a socket's name
can be, so both sides reach it through a descriptor of the folder.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LINE_BYTES_MAX = 1 << 20
TIMEOUT_S = 10.0


class NoSupervisor(Exception):
    """Nobody answers on the socket."""


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """A name of bounded length for a socket's path, valid inside the block."""
    descriptor = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)


def bind(path: Path) -> socket.socket:
    """A listening socket at a path. The caller holds the supervisor's lock, so what is there is
    a leftover."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_path(path) as name:
        listener.bind(name)
    path.chmod(0o600)
    listener.listen(16)
    listener.setblocking(False)
    return listener


def ask(path: Path, request: dict[str, Any], timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Send one request and return the answer. Raises NoSupervisor when nobody gives one."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            with short_path(path) as name:
                connection.connect(name)
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer = b""
            while not answer.endswith(b"\n"):
                more = connection.recv(65536)
                if not more or len(answer) > LINE_BYTES_MAX:
                    raise NoSupervisor("the supervisor closed the connection")
                answer += more
    except OSError as error:
        raise NoSupervisor(str(error)) from error
    value = json.loads(answer)
    if not isinstance(value, dict):
        raise NoSupervisor("the supervisor's answer is not understood")
    return value
