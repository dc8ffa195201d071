"""Check that a standalone cluster's master answers, before a JVM is started.

Spark itself tries for a minute and then ends its driver with a trace that names no address. This
module loads nothing of Spark, because `up` uses it too.
"""

import os
import socket

SCHEME = "spark://"
REACH_TIMEOUT_S = 3.0
"""For each address; a running machine accepts or refuses within milliseconds."""


class MasterAway(Exception):
    """No master of `stream.master` answers; the text names each address and its answer."""


def addresses(master: str) -> list[tuple[str, int]]:
    """Return host and port of each master; none if `master` is not a standalone cluster.

    Raises ValueError, with a sentence, for an address without host or port.
    """
    if not master.startswith(SCHEME):
        return []
    found = []
    for text in master.removeprefix(SCHEME).split(","):
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise ValueError(f"{text!r} is not of the form host:port")
        found.append((host.strip("[]"), int(port)))
    return found


def ask_masters(master: str, timeout_s: float = REACH_TIMEOUT_S) -> None:
    """Return once a master accepts a connection, or if there are none to ask.

    Raises MasterAway if none does, after up to `timeout_s` seconds each.
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
    # The error of an unknown name has a negative number.
    return str(error.strerror or error)
