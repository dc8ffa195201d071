"""Kafka's dump tool decodes the metadata log of a broker: topics, settings, producer ids, removals.

Our log has the file names, the layout and the encoding of Kafka's, so that Kafka's tool can read
it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.producer_ids import InitProducerIdRequest
from protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from tests.contract.test_dump_tool import complaints, dump
from tests.harness.broker import BrokerProcess
from tests.harness.wire import WireClient

pytestmark = [pytest.mark.slow, pytest.mark.live]


def change_everything(client: WireClient) -> None:
    """Write a record of every kind that a single broker writes."""
    setting = CreatableTopicConfig(name="retention.ms", value="12345")
    topics = [
        CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=[setting])
        for name in ("kept", "removed")
    ]
    client.ask(CreateTopicsRequest(topics=topics), 7)
    grown = CreatePartitionsTopic(name="kept", count=3, assignments=None)
    client.ask(CreatePartitionsRequest(topics=[grown]), 3)
    for value, operation in (("77", 0), (None, 1)):
        change = AlterableConfig(name="max.connections", config_operation=operation, value=value)
        resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
        client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    client.ask(InitProducerIdRequest(transactional_id=None), 4)
    client.ask(DeleteTopicsRequest(topic_names=["removed"]), 5)


def test_kafkas_decoder_reads_our_metadata(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with WireClient(broker.bootstrap) as client:
            change_everything(client)
        # After a restart the broker replays its metadata log and then registers again.
        broker.restart()
        broker.stop()
        folder = broker.log_dir / "__cluster_metadata-0"
    log = folder / f"{0:020}.log"
    printed = dump("--files", str(log), "--cluster-metadata-decoder")
    assert not complaints(printed), printed
    assert "exit code 0" in printed
    rows = [line for line in printed.splitlines() if "| offset:" in line]
    records = [line for line in rows if "payload:" in line]
    # The quorum's control records: a leader change for each start. The two records after the first
    # one have the KRaft version and the voters at the beginning.
    control = [line.rpartition("headerKeys: [] ")[2].split()[0] for line in rows
               if line not in records]  # fmt: skip
    assert control == ["LeaderChange:", "KRaftVersion", "KRaftVoters", "LeaderChange:"], printed
    assert all('payload: {"type":"' in line for line in records), printed
    for expected in (
        '"type":"REGISTER_BROKER_RECORD"', '"type":"TOPIC_RECORD"', '"name":"removed"',
        '"type":"PARTITION_RECORD"', '"type":"CONFIG_RECORD"', '"value":"12345"',
        '"type":"PRODUCER_IDS_RECORD"', '"type":"REMOVE_TOPIC_RECORD"',
    ):  # fmt: skip
        assert expected in printed, printed
    assert printed.count('"type":"PARTITION_RECORD"') == 5
    for snapshot in folder.glob("*.snapshot"):
        assert not complaints(dump("--files", str(snapshot)))
