"""The replaying client must count answers correctly, even if a server splits them at any byte."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bench.raw import replay

FRAME = struct.pack(">i", 6) + b"abcdef"


@contextmanager
def serving(answer: Callable[[socket.socket, int], None], connections: int) -> Iterator[str]:
    """Run a server that calls `answer(socket, number)` for each whole frame that it receives."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve(one: socket.socket) -> None:
            number = pending = 0
            with one:
                while data := one.recv(4096):
                    pending += len(data)
                    while pending >= len(FRAME):
                        pending -= len(FRAME)
                        answer(one, number)
                        number += 1

        def accept() -> None:
            for _ in range(connections):
                one, _ = server.accept()
                threading.Thread(target=serve, args=(one,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("connections", [1, 3])
def test_every_answer_is_counted_however_it_is_cut(connections: int) -> None:
    answer = struct.pack(">i", 10) + b"0123456789"

    def in_pieces(one: socket.socket, number: int) -> None:
        for start in range(0, len(answer), 1 + number % 13):
            one.sendall(answer[start : start + 1 + number % 13])

    with serving(in_pieces, connections) as address:
        found = replay([(address, FRAME)] * connections, in_flight=4, seconds=0.05)
    assert found.requests >= 4 * connections
    assert found.answer_bytes == found.requests * len(answer)
    assert len(found.latencies_s) == found.requests
    assert found.latencies_s == sorted(found.latencies_s)
    assert found.seconds >= 0.05


def test_each_connection_has_a_broker_of_its_own() -> None:
    asked: list[str] = []

    def answers(name: str) -> Callable[[socket.socket, int], None]:
        def answer(one: socket.socket, _: int) -> None:
            asked.append(name)
            one.sendall(struct.pack(">i", 1) + b"a")

        return answer

    with serving(answers("first"), 1) as first, serving(answers("second"), 1) as second:
        found = replay([(first, FRAME), (second, FRAME)], in_flight=1, seconds=0.05)
    assert set(asked) == {"first", "second"}
    assert found.requests == len(asked)


def test_a_closed_connection_is_an_error() -> None:
    with (
        serving(lambda one, _: one.shutdown(socket.SHUT_RDWR), 1) as address,
        pytest.raises(OSError),
    ):
        replay([(address, FRAME)], in_flight=1, seconds=5)
