"""Every client library works with three brokers, one of which is killed repeatedly.

The victim is in turn the controller, the leader of the written partitions, and the coordinator of
groups and transactions. It starts again 1 to 3 s later. No acknowledged record may be lost,
duplicated or out of order. The application may get only errors that it would also get from Kafka,
so the long form runs the same test with Apache Kafka.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from appliance.config.replication import replication_settings
from protocol.messages.cluster import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.harness import families
from tests.harness.chaos import pause
from tests.harness.cluster import ClusterProcesses
from tests.harness.kafka import KafkaProcess
from tests.harness.seed import seeded
from tests.harness.verifiable.process import Family, Verifiable
from tests.harness.verifiable.scene import (
    PROGRESS_DEADLINE_S,
    Servers,
    clients_at_work,
    finish,
    wait_for_progress,
)
from tests.harness.wait import wait_until
from tests.harness.wire import WireClient

pytestmark = pytest.mark.live

KILLS = 3
"""The kills of the short form: one of each kind."""

KILLS_LONG = 20
KILLS_OF_KAFKA = 9
"""Three kills of each kind, to collect the errors that Kafka returns."""

EVERY_S = 20.0
AWAY_S = (1.0, 3.0)
"""The time that a killed broker stays away."""

SETTINGS = {**replication_settings(3), "group.initial.rebalance.delay.ms": 0}


def controller(servers: Servers, family: Family) -> int:
    found = wait_until(servers.controller_id, PROGRESS_DEADLINE_S, "a controller")
    assert found is not None
    return found


def leader(servers: Servers, family: Family) -> int:
    """Return the leader of partition 0 of the first topic that a client library writes."""

    def ask() -> int:
        with WireClient(servers.bootstrap.split(",")[0]) as client:
            wanted = MetadataRequest(topics=[MetadataRequestTopic(name=family.name)])
            (topic,) = client.ask(wanted, 9).topics
        return next(int(one.leader_id) for one in topic.partitions if one.partition_index == 0)

    return wait_until(lambda: max(ask(), 0), PROGRESS_DEADLINE_S, f"a leader for {family.name}")


def coordinator(servers: Servers, family: Family) -> int:
    """Return the coordinator of the client library's group."""

    def ask() -> int:
        with WireClient(servers.bootstrap.split(",")[0]) as client:
            wanted = FindCoordinatorRequest(coordinator_keys=[f"{family.name}-readers"])
            return int(client.ask(wanted, 4).coordinators[0].node_id)

    return wait_until(lambda: max(ask(), 0), PROGRESS_DEADLINE_S, f"{family.name}'s coordinator")


TURNS = (controller, leader, coordinator)


def killed_by_turns(
    servers: Servers, clients: Sequence[Verifiable], kills: int, every_s: float,
    chance: random.Random,
) -> None:  # fmt: skip
    """Kill brokers while all clients work. After each kill wait until every client makes progress
    again."""
    wait_for_progress(clients, "all are at work")
    for number in range(kills):
        begin = time.monotonic()
        choose = TURNS[number % len(TURNS)]
        victim = choose(servers, chance.choice(clients).family)
        servers.kill9(victim)
        pause(chance.uniform(*AWAY_S))
        servers.start()
        wait_for_progress(clients, f"all go on after kill {number}: {choose.__name__} {victim}")
        pause(max(0.0, begin + every_s - time.monotonic()))


def run(
    servers: Servers,
    folder: Path,
    wanted: Sequence[Family],
    kills: int,
    every_s: float,
    chance: random.Random,
) -> None:
    with clients_at_work(servers, folder, wanted) as clients:
        killed_by_turns(servers, clients, kills, every_s, chance)
        faults = finish(servers, clients, f"{kills} kills")
        assert not faults, faults


def test_families_go_on_while_brokers_are_killed(tmp_path: Path) -> None:
    """Kill each kind of broker once. Each kill comes as soon as all clients make progress after the
    last one."""
    with ClusterProcesses(tmp_path / "cluster", SETTINGS) as cluster:
        run(cluster, tmp_path, families.IN_SHORT, KILLS, 0.0, seeded("families"))


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_all_families_go_on_while_a_broker_is_killed_every_twenty_seconds(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path / "cluster", SETTINGS) as cluster:
        run(cluster, tmp_path, families.ALL, KILLS_LONG, EVERY_S, seeded("families, long"))


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_the_same_with_apache_kafka(tmp_path: Path) -> None:
    """The same kills with Kafka must cause only the errors in `Family.allowed`. This shows that our
    broker causes no others."""
    with KafkaProcess(
        tmp_path / "kafka", nodes=3, properties={"min.insync.replicas": "2"}
    ) as kafka:
        run(kafka, tmp_path, families.ALL, KILLS_OF_KAFKA, EVERY_S, seeded("families of Kafka"))
