"""Fifty consumers of three client libraries in one group join, leave and die.

Every record must be read at least once. The offsets topic, which is never compacted here, must show
that no partition had two owners in one generation and that no committed offset went back. The
members must report the same assignments as that topic. Processes with five members each end by
SIGTERM (the members leave) or by SIGKILL (their sessions expire). Once the broker itself is killed.
"""

import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from protocol.messages.group import DescribeGroupsRequest
from tests.harness.broker import BrokerProcess
from tests.harness.group_log import assigned_partitions, check_given, check_group_log, group_log
from tests.harness.group_processes import Members
from tests.harness.seed import seeded
from tests.harness.tally import tell
from tests.harness.wait import wait_until
from tests.harness.wire import WireClient

pytestmark = [pytest.mark.live, pytest.mark.slow]

PARTITIONS = 60
FAMILIES = ("confluent", "aiokafka", "kafka-python")
PER_PROCESS = 5
CONSUMERS = 50
ROUNDS = int(os.environ.get("MILLRACE_SOAK_ROUNDS", "12"))
ROUND_RECORDS = 3_000
DEADLINE_S = 180.0

# The checks need the whole history of the group, so never compact the offsets topic.
SETTINGS: dict[str, object] = {
    "group.initial.rebalance.delay.ms": 1_000,
    "log.cleaner.enable": False,
}


def shared_by(bootstrap: str) -> frozenset[str]:
    """Return the ids of the members if fifty members own all partitions, otherwise an empty set.

    This sends DescribeGroups itself. librdkafka's administration client forgets its only broker
    for good if the broker restarts between two requests.
    """
    with WireClient(bootstrap) as client:
        (group,) = client.ask(DescribeGroupsRequest(groups=["soak"]), 5).groups
    shares = [assigned_partitions(one.member_assignment) for one in group.members]
    owned = {partition for share in shares for partition in share}
    is_settled = (group.group_state, len(shares), len(owned)) == ("Stable", CONSUMERS, PARTITIONS)
    return frozenset(one.member_id for one in group.members) if is_settled else frozenset()


def others_than(bootstrap: str, known: frozenset[str]) -> frozenset[str]:
    """Return the ids as `shared_by` does, but only after the members of a new process have
    joined."""
    found = shared_by(bootstrap)
    return found if len(found - known) >= PER_PROCESS else frozenset()


def test_fifty_consumers_of_three_families(tmp_path: Path) -> None:
    chance = seeded("group soak")
    with BrokerProcess(tmp_path / "broker", SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("soak", PARTITIONS, 1)])["soak"].result(30)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20,
                             "enable.idempotence": True})  # fmt: skip
        members = Members(broker, tmp_path, "soak", "soak")
        alive: list[int] = []
        written = ends = kills = 0

        def join_one() -> None:
            members.add(FAMILIES[len(members.processes) % 3], PER_PROCESS)
            alive.append(len(members.processes) - 1)

        try:
            for _ in range(CONSUMERS // PER_PROCESS):
                join_one()
            before = wait_until(
                lambda: shared_by(broker.bootstrap), DEADLINE_S, "fifty share the topic"
            )
            for round_number in range(ROUNDS):
                for number in range(ROUND_RECORDS):
                    producer.produce("soak", b"%d" % number, partition=number % PARTITIONS)
                written += ROUND_RECORDS
                assert producer.flush(60) == 0
                index = alive.pop(chance.randrange(len(alive)))
                number = chance.choice((signal.SIGTERM, signal.SIGKILL))
                members.end(index, number)
                kills += number is signal.SIGKILL
                ends += number is signal.SIGTERM
                join_one()
                if round_number == ROUNDS // 2:
                    broker.kill9()
                    broker.start()
                begin = time.monotonic()
                if chance.random() < 0.75:
                    others = partial(others_than, broker.bootstrap, before)
                    before = wait_until(others, DEADLINE_S, "fifty again")
                print(f"round {round_number}: {number.name}, {time.monotonic() - begin:.1f} s")
            wait_until(lambda: shared_by(broker.bootstrap), DEADLINE_S, "fifty at the end")
            wait_until(lambda: len(members.read()) == written, DEADLINE_S, "all is read")
        finally:
            members.close()
        log = group_log(broker.bootstrap, "soak")
        checked = check_group_log(log)
        shares = check_given(members.given(), log)
        tell(
            f"group soak: {written} records, {kills} kills of {PER_PROCESS} members, "
            f"{ends} times they left: 0 lost; "
            f"{checked.generations} generations, {shares} shares given as they are stored, "
            f"{checked.commits} commits"
        )
        assert shares >= CONSUMERS
        assert checked.generations >= ROUNDS / 2
        assert "Traceback" not in broker.log_text()
