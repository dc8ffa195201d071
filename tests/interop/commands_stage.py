"""A broker with data of every kind, for calls of our `kafka-*` commands and of Kafka's own.

It has groups with and without members. It has ended and open transactions, some of which a command
must abort. It has topics with each kind of record. Beside the broker are copies of log files, both
whole and damaged.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from appliance.dump.scan import Batches
from appliance.mill.home import CODE
from tests.harness.broker import BrokerProcess
from tests.harness.kafka_commands import MAINS
from tests.harness.tools import KafkaTools
from tests.harness.wait import wait_until

DEADLINE_S = 120.0
JOINED_S = 30.0
HOUR_MS = 3_600_000
QUARTER_MS = 900_000
THEIRS, OURS = "aaaa", "bbbb"
SEGMENT_SUFFIXES = ("log", "index", "timeindex", "txnindex", "snapshot", "checkpoint")

TOPICS: Mapping[str, tuple[str, ...]] = {
    "logs": ("--partitions", "2", "--config", "retention.ms=7777777"),
    "plain": (),
    "transactions": (),
    "stamped": ("--config", "message.timestamp.type=LogAppendTime"),
    "numbers": (),
    "ended": (),
    "batches": (),
}
BATCHES = 5


@dataclass(frozen=True, slots=True)
class Stage:
    """The broker, Kafka's tools, and the files that a call can name."""

    broker: BrokerProcess
    tools: KafkaTools
    files: Path

    def ours(self, tool: str, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        servers = [] if tool == "dump-log" else ["--bootstrap-server", self.broker.bootstrap]
        command = [str(CODE / "bin" / f"kafka-{tool}"), *servers, *arguments]
        return _ended(command, stdin)

    def theirs(self, tool: str, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        command = self.tools.command(MAINS[tool], *arguments)
        if tool == "dump-log":
            at = command.index("--bootstrap-server")
            command = command[:at] + command[at + 2 :]
        return _ended(command, stdin)

    def path(self, name: str) -> str:
        """Return the path of a file that a call names. Each segment's files are in a separate
        folder."""
        stem, _, suffix = name.rpartition(".")
        if suffix in ("snapshot", "checkpoint"):
            (found,) = (self.files / stem).glob(f"*.{suffix}")
            return str(found)
        if suffix in SEGMENT_SUFFIXES:
            return str(self.files / stem / f"{'0' * 20}.{suffix}")
        return str(self.files / name)


def _ended(command: list[str], stdin: str) -> tuple[int, str, str]:
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    return done.returncode, done.stdout, done.stderr


@contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    """Yield a broker with data of every kind, and copies of its files."""
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        "log.index.interval.bytes": 64,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
    }
    with BrokerProcess(folder, settings) as broker, ExitStack() as clients:
        stage = Stage(broker, KafkaTools(folder / "tools", broker.bootstrap), folder / "files")
        stage.files.mkdir()
        for name, options in TOPICS.items():
            assert stage.ours("topics", "--create", "--topic", name, *options)[0] == 0
        for side in (THEIRS, OURS):
            for name in ("made", "aborted"):
                assert stage.ours("topics", "--create", "--topic", f"{name}{side}")[0] == 0
        _write_plans(stage)
        _fill(stage)
        _end_transactions(broker.bootstrap)
        # The broker writes producer snapshots when it stops, so stop it before copying its files.
        # Open the other transactions afterwards, so that these logs have none.
        broker.stop()
        _copy_segments(stage)
        broker.start()
        _open_transactions(broker.bootstrap, clients)
        _join(broker.bootstrap, clients)
        yield stage


def _write_plans(stage: Stage) -> None:
    def plan(*offsets: tuple[str, int, int]) -> str:
        named = [{"topic": t, "partition": p, "offset": offset} for t, p, offset in offsets]
        return json.dumps({"partitions": named, "version": 1})

    def moves(topic: str, broker: int) -> str:
        moved = {"topic": topic, "partition": 0, "replicas": [broker]}
        return json.dumps({"partitions": [moved], "version": 1})

    named = [{"topic": "plain", "partition": 0}, {"topic": "logs", "partition": 1}]
    texts = {
        "delete-absent.json": plan(("absent", 0, 1)),
        "delete-far.json": plan(("plain", 0, 99)),
        "delete-twice.json": plan(("plain", 0, 0), ("plain", 0, 1)),
        "delete-bad.json": "{",
        "topics.json": json.dumps({"topics": [{"topic": "logs"}], "version": 1}),
        "moves.json": moves("logs", 1),
        "moves-absent.json": moves("absent", 1),
        "moves-unknown.json": moves("logs", 9),
        "elect.json": json.dumps({"partitions": named}),
        "plan.csv": "logs,0,1\n",
        "plans.csv": "readers,logs,0,1\nnew,logs,1,2\n",
        "settings.properties": "# what a topic is given\nsegment.ms=80000\n",
        "leader.txt": "0\n",
    }
    for side in (THEIRS, OURS):
        texts[f"delete-{side}.json"] = plan((f"made{side}", 0, 1))
    for name, text in texts.items():
        (stage.files / name).write_text(text)


def _fill(stage: Stage) -> None:
    """Write records with keys, headers and nulls. Let groups read some, and run a transaction."""
    command = [sys.executable, "-m", "appliance"]
    broker = ["-b", stage.broker.bootstrap]
    for partition, lines in (("0", "a:1\nb:2\nc:3\n"), ("1", "d:4\ne:5\nf:6\n")):
        sent = ["produce", "logs", "-K", ":", "-p", partition, "-H", "h:x"]
        subprocess.run([*command, *sent, *broker], input=lines, text=True, check=True, cwd=CODE)
    whole = ["produce", "transactions", "--transactional-id", "tx", "-p", "0"]
    subprocess.run(
        [*command, *whole, *broker], input="committed\n", text=True, check=True, cwd=CODE
    )
    packed = ("console-producer", "--topic", "stamped", "--compression-codec", "gzip")
    assert stage.ours(*packed, stdin="one\ntwo\n")[0] == 0
    sender = Producer({"bootstrap.servers": stage.broker.bootstrap})
    sender.produce("numbers", key=struct.pack(">d", 1.5), value=struct.pack(">f", 0.1))
    for number in range(BATCHES):
        sender.produce("batches", f"batch {number}".encode())
        assert sender.flush(DEADLINE_S) == 0
    read = ["consume", "logs", "-g", "readers", "-o", "start", "-n", "4"]
    subprocess.run([*command, *read, *broker], check=True, cwd=CODE, capture_output=True)


def _transactional(bootstrap: str, name: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": QUARTER_MS,
        }
    )
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    return producer


