"""`up`, `down` and `status` with real brokers and databases, in good order and with faults."""

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest
import redis

from appliance.machine.processes import read_record
from appliance.mill.init import read_secret
from tests.e2e.mill import SERVERS_ONLY, TempMill, temp_mill
from tests.harness.ports import free_port
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

DEADLINE_S = 60.0


@pytest.fixture
def mill(tmp_path: Path) -> Iterator[TempMill]:
    with temp_mill(tmp_path / "mill") as made:
        made.write_config(SERVERS_ONLY)
        yield made


def pids(mill: TempMill) -> dict[str, int]:
    return {name: row["pid"] for name, row in mill.status().items()}


def test_up_twice_down_twice(mill: TempMill) -> None:
    first = mill.up()
    assert "the mill is up" in first.err
    assert f"http://127.0.0.1:{mill.ports['monitor']}" in first.err
    assert "make down" in first.err
    before = pids(mill)
    assert set(before) == {"mysql", "redis", "broker-1", "monitor"}

    second = mill.up()
    assert "runs already" in second.err
    assert pids(mill) == before

    assert mill.run("down").code == 0
    stopped = mill.run("status")
    assert stopped.code == 3
    assert "not running" in stopped.err
    again = mill.run("down")
    assert again.code == 0
    assert "was not running" in again.err
    assert all(read_record(path) is None for path in mill.home.run.glob("*.json"))


def test_what_was_stored_and_made_is_kept(mill: TempMill) -> None:
    mill.up()
    secrets = {p: p.read_text() for p in mill.home.secrets.rglob("*") if p.is_file()}
    with mysql(mill, "mill") as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE kept (n INT)")
        cursor.execute("INSERT INTO kept VALUES (42)")
        connection.commit()
    assert mill.run("down").code == 0
    mill.up()
    assert {p: p.read_text() for p in mill.home.secrets.rglob("*") if p.is_file()} == secrets
    with mysql(mill, "reader") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT n FROM kept")
        assert cursor.fetchone() == (42,)
        with pytest.raises(pymysql.MySQLError):
            cursor.execute("INSERT INTO kept VALUES (43)")


def mysql(mill: TempMill, user: str) -> "pymysql.Connection[pymysql.cursors.Cursor]":
    return pymysql.connect(
        host="127.0.0.1",
        port=mill.ports["mysql"],
        user=user,
        password=read_secret(mill.home, f"mysql/{user}"),
        database="millrace",
    )


def test_redis_lets_strangers_read_the_mills_keys_and_nothing_else(mill: TempMill) -> None:
    mill.up()
    password = read_secret(mill.home, "redis/password")
    sink = redis.Redis(port=mill.ports["redis"], username="mill", password=password)
    sink.hset("mill:m:all", "200", "7")
    with pytest.raises(redis.exceptions.NoPermissionError):
        sink.set("other", "1")
    anybody = redis.Redis(port=mill.ports["redis"], decode_responses=True)
    assert anybody.hgetall("mill:m:all") == {"200": "7"}
    for refused in (
        lambda: anybody.set("mill:x", 1),
        lambda: anybody.keys("*"),
        lambda: anybody.flushall(),
        lambda: anybody.config_get("*"),
        lambda: anybody.get("other"),
        lambda: anybody.eval("return 1", 0),
        lambda: anybody.publish("mill:updates", "x"),
    ):
        with pytest.raises(redis.exceptions.NoPermissionError):
            refused()


def test_a_killed_server_comes_back(mill: TempMill) -> None:
    mill.up()
    for name in ("redis", "mysql", "broker-1"):
        record = read_record(mill.home.part_record(name))
        assert record is not None
        assert record.signal(signal.SIGKILL)
        wait_until(
            lambda name=name, pid=record.pid: (  # type: ignore[misc]
                (row := mill.status()[name])["state"] == "healthy" and row["pid"] != pid
            ),
            DEADLINE_S,
            f"{name} is back",
        )


def test_a_supervisor_that_was_killed_leaves_nothing_in_the_way(mill: TempMill) -> None:
    mill.up()
    before = pids(mill)
    supervisor = read_record(mill.home.pid_file)
    assert supervisor is not None
    supervisor.signal(signal.SIGKILL)
    again = mill.up()
    assert "the mill is up" in again.err
    assert not set(before.values()) & set(pids(mill).values())


def test_a_port_in_use_is_named_with_its_setting_and_holder(mill: TempMill) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", mill.ports["redis"]))
        holder.listen()
        result = mill.run("up")
    assert result.code == 1
    assert f"port {mill.ports['redis']} (ports.redis, for redis)" in result.err
    assert "in use by process" in result.err
    assert "python" in result.err
    assert "nothing was started" in result.err
    assert mill.run("status").code == 3
    assert not mill.home.secrets.exists()


