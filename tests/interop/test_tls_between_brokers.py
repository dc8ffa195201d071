"""Three real brokers with TLS on both sides of their links: records survive a killed leader,
strangers get nothing, and a certificate ends and is replaced."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.config import TlsFiles
from protocol.messages.fetch import FetchRequest, ReplicaState
from protocol.messages.headers import encode_request
from protocol.messages.membership import (
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    EnvelopeRequest,
)
from protocol.messages.quorum import VoteRequest, VoteRequestPartition, VoteRequestTopic
from protocol.wire.schema import Message
from tests.harness.broker import CLUSTER_ID, BrokerProcess
from tests.harness.certificates import TestAuthority, new_test_authority
from tests.harness.cluster import ClusterProcesses
from tests.harness.ports import free_port
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

TOPIC = "lines"
DEADLINE_S = 60.0

PADDING = bytes(range(256)) * 8
"""The rest of each record. A broker that returns copies many megabytes over TLS."""

ALL = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
"""The replicas of three partitions."""


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return new_test_authority(tmp_path / "tls")


@pytest.fixture
def cluster(tmp_path: Path, authority: TestAuthority) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path / "cluster", authority=authority) as cluster:
        yield cluster


def create_topic(cluster: ClusterProcesses, replicas: Sequence[Sequence[int]] = ALL) -> None:
    """Create the topic with these replicas of each partition. The first replica leads."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    assignment = [list(one) for one in replicas]
    topic = NewTopic(
        TOPIC,
        num_partitions=len(assignment),
        replica_assignment=assignment,
        config={"min.insync.replicas": "2"},
    )
    admin.create_topics([topic])[TOPIC].result(30)


def write(producer: Producer, first: int, count: int, partitions: int = 3) -> None:
    for number in range(first, first + count):
        producer.produce(TOPIC, b"%d " % number + PADDING, partition=number % partitions)