def _end_transactions(bootstrap: str) -> None:
    """Commit one transaction and abort another one, both in the topic `ended`."""
    producer = _transactional(bootstrap, "ended")
    producer.produce("ended", b"kept", partition=0)
    producer.commit_transaction(DEADLINE_S)
    producer.begin_transaction()
    producer.produce("ended", b"given up", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    producer.abort_transaction(DEADLINE_S)


def _open_transactions(bootstrap: str, clients: ExitStack) -> None:
    """Open transactions. One stays open. In addition each of the two tools gets one to abort by
    offset and one to abort by transactional id."""
    wanted = {"open": "transactions"}
    for side in (THEIRS, OURS):
        wanted |= {f"aborted{side}": f"aborted{side}", f"forced{side}": "plain"}
    for name, topic in wanted.items():
        producer = _transactional(bootstrap, name)
        clients.callback(producer.purge)
        producer.produce(topic, b"open", partition=0)
        assert producer.flush(DEADLINE_S) == 0


def _join(bootstrap: str, clients: ExitStack) -> None:
    """Create a group with two members and a committed offset, and a group with a static member."""
    members = []
    for group, topics, options in (
        ("live", ["logs", "plain"], {"client.id": "one"}),
        ("live", ["logs", "plain"], {"client.id": "two"}),
        ("fixed", ["logs"], {"client.id": "three", "group.instance.id": "first"}),
    ):
        settings: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "max.poll.interval.ms": HOUR_MS,
            **options,
        }
        member = Consumer(settings)
        clients.callback(member.close)
        member.subscribe(topics)
        members.append(member)

    def have_joined() -> bool:
        for member in members:
            member.poll(0)
        return [len(member.assignment()) for member in members] in ([1, 2, 2], [2, 1, 2])

    wait_until(have_joined, JOINED_S, "both groups are shared out")
    members[0].commit(offsets=[TopicPartition("logs", 0, 2)], asynchronous=False)


def _copy_segments(stage: Stage) -> None:
    """Copy log files of the stopped broker, and damage some of the copies."""
    for source, name in (
        ("logs-0", "logs-0"),
        ("transactions-0", "transactions-0"),
        ("ended-0", "ended-0"),
        ("stamped-0", "stamped-0"),
        ("numbers-0", "numbers-0"),
        ("batches-0", "batches-0"),
        ("__consumer_offsets-0", "offsets"),
        ("__transaction_state-0", "state"),
        ("__cluster_metadata-0", "metadata"),
    ):
        own = stage.files / name
        own.mkdir()
        for path in (stage.broker.log_dir / source).iterdir():
            if path.suffix.lstrip(".") in SEGMENT_SUFFIXES:
                shutil.copyfile(path, own / path.name)
        _without_zeros(Path(stage.path(f"{name}.log")))
    _damage(stage)


def _without_zeros(path: Path) -> None:
    """Truncate a copy behind its last batch, because the broker preallocates zeros, at which
    Kafka's dump tool stops."""
    batches = Batches(memoryview(path.read_bytes()))
    assert all(batch.is_valid for batch in batches)
    assert batches.fault is None
    os.truncate(path, batches.end)


def _damage(stage: Stage) -> None:
    """Make changed copies of one log, for example truncated, with a changed byte, without one
    batch, or with an index that does not match."""
    whole = Path(stage.path("batches-0.log")).read_bytes()
    starts = [batch.position for batch in Batches(memoryview(whole))]
    assert len(starts) == BATCHES
    turned = bytearray(whole)
    turned[starts[2] - 1] ^= 1
    for name, content in (
        ("torn", whole[:-7]),
        ("turned", bytes(turned)),
        ("gap", whole[: starts[1]] + whole[starts[2] :]),
        ("strange", whole),
        ("empty", whole),
        ("zeros", whole + bytes(4_096)),
    ):
        (stage.files / name).mkdir()
        Path(stage.path(f"{name}.log")).write_bytes(content)
    for suffix in ("index", "timeindex", "txnindex"):
        Path(stage.path(f"empty.{suffix}")).touch()
    entry = struct.pack(">ii", 2, starts[1])
    Path(stage.path("strange.index")).write_bytes(entry)
    Path(stage.path("strange.timeindex")).write_bytes(struct.pack(">qi", 1, 1))
