"""The supervisor's side of its socket; `protocol/control.py` is the client's side."""

import socket
from pathlib import Path

from protocol.control import TIMEOUT_S, NoSupervisor, ask, short_path

__all__ = ["TIMEOUT_S", "NoSupervisor", "ask", "bind"]


def bind(path: Path) -> socket.socket:
    """Create a socket at a path, and listen.

    The caller has the supervisor's lock, so an existing socket was left behind by an earlier
    supervisor.
    """
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_path(path) as name:
        listener.bind(name)
    path.chmod(0o600)
    listener.listen(16)
    listener.setblocking(False)
    return listener
