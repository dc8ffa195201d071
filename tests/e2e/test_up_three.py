"""`cluster.brokers: 3` without the parts that need a JVM: up, down, stop and rolling restart."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from appliance.machine.processes import read_record
from appliance.operate import lifecycle
from appliance.supervisor.control import NoSupervisor
from appliance.supervisor.copies import readiness
from appliance.supervisor.effects import PartPhase
from tests.e2e.mill import TempMill, brokers_only, temp_mill
from tests.harness.collector import TopicReader
from tests.harness.number_writer import NumberWriter
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

BROKERS = ("broker-1", "broker-2", "broker-3")
NOT_SERVING = tuple(state for state in PartPhase if state is not PartPhase.HEALTHY)
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def mill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TempMill]:
    """Return one mill for all tests. A test can find it stopped, so each test calls `up` first."""
    with temp_mill(tmp_path_factory.mktemp("three") / "mill") as made:
        made.write_config(brokers_only("3"))
        yield made


def states(mill: TempMill) -> dict[str, str]:
    return {row["part"]: row["state"] for row in lifecycle.snapshot(mill.home)["parts"]}


@contextmanager
def watched(mill: TempMill, *states_meant: str) -> Iterator[list[frozenset[str]]]:
    """Yield a list of sets of brokers. Add the brokers in one of these states to the list each time
    the set changes."""
    seen: list[frozenset[str]] = []
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.005):
            try:
                found = states(mill)
            except NoSupervisor:
                continue
            these = frozenset(name for name in BROKERS if found[name] in states_meant)
            if not seen or seen[-1] != these:
                seen.append(these)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()


def test_three_brokers_start_together_and_are_one_cluster(mill: TempMill) -> None:
    told = mill.up().err
    before = {name: row["restarts"] for name, row in mill.status().items()}
    assert f"bootstrap.servers={mill.bootstrap(1, 2, 3)}" in told
    assert set(mill.status()) == {*BROKERS, "monitor", "redis"}
    assert all((mill.home.data / name / "meta.properties").exists() for name in BROKERS)
    listed = mill.run("broker", "list", "--json")
    assert listed.code == 0, listed.err
    logs = mill.run("logs", "-n", "3").out
    assert all(name in logs for name in BROKERS)

    admin = AdminClient({"bootstrap.servers": mill.bootstrap(1, 2, 3)})
    admin.create_topics([NewTopic("kept", -1, -1)])["kept"].result(30)
    partitions = admin.list_topics("kept", timeout=10).topics["kept"].partitions
    assert [len(one.replicas) for one in partitions.values()] == [3, 3, 3]

    record = read_record(mill.home.part_record("broker-2"))
    assert record is not None
    record.signal(signal.SIGKILL)
    wait_until(lambda: states(mill)["broker-2"] != "healthy", DEADLINE_S, "it is seen to be gone")
    wait_until(lambda: set(states(mill).values()) == {"healthy"}, DEADLINE_S, "it is back")
    rows = mill.status()
    assert [rows[name]["restarts"] - before[name] for name in BROKERS] == [0, 1, 0]
    # The mill's commands must work while any one of the three brokers is down.
    assert mill.run("stop", "broker-1").code == 0
    assert mill.run("status").code == 3
    assert '"kept"' in mill.run("topic", "list", "--json").out
    assert mill.run("start", "broker-1").code == 0


def test_changed_settings_reach_one_broker_after_the_other(mill: TempMill) -> None:
    mill.up()
    before = {name: row["pid"] for name, row in mill.status().items()}
    mill.write_config(brokers_only("3").replace("num.partitions: 3", "num.partitions: 5"))
    assert "restart one after the other with `./millrace up --apply`" in mill.run("up").err
    last = controller(mill)
    with watched(mill, *NOT_SERVING) as away:
        applied = mill.run("up", "--apply")
    assert applied.code == 0, applied.err
    assert [found for found in away if found] == turns_that_end_with(last)
    after = {name: row["pid"] for name, row in mill.status().items()}
    assert after["monitor"] == before["monitor"]
    assert not {after[name] for name in BROKERS} & {before[name] for name in BROKERS}
    admin = AdminClient({"bootstrap.servers": mill.bootstrap(1, 2, 3)})
    admin.create_topics([NewTopic("wider", -1, -1)])["wider"].result(30)
    assert len(admin.list_topics("wider", timeout=10).topics["wider"].partitions) == 5

    with watched(mill, *NOT_SERVING) as away:
        assert mill.run("restart", "broker-2").code == 0
    assert {"broker-2"} in away
    assert set().union(*away) == {"broker-2"}


def controller(mill: TempMill) -> str:
    """Return the broker that is the active controller."""

    def active() -> str | None:
        addresses = {
            row["part"]: ("127.0.0.1", int(row["address"].rpartition(":")[2]))
            for row in lifecycle.snapshot(mill.home)["parts"]
            if row["part"] in BROKERS
        }
        return readiness(addresses).controller

    wait_until(lambda: active() is not None, DEADLINE_S, "an active controller")
    found = active()
    assert found is not None
    return found


def turns_that_end_with(last: str) -> list[set[str]]:
    return [*({name} for name in BROKERS if name != last), {last}]


def test_a_rolling_restart_takes_one_broker_at_a_time_and_no_client_sees_it(
    mill: TempMill,
) -> None:
    mill.up()
    before = {name: row["pid"] for name, row in mill.status().items()}
    admin = AdminClient({"bootstrap.servers": mill.bootstrap(1, 2, 3)})
    admin.create_topics([NewTopic("rolled", 1, -1)])["rolled"].result(30)
    last = controller(mill)
    writer = NumberWriter(mill.bootstrap(1, 2, 3), "rolled")
    writer.start()
    with watched(mill, *NOT_SERVING) as away:
        rolled = mill.run("restart", "--rolling")
    writer.stop()
    assert rolled.code == 0, rolled.err
    assert "restarted one after the other" in rolled.err
    assert [found for found in away if found] == turns_that_end_with(last)
    after = {name: row["pid"] for name, row in mill.status().items()}
    assert [name for name in after if after[name] != before[name]] == list(BROKERS)
    assert writer.errors == []
    assert writer.written > 0
    reader = TopicReader(mill.bootstrap(1, 2, 3), "rolled", [0])
    assert reader.values(writer.written) == [b"%d" % one for one in range(writer.written)]
    reader.close()


def test_a_rolling_restart_of_named_brokers_leaves_the_others_alone(mill: TempMill) -> None:
    mill.up()
    refused = mill.run("restart", "--rolling", "monitor", "broker-4")
    assert refused.code == 4
    assert "no broker 'monitor', 'broker-4'; --rolling restarts broker-1, broker-2" in refused.err
    assert mill.run("restart", "broker-1", "broker-2").code == 2
    assert mill.run("restart", "--rolling", "--force").code == 2
    with watched(mill, *NOT_SERVING) as away:
        assert mill.run("restart", "--rolling", "broker-2").code == 0
    assert set().union(*away) == {"broker-2"}


def test_a_rolling_restart_goes_on_when_its_command_is_killed(mill: TempMill) -> None:
    mill.up()
    log = mill.home.part_log("supervisor")
    before = len(log.read_text())
    with mill.begin("restart", "--rolling") as command:
        wait_until(lambda: set(states(mill).values()) != {"healthy"}, DEADLINE_S, "a turn")
        command.kill()
    # A second command joins the restart that is under way. It must restart no broker twice.
    followed = mill.run("restart", "--rolling")
    assert followed.code == 0, followed.err
    turns = [line for line in log.read_text()[before:].splitlines() if "its turn" in line]
    assert len(turns) == len(BROKERS), turns


def test_a_broker_that_is_needed_is_stopped_by_force_alone(mill: TempMill) -> None:
    mill.up()
    admin = AdminClient({"bootstrap.servers": mill.bootstrap(1, 2, 3)})
    admin.create_topics([NewTopic("needed", 1, -1)])["needed"].result(30)
    assert mill.run("stop", "broker-3").code == 0
    before = mill.status()["broker-2"]["pid"]
    for verb, done in (("restart", "restarted"), ("stop", "stopped")):
        refused = mill.run(verb, "broker-2")
        assert refused.code == 3
        assert f"broker-2 was not {done}: without it" in refused.err
        assert "needed-0" in refused.err
        assert (
            "broker-3 does not run; run `./millrace start broker-3` first, or add --force"
            in refused.err
        )
    assert mill.status()["broker-2"]["pid"] == before
    assert mill.run("restart", "broker-2", "--force").code == 0
    assert mill.status()["broker-2"]["pid"] != before
    assert mill.run("start", "broker-3").code == 0
    # Restart the brokers one after the other, as a script does. Each command waits until the broker
    # restarted before is in sync again.
    for name in BROKERS:
        assert mill.run("restart", name).code == 0


def test_brokers_are_stopped_one_after_the_other(mill: TempMill) -> None:
    mill.up()
    with watched(mill, "stopping") as stopping:
        assert mill.run("down").code == 0
    turns = [found for found in stopping if found]
    assert turns == [{"broker-1"}, {"broker-2"}, {"broker-3"}]
    log = mill.home.part_log("supervisor").read_text()
    assert "killed" not in log, log
    mill.write_config(brokers_only("1"))
    refused = mill.run("up")
    assert refused.code == 1
    assert (
        "a cluster of three brokers cannot become one broker: set cluster.brokers: 3" in refused.err
    )
    mill.write_config(brokers_only("3"))
