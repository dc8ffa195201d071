"""A data folder from an earlier version: the code that writes it, and the records to read from it.

`python -m tests.harness.older_folder FILE` starts the broker of this checkout, lets a client use
most features, kills the broker and writes its folder as a compressed archive. Each archive in
`tests/fixtures` was written in this way by the version in its name. All of them have the content
`EXPECTED`, which every later version must read.
"""

import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.harness.broker import BrokerProcess

PLAIN, COMPACTED, IN_TRANSACTIONS, DELETED = "plain", "compacted", "transactions", "deleted"
PARTITIONS = 3
RECORDS_OF_PARTITION = 40
KEYS = 5
GROUP, COMMITTED_OFFSET, COMMITTED_METADATA = "readers", 17, "so far"
TRANSACTIONAL_ID = "fixture"
RETENTION_MS = "3155760000000"
FOR_EVER: dict[str, object] = {
    "log.retention.ms": -1,
    "offsets.retention.minutes": 2**31 - 1,
    "transactional.id.expiration.ms": 2**31 - 1,
    "producer.id.expiration.ms": 2**31 - 1,
}
"""Settings for opening an archive. Its contents must not expire, however old the archive is."""

DEADLINE_S = 30.0

RESERVE_NAME = ".reserve"

Values = dict[int, list[str]]
"""The values of each partition, in order."""


def plain_values() -> Values:
    """Return the records of `PLAIN`."""
    return {
        partition: [f"{partition}:{n}" for n in range(RECORDS_OF_PARTITION)]
        for partition in range(PARTITIONS)
    }


def compacted_last() -> dict[str, str]:
    """Return the last value of each key of `COMPACTED`."""
    return {f"key-{n % KEYS}": f"value-{n}" for n in range(RECORDS_OF_PARTITION)}


def committed_values() -> list[str]:
    """Return the records of `IN_TRANSACTIONS` that a read_committed consumer gets. Every second
    transaction was aborted."""
    return [f"transaction-{n}" for n in range(0, RECORDS_OF_PARTITION, 2)]


def write(broker: BrokerProcess) -> None:
    """Let a client write everything that the folder must contain."""
    address: dict[str, Any] = {"bootstrap.servers": broker.bootstrap}
    client = AdminClient(address)
    topics = [
        NewTopic(PLAIN, PARTITIONS, 1, config={"segment.bytes": "1024"}),
        NewTopic(COMPACTED, 1, 1, config={"cleanup.policy": "compact"}),
        NewTopic(IN_TRANSACTIONS, 1, 1),
        NewTopic(DELETED, 1, 1),
    ]
    for made in client.create_topics(topics).values():
        made.result(DEADLINE_S)
    producer = Producer({**address, "enable.idempotence": True, "linger.ms": 0})
    for n in range(RECORDS_OF_PARTITION):
        for partition, values in plain_values().items():
            producer.produce(PLAIN, values[n], partition=partition)
        producer.produce(COMPACTED, f"value-{n}", key=f"key-{n % KEYS}")
        assert producer.flush(DEADLINE_S) == 0
    _transactions(Producer({**address, "transactional.id": TRANSACTIONAL_ID}))
    reader = Consumer({**address, "group.id": GROUP})
    place = TopicPartition(PLAIN, 0, COMMITTED_OFFSET, COMMITTED_METADATA)
    reader.commit(offsets=[place], asynchronous=False)
    reader.close()
    setting = ConfigEntry("retention.ms", RETENTION_MS, incremental_operation=AlterConfigOpType.SET)
    of_plain = ConfigResource(ResourceType.TOPIC, PLAIN, incremental_configs=[setting])
    for changed in client.incremental_alter_configs([of_plain]).values():
        changed.result(DEADLINE_S)
    for gone in client.delete_topics([DELETED]).values():
        gone.result(DEADLINE_S)


def _transactions(producer: Producer) -> None:
    producer.init_transactions(DEADLINE_S)
    for n in range(RECORDS_OF_PARTITION):
        producer.begin_transaction()
        producer.produce(IN_TRANSACTIONS, f"transaction-{n}")
        assert producer.flush(DEADLINE_S) == 0
        if n % 2:
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)


def unpack(archive: Path, broker: BrokerProcess) -> None:
    """Unpack an archive into the data folder of a broker that has not started yet."""
    broker.log_dir.mkdir(parents=True)
    with tarfile.open(archive) as packed:
        packed.extractall(broker.log_dir, filter="data")


def main(archive: Path) -> None:
    """Write the archive of a killed broker's folder, which needs a full recovery."""
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder)).start()
        write(broker)
        broker.kill9()
        with tarfile.open(archive, "w:xz") as packed:
            for path in sorted(broker.log_dir.iterdir()):
                # Leave out the reserve file: it has no contents, and a broker creates it again.
                if path.name != RESERVE_NAME:
                    packed.add(path, path.name)
    print(json.dumps({"archive": str(archive), "bytes": archive.stat().st_size}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