def test_a_faulty_configuration_starts_nothing(mill: TempMill) -> None:
    mill.write_config("colector: {}\nstream: {trigr: 1s}\ncluster: {brokers: 2}")
    result = mill.run("up")
    assert result.code == 2
    lines = [line for line in result.err.splitlines() if "millrace.yaml:" in line]
    assert len(lines) == 3
    assert "millrace.yaml:1:1: colector" in lines[0]
    assert "3 faults" in result.err
    assert not mill.home.data.exists()


def test_a_fault_made_while_it_runs_stops_nothing(mill: TempMill) -> None:
    mill.up()
    before = pids(mill)
    good = mill.home.config_file.read_text()
    mill.home.config_file.write_text("colector: {}")
    assert mill.run("restart").code == 2
    record = read_record(mill.home.part_record("redis"))
    assert record is not None
    record.signal(signal.SIGKILL)
    # The restarted Redis must keep the configuration with which the mill was started.
    port = f"host: {mill.ports['host']}"
    assert port in good
    mill.home.config_file.write_text(good.replace(port, f"host: {free_port()}"))
    wait_until(
        lambda: (
            (row := mill.status()["redis"])["state"] == "healthy" and row["pid"] != before["redis"]
        ),
        DEADLINE_S,
        "redis is back",
    )
    # The advice comes from `up`, or from the supervisor if it has already read the changed file.
    assert "`./millrace up --apply`" in mill.up().err


def test_the_data_of_another_cluster_is_refused(mill: TempMill) -> None:
    mill.up()
    mill.run("down")
    (mill.home.secrets / "broker-1" / "cluster_id").write_text("BBBBBBBBQBCBBBBBBBBBBB")
    result = mill.run("up")
    assert result.code == 1
    assert "belongs to another cluster" in result.err
    assert "BBBBBBBBQBCBBBBBBBBBBB" in result.err


def test_a_missing_server_is_named(mill: TempMill) -> None:
    mill.environ["PATH"] = "/nonexistent"
    result = mill.run("doctor", "--json")
    found = {row["what"]: row for row in json.loads(result.out)["data"]}
    assert found["configuration"]["level"] == "ok"
    if found["Redis server"]["level"] == "failed":
        assert result.code == 3
        assert "make setup" in found["Redis server"]["remedy"]


def test_one_part_restarts_on_request(mill: TempMill) -> None:
    mill.up()
    before = pids(mill)
    result = mill.run("restart", "redis")
    assert result.code == 0, result.err
    after = pids(mill)
    assert after["redis"] != before["redis"]
    assert after["mysql"] == before["mysql"]
    assert mill.run("restart", "absent").code == 4


def test_logs_and_doctor(mill: TempMill) -> None:
    mill.up()
    assert "ready for connections" in mill.run("logs", "mysql", "-n", "200").out
    together = mill.run("logs", "-n", "3").out
    assert "broker-1" in together
    assert " | " in together
    unknown = mill.run("logs", "absent")
    assert unknown.code == 4
    assert "redis" in unknown.err
    doctor = mill.run("doctor")
    assert doctor.code == 0, doctor.out
    assert "disk flush" in doctor.out


def test_a_changed_file_restarts_just_the_parts_it_concerns(mill: TempMill) -> None:
    mill.up()
    before = pids(mill)
    old, mill.ports["monitor"] = mill.ports["monitor"], free_port()
    mill.write_config(SERVERS_ONLY)
    said = mill.run("up")
    assert said.code == 0
    assert "monitor restarts with `./millrace up --apply`" in said.err
    # `up` prints the address in the running configuration, not the one in the saved file.
    assert f"http://127.0.0.1:{old}" in said.err
    assert pids(mill) == before

    applied = mill.run("up", "--apply")
    assert applied.code == 0, applied.err
    assert f"http://127.0.0.1:{mill.ports['monitor']}" in applied.err
    after = pids(mill)
    assert after["monitor"] != before["monitor"]
    assert {name: pid for name, pid in after.items() if name != "monitor"} == {
        name: pid for name, pid in before.items() if name != "monitor"
    }
    assert mill.run("up").err.splitlines()[0] == "the mill runs already"

    # Switch Redis off in the file, and on again.
    mill.write_config(SERVERS_ONLY + "sinks: {redis: null}\n")
    assert mill.run("up", "--apply").code == 0
    assert set(pids(mill)) == {"mysql", "broker-1", "monitor"}
    mill.write_config(SERVERS_ONLY)
    assert mill.run("up", "--apply").code == 0
    assert set(pids(mill)) == {"mysql", "redis", "broker-1", "monitor"}


def test_a_part_is_stopped_and_started_by_hand(mill: TempMill) -> None:
    mill.up()
    assert mill.run("stop", "redis").code == 0
    assert mill.status()["redis"]["state"] == "stopped"
    assert mill.run("status").code == 3
    assert mill.run("start", "redis").code == 0
    assert mill.status()["redis"]["state"] == "healthy"
    assert mill.run("stop", "absent").code == 4
    mill.run("stop", "redis")
    assert "the mill runs already" in mill.run("up").err
    assert mill.status()["redis"]["state"] == "healthy"