def read_all(cluster: ClusterProcesses, count: int, partitions: int = 3) -> list[int]:
    """Return the numbers of all records, in order."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "counts"})
    consumer.assign([Partition(TOPIC, one, 0) for one in range(partitions)])
    found: list[int] = []

    def read() -> bool:
        for one in consumer.consume(10_000, 0.5):
            assert one.error() is None
            number, _, rest = (one.value() or b"").partition(b" ")
            assert rest == PADDING
            found.append(int(number))
        return len(found) >= count

    wait_until(read, DEADLINE_S, f"{count} records", progress=lambda: len(found))
    assert not consumer.consume(1, 0.5)
    consumer.close()
    return sorted(found)


def leader_of(cluster: ClusterProcesses) -> int:
    topics = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(TOPIC, 10).topics
    return int(topics[TOPIC].partitions[0].leader)


def test_records_survive_a_killed_leader(cluster: ClusterProcesses) -> None:
    create_topic(cluster)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True}
    )
    write(producer, 0, 3_000)
    assert producer.flush(DEADLINE_S) == 0
    killed = leader_of(cluster)
    write(producer, 3_000, 3_000)
    cluster.kill9(killed)
    write(producer, 6_000, 3_000)
    assert producer.flush(DEADLINE_S) == 0
    cluster.start()
    wait_until(
        lambda: all(one["under_replicated"] == 0 for one in cluster.details()),
        DEADLINE_S,
        "all replicas are in sync",
    )
    # Now only the broker that was killed and one other are left, so the copied records count.
    cluster.stop(next(one for one in cluster.node_ids if one != killed))
    assert read_all(cluster, 9_000) == list(range(9_000))
    assert "link_refused" not in problems_of(*cluster.running)
    # Pitfall 22: the links need nothing that is in the log of the quorum.
    cluster.kill9()
    cluster.start()
    assert read_all(cluster, 9_000) == list(range(9_000))


class Stranger:
    """A program that connects to a broker's listener for brokers."""

    def __init__(self, broker: BrokerProcess, authority: TestAuthority) -> None:
        self._port = broker.settings_object()["listeners"]["BROKER"]["port"]
        self._context = ssl.create_default_context(cafile=authority.file)

    def show(self, files: TlsFiles) -> Stranger:
        """Use a certificate."""
        self._context.load_cert_chain(files.certificate, files.key)
        return self

    def ask(self, *requests: tuple[Message, int], client_id: str = "broker-2") -> bytes:
        """Send requests, and return the first bytes of the answer; empty if there is none."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 10) as plain:
            tls = self._context.wrap_socket(plain, server_hostname="localhost")
            for number, (request, version) in enumerate(requests):
                tls.sendall(encode_request(request, version, number, client_id))
            return tls.recv(100)
        return b""


def heartbeat(node_id: int) -> tuple[Message, int]:
    return BrokerHeartbeatRequest(broker_id=node_id, broker_epoch=-1), 1


def forged_requests(node_id: int) -> list[tuple[Message, int]]:
    """Return requests that name this broker as their sender."""
    vote = VoteRequestPartition(replica_id=node_id, replica_epoch=1_000, last_offset=1 << 40)
    topic = VoteRequestTopic(topic_name="__cluster_metadata", partitions=[vote])
    return [
        (VoteRequest(cluster_id=CLUSTER_ID, topics=[topic]), 2),
        (FetchRequest(replica_state=ReplicaState(replica_id=node_id, replica_epoch=1)), 18),
        (AlterPartitionRequest(broker_id=node_id), 3),
        heartbeat(node_id),
    ]


def test_pitfall_14_strangers_get_nothing(
    cluster: ClusterProcesses, authority: TestAuthority, tmp_path: Path
) -> None:
    """A fourth program without a certificate, with one of another CA or of another part gets no
    answer. A broker gets no answer in the name of another broker."""
    broker = cluster.brokers[1]
    foreign = new_test_authority(tmp_path / "foreign", authority.cluster_id)
    part = authority.write("redis", authority.leaf("redis"))
    epochs = [one["controller_epoch"] for one in cluster.details()]
    for request in forged_requests(2):
        assert Stranger(broker, authority).ask(request) == b""
        assert Stranger(broker, authority).show(foreign.write("broker-2")).ask(request) == b""
        assert Stranger(broker, authority).show(part).ask(request) == b""
    of_two = authority.write("broker-2")
    assert len(Stranger(broker, authority).show(of_two).ask(heartbeat(2))) > 4
    for request in forged_requests(3):
        assert Stranger(broker, authority).show(of_two).ask(request) == b""
    envelope = EnvelopeRequest(request_data=b"", client_host_address=b"\x7f\0\0\1")
    assert Stranger(broker, authority).show(of_two).ask((envelope, 0), client_id="broker-3") == b""
    said = broker.log_text()
    for name in ("VOTE", "FETCH", "ALTER_PARTITION", "BROKER_HEARTBEAT"):
        assert f"broker 2, as its certificate says, sent {name} in the name of 3" in said
    assert "sent ENVELOPE in the name of client id 'broker-3'" in said
    assert "shows no certificate, which is refused" in said
    assert "shows a certificate that another CA has signed" in said
    assert "shows a certificate that names no broker" in said
    assert "PRIVATE KEY" not in cluster.log_text() + str([one.status() for one in cluster.running])
    # No vote was counted, and the brokers still work together.
    assert [one["controller_epoch"] for one in cluster.details()] == epochs
    create_topic(cluster)


def problems_of(*brokers: BrokerProcess) -> str:
    return "\n".join(
        f"{one.code}: {one.text}" for broker in brokers for one in broker.status().problems
    )


def test_pitfall_24_one_of_three_has_an_ended_certificate(
    tmp_path: Path, authority: TestAuthority
) -> None:
    """Open links stay. After a restart the other brokers report this broker and work without it.
    They accept its links again when its certificate is replaced, without a restart of this
    broker."""
    made = ClusterProcesses(tmp_path / "cluster", authority=authority)
    ends_at = datetime.now(UTC) + timedelta(seconds=30)
    authority.write("broker-3", authority.leaf("broker-3", days=1, now=ends_at - timedelta(days=1)))
    with made as cluster:
        one, two, three = cluster.brokers.values()
        # Broker 3 leads nothing. A leader that cannot reach the others lets its producers wait.
        create_topic(cluster, [(1, 2, 3)])
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True}
        )
        wait_until(
            lambda: "link_certificate: the certificate of this broker" in problems_of(three),
            DEADLINE_S,
            "broker 3 names its own certificate",
        )
        write(producer, 0, 300, 1)
        assert producer.flush(DEADLINE_S) == 0
        assert "link_refused" not in problems_of(one, two, three)
        for broker in (one, two):
            broker.kill9()
        for broker in (one, two):
            broker.spawn()
        for broker in (one, two):
            broker.wait_until_ready()
        port = three.settings_object()["listeners"]["BROKER"]["port"]
        named = f"broker 3 at 127.0.0.1:{port} shows a certificate that has ended"
        wait_until(lambda: named in problems_of(one, two), DEADLINE_S, "broker 3 is named")
        assert "a peer at 127.0.0.1 shows a certificate that has ended" in problems_of(one, two)
        assert named in one.log_text() + two.log_text()
        write(producer, 300, 300, 1)
        assert producer.flush(DEADLINE_S) == 0
        pid = three.pid
        authority.write("broker-3")
        wait_until(
            lambda: all(each["under_replicated"] == 0 for each in cluster.details()),
            DEADLINE_S,
            "broker 3 is in sync again",
        )
        wait_until(
            lambda: "link_" not in problems_of(one, two, three),
            DEADLINE_S,
            "the problems have ended",
        )
        assert three.pid == pid
        one.kill9()
        assert read_all(cluster, 600, 1) == list(range(600))


def test_a_broker_does_not_start_with_an_ended_certificate(
    tmp_path: Path, authority: TestAuthority
) -> None:
    files = authority.write("broker-1", authority.over())
    voters = {1: free_port(), 2: free_port()}
    broker = BrokerProcess(tmp_path, link_tls=files, voters=voters)
    with pytest.raises(SystemExit, match="broker ended with 2"):
        broker.start()
    assert f"link_tls.certificate: found '{files.certificate}, which another" in broker.log_text()
    assert "`millrace cert renew` makes one" in broker.log_text()


def test_brokers_without_tls_cannot_join_those_with_tls(
    tmp_path: Path, authority: TestAuthority
) -> None:
    """Both sides report it. The brokers form a cluster as soon as all of them have TLS."""
    made = ClusterProcesses(tmp_path / "cluster", authority=authority)
    one, plain = made.brokers[1], made.brokers[3]
    files, plain.link_tls = plain.link_tls, None
    port = plain.settings_object()["listeners"]["BROKER"]["port"]
    named = f"broker 3 at 127.0.0.1:{port} closes the connection during the TLS handshake"
    try:
        made.spawn()
        wait_until(lambda: named in one.log_text(), DEADLINE_S, "broker 3 is named in the log")
        wait_until(lambda: named in problems_of(one), DEADLINE_S, "broker 3 is named in the status")
        for broker, said in (
            (one, "a peer at 127.0.0.1 connects to the listener BROKER without TLS"),
            (plain, "a client speaks TLS, but this listener does not"),
        ):
            wait_until(lambda: said in broker.log_text(), DEADLINE_S, said)  # noqa: B023  # at once
        plain.kill9()
        plain.link_tls = files
        plain.spawn()
        made.wait_until_ready()
        wait_until(lambda: "link_refused" not in problems_of(one), 90.0, "the problem has ended")
    finally:
        made.close()
