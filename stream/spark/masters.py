"""Checks that the master of a standalone cluster answers, before a JVM is started.

Spark itself tries to connect for a minute, and then ends its driver with a stack trace that names
no address. This module does not import Spark, because `millrace up` uses it too.
"""

import os
import socket

SCHEME = "spark://"
REACH_TIMEOUT_S = 3.0
"""The time limit for connecting to each address. A running machine answers within milliseconds."""


class MasterAway(Exception):
    """The error when no master of `stream.master` answers.

    Its text names each address and its answer.
    """


def addresses(master: str) -> list[tuple[str, int]]:
    """Return host and port of each master; empty if `master` is not a standalone cluster.

    Raises ValueError for an address without host or port.
    """
    if not master.startswith(SCHEME):
        return []
    found = []
    for text in master.removeprefix(SCHEME).split(","):
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise ValueError(f"found {text!r}, expected host:port")
        found.append((host.strip("[]"), int(port)))
    return found


def ask_masters(master: str, timeout_s: float = REACH_TIMEOUT_S) -> None:
    """Return as soon as a master accepts a connection, or at once if there is no master to ask.

    Raises MasterAway if no master accepts one. Each is tried for up to `timeout_s` seconds.
    """
    said = []
    try:
        for host, port in addresses(master):
            try:
                socket.create_connection((host, port), timeout_s).close()
                return
            except OSError as error:
                said.append(f"{host}:{port} ({_reason(error, timeout_s)})")
    except ValueError as error:
        said.append(str(error))
    if said:
        raise MasterAway(f"no master of stream.master {master} answers: {', '.join(said)}")


def _reason(error: OSError, timeout_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    # The error of a host name that does not resolve has a negative number, so it has its own text.
    return str(error.strerror or error)
