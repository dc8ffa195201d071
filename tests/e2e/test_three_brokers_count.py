"""A whole mill with three brokers, two of which are killed with -9 while lines are counted.

Every line is in its topic once and in its file's order. MySQL and Redis contain exactly what was
written, and the page names the broker that is down.
"""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from appliance.supervisor.control import ask
from protocol.status import fetch_status
from tests.crash.test_mill_under_load import TOPIC, Load, check, config
from tests.e2e.mill import TempMill, temp_mill
from tests.e2e.reading import Reading
from tests.harness.tally import tell
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

RATE = 1_000
"""Lines per second."""
COUNTED_S = 60.0
PAGE_S = 10.0
OWN_TOPICS = (TOPIC, "millrace.positions", "__consumer_offsets", "__transaction_state")


@pytest.fixture
def reading(tmp_path: Path) -> Iterator[Reading]:
    with temp_mill(tmp_path / "mill") as mill:
        mill.write_config(config())
        mill.up()
        yield Reading(mill)
        print(mill.log_ends(6))


class Cluster:
    """The brokers of a mill, seen by a Kafka client and by the supervisor."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.mill: TempMill = reading.mill
        servers = self.mill.bootstrap(1, 2, 3)
        self.admin = AdminClient({"bootstrap.servers": servers})

    def leader(self) -> str:
        """Return the broker that leads partition 0 of the topic."""
        topic = self.admin.list_topics(TOPIC, timeout=10).topics[TOPIC]
        return f"broker-{topic.partitions[0].leader}"

    def controller(self) -> str:
        """Wait until all brokers name the same controller, and return that broker."""

        def named() -> Any:
            ports = range(self.mill.ports["broker_status"], self.mill.ports["broker_status"] + 3)
            told = {
                fetch_status("127.0.0.1", port, 5.0).details.get("controller_id") for port in ports
            }
            return told.pop() if len(told) == 1 else None

        return f"broker-{wait_until(named, COUNTED_S, 'one controller')}"

    def kill(self, name: str) -> None:
        assert self.reading.process(name).signal(signal.SIGKILL)

    def supervise(self, command: str, name: str) -> None:
        assert ask(self.mill.home.socket, {"command": command, "part": name}, 20.0)["ok"]


def passed_ms(condition: Callable[[], Any], what: str) -> int:
    """Wait until a condition is true. Return the time that this took, in milliseconds."""
    begin = time.monotonic()
    wait_until(condition, COUNTED_S, what)
    return round((time.monotonic() - begin) * 1_000)


def own_topics(cluster: Cluster) -> dict[str, Any]:
    """Return the mill's own topics by name, or an empty dict until all of them exist.

    A group's first commit creates the topic of group offsets. This can come after the first counted
    lines.
    """
    topics = cluster.admin.list_topics(timeout=10).topics
    return topics if all(name in topics for name in OWN_TOPICS) else {}


def check_replication(cluster: Cluster) -> None:
    topics = wait_until(lambda: own_topics(cluster), COUNTED_S, f"the topics {OWN_TOPICS}")
    for name in OWN_TOPICS:
        replicas = [sorted(one.replicas) for one in topics[name].partitions.values()]
        assert replicas == [[1, 2, 3]] * len(replicas), name
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in OWN_TOPICS]
    for described in cluster.admin.describe_configs(resources).values():
        assert described.result(10)["min.insync.replicas"].value == "2"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_brokers_die_while_lines_are_counted_and_every_line_counts_once(reading: Reading) -> None:
    cluster = Cluster(reading)
    load = Load(reading, int(time.time()) // 10 * 10, RATE)
    told: list[str] = []

    def counted() -> int:
        return sum(map(int, reading.redis("mill:requests_by_status:all").values()))

    def goes_on(killed: str) -> None:
        before = counted()
        took = passed_ms(lambda: counted() > before + RATE, f"counts go on without {killed}")
        told.append(f"{killed}: 1,000 further lines counted after {took} ms")

    def kill_both() -> None:
        wait_until(lambda: counted() > RATE, COUNTED_S, "the first lines are counted")
        check_replication(cluster)
        # Kill the leader and keep it down until the page shows that. Counting must continue.
        leader = cluster.leader()
        cluster.kill(leader)
        cluster.supervise("stop-part", leader)
        goes_on(leader)
        names = (f"{leader} down", f"{leader.replace('-', ' ')} down")
        wait_until(
            lambda: any(name in reading.page("/") for name in names), PAGE_S, "the page names it"
        )
        assert cluster.mill.status()[leader]["state"] == "stopped"
        assert cluster.mill.run("status").code == 3
        cluster.supervise("restart", leader)
        wait_until(
            lambda: {row["state"] for row in reading.parts().values()} == {"healthy"},
            COUNTED_S,
            "all are healthy again",
        )
        # Kill the controller, too. This time the supervisor starts the broker again.
        controller = cluster.controller()
        before = reading.parts()[controller]["restarts"]
        cluster.kill(controller)
        goes_on(controller)
        wait_until(
            lambda: (
                reading.parts()[controller]["restarts"] > before
                and reading.parts()[controller]["state"] == "healthy"
            ),
            COUNTED_S,
            f"{controller} was started again",
        )

    load.run(kill_both)
    check(load)
    tell(f"a mill with three brokers: {load.count} lines, lost 0, doubled 0; {'; '.join(told)}")
