"""Malformed input on a live socket: the broker stays up, serves others, and does not grow."""

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.messages.api import SERVED, request_class
from protocol.messages.cluster import ApiVersionsRequest
from protocol.messages.headers import encode_request
from tests.harness.broker import BrokerProcess
from tests.harness.seed import seeded
from tests.harness.wire import (
    Hung,
    WireClient,
    batch_of,
    fetch_request,
    list_request,
    produce,
    produce_request,
)

pytestmark = pytest.mark.live

ROUNDS = 5_000
GROWTH_MAX_MIB = 48


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as process:
        yield process


def memory_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no Pss")


def good_frames() -> list[bytes]:
    """One request of every API in its newest version, and some with records."""
    frames = [
        encode_request(request_class(key)(), span[-1], 1, "fuzz")
        for key, span in SERVED.items()
        if key != 3
    ]
    frames.append(encode_request(produce_request("fuzz", batch_of([b"x" * 50] * 5)), 9, 1, "fuzz"))
    frames.append(encode_request(produce_request("fuzz", batch_of([b"y"])), 3, 1, "fuzz"))
    frames.append(encode_request(fetch_request("fuzz"), 12, 1, "fuzz"))
    frames.append(encode_request(list_request("fuzz", -1), 7, 1, "fuzz"))
    return frames


def mutated(frame: bytes, chance: random.Random) -> bytes:
    """The frame with a few bytes changed, cut, doubled or made up; sometimes with a wrong size."""
    body = bytearray(frame[4:])
    for _ in range(chance.randint(1, 4)):
        position = chance.randrange(len(body)) if body else 0
        kind = chance.randrange(5)
        if kind == 0 and body:
            body[position] = chance.randrange(256)
        elif kind == 1 and body:
            body[position : position + 4] = struct.pack(
                ">i", chance.choice([-1, -2, 2**31 - 1, -(2**31), 1 << 20])
            )
        elif kind == 2:
            del body[position:]
        elif kind == 3:
            body[position:position] = chance.randbytes(chance.randint(1, 30))
        else:
            body[position:position] = b"\xff" * chance.randint(1, 12)
    size = len(body) if chance.random() < 0.9 else chance.choice([0, 1, 7, len(body) + 9])
    return struct.pack(">i", size) + bytes(body)


def test_mutated_requests_leave_the_broker_standing(broker: BrokerProcess) -> None:
    chance = seeded("fuzz")
    frames = good_frames()
    with WireClient(broker.bootstrap) as steady:
        from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

        asked = MetadataRequest(topics=[MetadataRequestTopic(name="fuzz")])
        assert steady.ask(asked, 12).topics[0].error_code == 0
        written = 0
        before = 0.0
        for number in range(ROUNDS):
            with WireClient(broker.bootstrap) as client:
                client.socket.settimeout(0.02)
                try:
                    for _ in range(chance.randint(1, 5)):
                        client.socket.sendall(mutated(chance.choice(frames), chance))
                    client.receive_frame()
                except (Hung, OSError):
                    pass
            if number == ROUNDS // 5:
                before = memory_mib(broker.pid)
            if number % 50 == 0:
                produce(steady, "fuzz", b"%d" % number)
                written += 1
        assert steady.ask(ApiVersionsRequest(), 0).error_code == 0
        assert written == ROUNDS // 50
        assert memory_mib(broker.pid) - before < GROWTH_MAX_MIB
    assert "a fault of the broker" not in broker.log_text()
    assert "traceback" not in broker.log_text()


def test_plain_noise_leaves_the_broker_standing(broker: BrokerProcess) -> None:
    chance = seeded("noise")
    for _ in range(200):
        with WireClient(broker.bootstrap) as client:
            client.socket.settimeout(0.02)
            try:
                client.socket.sendall(chance.randbytes(chance.randint(1, 2_000)))
                client.receive_frame()
            except (Hung, OSError):
                pass
    with WireClient(broker.bootstrap) as client:
        assert client.ask(ApiVersionsRequest(), 0).error_code == 0
    assert "traceback" not in broker.log_text()


def test_announced_sizes_cost_nothing_until_the_bytes_come(broker: BrokerProcess) -> None:
    before = memory_mib(broker.pid)
    clients = [WireClient(broker.bootstrap) for _ in range(100)]
    for client in clients:
        client.socket.sendall(struct.pack(">i", 100 << 20) + b"\x00\x00\x00\x09" + bytes(1_000))
    with WireClient(broker.bootstrap) as client:
        assert client.ask(ApiVersionsRequest(), 0).error_code == 0
    assert memory_mib(broker.pid) - before < GROWTH_MAX_MIB
    for client in clients:
        client.close()
