"""A process with group members of one client library. It writes what its members read to a file.

    python -m tests.harness.group_member FAMILY BOOTSTRAP GROUP TOPIC OUT [--count N] [--assignor A]

Each member reads the topic and commits the offsets itself. It writes its assigned partitions of
each generation and the offsets that it reads to the file OUT. Each assignment and each batch is one
line of JSON. After SIGTERM all members leave the group, after SIGKILL they do not.
"""

import argparse
import asyncio
import json
import signal
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from tests.harness import kafka_python

SESSION_MS = 6_000
HEARTBEAT_MS = 1_000
POLL_S = 0.2
POLL_COUNT = 500

_METADATA_HEAD = b"CGMDv2:"


class Notes:
    """The file of everything that was read, shared by the members of the process."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = threading.Lock()

    def read(self, member: str, offsets: Iterable[tuple[Any, Any]]) -> None:
        """Record the partition and offset of every record of a batch, before they are committed."""
        spans: dict[int, list[int]] = {}
        for partition, offset in offsets:
            spans.setdefault(partition, []).append(offset)
        self._write({"member": member, "read": [[p, *_spans(o)] for p, o in spans.items()]})

    def given(self, member_id: str, generation: int, partitions: Iterable[Any]) -> None:
        """Record the partitions assigned to a member in a generation. With a cooperative protocol
        these are only the added ones."""
        share = sorted(one.partition for one in partitions)
        self._write({"given": share, "generation": generation, "id": member_id})

    def failed(self, member: str, error: object) -> None:
        """Record an error that the client has reported."""
        self._write({"member": member, "error": repr(error)})

    def _write(self, line: dict[str, Any]) -> None:
        with self._lock:
            self._out.write(json.dumps(line) + "\n")
            self._out.flush()


def _spans(offsets: list[int]) -> list[list[int]]:
    """Return offsets in the order of reading, as runs of [first, last]."""
    spans: list[list[int]] = []
    for offset in offsets:
        if spans and spans[-1][1] + 1 == offset:
            spans[-1][1] = offset
        else:
            spans.append([offset, offset])
    return spans


def membership(metadata: bytes) -> tuple[str, int]:
    """Return member id and generation from librdkafka's serialized group metadata."""
    size = len(_METADATA_HEAD) + 4
    assert metadata[: size - 4] == _METADATA_HEAD, metadata
    _, member_id, _ = metadata[size:].split(b"\0", 2)
    return member_id.decode(), int.from_bytes(metadata[size - 4 : size], sys.byteorder, signed=True)


def run_confluent(args: argparse.Namespace, number: int, notes: Notes, stop: Any) -> None:
    """Run one librdkafka consumer until `stop` is set."""
    from confluent_kafka import Consumer, KafkaException

    consumer = Consumer(
        {
            "bootstrap.servers": args.bootstrap,
            "group.id": args.group,
            "client.id": f"confluent-{number}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "partition.assignment.strategy": args.assignor,
        }
    )

    def assigned(_: Consumer, partitions: list[Any]) -> None:
        notes.given(*membership(consumer.consumer_group_metadata()), partitions)

    consumer.subscribe([args.topic], on_assign=assigned)
    while not stop.is_set():
        read = []
        for message in consumer.consume(POLL_COUNT, POLL_S):
            error = message.error()
            if error is None:
                read.append((message.partition(), message.offset()))
            elif not error.retriable() and error.name() != "_ALL_BROKERS_DOWN":
                notes.failed(f"confluent-{number}", error)
        if read:
            notes.read(f"confluent-{number}", read)
            try:
                consumer.commit(asynchronous=False)
            except KafkaException:
                # The group has rebalanced, so the new owner of the partitions reads these again.
                continue
    consumer.close()


def run_kafka_python(args: argparse.Namespace, number: int, notes: Notes, stop: Any) -> None:
    """Run one kafka-python consumer until `stop` is set."""
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError

    assignors = {"range": RangePartitionAssignor,
                 "cooperative-sticky": CooperativeStickyAssignor}  # fmt: skip
    make = partial(
        KafkaConsumer,
        bootstrap_servers=args.bootstrap,
        group_id=args.group,
        client_id=f"kafka-python-{number}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=[assignors[args.assignor]],
    )

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the client has no types
        def on_partitions_revoked(self, revoked: Any) -> None:
            """Do nothing, because the member stores no state per partition."""

        def on_partitions_assigned(self, assigned: Any) -> None:
            member = consumer.group_metadata()
            notes.given(member.member_id, member.generation_id, assigned)

    consumer: Any = None
    while consumer is None:
        # kafka-python does not retry its first connection, so this loop does.
        with suppress(KafkaError):
            consumer = make()
    consumer.subscribe([args.topic], listener=Listener())
    while not stop.is_set():
        found = consumer.poll(timeout_ms=int(kafka_python.POLL_S * 1000), max_records=POLL_COUNT)
        read = [(tp.partition, one.offset) for tp, records in found.items() for one in records]
        if read:
            notes.read(f"kafka-python-{number}", read)
            try:
                consumer.commit()
            except KafkaError:
                continue
    consumer.close()


async def run_aiokafka(args: argparse.Namespace, notes: Notes, stop: asyncio.Event) -> None:
    """Run all aiokafka consumers of this process until `stop` is set."""
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the client has no types
        def __init__(self, consumer: AIOKafkaConsumer) -> None:
            self._consumer = consumer

        def on_partitions_revoked(self, revoked: Any) -> None:
            """Do nothing, because the member stores no state per partition."""

        def on_partitions_assigned(self, assigned: Any) -> None:
            # aiokafka has no public call for its generation, so read it from the coordinator.
            member = self._consumer._coordinator
            notes.given(member.member_id, member.generation, assigned)

    def new(number: int) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=args.bootstrap,
            group_id=args.group,
            client_id=f"aiokafka-{number}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            # aiokafka's default is only the round robin assignor. The other libraries may not have
            # it, and all members of a group need one assignor in common.
            partition_assignment_strategy=[_aiokafka_range()],
        )
        consumer.subscribe([args.topic], listener=Listener(consumer))
        return consumer

    async def run(number: int) -> None:
        is_started = False
        while not is_started:
            # aiokafka does not retry its first connection, so this loop does.
            consumer = new(number)
            try:
                await consumer.start()
                is_started = True
            except KafkaError:
                await consumer.stop()
        while not stop.is_set():
            found = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=POLL_COUNT)
            read = [(tp.partition, one.offset) for tp, all_ in found.items() for one in all_]
            if read:
                notes.read(f"aiokafka-{number}", read)
                try:
                    await consumer.commit()
                except KafkaError:
                    continue
        await consumer.stop()

    await asyncio.gather(*(run(number) for number in range(args.count)))


def _aiokafka_range() -> type:
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    found: type = RangePartitionAssignor
    return found


def main() -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser()
    for name in ("family", "bootstrap", "group", "topic", "out"):
        parser.add_argument(name)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--assignor", default="range")
    args = parser.parse_args()
    with Path(args.out).open("a") as out:
        notes = Notes(out)
        if args.family == "aiokafka":
            asyncio.run(_main_aiokafka(args, notes))
            return
        stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
        run = {"confluent": run_confluent, "kafka-python": run_kafka_python}[args.family]
        threads = [
            threading.Thread(target=run, args=(args, number, notes, stop))
            for number in range(args.count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


async def _main_aiokafka(args: argparse.Namespace, notes: Notes) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await run_aiokafka(args, notes, stop)


if __name__ == "__main__":
    main()
