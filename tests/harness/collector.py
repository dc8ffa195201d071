"""A real collector process with separate folders, and the records that arrived at the broker.

with CollectorProcess(tmp_path, broker.mill_bootstrap) as collector:
    (collector.home / "watched/text/a.log").write_bytes(b"a line\n")
    wait_until(lambda: read_topic(broker.bootstrap, "logs.text"), 10, "the line")
"""

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from collector.config.settings import READER_GROUP
from collector.send.topics import INPUT_PARTITIONS
from tests.harness.processes import PartProcess
from tests.harness.wait import wait_until

READ_EVERY_S = 0.02


class CollectorProcess(PartProcess):
    """One collector. `section` has the keys of the configuration's `collector:`."""

    def __init__(
        self, folder: Path, bootstrap_servers: str, section: Mapping[str, object] | None = None
    ):
        super().__init__("collector", folder / "collector.log")
        self.home = folder / "home"
        self.data_dir = folder / "collector"
        self.bootstrap_servers = bootstrap_servers
        self.section = dict(section or {})
        self.topics: list[dict[str, object]] = []
        for name in ("access", "json", "text"):
            (self.home / "watched" / name).mkdir(parents=True, exist_ok=True)

    def settings_object(self) -> dict[str, Any]:
        return {
            "part": "collector",
            "section": self.section,
            "bootstrap_servers": self.bootstrap_servers,
            "home": str(self.home),
            "data_dir": str(self.data_dir),
            "topics": self.topics,
            "status": {"host": "127.0.0.1", "port": self.status_port},
        }

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run to the end with arguments such as --once. Return the exit code and the output."""
        process = self.launch(*arguments, stdout=subprocess.PIPE)
        out, _ = process.communicate(timeout=120)
        return process.returncode, out.decode()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process is not None:
            self._end(signal.SIGKILL if kind else signal.SIGTERM)
        if kind is not None:
            print(self.log_text()[-8000:])


class TopicReader:
    """Reads a topic from its start with librdkafka, without a group. Each `poll` adds records."""

    def __init__(self, bootstrap: str, topic: str, partitions: Sequence[int] = (0, 1, 2)):
        self.records: list[tuple[int, bytes | None, bytes]] = []
        self.headers: dict[bytes, object] = {}
        """The headers of the records that have some, by the record's value."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader-of-a-test",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in partitions])

    def poll(self) -> list[tuple[int, bytes | None, bytes]]:
        """Read more records. Return all records read so far as (partition, key, value)."""
        for message in self._consumer.consume(10_000, timeout=0.05):
            if message.error() is not None:
                raise KafkaException(message.error())
            value, partition = message.value(), message.partition()
            assert value is not None and partition is not None
            self.records.append((partition, message.key(), value))
            if message.headers():
                self.headers[value] = message.headers()
        return self.records

    def values(self, count: int, deadline_s: float = 30) -> list[bytes]:
        """Wait for this number of values and return them."""
        wait_until(lambda: len(self.poll()) >= count, deadline_s, f"{count} records")
        return [value for _, _, value in self.records]

    def close(self) -> None:
        self._consumer.close()


Read = Callable[..., TopicReader]
"""A function that starts to read a topic: the fixture `read` of `tests/interop`."""


def inputs(topic: str, **keys: object) -> dict[str, object]:
    """Return a section with one input: every watched file goes to this topic."""
    return {"inputs": [{"paths": ["watched/**"], "topic": topic, **keys}], "scan_interval": "1s"}


class GroupOfTheStream:
    """Commits offsets for the stream's group, as if the stream had read a topic."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = INPUT_PARTITIONS) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": READER_GROUP})
        self._topic = topic
        self._partitions = partitions

    def reads_all(self) -> None:
        """Commit the current log ends, as if the group had read everything."""
        places = [TopicPartition(self._topic, number) for number in range(self._partitions)]
        for place in places:
            place.offset = self._consumer.get_watermark_offsets(place, 5)[1]
        self._consumer.commit(offsets=places, asynchronous=False)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Commit the current log ends repeatedly in the background."""
        ends = threading.Event()

        def follow() -> None:
            while not ends.wait(READ_EVERY_S):
                self.reads_all()

        thread = threading.Thread(target=follow, name="group of the stream")
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()

    def __enter__(self) -> "GroupOfTheStream":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
