"""The monitor reads records of a real broker by offset, by time and from the end. It changes
nothing on the broker."""

import asyncio
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from monitor.asking import browse, messages
from monitor.asking.browse import BrowseFailed, Browser
from monitor.asking.messages import Begin, Found, Wanted
from protocol.security.cluster_security import ClusterEntry
from tests.harness.broker import BrokerProcess
from tests.harness.monitor import MonitorProcess
from tests.harness.ports import free_port
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

TOPIC = "seen"
BASE_MS = 1_795_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for made in admin.create_topics([NewTopic(TOPIC, 2, 1)]).values():
            made.result(30)
        fill(running)
        yield running


def fill(broker: BrokerProcess) -> None:
    """Write 100 records to partition 0, with timestamps one second apart. Write a committed and an
    aborted transaction to partition 1."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "zstd"})
    for number in range(100):
        producer.produce(
            TOPIC, f'{{"n":{number}}}', key=f"k{number}", partition=0,
            timestamp=BASE_MS + 1_000 * number, headers=[("h", b"v")],
        )  # fmt: skip
    assert producer.flush(30) == 0
    writer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t"})
    writer.init_transactions()
    for word, ends in (("kept", writer.commit_transaction), ("undone", writer.abort_transaction)):
        writer.begin_transaction()
        for number in range(3):
            writer.produce(TOPIC, f"{word} {number}", partition=1, timestamp=BASE_MS)
        writer.flush(30)
        ends()


def read(broker: BrokerProcess, wanted: Wanted, *partitions: int) -> Found:
    return asyncio.run(Browser(ClusterEntry(broker.bootstrap)).read(wanted, partitions or (0, 1)))


def values(found: Found) -> list[str]:
    return [(record.value or b"").decode() for _, record in found.records]


def test_the_latest_come_newest_first(broker: BrokerProcess) -> None:
    found = read(broker, Wanted(TOPIC, 0, count=10), 0)
    assert values(found) == [f'{{"n":{number}}}' for number in range(99, 89, -1)]
    assert found.problems == ()
    _, record = found.records[0]
    assert (record.key, list(record.headers)) == (b"k99", [("h", b"v")])


def test_an_offset_and_a_time_are_where_they_say(broker: BrokerProcess) -> None:
    by_offset = read(broker, Wanted(TOPIC, 0, Begin.OFFSET, 42, 10), 0)
    assert values(by_offset) == [f'{{"n":{number}}}' for number in range(42, 52)]
    by_time = read(broker, Wanted(TOPIC, 0, Begin.TIME, BASE_MS + 41_001, 10), 0)
    assert values(by_time) == values(by_offset)
    assert values(read(broker, Wanted(TOPIC, 0, Begin.TIME, BASE_MS + 99_001), 0)) == []
    assert values(read(broker, Wanted(TOPIC, 0, Begin.EARLIEST, count=10), 0))[0] == '{"n":0}'


def test_aborted_records_are_seen_only_by_those_who_ask_for_them(broker: BrokerProcess) -> None:
    committed = read(broker, Wanted(TOPIC, 1, Begin.EARLIEST), 1)
    assert values(committed) == ["kept 0", "kept 1", "kept 2"]
    everything = read(broker, Wanted(TOPIC, 1, Begin.EARLIEST, is_committed_only=False), 1)
    assert values(everything)[3:] == ["undone 0", "undone 1", "undone 2"]


def test_a_search_finds_what_holds_a_text(broker: BrokerProcess) -> None:
    found = read(broker, Wanted(TOPIC, None, Begin.EARLIEST, contains='"n":77}'))
    assert values(found) == ['{"n":77}']
    assert found.looked_at == 103
    latest = read(broker, Wanted(TOPIC, None, contains="k7"))
    assert len(latest.records) == 11, "k7 and k70 to k79"


def test_what_cannot_be_read_in_its_bounds_is_said(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browse, "SCAN_BYTES_MAX", 1)
    found = read(broker, Wanted(TOPIC, None, Begin.EARLIEST))
    assert "partition 1 and later ones were not read" in found.problems[0]
    monkeypatch.setattr(browse, "SCAN_BYTES_MAX", 16 << 20)
    monkeypatch.setattr(browse, "READ_S", 0)
    found = read(broker, Wanted(TOPIC, None, Begin.EARLIEST))
    assert "partition 0 and later ones were not read" in found.problems[0]
    monkeypatch.setattr(browse, "READ_S", 3.0)
    monkeypatch.setattr(browse, "DECOMPRESSED_BYTES_MAX", 10)
    found = read(broker, Wanted(TOPIC, 0, Begin.EARLIEST), 0)
    assert found.records == ()
    assert found.problems[0].startswith("partition 0: ")


def test_a_search_of_the_latest_says_how_far_it_looked(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "SEARCH_BACK_MAX", 50)
    monkeypatch.setattr(browse, "SEARCH_BACK_MAX", 50)
    found = read(broker, Wanted(TOPIC, 0, contains='"n":10}'), 0)
    assert (found.records, found.looked_at) == ((), 50)
    assert found.problems[0].startswith("partition 0: searched the last 50 offsets only, from 50")
    enough = read(broker, Wanted(TOPIC, 0, contains='"n":9', count=10), 0)
    assert (len(enough.records), enough.problems) == (10, ()), "as many as were asked for"


def test_no_broker_is_a_reason() -> None:
    browser = Browser(ClusterEntry(f"127.0.0.1:{free_port()}"))
    with pytest.raises(BrowseFailed, match="Connection refused"):
        asyncio.run(browser.read(Wanted(TOPIC), (0,)))


def test_the_page_shows_them_and_leaves_nothing_behind(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    monitor = MonitorProcess([broker], tmp_path, refresh="200ms")
    try:
        wait_until(lambda: topics(monitor) >= {TOPIC}, 20, "the monitor knows the topic")
        asked = urlencode({"partition": 0, "from": "offset", "at": 5, "n": 10})
        rows = monitor.rows(f"topics/{TOPIC}/messages?{asked}")
        assert [row["offset"] for row in rows] == list(range(5, 15))
        assert rows[0]["value"] == '{"n":5}'
        seen = monitor.get("/status")["details"]["snapshot"]
        wait_until(
            lambda: monitor.get("/status")["details"]["snapshot"] > seen + 2, 20, "more looks"
        )
        assert monitor.rows("groups") == [], "no group was made by looking"
    finally:
        monitor.kill()


def topics(monitor: MonitorProcess) -> set[Any]:
    try:
        return {row["topic"] for row in monitor.rows("topics")}
    except (OSError, urllib.error.URLError):
        return set()
