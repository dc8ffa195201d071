"""An old file and a live one go to the same partition. The old file waits until the stream has
read its earlier lines."""

from pathlib import Path

import pytest

from collector.config.settings import BACKFILL_BYTES, READER_GROUP, SHARED_BLOCK_BYTES
from collector.send.lag_windows import LINES_FIRST
from protocol.client.partitioner import partition_for_key
from stream.config.settings import CONSUMER_GROUP
from tests.harness.broker import BrokerProcess
from tests.harness.collector import CollectorProcess, GroupOfTheStream, TopicReader
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

TOPIC = "t.behind"
PARTITIONS = 3
LINE_BYTES = 100
OLD_LINES = 2 * BACKFILL_BYTES // LINE_BYTES
LIVE_LINES = 5
WINDOW_MAX = 2 + LIVE_LINES + LINES_FIRST + SHARED_BLOCK_BYTES // LINE_BYTES
DEADLINE_S = 30.0


def partition_of(name: str) -> int:
    return partition_for_key(f"access/{name}".encode(), PARTITIONS)


LIVE = "live.log"
OLD = next(name for n in range(99) if partition_of(name := f"old-{n}.log") == partition_of(LIVE))


def test_the_group_is_the_streams() -> None:
    assert READER_GROUP == CONSUMER_GROUP


def test_an_old_file_waits_for_the_stream_beside_live_lines(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    section = {"inputs": [{"paths": ["watched/access/**"], "topic": TOPIC}], "scan_interval": "1s"}
    with (
        GroupOfTheStream(broker.bootstrap, TOPIC) as stream,
        CollectorProcess(tmp_path, broker.mill_bootstrap, section) as collector,
    ):
        watched = collector.home / "watched/access"
        live = (watched / LIVE).open("ab", 0)

        def sent() -> int:
            return int(collector.details()["lines_total"])

        def write_live() -> None:
            """Write one line to the live file. It must be committed although the old file waits."""
            before = sent()
            live.write(b"live\n")
            wait_until(lambda: sent() > before, DEADLINE_S, "the live line")

        write_live()
        write_live()
        stream.reads_all()
        (tmp_path / "made").write_bytes(
            b"".join(b"%0*d\n" % (LINE_BYTES - 1, n) for n in range(OLD_LINES))
        )
        (tmp_path / "made").rename(watched / OLD)
        wait_until(lambda: sent() > 2, DEADLINE_S, "old lines within the window")
        for _ in range(LIVE_LINES):
            write_live()
        assert collector.details()["files_held"] == 1
        assert sent() <= WINDOW_MAX, "and no more of them, as long as no reader reads"
        written = 2 + OLD_LINES + LIVE_LINES
        with stream.reading():
            wait_until(lambda: sent() == written, DEADLINE_S, "all old lines")
        live.close()
    reader = TopicReader(broker.bootstrap, TOPIC, (partition_of(LIVE),))
    values = reader.values(written)
    reader.close()
    old = [value for value in values if value != b"live"]
    assert old == [b"%0*d" % (LINE_BYTES - 1, n) for n in range(OLD_LINES)]
