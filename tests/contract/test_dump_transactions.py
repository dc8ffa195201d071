"""Kafka's dump tool decodes the records of the transaction coordinator, and finds no fault.

The test reads the folder of a broker that served librdkafka's transactions: committed and aborted
ones, ones with offsets, and ones of a fenced producer.
"""

import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from broker.coordinators.txn_state import TxnState
from tests.contract.test_dump_tool import complaints, dump
from tests.harness.broker import BrokerProcess
from tests.harness.kafka import kafka_jars

pytestmark = [pytest.mark.live, pytest.mark.slow]

DEADLINE_S = 30.0
ROUNDS = 4

SETTINGS = {
    "num.partitions": 2,
    "transaction.state.log.num.partitions": 1,
    "offsets.topic.num.partitions": 1,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data folder of a stopped broker that has served transactions."""
    kafka_jars()
    with BrokerProcess(tmp_path_factory.mktemp("broker"), SETTINGS) as broker:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "group"})
        for _ in range(2):
            producer = Producer(
                {"bootstrap.servers": broker.bootstrap, "transactional.id": "dumped"}
            )
            producer.init_transactions(DEADLINE_S)
            for number in range(ROUNDS):
                producer.begin_transaction()
                for partition in range(2):
                    producer.produce("data", b"%d" % number, partition=partition)
                producer.send_offsets_to_transaction(
                    [TopicPartition("data", 0, number)],
                    consumer.consumer_group_metadata(),
                    DEADLINE_S,
                )
                if number % 2:
                    producer.flush(DEADLINE_S)
                    producer.abort_transaction(DEADLINE_S)
                else:
                    producer.commit_transaction(DEADLINE_S)
        consumer.close()
        broker.stop()
        return broker.log_dir


def decoded(*arguments: str) -> str:
    """Return the tool's output. Fail if the output has a word that means a fault."""
    printed = dump(*arguments)
    assert "exit code 0" in printed, printed[-3_000:]
    assert not complaints(printed), printed[-3_000:]
    return printed


def segments(folder: Path, partition: str) -> str:
    files = sorted((folder / partition).glob("*.log"))
    assert files
    return ",".join(str(one) for one in files)


def test_the_states_of_transactions_are_decoded(folder: Path) -> None:
    printed = decoded(
        "--transaction-log-decoder", "--files", segments(folder, "__transaction_state-0")
    )
    assert set(re.findall(r'"transactionalId":"(\w+)"', printed)) == {"dumped"}
    states = {int(one) for one in re.findall(r'"transactionStatus":(\d)', printed)}
    assert states == {int(state) for state in TxnState if state is not TxnState.DEAD}
    assert '"topic":"data","partitionIds":[0,1]' in printed


def test_offsets_in_transactions_and_their_markers_are_decoded(folder: Path) -> None:
    printed = decoded("--offsets-decoder", "--files", segments(folder, "__consumer_offsets-0"))
    commits = re.findall(r".*isTransactional: true.*isControl: false.*", printed)
    assert len(commits) == 2 * ROUNDS
    # Kafka's own coordinator gives a commit within a transaction the sequence 0 too.
    assert all("baseSequence: 0 lastSequence: 0 " in one for one in commits)
    assert printed.count("endTxnMarker: COMMIT") == ROUNDS
    assert printed.count("endTxnMarker: ABORT") == ROUNDS


@pytest.mark.parametrize("partition", [0, 1])
def test_data_and_markers_are_decoded(folder: Path, partition: int) -> None:
    printed = decoded("--print-data-log", "--files", segments(folder, f"data-{partition}"))
    assert printed.count("endTxnMarker: COMMIT") == ROUNDS
    assert printed.count("endTxnMarker: ABORT") == ROUNDS
    assert len(re.findall(r"isTransactional: true.*isControl: false", printed)) == 2 * ROUNDS
