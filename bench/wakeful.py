"""Produce records at a rate on one connection, read them on another, and measure their latency.

Each Produce request has one record, and the consumer fetches again after every answer. Both use
plain sockets. The producer notes when it sent each record, and the consumer when it received it.
Both are threads that wait nearly all of the time.
"""

import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

from bench.librdkafka import Lost
from bench.requests import FETCH_VERSION, fetch_frame, fetch_request
from protocol.messages.api import ApiKey
from protocol.messages.fetch import FetchResponse
from protocol.messages.headers import decode_response_header
from protocol.wire.records import iterate_batches

TIMEOUT_S = 20.0
DRAIN_BYTES = 64 << 10


def latencies(address: str, topic: str, frame: bytes, rate: int, seconds: float) -> list[float]:
    """Return the latencies of all records in ascending order. A latency lasts from just before the
    send until the consumer has the record."""
    host, port = address.rsplit(":", 1)
    there, total = (host, int(port)), int(rate * seconds)
    with ThreadPoolExecutor(1) as other, socket.create_connection(there, TIMEOUT_S) as sender:
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        seen = other.submit(_consume, there, topic, total)
        sent_s = _produce(sender, frame, rate, total)
        seen_s = seen.result(TIMEOUT_S)
    return sorted(at_s - since_s for at_s, since_s in zip(seen_s, sent_s, strict=True))


def _produce(sender: socket.socket, frame: bytes, rate: int, total: int) -> list[float]:
    sent_s = []
    # At this time the consumer's first Fetch already waits at the broker.
    began_s = time.perf_counter() + 0.1
    for number in range(total):
        left_s = began_s + number / rate - time.perf_counter()
        if left_s > 0:
            time.sleep(left_s)
        sent_s.append(time.perf_counter())
        sender.sendall(frame)
        try:
            if not sender.recv(DRAIN_BYTES, socket.MSG_DONTWAIT):
                raise ConnectionError("the broker closed the connection")
        except BlockingIOError:
            continue
    return sent_s


def _consume(address: tuple[str, int], topic: str, total: int) -> list[float]:
    """Return the time at which each record was received."""
    at_s: list[float] = []
    with socket.create_connection(address, TIMEOUT_S) as receiver:
        receiver.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while len(at_s) < total:
            receiver.sendall(fetch_frame(fetch_request(topic, {0: len(at_s)})))
            answer = _answer(receiver)
            now_s = time.perf_counter()
            at_s.extend([now_s] * _count(answer))
    return at_s


def _answer(receiver: socket.socket) -> bytes:
    """Read one whole answer, and return it without its size prefix."""
    (size,) = struct.unpack(">i", _exactly(receiver, 4))
    return _exactly(receiver, size)


def _exactly(receiver: socket.socket, count: int) -> bytes:
    data = receiver.recv(count, socket.MSG_WAITALL)
    while len(data) < count:
        more = receiver.recv(count - len(data))
        if not more:
            raise ConnectionError("the broker closed the connection")
        data += more
    return data


def _count(answer: bytes) -> int:
    """Return the number of records in a Fetch answer. Raises Lost if the answer has an error."""
    _, position = decode_response_header(answer, ApiKey.FETCH, FETCH_VERSION)
    response, _ = FetchResponse.decode(answer, FETCH_VERSION, position)
    part = response.responses[0].partitions[0]
    if part.error_code:
        raise Lost(f"the broker refused a Fetch: error {part.error_code}")
    return sum(header.record_count for header, _ in iterate_batches(part.records or b""))
