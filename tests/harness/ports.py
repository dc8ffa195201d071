"""Ports of our own for tests, so that a running mill is never touched."""

import socket


def free_port() -> int:
    """A port on loopback that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
