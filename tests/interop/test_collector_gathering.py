"""Collectors that gather lines and are killed hold no reader back (pitfall 44).

`read_committed` readers of a partition stop at its oldest open transaction. The coordinator aborts
the transaction of a dead collector only after its time-out.
"""

import asyncio
import re
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from protocol.client.admin import Admin
from protocol.client.cluster import Cluster
from protocol.client.fetch_core import IsolationLevel
from protocol.types import LATEST_TIMESTAMP, TopicPartition
from tests.harness.broker import BrokerProcess
from tests.harness.collector import CollectorProcess, Read, inputs
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

COLLECTORS = 5
LINES = 12_000
"""Together more bytes than one full batch, which a collector at the default interval would send."""
BATCH_BYTES = 1 << 20
GATHERING = "60s"
"""The longest commit interval. Such a collector waits for up to 30 s before it connects."""


def line(collector: int, number: int) -> bytes:
    return b"%d %098d" % (collector, number)


def held_bytes(collector: CollectorProcess) -> int:
    url = f"http://{collector.host}:{collector.status_port}/metrics"
    with urllib.request.urlopen(url, timeout=5) as answer:
        found = re.search(rb"^millrace_collector_held_bytes (\S+)$", answer.read(), re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def ends(bootstrap: str, topic: str, isolation_level: IsolationLevel) -> list[int]:
    """Return the end of each partition: with READ_COMMITTED, the last stable offset."""

    async def ask() -> list[int]:
        cluster = Cluster(bootstrap, client_id="test")
        await cluster.start(10_000)
        try:
            places = [TopicPartition(topic, number) for number in range(3)]
            found = await Admin(cluster).list_offsets(
                dict.fromkeys(places, LATEST_TIMESTAMP), isolation_level=isolation_level
            )
            return [found[place].offset for place in places]
        finally:
            await cluster.close()

    return asyncio.run(ask())


def collector_of(
    broker: BrokerProcess, folder: Path, topic: str, number: int, interval: str = "25ms"
) -> CollectorProcess:
    names = {"instance": f"{topic}-{number}", "group": "web"}
    section = inputs(topic) | names | {"commit_interval": interval}
    return CollectorProcess(folder / str(number), broker.mill_bootstrap, section)


def log_of(collector: CollectorProcess) -> Path:
    return collector.home / "watched/text/a.log"


def add_lines(log: Path, lines: list[bytes]) -> None:
    with log.open("ab") as out:
        out.writelines(one + b"\n" for one in lines)


def test_collectors_that_die_while_they_gather_leave_no_open_transaction(
    broker: BrokerProcess, tmp_path: Path, read: Read
) -> None:
    topic = "t.gathered"
    reader = read(topic)

    gathering = [
        collector_of(broker, tmp_path, topic, number, GATHERING) for number in range(COLLECTORS)
    ]
    for number, one in enumerate(gathering):
        log_of(one).write_bytes(line(number, 0) + b"\n")
    with ExitStack() as stack:
        for one in gathering:
            stack.callback(one.close)
            one.spawn()
        for one in gathering:
            one.wait_until_ready(60.0)
        assert len(reader.values(COLLECTORS)) == COLLECTORS, "the first lines do not wait"
        for number, one in enumerate(gathering):
            add_lines(log_of(one), [line(number, count) for count in range(1, LINES)])
        for one in gathering:
            wait_until(lambda: held_bytes(one) > BATCH_BYTES, 60, "gathered lines")  # noqa: B023
        stable = ends(broker.bootstrap, topic, IsolationLevel.READ_COMMITTED)
        assert stable == ends(broker.bootstrap, topic, IsolationLevel.READ_UNCOMMITTED)
        for one in gathering:
            one.kill9()
    other = collector_of(broker, tmp_path, topic, COLLECTORS)
    with other:
        log_of(other).write_bytes(b"not held back\n")
        assert reader.values(COLLECTORS + 1)[-1] == b"not held back"
    with ExitStack() as stack:
        for number in range(COLLECTORS):
            stack.enter_context(collector_of(broker, tmp_path, topic, number))
        wanted = sorted(
            [b"not held back"]
            + [line(number, count) for number in range(COLLECTORS) for count in range(LINES)]
        )
        assert sorted(reader.values(len(wanted), 120)) == wanted


def test_collectors_that_die_in_a_transaction_hold_readers_back_only_until_its_time_out(
    broker: BrokerProcess, tmp_path: Path, read: Read
) -> None:
    topic = "t.open"
    reader = read(topic)
    writing = [collector_of(broker, tmp_path, topic, number) for number in range(COLLECTORS)]
    written: list[bytes] = []
    with ExitStack() as stack:
        for one in writing:
            stack.enter_context(one)

        def is_open() -> bool:
            """Give the collectors more lines, and tell whether one has an open transaction."""
            for number, one in enumerate(writing):
                lines = [line(number, len(written) + count) for count in range(LINES)]
                add_lines(log_of(one), lines)
                written.extend(lines)
            stable = ends(broker.bootstrap, topic, IsolationLevel.READ_COMMITTED)
            return stable != ends(broker.bootstrap, topic, IsolationLevel.READ_UNCOMMITTED)

        wait_until(is_open, 60, "an open transaction")
        for one in writing:
            one.kill9()
    other = collector_of(broker, tmp_path, topic, COLLECTORS)
    with other:
        log_of(other).write_bytes(b"not held back\n")
        wait_until(
            lambda: b"not held back" in [value for _, _, value in reader.poll()], 60, "its line"
        )
    with ExitStack() as stack:
        for one in writing:
            stack.enter_context(one)
        wanted = sorted([b"not held back", *written])
        assert sorted(reader.values(len(wanted), 180)) == wanted
