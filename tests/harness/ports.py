"""Ports of our own for tests, so that a running mill is never touched."""

import random
import socket

# Below the range from which the kernel takes ports for outgoing connections: a port of that range
# may be taken between the moment it is found free and the moment a server binds it.
LOW, HIGH = 20_100, 28_900

_chance = random.SystemRandom()
_given: set[int] = set()


def free_port() -> int:
    """A port on loopback that nothing listens on at this moment, and never the same one twice."""
    while True:
        port = _chance.randrange(LOW, HIGH)
        if port in _given:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
