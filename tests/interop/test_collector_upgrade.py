"""The collector reads position records of the first release, and resumes reading at the positions.

`collector_positions_1.0.0-rc1.jsonl` has the last record of each key that 1.0.0-rc1 left in the
topic of positions. Only the home folder is replaced by HOME, and the host name by `host`.
"""

import base64
import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from collector.config.input_section import POSITIONS_TOPIC
from tests.harness.broker import BrokerProcess
from tests.harness.collector import CollectorProcess, TopicReader
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

STORED = Path(__file__).parents[1] / "vectors/collector_positions_1.0.0-rc1.jsonl"
INSTANCE = "mill-1"
ARCHIVE = base64.b64decode(
    "H4sIAAAAAAACA73TOQHAQBDEsD5odibv8ScWFCcTcKWZvXXmmO2PgEfB4wSPCzxu8HjA4wWPDzzW/keA8wDnAc4DnAc4D3Ae4DzAeYDzAOcFzgucFzgvcF7gvMB5gfMC5wXOu44fzFYNkbgLAAA="
)


def lines(first: int, count: int) -> bytes:
    return b"".join(b"%099d\n" % number for number in range(first, first + count))


def test_counting_resumes_at_the_positions_of_the_first_release(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        section = {"instance": INSTANCE, "inputs": [{"paths": ["watched/**"], "topic": "t"}]}
        collector = CollectorProcess(tmp_path, broker.mill_bootstrap, section)
        folder = collector.home / "watched/text"
        (folder / "a.log").write_bytes(lines(0, 27))
        (folder / "b.log").write_bytes(lines(100, 50) + b"half")
        (folder / "c.log.gz").write_bytes(ARCHIVE)
        (folder / "d.log.1").write_bytes(lines(300, 21))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topic = NewTopic(POSITIONS_TOPIC, 1, 1, config={"cleanup.policy": "compact"})
        admin.create_topics([topic])[POSITIONS_TOPIC].result(10)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for text in STORED.read_text().splitlines():
            record = json.loads(text)
            value = json.loads(record["value"].replace("HOME", str(collector.home)))
            if "path" in value:
                found = Path(value["path"]).stat()
                value |= {"device": found.st_dev, "inode": found.st_ino, "birth_ns": None}
            producer.produce(POSITIONS_TOPIC, json.dumps(value), record["key"])
        assert producer.flush(10) == 0

        reader = TopicReader(broker.bootstrap, "t")
        with collector:
            expected = [b"%099d" % number for number in (25, 26, 320)]
            assert sorted(reader.values(3)) == expected
            with (folder / "b.log").open("ab") as out:
                out.write(b" of it\n")
            assert reader.values(4)[3] == b"half of it"
            wait_until(lambda: collector.details()["lag_bytes_total"] == 0, 10, "no lag")
            rows = {Path(row["path"]).name: row for row in collector.details()["files"]}
            assert rows["a.log"]["lines"] == 27
            assert rows["c.log.gz"]["lines"] == 30
            assert collector.details()["counters"].get("new", 0) == 0
        with collector:
            (folder / "a.log").open("ab").write(b"last\n")
            assert reader.values(5)[4:] == [b"last"]
        assert {key for _, key, value in reader.records if value.endswith(b"320")} == {
            b"text/d.log"
        }
        reader.close()
