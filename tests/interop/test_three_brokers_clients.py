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
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from appliance.config.replication import replication_settings
from protocol.messages.cluster import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.harness import families
from tests.harness.chaos import pause
from tests.harness.cluster import ClusterProcesses
from tests.harness.kafka import KafkaProcess
from tests.harness.seed import seeded
from tests.harness.tally import tell
from tests.harness.verifiable.process import Family, Verifiable
from tests.harness.verifiable.words import PARTITIONS
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

STEADY = 100
"""Records that every client must have acknowledged, and read, after each kill."""

PROGRESS_DEADLINE_S = 60.0
"""Within this time each client must read or write a record, and each partition must have a
leader."""

SETTINGS = {**replication_settings(3), "group.initial.rebalance.delay.ms": 0}


class Servers(Protocol):
    """Three brokers, either ours or Kafka's. They keep ports and data when they are killed."""

    @property
    def bootstrap(self) -> str: ...

    def controller_id(self) -> int | None: ...

    def kill9(self, node_id: int) -> None: ...

    def start(self) -> object: ...


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


def create_topics(servers: Servers, wanted: Sequence[Family]) -> None:
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    topics = [NewTopic(topic, PARTITIONS, 3) for family in wanted for topic in family.topics]
    for made in admin.create_topics(topics).values():
        made.result(30)


def wait_for_progress(clients: Sequence[Verifiable], what: str) -> None:
    """Wait until each client has written and read `STEADY` more records in every topic."""
    goals = [{name: count + STEADY for name, count in one.progress().items()} for one in clients]

    def behind() -> list[str]:
        for one in clients:
            one.check_alive()
        found = [one.progress() for one in clients]
        return [
            f"{name}: {now[name]} of {goal}"
            for now, wanted in zip(found, goals, strict=True)
            for name, goal in wanted.items()
            if now[name] < goal
        ]

    try:
        # A slow machine makes all clients slow. So fail only if no client makes any progress for
        # the whole deadline.
        wait_until(lambda: not behind(), PROGRESS_DEADLINE_S, what, progress=behind)
    except AssertionError as late:
        said = [f"{one.family.name}: {one.errors} {one.shown}" for one in clients]
        raise AssertionError("\n".join([str(late), f"behind: {behind()}", *said])) from None


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


def judge(servers: Servers, clients: Sequence[Verifiable], kills: int) -> None:
    """Print the result of each client. Fail if a client lost records or got an error that is not
    allowed."""
    faults = []
    for one in clients:
        report = one.judge(servers.bootstrap)
        errors = ", ".join(f"{error} {count}" for error, count in one.errors.items()) or "none"
        tell(
            f"{one.family.name} {one.family.version()}: {kills} kills, "
            f"{report.line()}, given again {one.given_again}; errors: {errors}"
        )
        unforeseen = [error for error in one.errors if error not in one.family.allowed]
        if unforeseen or not report.is_clean:
            faults.append(f"{one.family.name}: {unforeseen}\n{report.text()}\n{one.shown}")
    assert not faults, "\n".join(faults)


def run(
    servers: Servers,
    folder: Path,
    wanted: Sequence[Family],
    kills: int,
    every_s: float,
    chance: random.Random,
) -> None:
    create_topics(servers, wanted)
    with ExitStack() as stack:
        clients = []
        for family in wanted:
            try:
                client = Verifiable(family, servers.bootstrap, folder)
            except pytest.skip.Exception as reason:
                tell(f"{family.name}: not run, {reason}")
                continue
            clients.append(stack.enter_context(client))
        killed_by_turns(servers, clients, kills, every_s, chance)
        for one in clients:
            one.finish()
        judge(servers, clients, kills)


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
