"""The disk fills at random points while librdkafka clients work. The clients retry rejected
requests. The broker resumes automatically once there is space. No record is damaged, lost or
duplicated.

test_broker_disk_full tests the exact responses on a full disk.
"""

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from protocol.errors import ErrorCode
from protocol.messages.topics import CreatableTopicConfig, DeleteTopicsRequest
from tests.harness.broker import BrokerProcess
from tests.harness.chaos import Campaign, create_topic, pause
from tests.harness.history import Place
from tests.harness.mounts import Ext4Image, Tmpfs
from tests.harness.recorded import CLIENT, read_everything
from tests.harness.seed import seeded
from tests.harness.wait import wait_until
from tests.harness.wire import WireClient, batch_of, list_request, produce_request

pytestmark = pytest.mark.live

FILLS_SHORT = 4
FILLS_LONG = 50
SIZE_MIB = 256

PARTITIONS = 3
PLACES: list[Place] = [("load", number) for number in range(PARTITIONS)]

RECORDS_BETWEEN_MAX = 1_000
SPARE_BYTES_MAX = 100_000
"""The most bytes that the filler leaves free. It leaves a random number, so that the last write
that fits differs each time."""

FULL_S_MAX = 0.3
"""The time that the disk stays full after the first refusal."""

REFUSED = "write_failures_total"

DOOMED = "doomed"
COPIED = "copied"

CALL_S = 15.0
END_DEADLINE_S = 60.0

SMALL_MIB = 8
EARLIEST = -2

SETTINGS = {
    "log.flush.offset.checkpoint.interval.ms": 200,
    "log.segment.delete.delay.ms": 100,
}


def run_fills(
    disk: Ext4Image | Tmpfs, folder: Path, chance: random.Random, fills: int, what: str
) -> None:
    broker = BrokerProcess(disk.folder, SETTINGS)
    # The process's log is on another file system, so that it can still log on a full disk.
    broker.log_file = folder / "broker.log"
    with broker, Campaign(broker, chance, PLACES) as campaign:
        campaign.create(PARTITIONS, segment_bytes=60_000)
        for name in (DOOMED, COPIED):
            assert create_topic(broker, name, 1) is ErrorCode.NONE
        campaign.add_producers(3)
        campaign.add_consumer()
        campaign.add_committer("g")
        transactions = Transactions(broker.bootstrap)
        for number in range(fills):
            campaign.wait_for(chance.randint(1, RECORDS_BETWEEN_MAX), "the moment of the fill")
            refused = broker.metric(REFUSED)
            disk.fill(chance.randint(0, SPARE_BYTES_MAX))
            wait_until(partial(is_refusing, broker, refused), 30, "the disk is full")
            campaign.count("disk fills")
            transactions.begin(b"%d" % number)
            trouble(broker, campaign, number)
            pause(chance.uniform(0, FULL_S_MAX))
            disk.free()
            if broker.process is None:
                broker.start()
            campaign.wait_for(1, "writes go on by themselves")
            transactions.end()
        transactions.judge()
        campaign.judge(what, places=campaign.places)
        assert broker.stop() == 0


