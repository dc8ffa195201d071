"""Redis and MySQL of a mill as a reader on another machine sees them, and what the reader cannot
do.

The mill runs in a network namespace, and the reader's machine is a second one.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import psutil
import pymysql
import pytest

from appliance.mill.init import read_secret
from sinks.config import MySqlSettings, RedisSettings, SinkTls
from sinks.connections import connect_mysql, redis_client
from sinks.errors import SinkUnavailable
from sinks.read import ask_mysql, ask_redis
from sinks.tls import client_context
from tests.e2e.mill import SHIPPED, Result, TempMill, temp_mill
from tests.harness.namespaces import Namespaces, can_be_made, own_network
from tests.harness.port_scan import open_ports
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

READER = 1
"""The namespace of the reader's machine."""
NAME = "mill.example.test"
COUNTED_S = 180.0
LINE = '192.0.2.9 - - [28/Nov/2026:09:00:00 +0000] "GET /z HTTP/1.1" {} 1 "-" "curl/8.5.0"\n'
STATUSES = Counter({"200": 40, "404": 7, "503": 3})
CONNECTIONS = 500


@dataclass
class Scene:
    """The open mill, and what was said when it was opened."""

    mill: TempMill
    spaces: Namespaces
    told_by_up: Result
    passwords: dict[str, str]
    lines: Counter[str] = field(default_factory=Counter)

    @property
    def host(self) -> str:
        """The address of the mill's machine."""
        return self.spaces.router_of(READER)

    @property
    def ca(self) -> str:
        return str(self.mill.home.data / "ca.pem")

    def redis(self, **changes: object) -> RedisSettings:
        given = RedisSettings(
            host=self.host,
            port=self.mill.ports["redis"],
            username="reader",
            password=self.passwords["redis"],
            tls=SinkTls(ca=self.ca),
        )
        return given.model_copy(update=changes)

    def mysql(self, **changes: object) -> MySqlSettings:
        given = MySqlSettings(
            host=self.host,
            port=self.mill.ports["mysql"],
            user="reader",
            password=self.passwords["mysql"],
            tls=SinkTls(ca=self.ca),
        )
        return given.model_copy(update=changes)

    def write_lines(self) -> dict[str, str]:
        """Write a file of lines. Return the counts that all lines so far must give."""
        self.lines += STATUSES
        name = f"{sum(self.lines.values())}.log"
        text = "".join(LINE.format(status) for status in STATUSES.elements())
        (self.mill.home.folder / "watched" / "access" / name).write_text(text)
        return {status: str(count) for status, count in self.lines.items()}

    def run(self, *command: str, **variables: str) -> str:
        """Run a program on the reader's machine, which knows the mill by its name."""
        hosts = self.mill.home.folder / "hosts"
        hosts.write_text(f"{self.host} {NAME}\n")
        done = subprocess.run(
            [
                *self.spaces.command(READER),
                *("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"'),
                *(str(hosts), *command),
            ],
            env={**os.environ, **variables}, capture_output=True, text=True, check=False,
            timeout=60,
        )  # fmt: skip
        return done.stdout + done.stderr


def write(mill: TempMill, network: str) -> None:
    mill.write_config(f"{network}\n{SHIPPED.read_text().replace('brokers: 3 ', 'brokers: 1 ')}")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    if not can_be_made():
        pytest.skip("network namespaces need root")
    folder = tmp_path_factory.mktemp("open") / "mill"
    with own_network(), Namespaces((READER,)) as spaces, temp_mill(folder) as mill:
        host = spaces.router_of(READER)
        write(mill, "")
        mill.up()
        with spaces.inside(READER):
            assert open_ports(host) == []
        write(mill, f"network: {{open: [redis, mysql], listen: 0.0.0.0, names: [{NAME}, {host}]}}")
        told = mill.run("up", "--apply")
        assert told.code == 0, f"{told.err}\n{mill.log_ends()}"
        passwords = {name: read_secret(mill.home, f"readers/{name}") for name in ("redis", "mysql")}
        yield Scene(mill, spaces, told, passwords)


def test_pitfall_40_another_machine_reaches_the_opened_ports_alone(scene: Scene) -> None:
    with scene.spaces.inside(READER):
        found = open_ports(scene.host)
    assert found == sorted([scene.mill.ports["redis"], scene.mill.ports["mysql"]])


def test_up_status_and_doctor_say_what_is_open(scene: Scene) -> None:
    assert "mysql, redis, stream, monitor restart" in scene.told_by_up.err
    told = scene.told_by_up.out + scene.told_by_up.err
    for title, name in (("Redis", "redis"), ("MySQL", "mysql")):
        text = f"{title} with TLS and a password at 0.0.0.0, port {scene.mill.ports[name]}"
        assert text in told
        assert text in scene.mill.run("status").err
        assert f"password in data/secrets/readers/{name}" in told


def test_readers_read_counts_with_the_tools_of_their_machine(scene: Scene) -> None:
    """The name of the certificate is checked by these tools too."""
    expected = scene.write_lines()
    with scene.spaces.inside(READER), redis_client(scene.redis(), 5.0) as client:
        wait_until(
            lambda: client.hgetall("mill:requests_by_status:all") == expected,
            COUNTED_S,
            f"Redis shows {expected}",
        )
    if shutil.which("redis-cli"):
        port = str(scene.mill.ports["redis"])
        found = scene.run(
            *("redis-cli", "--tls", "--cacert", scene.ca, "--sni", NAME, "-h", NAME, "-p", port),
            *("--user", "reader", "--no-auth-warning"),
            *("HGET", "mill:requests_by_status:all", "404"),
            REDISCLI_AUTH=scene.passwords["redis"],
        )
        assert found.strip() == expected["404"]
    if shutil.which("mysql"):
        found = scene.run(
            *("mysql", "--no-defaults", f"--ssl-ca={scene.ca}", "--ssl-verify-server-cert"),
            *("-h", NAME, "-P", str(scene.mill.ports["mysql"]), "-u", "reader", "-N", "-B"),
            "-e",
            "SELECT SUM(`count`) FROM millrace.requests_by_status WHERE size = '1m'",
            MYSQL_PWD=scene.passwords["mysql"],
        )
        assert found.strip() == str(sum(scene.lines.values()))


def test_without_tls_or_with_a_wrong_password_nothing_is_read(scene: Scene) -> None:
    home = read_secret(scene.mill.home, "mysql/reader")
    mill_password = read_secret(scene.mill.home, "mysql/mill")
    with scene.spaces.inside(READER):
        for settings in (
            scene.redis(tls=None),
            scene.redis(password="wrong-password"),
            scene.redis(username=None, password=None),
            scene.redis(password="reader"),
        ):
            with pytest.raises(SinkUnavailable):
                ask_redis(settings)
        for wrong in (
            scene.mysql(password="wrong-password"),
            scene.mysql(password=home),
            scene.mysql(user="mill", password=mill_password),
            scene.mysql(user="root", password=""),
        ):
            with pytest.raises(SinkUnavailable, match="1045"):
                ask_mysql(wrong)
        with pytest.raises(pymysql.err.OperationalError, match=r"Access denied|secure"):
            connect_mysql(scene.mysql(tls=None), ssl_disabled=True)
        assert ask_mysql(scene.mysql())["seq"]


def test_a_reader_that_takes_all_it_can_does_not_stop_the_counts(scene: Scene) -> None:
    """The reader opens 500 connections to Redis and as many as possible to MySQL, and asks for
    answers that it does not read. In the meantime new lines are counted, and every part stays
    healthy."""
    with ExitStack() as stack:
        with scene.spaces.inside(READER):
            for _ in range(CONNECTIONS):
                client = stack.enter_context(redis_client(scene.redis(), 10.0))
                assert client.ping()
            with pytest.raises(pymysql.err.OperationalError, match="max_user_connections"):
                for _ in range(CONNECTIONS):
                    stack.enter_context(connect_mysql(scene.mysql()))
            context = client_context(scene.ca, "sinks.redis")
            address = (scene.host, scene.mill.ports["redis"])
            plain = stack.enter_context(socket.create_connection(address, 20))
            link = stack.enter_context(context.wrap_socket(plain, server_hostname=NAME))
        link.sendall(f"AUTH reader {scene.passwords['redis']}\r\n".encode())
        assert link.recv(64) == b"+OK\r\n"
        link.sendall(b"HGETALL mill:requests_by_status:all\r\n" * 200_000)
        expected = scene.write_lines()
        wait_until(
            lambda: scene.mill.show("requests_by_status") == expected,
            COUNTED_S,
            f"show prints {expected}",
        )
        states = {name: row["state"] for name, row in scene.mill.status().items()}
        assert set(states.values()) == {"healthy"}, states
        assert all(row["restarts"] == 0 for row in scene.mill.status().values())


def test_pitfall_23_passwords_are_in_no_log_process_list_or_output(scene: Scene) -> None:
    home = scene.mill.home
    names = ("readers/redis", "readers/mysql", "redis/monitor", "redis/password", "mysql/reader")
    secrets = [read_secret(home, name) for name in names]
    outputs = [scene.told_by_up.out, scene.told_by_up.err]
    for command in (("status", "--json"), ("doctor", "--json"), ("config", "show")):
        done = scene.mill.run(*command)
        outputs += [done.out, done.err]
    for process in psutil.process_iter(["cmdline", "environ"]):
        outputs.append(json.dumps([process.info["cmdline"], process.info["environ"]]))
    outputs += [path.read_text(errors="replace") for path in home.logs.rglob("*.log")]
    assert len(outputs) > 20
    said = "\n".join(outputs)
    assert [name for name, one in zip(names, secrets, strict=True) if one in said] == []


def test_closing_takes_everything_back(scene: Scene) -> None:
    """This test is the last one, because it closes the mill."""
    write(scene.mill, "")
    told = scene.mill.run("up", "--apply")
    assert told.code == 0, f"{told.err}\n{scene.mill.log_ends()}"
    with scene.spaces.inside(READER):
        assert open_ports(scene.host) == []
    here = {"host": "127.0.0.1", "tls": None}
    expected = scene.write_lines()
    with redis_client(scene.redis(**here, username=None, password=None), 5.0) as client:
        wait_until(
            lambda: client.hgetall("mill:requests_by_status:all") == expected,
            COUNTED_S,
            f"Redis shows {expected} to every account of this machine",
        )
    with pytest.raises(SinkUnavailable, match="1045"):
        ask_mysql(scene.mysql(**here))
    assert ask_mysql(scene.mysql(**here, password=read_secret(scene.mill.home, "mysql/reader")))
    assert not (scene.mill.home.secrets / "readers" / "redis").exists()
