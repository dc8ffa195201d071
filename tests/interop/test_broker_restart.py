"""The broker's process: its start and stop, its data after a restart, and its messages when it
cannot run."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.cluster import FindCoordinatorRequest
from protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.group import ListGroupsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from protocol.messages.producer_ids import InitProducerIdRequest
from protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState
from protocol.types import Uuid
from tests.harness import ROOT
from tests.harness.broker import BrokerProcess
from tests.harness.processes import launch
from tests.harness.wait import wait_until
from tests.harness.wire import WireClient, create, fetch_request, produce, read_values

pytestmark = pytest.mark.live


def commit(client: WireClient, group_id: str, topic: str, offset: int) -> int:
    partition = OffsetCommitRequestPartition(
        partition_index=0,
        committed_offset=offset,
        committed_leader_epoch=3,
        committed_metadata="note",
    )
    request = OffsetCommitRequest(
        group_id=group_id, topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    )

    def find() -> bool:
        found = client.ask(FindCoordinatorRequest(coordinator_keys=[group_id]), 4)
        return bool(found.coordinators[0].error_code == 0)

    wait_until(find, 10, "coordinator")
    code: int = client.ask(request, 8).topics[0].partitions[0].error_code
    return code


def committed(client: WireClient, group_id: str) -> dict[tuple[str, int], tuple[int, int, str]]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])

    def ask() -> object:
        group = client.ask(request, 8).groups[0]
        return group if group.error_code == 0 else None

    group = wait_until(ask, 10, "the group's shard is loaded")
    return {
        (topic.name, one.partition_index): (
            one.committed_offset,
            one.committed_leader_epoch,
            one.metadata,
        )
        for topic in group.topics  # type: ignore[attr-defined]  # OffsetFetchResponseGroup
        for one in topic.partitions
    }


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_everything_survives_a_restart(tmp_path: Path, is_clean: bool) -> None:
    with BrokerProcess(tmp_path) as broker:
        with WireClient(broker.bootstrap) as client:
            topic_id = create(client, "kept", 2)
            create(client, "gone")
            client.ask(DeleteTopicsRequest(topic_names=["gone"]), 5)
            change = AlterableConfig(name="retention.ms", config_operation=0, value="-1")
            resource = AlterConfigsResource(resource_type=2, resource_name="kept", configs=[change])
            client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
            assert produce(client, "kept", b"one", b"two") == 0
            assert commit(client, "g", "kept", 2) == 0
            ids = {client.ask(InitProducerIdRequest(transactional_id=None), 4).producer_id}
        if is_clean:
            assert broker.stop() == 0
        else:
            broker.kill9()
        broker.start()
        assert f"last_stop={'clean' if is_clean else ''}" in broker.log_text()
        with WireClient(broker.bootstrap) as client:
            topics = client.ask(MetadataRequest(topics=None), 12).topics
            found = {one.name: one for one in topics}
            assert sorted(found) == ["__consumer_offsets", "kept"]
            assert found["kept"].topic_id == topic_id
            assert [one.leader_epoch for one in found["kept"].partitions] == [1, 1]
            part = client.ask(fetch_request("kept"), 12).responses[0].partitions[0]
            assert read_values(part.records) == [b"one", b"two"]
            assert part.high_watermark == 2
            assert produce(client, "kept", b"three") == 2
            assert committed(client, "g") == {("kept", 0): (2, 3, "note")}
            listed = client.ask(ListGroupsRequest(states_filter=["Empty"]), 4)
            assert [one.group_id for one in listed.groups] == ["g"]
            again = client.ask(InitProducerIdRequest(transactional_id=None), 4).producer_id
            assert again not in ids


def test_an_old_epoch_is_fenced_after_a_restart(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with WireClient(broker.bootstrap) as client:
            create(client, "t")
            produce(client, "t", b"x")
        broker.restart()
        with WireClient(broker.bootstrap) as client:
            answer = client.ask(fetch_request("t", current_leader_epoch=0), 12)
            code = answer.responses[0].partitions[0].error_code
            assert code == ErrorCode.FENCED_LEADER_EPOCH


def test_topics_are_found_and_deleted_by_id(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, WireClient(broker.bootstrap) as client:
        topic_id = create(client, "t")
        asked = MetadataRequestTopic(topic_id=topic_id, name=None)
        answer = client.ask(MetadataRequest(topics=[asked]), 12)
        assert [(one.error_code, one.name) for one in answer.topics] == [(0, "t")]
        unknown = MetadataRequestTopic(topic_id=Uuid(int=5), name=None)
        answer = client.ask(MetadataRequest(topics=[unknown]), 12)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)])
        assert client.ask(deletion, 6).responses[0].name == "t"
        wait_until(
            lambda: not any(one.name.startswith("t-0") for one in broker.log_dir.iterdir()),
            10,
            "the folder is gone",
        )


def test_pitfall_45_offsets_of_a_deleted_topic_are_gone(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t")
        assert commit(client, "g", "t", 5) == 0
        client.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
        create(client, "t")
        wait_until(lambda: committed(client, "g") == {}, 10, "offsets are void")


def test_offsets_expire(tmp_path: Path) -> None:
    settings = {"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 100}
    with BrokerProcess(tmp_path, settings) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t")
        assert commit(client, "kept", "t", 5) == 0
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata=""
        )
        short = OffsetCommitRequest(
            group_id="short",
            retention_time_ms=0,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
        )
        assert client.ask(short, 4).topics[0].partitions[0].error_code == 0
        wait_until(lambda: committed(client, "short") == {}, 10, "the offset has expired")
        assert committed(client, "kept") != {}


def test_retention_drops_old_segments(tmp_path: Path) -> None:
    settings = {
        "log.retention.check.interval.ms": 100,
        "log.segment.bytes": 10_000,
        "log.retention.bytes": 20_000,
        "log.segment.delete.delay.ms": 0,
    }
    with BrokerProcess(tmp_path, settings) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t")
        for _ in range(20):
            produce(client, "t", bytes(5_000))
        wait_until(lambda: broker.partition("t", 0)["log_start_offset"] > 0, 10, "old data gone")
        folder = broker.log_dir / "t-0"
        wait_until(lambda: len(list(folder.glob("*.log"))) <= 4, 10, "files unlinked")
        code = client.ask(fetch_request("t", 0), 12).responses[0].partitions[0].error_code
        assert code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_parked_fetch_is_answered_when_the_broker_stops(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t")
        client.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
        # The broker counts a request when it handles it, so the Fetch is parked at 2.
        wait_until(lambda: int(str(broker.status().details["requests_total"])) >= 2, 10, "parked")
        assert broker.stop() == 0
        assert client.receive().responses[0].partitions[0].error_code == 0


def test_the_banner_says_how_it_runs(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, {"log.flush.interval.messages": 1000}) as broker:
        (line,) = [one for one in broker.log_text().splitlines() if " ready " in one]
        for word in (
            "flush=interval",
            f"HOST=127.0.0.1:{broker.host_port}",
            f"MILL=127.0.0.1:{broker.mill_port}",
            f"log_dir={broker.log_dir}",
            "start_ms=",
        ):
            assert word in line
        assert broker.status().details["flush"] == "interval"


def test_status_health_and_metrics(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with WireClient(broker.bootstrap) as client:
            create(client, "t", 2)
            produce(client, "t", b"x")
        status = broker.status()
        assert (status.part, status.ready, str(status.state)) == ("broker-1", True, "running")
        assert status.details["topics"] == 1
        assert broker.partition("t", 0)["high_watermark"] == 1
        url = f"http://127.0.0.1:{broker.status_port}/metrics"
        with urllib.request.urlopen(url, timeout=5) as answer:
            text = answer.read().decode()
        assert 'millrace_broker_requests_total{api="produce"} 1' in text
        assert "millrace_broker_partitions 2" in text


def test_a_taken_port_is_named_with_its_setting_and_holder(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", broker.mill_port))
        holder.listen()
        process = broker.spawn()
        assert process.wait(20) == 1
        text = broker.log_text()
        assert f"port {broker.mill_port} on 127.0.0.1 (listener MILL) is in use" in text
        assert f"by process {os.getpid()}" in text
        broker.process = None


def test_wrong_settings_end_with_2_and_name_every_fault(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, {"num.partitions": "many", "nonsense": 1})
    assert broker.spawn().wait(20) == 2
    assert "num.partitions" in broker.log_text()
    assert "nonsense" in broker.log_text()
    broker.process = None


def test_what_is_no_settings_object_ends_with_2(tmp_path: Path) -> None:
    for text in (b"", b"{", b"[1]", json.dumps({"part": "broker-1"}).encode()):
        command = (sys.executable, "-m", "broker")
        process = launch(command, text, cwd=ROOT, stderr=subprocess.PIPE)
        _, told = process.communicate(timeout=20)
        assert process.returncode == 2, told


def test_a_folder_in_use_or_of_another_cluster_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        second = BrokerProcess(tmp_path)
        assert second.spawn().wait(20) == 1
        assert "another broker process uses this data folder" in second.log_text()
        second.process = None
        broker.stop()
        other = BrokerProcess(tmp_path, node_id=1)
        wrong = other.settings_object() | {"cluster_id": "b3RoZXItY2x1c3Rlci1pZA"}
        other.settings_object = lambda: wrong  # type: ignore[method-assign]
        assert other.spawn().wait(20) == 1
        assert "cluster" in other.log_text().splitlines()[-1]
        other.process = None


def test_sigint_stops_cleanly_too(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        process = broker.process
        assert process is not None
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert "stopped cleanly" in broker.log_text()


def test_while_it_starts_it_is_not_healthy(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.spawn()
    try:

        def code() -> int:
            url = f"http://127.0.0.1:{broker.status_port}/healthz"
            try:
                with urllib.request.urlopen(url, timeout=5) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                return error.code

        seen: set[int] = set()

        def ready() -> bool:
            seen.add(code())
            return 200 in seen

        wait_until(ready, 20, "healthy")
        assert seen <= {200, 503}
    finally:
        broker.stop()
