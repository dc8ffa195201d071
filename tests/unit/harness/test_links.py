"""Links with planned faults: a delay holds bytes back and releases them, a reset ends the
connection."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.harness.links import Links
from tests.harness.ports import free_port

NAME = b"broker-1"
HEAD = struct.pack(">ihhih", 22, 0, 0, 7, len(NAME)) + NAME
SILENCE_S = 0.2
"""How long a test listens before it concludes that nothing arrives."""


def echo(server: socket.socket) -> None:
    """Send every client's bytes back to it."""
    with suppress(OSError):
        while True:
            link, _ = server.accept()
            threading.Thread(target=_echo_one, args=(link,), daemon=True).start()


def _echo_one(link: socket.socket) -> None:
    with suppress(OSError), link:
        while chunk := link.recv(1_000):
            link.sendall(chunk)


@pytest.fixture
def links() -> Iterator[Links]:
    """Yield links between two brokers. Broker 2 is an echo server. A client with broker 1's client
    id plays broker 1."""
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as server:
        threading.Thread(target=echo, args=(server,), daemon=True).start()
        with Links({1: free_port(), 2: port}) as made:
            yield made


def dial(links: Links) -> socket.socket:
    """Return a connection from broker 1 to broker 2 whose first request was answered."""
    link = socket.create_connection(("127.0.0.1", links.ports[2]), 5)
    link.sendall(HEAD)
    assert hear(link, len(HEAD)) == HEAD
    return link


def hear(link: socket.socket, count: int) -> bytes:
    heard = b""
    while len(heard) < count:
        chunk = link.recv(count - len(heard))
        assert chunk, "the link has ended"
        heard += chunk
    return heard


@pytest.mark.parametrize(("source", "target"), [(1, 2), (2, 1)])
def test_what_is_cut_in_one_direction_waits_until_it_is_healed(
    links: Links, source: int, target: int
) -> None:
    with dial(links) as link:
        links.cut(source, target)
        link.sendall(b"late")
        link.settimeout(SILENCE_S)
        with pytest.raises(TimeoutError):
            link.recv(1)
        link.settimeout(5)
        links.heal()
        assert hear(link, 4) == b"late"


def test_a_reset_ends_both_sides_of_a_link(links: Links) -> None:
    with dial(links) as link:
        links.reset(1, 2)
        with pytest.raises(ConnectionResetError):
            link.recv(1)
    dial(links).close()


def test_who_is_shut_refuses_until_it_is_served_again(links: Links) -> None:
    links.shut(2)
    with pytest.raises(ConnectionRefusedError):
        dial(links)
    links.serve(2)
    dial(links).close()


def test_a_link_without_a_listener_is_reset(links: Links) -> None:
    with socket.create_connection(("127.0.0.1", links.ports[1]), 5) as link:
        link.sendall(HEAD)
        with pytest.raises(ConnectionResetError):
            link.recv(1)
