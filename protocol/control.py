"""Client of the supervisor: one JSON object per line on the Unix socket in the mill's data folder.

`appliance/supervisor/driver.py` is the server. Only the owner of the folder can use the socket. The
path of the socket can be longer than the system allows. So both sides open it relative to a file
descriptor of the folder.
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
    """The error when the supervisor does not answer on the socket."""


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Yield a short name for the path of a socket. The name is valid inside the `with` block."""
    descriptor = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)


def ask(path: Path, request: dict[str, Any], timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Send one request to the supervisor and return its answer. Raises NoSupervisor."""
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
                    raise NoSupervisor("the supervisor closed the connection before a whole answer")
                answer += more
    except OSError as error:
        raise NoSupervisor(str(error)) from error
    value = json.loads(answer)
    if not isinstance(value, dict):
        raise NoSupervisor("the supervisor's answer is not a JSON object")
    return value
