"""Stop brokers one after the other while an idempotent librdkafka producer writes.

The producer is never restarted, because its own pauses are part of what its users see. The producer
writes all the time, even while the stopped broker restarts. At the end every record must have been
acknowledged, and the topic must contain each record once.
"""

import logging
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient

from bench.broker_cases import new_topic
from bench.librdkafka import Lost
from bench.outage import (
    Delegated,
    Outage,
    at_internal_s,
    delegated,
    longest_gap,
    most_led,
)
from bench.paced import PacedRecords
from bench.servers import Server
from tests.harness.wait import wait_until

PARTITIONS = 6
PACE_S = 0.002
RETRY_BACKOFF_MS = 50
SETTLED_S = 3.0
"""The seconds after SIGTERM within which a broker that shuts down in order moves its leaderships to
other brokers."""

RECONNECTED_S = 12.0
"""The seconds after a broker's restart within which librdkafka reconnects to it. The client's
`reconnect.backoff.max.ms` is 10 s. Until then librdkafka does not reconnect, even if the broker
leads partitions."""

SERVED_DEADLINE_S = 90.0
IN_SYNC_DEADLINE_S = 120.0
METADATA_TIMEOUT_S = 10.0


class Processes(Protocol):
    """Brokers that can be stopped one by one. The harnesses of our brokers and of Apache Kafka
    implement this protocol."""

    def stop(self, node_id: int, /) -> None:
        """Send SIGTERM, and wait until the process has ended."""
        ...

    def kill9(self, node_id: int, /) -> None:
        """Send SIGKILL, and wait until the process has ended."""
        ...

    def start(self) -> object:
        """Start the brokers that do not run, and wait until all of them serve."""
        ...

    def controller_id(self) -> int | None:
        """Return the id of the metadata quorum's leader; None while the brokers disagree."""
        ...


class Load(PacedRecords):
    """A thread that writes one record every 2 ms, over all partitions in turn."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acks: list[tuple[float, int]] = []
        """Time and partition of each acknowledgement. The caller can clear the list."""

        self.delegated: list[Delegated] = []
        self.acknowledged_sent_s = [0.0] * PARTITIONS
        """For each partition, the time at which its newest acknowledged record was written."""

        self.acknowledged = 0
        logger = logging.Logger("librdkafka")
        logger.addHandler(_Delegations(self.delegated))
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "retry.backoff.ms": RETRY_BACKOFF_MS,
                "debug": "topic",
            },
            logger=logger,
        )
        super().__init__(producer, topic, PARTITIONS, PACE_S)

    def are_served_since(self, since_s: float) -> bool:
        """Return whether every partition has acknowledged a record that was written after this
        time."""
        self.check_refused()
        return min(self.acknowledged_sent_s) > since_s

    def finish(self) -> int:
        """End the thread and return the number of records. Raises Lost unless all were
        acknowledged."""
        self.finish_writing()
        return self.acknowledged

    def _value(self, number: int) -> bytes:
        return b"%d" % number

    def _on_acknowledged(self, sent_s: float, message: Message) -> None:
        self.acknowledged += 1
        index = message.partition()
        assert index is not None
        self.acks.append((time.perf_counter(), index))
        self.acknowledged_sent_s[index] = sent_s


class _Delegations(logging.Handler):
    """Collects librdkafka's log lines that move a partition to or from `:0/internal`.

    The name `:0/internal` stands for librdkafka's internal queue for partitions without a known
    leader.
    """

    def __init__(self, found: list[Delegated]) -> None:
        super().__init__()
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        one = delegated(time.perf_counter(), record.getMessage())
        if one is not None:
            self._found.append(one)


def outages(
    server: Server, processes: Processes, number: signal.Signals, count: int
) -> list[Outage]:
    """Stop leaders one after the other. Before each stop, wait until the cluster is healthy."""
    with _written(server) as (load, topic):
        cluster = _Watched(server, topic)
        return [_one(cluster, processes, load, number) for _ in range(count)]


@contextmanager
def _written(server: Server) -> Iterator[tuple[Load, str]]:
    """Write to a topic for the duration of the block, then check that the topic contains every
    acknowledged record once."""
    with new_topic(server, {}, PARTITIONS) as topic:
        with Load(server.bootstrap, topic) as load:
            yield load, topic
            written = load.finish()
        found = server.topics.record_count(topic, PARTITIONS)
        if found != written:
            raise Lost(f"the topic has {found} records, but {written} were acknowledged")


def _one(cluster: "_Watched", processes: Processes, load: Load, number: signal.Signals) -> Outage:
    wait_until(cluster.is_in_sync, IN_SYNC_DEADLINE_S, "all replicas in sync")
    node_id = most_led(cluster.leaders())
    was_controller = node_id == wait_until(
        processes.controller_id, IN_SYNC_DEADLINE_S, "a controller"
    )
    ready_s = time.perf_counter()
    wait_until(lambda: load.are_served_since(ready_s), SERVED_DEADLINE_S, "all partitions served")
    load.acks.clear()
    load.delegated.clear()
    signal_s = time.perf_counter()
    end = processes.stop if number is signal.SIGTERM else processes.kill9
    end(node_id)
    settled_s = max(time.perf_counter(), signal_s + SETTLED_S)
    wait_until(
        lambda: load.are_served_since(settled_s), SERVED_DEADLINE_S, "all partitions served again"
    )
    gap = longest_gap(signal_s, list(load.acks), PARTITIONS)
    found = Outage(gap, at_internal_s(gap, list(load.delegated)), was_controller)
    processes.start()
    back_s = time.perf_counter()
    wait_until(cluster.is_in_sync, IN_SYNC_DEADLINE_S, "all replicas in sync again")
    wait_until(
        lambda: time.perf_counter() >= back_s + RECONNECTED_S, RECONNECTED_S * 2, "reconnected"
    )
    return found


class _Watched:
    """The state of one topic as the brokers report it: whether it is in sync, and its leaders."""

    def __init__(self, server: Server, topic: str) -> None:
        self._server = server
        self._topic = topic
        self._admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})

    def _found(self) -> Any:
        return self._admin.list_topics(self._topic, timeout=METADATA_TIMEOUT_S).topics[self._topic]

    def is_in_sync(self) -> bool:
        """Return whether every partition has a leader and all its replicas are in sync."""
        found = self._found().partitions.values()
        replicas = self._server.replication.replicas
        return len(found) == PARTITIONS and all(
            one.leader >= 0 and len(one.isrs) == replicas for one in found
        )

    def leaders(self) -> dict[int, int]:
        """Return the leader of each partition."""
        return {number: one.leader for number, one in self._found().partitions.items()}
