"""Ports for tests, so that tests never meet a running mill."""

import os
import random
import socket

# The kernel takes ports for outgoing connections from a higher range. It could take a port of that
# range after the test has found it free and before the server binds it.
LOW, HIGH = 20_100, 28_900

# Each worker process of pytest-xdist uses a separate part of the range.
_WIDTH = (HIGH - LOW) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_FIRST = LOW + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) * _WIDTH

_chance = random.SystemRandom()
_given: set[int] = set()


def free_port() -> int:
    """Return a free port on the loopback. No port is returned twice."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """Return the first of this number of consecutive free ports."""
    while True:
        first = _chance.randrange(_FIRST, _FIRST + _WIDTH - count + 1)
        ports = range(first, first + count)
        if _given.isdisjoint(ports) and all(_is_free(port) for port in ports):
            _given.update(ports)
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
