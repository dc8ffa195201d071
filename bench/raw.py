"""A client that sends one prepared request again and again, so that almost only the broker's cost
is measured.

Each connection keeps `in_flight` copies of its frame on the wire. It sends the next copy whenever
an answer arrives. Answers are counted, timed and discarded. The broker must answer the requests of
a connection in order, as Kafka's protocol demands. The client uses plain sockets and one epoll,
because on two cores its CPU time is taken from the broker. A read costs two system calls and a few
microseconds, however many answers it returns.
"""

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

READ_BYTES = 1 << 20
KEPT_BYTES_MAX = 64 << 10
"""Answers up to this size are kept whole, so that the caller can check one."""

ANSWER_S_MAX = 30.0
"""A broker that sends nothing for this many seconds is considered stopped."""

_SIZE = struct.Struct(">i")


@dataclass(slots=True)
class Replayed:
    """The number of answers, their bytes, and their times."""

    requests: int = 0
    answer_bytes: int = 0
    seconds: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    """The latencies of all answers in seconds, in ascending order."""

    last_answer: bytes = b""
    """The newest answer that a single read returned whole, without its size prefix. Empty if no
    read did."""


class _Connection:
    """One connection. It counts answers by their size prefix and does not keep their bodies."""

    __slots__ = ("_frame", "_head", "_left", "_sent_s", "_total", "_view", "socket")

    def __init__(self, address: str, frame: bytes, total: Replayed) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), ANSWER_S_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # SO_RCVTIMEO leaves this timeout to the kernel. Python's own timeout needs one more system
        # call for each read.
        self.socket.settimeout(None)
        limit = struct.pack("ll", int(ANSWER_S_MAX), 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self._frame = frame
        self._total = total
        self._view = memoryview(bytearray(READ_BYTES))
        self._head = b""
        self._left = 0
        self._sent_s: deque[float] = deque()

    @property
    def is_waiting(self) -> bool:
        """Return whether answers are still missing."""
        return bool(self._sent_s)

    def send(self, count: int) -> None:
        """Send copies of the frame."""
        self._sent_s.extend((time.perf_counter(),) * count)
        self.socket.sendall(self._frame * count if count > 1 else self._frame)

    def receive(self) -> tuple[int, float]:
        """Read once. Return how many answers the read completed, and the time."""
        count = self.socket.recv_into(self._view)
        if not count:
            raise ConnectionError("the broker closed the connection")
        answered = self._answers_in(count)
        now_s = time.perf_counter()
        total, sent_s = self._total, self._sent_s
        total.requests += answered
        for _ in range(answered):
            total.latencies_s.append(now_s - sent_s.popleft())
        return answered, now_s

    def _answers_in(self, count: int) -> int:
        """Return how many answers the new bytes complete."""
        view, total = self._view, self._total
        answered = 0
        position = min(self._left, count)
        if position:
            self._left -= position
            answered += not self._left
        while position < count:
            head_end = min(position + _SIZE.size - len(self._head), count)
            head = self._head + bytes(view[position:head_end])
            position = head_end
            if len(head) < _SIZE.size:
                self._head = head
                break
            self._head = b""
            (size,) = _SIZE.unpack(head)
            total.answer_bytes += _SIZE.size + size
            end = position + size
            if end > count:
                self._left = end - count
                break
            answered += 1
            if size <= KEPT_BYTES_MAX and end == count:
                total.last_answer = bytes(view[position:end])
            position = end
        return answered


def replay(requests: Sequence[tuple[str, bytes]], *, in_flight: int, seconds: float) -> Replayed:
    """Replay one frame per connection for some seconds, then wait for the last answers.

    `requests` has a broker's address and a frame for each connection.
    """
    total = Replayed()
    connections = [_Connection(address, frame, total) for address, frame in requests]
    try:
        began_s = time.perf_counter()
        for one in connections:
            one.send(in_flight)
        if len(connections) == 1:
            _one(connections[0], began_s + seconds)
        else:
            _many(connections, began_s + seconds)
        total.seconds = time.perf_counter() - began_s
    finally:
        for one in connections:
            one.socket.close()
    total.latencies_s.sort()
    return total


def _one(connection: _Connection, end_s: float) -> None:
    """Replay on a single connection, which needs no epoll."""
    while connection.is_waiting:
        answered, now_s = connection.receive()
        if answered and now_s < end_s:
            connection.send(answered)


def _many(connections: Sequence[_Connection], end_s: float) -> None:
    by_fd = {one.socket.fileno(): one for one in connections}
    with select.epoll() as poll:
        for fd in by_fd:
            poll.register(fd, select.EPOLLIN)
        while by_fd:
            ready = poll.poll(ANSWER_S_MAX)
            if not ready:
                raise TimeoutError(f"the broker sent no answer within {ANSWER_S_MAX} s")
            for fd, _ in ready:
                one = by_fd[fd]
                answered, now_s = one.receive()
                if answered and now_s < end_s:
                    one.send(answered)
                elif not one.is_waiting:
                    poll.unregister(fd)
                    del by_fd[fd]
