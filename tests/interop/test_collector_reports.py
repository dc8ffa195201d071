"""The monitor reads the reports of collectors from a real broker."""

import asyncio

import pytest

from appliance.enrol.mill_side import revoke
from appliance.enrol.rights import user_of
from monitor.asking.poller import Poller
from monitor.state.collectors import Heard
from protocol.client.admin import Admin
from protocol.client.admin_types import TopicSpec
from protocol.client.cluster import Cluster
from protocol.client.producer import Producer
from protocol.client.user_admin import set_password
from protocol.collector_report import COLLECTORS_TOPIC, encode
from protocol.security.cluster_security import ClusterEntry
from protocol.security.scram import Mechanism
from protocol.wire.compression import Codec
from tests.harness.broker import BrokerProcess
from tests.harness.wire import WireClient
from tests.interop.test_unreadable_batches import send
from tests.unit.monitor.views.test_collectors import report

pytestmark = pytest.mark.live

NOW_MS = 10_000


def test_each_cycle_reads_what_is_new_and_a_topic_made_again_from_its_start(
    broker: BrokerProcess,
) -> None:
    asyncio.run(play(broker.bootstrap))


def send_unreadable(bootstrap: str) -> None:
    """Write a batch that the broker accepts and no client can decompress."""
    with WireClient(bootstrap) as client:
        send(client, COLLECTORS_TOPIC, b"this is no gzip", Codec.GZIP)


async def play(bootstrap: str) -> None:
    cluster = Cluster(bootstrap, client_id="test")
    await cluster.start(10_000)
    producer = Producer(cluster)
    await producer.start()
    poller = Poller(ClusterEntry(bootstrap), {})

    async def found() -> dict[str, Heard] | None:
        kafka = (await poller.read(NOW_MS)).kafka
        assert kafka is not None
        listed = kafka.collectors
        return None if listed is None else {one.report.instance: one for one in listed}

    async def send_report(instance: str, value: bytes | None) -> None:
        key = instance.encode()
        await (await producer.send(COLLECTORS_TOPIC, value, key=key, partition=0))

    try:
        assert await found() is None
        await Admin(cluster).ensure_topics([TopicSpec(COLLECTORS_TOPIC, 1)])
        for files in range(3):
            await send_report("a", encode(report("a", files=files)))
        await send_report("b", encode(report("b")))
        read = await found()
        assert read is not None
        assert (sorted(read), read["a"].report.files) == (["a", "b"], 2)
        await send_report("b", None)
        await send_report("a", b"no report")
        await send_report("c", encode(report("c")))
        read = await found()
        assert read is not None
        assert sorted(read) == ["a", "c"]
        await asyncio.to_thread(send_unreadable, bootstrap)
        await send_report("d", encode(report("d")))
        read = await found()
        assert read is not None
        assert sorted(read) == ["a", "c", "d"], "one host's batch hides no other collector"
        await set_password(cluster, user_of("c"), "password of a host", Mechanism.SHA_512)
        await revoke(cluster, "c")
        read = await found()
        assert read is not None
        assert sorted(read) == ["a", "d"]
        await Admin(cluster).delete_topics([COLLECTORS_TOPIC])
        assert await found() is None
    finally:
        await producer.close(1_000)
        await poller.close()
        await cluster.close()
