"""Reads a mill's Redis, MySQL, topics and pages as an external program would."""

import json
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pymysql
import redis
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from appliance.machine.processes import ProcessRecord, read_record
from appliance.mill.init import read_secret
from appliance.supervisor.control import ask
from protocol.status import fetch_status
from sinks.redis.view import start_text
from sinks.rows import size_text
from tests.e2e.mill import TempMill

PARTITIONS = 3
READ_S = 120.0

Record = tuple[str, bytes]
"""A record's key (the file) and value."""


class Reading:
    """Reads from the servers of one mill."""

    def __init__(self, mill: TempMill) -> None:
        self.mill = mill

    def redis(self, key: str) -> dict[str, str]:
        """Return a hash of Redis, read without a password."""
        with redis.Redis(port=self.mill.ports["redis"], decode_responses=True) as client:
            found: dict[str, str] = client.hgetall(key)
            return found

    def redis_hashes(self) -> dict[str, dict[str, Decimal]]:
        """Return every hash that has values of a metric."""
        with redis.Redis(port=self.mill.ports["redis"], decode_responses=True) as client:
            keys = [
                key
                for key in client.scan_iter(match="mill:*", count=500)
                if not key.endswith(":top") and key.count(":") > 1
            ]
            found = {}
            for key in keys:
                fields = client.hgetall(key)
                fields.pop("@start", None)
                found[key] = {name: Decimal(text) for name, text in fields.items()}
            return found

    def mysql(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query by the MySQL user `reader`."""
        connection = pymysql.connect(
            host="127.0.0.1",
            port=self.mill.ports["mysql"],
            user="reader",
            password=read_secret(self.mill.home, "mysql/reader"),
            database="millrace",
            connect_timeout=5,
            read_timeout=20,
        )
        with connection, connection.cursor() as cursor:
            cursor.execute(query, values)
            return list(cursor.fetchall())

    def lines_of(self, file: str) -> int:
        """Return the number of lines of a file that Redis has counted."""
        return int(self.redis("mill:lines_by_file:all").get(file, "0"))

    def ledger(self) -> dict[tuple[str, int], int]:
        """Return for each partition the offset below which every line is counted."""
        rows = self.mysql("SELECT topic, part, end_offset FROM ledger")
        return {(topic, part): end for topic, part, end in rows}

    def ends(self, topic: str) -> dict[tuple[str, int], int]:
        """Return the end of every partition of a topic, for a read_committed consumer."""
        with self._consumer() as consumer:
            return {
                (topic, part): consumer.get_watermark_offsets(TopicPartition(topic, part), 10)[1]
                for part in range(PARTITIONS)
            }

    def records(self, topic: str, visit: Callable[[str, bytes], None]) -> None:
        """Call `visit` with key and value of every committed record, in order per partition.

        The end offsets do not give the number of records, because transaction markers use offsets,
        too.
        """
        open_parts = set(range(PARTITIONS))
        with self._consumer() as consumer:
            consumer.assign([TopicPartition(topic, part, 0) for part in open_parts])
            deadline_s = time.monotonic() + READ_S
            while open_parts:
                messages = consumer.consume(20_000, 0.1)
                assert messages or time.monotonic() < deadline_s, f"{topic}: {open_parts} stuck"
                for message in messages:
                    error = message.error()
                    if error is None:
                        visit((message.key() or b"").decode(), message.value() or b"")
                    elif error.code() == KafkaError._PARTITION_EOF:
                        open_parts.discard(message.partition() or 0)
                    else:
                        raise KafkaException(error)

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.mill.bootstrap(1),
                "group.id": "reader-of-a-test",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()

    def is_counted(self, topic: str) -> bool:
        """Return True if MySQL has counted every record of the topic, and Redis shows the
        counts."""
        ends = self.ends(topic)
        ledger = self.ledger()
        if any(ledger.get(part, 0) != end for part, end in ends.items()):
            return False
        [(seq,)] = self.mysql("SELECT seq FROM sink_guard")
        meta = self.redis("mill:meta")
        return self.redis("mill:guard").get("seq") == str(seq) and "rebuilding" not in meta

    def details(self, part: str, port: str) -> dict[str, Any]:
        """Return the details of a part's status. `port` is the name of the part's status port."""
        return dict(fetch_status("127.0.0.1", self.mill.ports[port], 5.0).details)

    def page(self, path: str) -> str:
        """Return a page of the monitor as text."""
        url = f"http://127.0.0.1:{self.mill.ports['monitor']}{path}"
        with urllib.request.urlopen(url, timeout=15) as answer:
            return str(answer.read().decode())

    def api(self, path: str) -> Any:
        """Return the data in a response of the monitor's API."""
        return json.loads(self.page(f"/api/v1/{path}"))["data"]

    def stream_lag(self) -> int | None:
        """Return the lag of the stream's group, or None while the lag of a partition is unknown."""
        rows = [row for row in self.api("lag") if row["group"] == "millrace-stream"]
        if not rows or any(row["lag"] is None for row in rows):
            return None
        lag: int = sum(row["lag"] for row in rows)
        return lag

    def commits(self) -> int:
        """Return the number of transactions that the collector has committed since it started. Each
        of them wrote at most one marker into a partition."""
        return int(self.details("collector", "collector")["counters"]["transactions_committed"])

    def parts(self) -> dict[str, dict[str, Any]]:
        """Return the parts as the supervisor reports them."""
        answer = ask(self.mill.home.socket, {"command": "status"}, 20.0)
        return {row["part"]: row for row in answer["parts"]}

    def process(self, part: str) -> ProcessRecord:
        """Return the process of a part. Fail if the part does not run."""
        record = read_record(self.mill.home.part_record(part))
        assert record is not None, f"{part} does not run"
        return record


def redis_view(rows: list[tuple[Any, ...]]) -> dict[str, dict[str, Decimal]]:
    """Return the hashes that Redis must have for these rows. A row is (metric, size_s, start in
    epoch seconds, key, value)."""
    found: dict[str, dict[str, Decimal]] = {}
    for metric, size_s, start_s, key, value in rows:
        name = f"mill:{metric}:{size_text(size_s)}"
        if size_s:
            name += f":{start_text(start_s)}"
        found.setdefault(name, {})[key] = Decimal(value)
    return found


@contextmanager
def stopped(reading: Reading, part: str) -> Iterator[None]:
    """Freeze the part's processes. Do not use it for a minute or longer, because the supervisor
    would then kill them."""
    record = reading.process(part)
    assert record.signal(signal.SIGSTOP, group=True)
    try:
        yield
    finally:
        record.signal(signal.SIGCONT, group=True)