class Transactions:
    """One transaction per full disk. It begins before or while the disk is full, and ends after
    there is space again."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": "over full disks"} | CLIENT
        )
        self._producer.init_transactions(CALL_S)
        self._committed: list[bytes] = []
        self._thread = threading.Thread()

    def begin(self, value: bytes) -> None:
        """Run the transaction in a thread, because its commit can wait until there is space."""
        self._thread = threading.Thread(target=self._run, args=(value,), daemon=True)
        self._thread.start()

    def _run(self, value: bytes) -> None:
        while True:
            self._producer.begin_transaction()
            self._producer.produce(COPIED, value, partition=0)
            if self._ends(self._producer.commit_transaction):
                self._committed.append(value)
                return
            assert self._ends(self._producer.abort_transaction)

    def _ends(self, call: Callable[[float], object]) -> bool:
        """Repeat a call until it succeeds. Return False if the transaction must be aborted
        first."""
        while True:
            try:
                call(CALL_S)
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    return False
                if not error.args[0].retriable():
                    raise
            else:
                return True

    def end(self) -> None:
        self._thread.join(END_DEADLINE_S)
        assert not self._thread.is_alive(), "a transaction does not end"

    def judge(self) -> None:
        """Check that a committed read returns each value exactly once."""
        place = (COPIED, 0)
        read = read_everything(self._bootstrap, [place], is_read_committed=True)
        assert [value for _, value in read.records(place)] == self._committed


def trouble(broker: BrokerProcess, campaign: Campaign, number: int) -> None:
    """Create a topic, delete one or kill the broker, at random, while the disk is full."""
    choice = campaign.chance.choice(["nothing", "topic", "deletion", "kill", "stop"])
    if choice == "deletion":
        # Either request can be rejected, because the disk is full. If the deletion succeeds, a
        # topic of the same name may be created at once.
        delete_topic(broker, DOOMED)
        create_topic(broker, DOOMED, 1)
        campaign.count("deletions asked for while full")
    elif choice == "topic":
        name = f"made-{number}"
        if create_topic(broker, name, 1) is ErrorCode.NONE:
            campaign.places.append((name, 0))
            campaign.producers[0].places.append((name, 0))
        campaign.count("topics asked for while full")
    elif choice in ("kill", "stop"):
        if choice == "kill":
            broker.kill9()
        else:
            broker.stop()
        campaign.count("starts on a full disk")
        try:
            broker.start()
        except SystemExit:
            # The broker cannot start without space to store its registration. In a mill the
            # supervisor would start it again.
            assert "No space left" in broker.log_text()
            campaign.count("starts refused")


def test_retention_makes_room_on_a_full_disk(tmp_path: Path) -> None:
    """Records fill the disk to the last block. Retention then deletes old segments, so producers
    can continue."""
    settings = {"log.retention.check.interval.ms": 500, "log.segment.delete.delay.ms": 0}
    configs = {"segment.bytes": "200000", "retention.ms": "3000"}
    with Tmpfs(tmp_path / "disk", SMALL_MIB) as disk:
        broker = BrokerProcess(disk.folder, settings)
        broker.log_file = tmp_path / "broker.log"
        with broker, WireClient(broker.bootstrap) as client:
            named = [CreatableTopicConfig(name=name, value=to) for name, to in configs.items()]
            assert create_topic(broker, "old", 1, named) is ErrorCode.NONE
            for size_bytes in (60_000, 100):
                while append(client, "old", size_bytes) is ErrorCode.NONE:
                    pass
            wait_until(lambda: first_offset(client, "old") > 0, 30, "retention goes on")
            wait_until(partial(takes, client, "old"), 10, "retention has made room")
            assert broker.stop() == 0


def append(client: WireClient, topic: str, size_bytes: int) -> ErrorCode:
    batch = batch_of([bytes(size_bytes)], timestamp_ms=int(time.time() * 1000))
    answer = client.ask(produce_request(topic, batch), 9)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def takes(client: WireClient, topic: str) -> bool:
    return append(client, topic, 100) is ErrorCode.NONE


def delete_topic(broker: BrokerProcess, name: str) -> ErrorCode:
    with WireClient(broker.bootstrap) as client:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=5_000)
        return ErrorCode(client.ask(request, 5).responses[0].error_code)


def first_offset(client: WireClient, topic: str) -> int:
    answer = client.ask(list_request(topic, EARLIEST), 7)
    offset: int = answer.topics[0].partitions[0].offset
    return offset


def is_refusing(broker: BrokerProcess, before: int) -> bool:
    return broker.metric(REFUSED) > before


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    with Tmpfs(tmp_path / "disk", SIZE_MIB) as disk:
        run_fills(disk, tmp_path, seeded("disk fills"), FILLS_SHORT, "disk full (tmpfs)")


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_fifty_full_disks_lose_nothing(tmp_path: Path) -> None:
    with Ext4Image(tmp_path / "disk", SIZE_MIB) as disk:
        run_fills(disk, tmp_path, seeded("many disk fills"), FILLS_LONG, "disk full (ext4)")
        assert not disk.check()
