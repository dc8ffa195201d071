"""Hostile input on live sockets: the broker stays up, serves others, does not grow, does not stall.

20,000 frames here; a million as a slow test, or as many as MILLRACE_FUZZ_FRAMES says.
"""

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.messages.cluster import ApiVersionsRequest
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.harness.broker import BrokerProcess
from tests.harness.fuzz import Fuzz, cut
from tests.harness.seed import seeded
from tests.harness.wire import WireClient, produce

pytestmark = pytest.mark.live

FRAMES = 20_000
MANY_FRAMES = int(os.environ.get("MILLRACE_FUZZ_FRAMES", "1000000"))
GROWTH_MAX_MIB = 64
PEAK_MAX_MIB = 256
LATE_S = 0.1
"""A test that comes so late to its own timer has no say on whether the broker was late."""

SETTINGS = {
    # What is made up should be gone before the end.
    "log.retention.bytes": 4 << 20,
    "log.segment.bytes": 1 << 20,
    "log.retention.check.interval.ms": 500,
    "log.segment.delete.delay.ms": 0,
    "log.flush.interval.messages": 1_000_000,
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, SETTINGS) as process:
        yield process


def memory_mib(pid: int, field: str = "VmRSS:") -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no {field}")


class Watch:
    """Whether this process gets the processor when it wants it."""

    def __init__(self) -> None:
        self.was_late = False
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while True:
            began_s = time.monotonic()
            if self._ends.wait(0.02):
                return
            self.was_late |= time.monotonic() - began_s > 0.02 + LATE_S

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


class Target:
    """The broker under fire."""

    def __init__(self, broker: BrokerProcess, fuzz: Fuzz) -> None:
        self.broker = broker
        self.fuzz = fuzz
        self.frame_count = 0
        self.answer_bytes = 0

    def one_connection(self) -> None:
        """Send what one connection has, and read until the broker closes it."""
        frames = self.fuzz.connection()
        self.frame_count += len(frames)
        try:
            one = socket.create_connection(("127.0.0.1", self.broker.host_port), 30)
        except ConnectionRefusedError as error:
            raise AssertionError(f"the broker is gone; {self.broker.log_text()[-8000:]}") from error
        with one:
            try:
                for piece in cut(frames, self.fuzz.random):
                    one.sendall(piece)
                one.shutdown(socket.SHUT_WR)
                while data := one.recv(1 << 18):
                    self.answer_bytes += len(data)
            except OSError:
                pass


def prepare(broker: BrokerProcess) -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=2, replication_factor=1)
        for name in ("fuzz-0", "fuzz-1", "fuzz-2", "fuzz-compacted", "steady")
    ]
    topics[3].configs = [CreatableTopicConfig(name="cleanup.policy", value="compact")]
    with WireClient(broker.bootstrap) as client:
        assert client.ask(CreateTopicsRequest(topics=topics), 7).topics[0].error_code == 0


def run(broker: BrokerProcess, frame_count: int) -> None:
    fuzz = Fuzz(seeded("fuzz"))
    target = Target(broker, fuzz)
    prepare(broker)
    before_mib, written = 0.0, 0
    with Watch() as watch, WireClient(broker.bootstrap) as steady:
        while target.frame_count < frame_count:
            for _ in range(20):
                target.one_connection()
            # Others are served meanwhile, and what they write is numbered without a gap.
            assert produce(steady, "steady", b"%d" % written) == written
            written += 1
            if not before_mib and target.frame_count > frame_count // 4:
                before_mib = memory_mib(broker.pid)
    growth_mib = memory_mib(broker.pid) - before_mib
    peak_mib = memory_mib(broker.pid, "VmHWM:")
    requests = broker.status().details["requests_total"]
    print(
        f"fuzz: {target.frame_count:,} frames of {len(fuzz.key_counts)} keys, "
        f"{requests:,} of them requests, {target.answer_bytes:,} bytes of answers; "
        f"grown by {growth_mib:.1f} MiB, peak {peak_mib:.0f} MiB"
    )
    assert isinstance(requests, int) and requests > target.frame_count // 3
    assert growth_mib < GROWTH_MAX_MIB
    assert peak_mib < PEAK_MAX_MIB
    log = broker.log_text()
    assert "a fault of the broker" not in log
    assert "traceback" not in log.lower()
    assert watch.was_late or "loop came late" not in log


def test_twenty_thousand_frames(broker: BrokerProcess) -> None:
    run(broker, FRAMES)


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_a_million_frames(broker: BrokerProcess) -> None:
    run(broker, MANY_FRAMES)


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
