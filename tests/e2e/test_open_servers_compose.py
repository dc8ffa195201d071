"""Redis and MySQL of a mill in containers as a reader on another machine sees them, and what the
reader cannot do.

They are opened and closed by the documented commands while files arrive. The reader's machine is a
network namespace beside the machine's own one, in which the container engine works.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pymysql
import pytest
import redis
import yaml

from appliance.launch.opening import first_fixed, version_of
from sinks.config import MySqlSettings, RedisSettings, SinkTls
from sinks.connections import connect_mysql, redis_client
from sinks.errors import SinkUnavailable
from sinks.read import ask_mysql, ask_redis
from tests.e2e.containers import PROJECT, counts, mill_in_containers
from tests.e2e.mill import SHIPPED
from tests.e2e.test_open_compose import NAME, STRANGER, Scene
from tests.harness.namespaces import Namespaces, can_be_made
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(3_600)]

REDIS, MYSQL = 6380, 3307
OPEN = "network: {{open: [redis, mysql], listen: 0.0.0.0, names: [{}, {}]}}\n"
FILES = (
    "COMPOSE_FILE=docker-compose.yml:docker-compose.open-redis.yml:docker-compose.open-mysql.yml\n"
)
READERS_MAX = 20
COUNTED_S = 480.0
"""Nothing is counted while the brokers restart and until Redis and MySQL run again."""
COUNTS = "SELECT status, `count` FROM requests_by_status WHERE size = 'all'"


@dataclass
class ReaderScene(Scene):
    """The mill in containers, and the reader's machine with the passwords that it was given."""

    passwords: dict[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """The address of the mill's machine, which is the second name in the certificates."""
        return self.spaces.router_of(STRANGER)

    @property
    def ca(self) -> str:
        return str(self.mill.folder / "ca.pem")

    def redis(self, **changes: object) -> RedisSettings:
        given = RedisSettings(
            host=self.host,
            port=REDIS,
            username="reader",
            password=self.passwords.get("redis"),
            tls=SinkTls(ca=self.ca),
        )
        return given.model_copy(update=changes)

    def mysql(self, **changes: object) -> MySqlSettings:
        given = MySqlSettings(
            host=self.host,
            port=MYSQL,
            user="reader",
            password=self.passwords.get("mysql", ""),
            tls=SinkTls(ca=self.ca),
        )
        return given.model_copy(update=changes)

    def configure(self, network: str) -> None:
        """Write the shipped configuration with these sections and one broker."""
        shipped = yaml.safe_load(SHIPPED.read_text())
        shipped["cluster"]["brokers"] = 1
        file = self.mill.folder / "configs" / "millrace.yaml"
        file.write_text(yaml.safe_dump({**shipped, **(yaml.safe_load(network) or {})}))

    def take_passwords(self) -> None:
        """Get the CA's certificate and the readers' passwords by the documented commands."""
        mill = self.mill
        get = ("run", "--rm", "-T", "--entrypoint", "cat")
        Path(self.ca).write_text(mill.compose(*get, "cli", "/mill/data/ca.pem"))
        for name in ("redis", "mysql"):
            path = f"/mill/data/secrets/readers/{name}"
            self.passwords[name] = mill.compose(*get, "init", path)

    def wait_counted(self) -> None:
        """Wait until exactly everything is counted, whether or not Redis is open."""
        expected = {status: str(count) for status, count in self.wanted.items()}
        wait_until(lambda: self.found() == expected, COUNTED_S, f"Redis shows {expected}")

    def found(self) -> dict[str, str]:
        """Return the counts in Redis; nothing while it restarts."""
        try:
            return counts()
        except redis.RedisError:
            pass
        if not self.passwords:
            return {}
        try:
            here = self.redis(host="127.0.0.1")
            with redis_client(here, 5.0) as client:
                return dict(client.hgetall("mill:requests_by_status:all"))
        except redis.RedisError:
            return {}

    def secret(self, service: str, name: str) -> str:
        """Return a secret of the mill itself, as the server's container sees it."""
        return self.mill.compose("exec", "-T", service, "cat", f"/run/millrace/{name}")

    def run(self, *command: str, **variables: str) -> str:
        """Run a program on the reader's machine, which knows the mill by its name."""
        done = subprocess.run(
            [*self.prefix, *command],
            env={**os.environ, **variables}, capture_output=True, text=True, check=False,
            timeout=60,
        )  # fmt: skip
        return done.stdout + done.stderr


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[ReaderScene]:
    if not can_be_made():
        pytest.skip("only root can make a network namespace")
    with Namespaces((STRANGER,)) as spaces, mill_in_containers(tmp_path) as mill:
        mill.compose("build", "init", "stream")
        yield ReaderScene(mill, spaces)


def test_redis_and_mysql_in_containers_are_opened_and_closed_while_the_mill_counts(
    scene: ReaderScene,
) -> None:
    mill = scene.mill
    before = scene.reached()
    scene.configure("")
    mill.compose("up", "--detach", "--wait")
    assert scene.reached() == before, "a closed mill is not reached"
    scene.drop()
    scene.wait_counted()

    refuse_what_does_not_agree(scene, before)
    scene.configure(OPEN.format(NAME, scene.host))
    # `bin/compose-roll` begins with this. The test needs the passwords to see the counts.
    mill.compose("run", "--rm", "-T", "init")
    scene.take_passwords()
    with scene.dropping():
        mill.roll()
    assert scene.reached() == sorted([*before, REDIS, MYSQL])
    expected = {status: str(count) for status, count in scene.wanted.items()}
    with scene.spaces.inside(STRANGER):
        with redis_client(scene.redis(), 5.0) as client:
            assert client.hgetall("mill:requests_by_status:all") == expected
        with connect_mysql(scene.mysql()) as link, link.cursor() as cursor:
            cursor.execute(COUNTS)
            assert {status: str(count) for status, count in cursor.fetchall()} == expected
    read_with_the_tools(scene, expected)
    refuse_without_tls_or_password(scene)
    take_all_connections(scene)
    told = mill.cli("doctor")
    assert "MySQL with TLS and a password at 0.0.0.0, port 3307; Redis with TLS" in told
    server = mill.compose("exec", "-T", "redis", "redis-server", "--version")
    version = version_of(server)
    assert version is not None
    is_old = first_fixed(version) is not None
    assert ("CVE-2026-81934" in told) is is_old, "doctor asks the server for its version"
    mill.cli("status")
    keep_the_passwords(scene)

    (mill.folder / ".env").unlink()
    scene.configure("")
    with scene.dropping():
        mill.roll()
    assert scene.reached() == before
    # `down --volumes` knows only the volumes of the compose files that are used.
    left = [f"{PROJECT}_sockets-{name}" for name in ("redis", "mysql")]
    subprocess.run(["docker", "volume", "rm", *left], check=True, capture_output=True)
    here = {"host": "127.0.0.1", "tls": None}
    with pytest.raises(SinkUnavailable, match="1045"):
        ask_mysql(scene.mysql(**here))
    assert ask_mysql(scene.mysql(**here, password=scene.secret("mysql", "reader")))


def refuse_what_does_not_agree(scene: ReaderScene, before: list[int]) -> None:
    """Check that no part starts if the file and the compose files differ, and that a server that is
    published and not opened does not start even alone. The compose files are used afterwards."""
    mill = scene.mill
    scene.configure(OPEN.format(NAME, scene.host))
    refused = mill.attempt("up", "--detach", "--wait")
    assert refused.returncode != 0, "the further compose files are not used yet"
    scene.configure("")
    (mill.folder / ".env").write_text(FILES)
    refused = mill.attempt("up", "--detach", "--wait")
    assert refused.returncode != 0, "the file opens nothing"
    for name, missing in (("redis", "open.conf"), ("mysql", "open.options")):
        mill.compose("up", "--detach", "--no-deps", name)
        mill.wait_logged(name, missing)
    assert scene.reached() == before


def read_with_the_tools(scene: ReaderScene, expected: dict[str, str]) -> None:
    """Read the counts with the documented commands, which check the name in the certificate."""
    if shutil.which("redis-cli"):
        said = scene.run(
            *("redis-cli", "--tls", "--cacert", scene.ca, "--sni", NAME, "-h", NAME),
            *("-p", str(REDIS), "--user", "reader", "--no-auth-warning"),
            *("HGET", "mill:requests_by_status:all", "404"),
            REDISCLI_AUTH=scene.passwords["redis"],
        )
        assert said.strip() == expected["404"]
    if shutil.which("mysql"):
        said = scene.run(
            *("mysql", "--no-defaults", f"--ssl-ca={scene.ca}", "--ssl-verify-server-cert"),
            *("-h", NAME, "-P", str(MYSQL), "-u", "reader", "-N", "-B", "-e", COUNTS, "millrace"),
            MYSQL_PWD=scene.passwords["mysql"],
        )
        assert dict(line.split("\t") for line in said.splitlines()) == expected


def refuse_without_tls_or_password(scene: ReaderScene) -> None:
    """Check that nothing is read over the network without TLS, or with another password."""
    of_parts = {name: scene.secret("mysql", name) for name in ("reader", "mill", "root")}
    with scene.spaces.inside(STRANGER):
        for settings in (
            scene.redis(tls=None),
            scene.redis(password="wrong-password"),
            scene.redis(username=None, password=None),
            scene.redis(password="reader"),
        ):
            with pytest.raises(SinkUnavailable):
                ask_redis(settings)
        for user, password in (("reader", "wrong-password"), *of_parts.items()):
            with pytest.raises(SinkUnavailable, match="1045"):
                ask_mysql(scene.mysql(user=user, password=password))
        with pytest.raises(pymysql.err.OperationalError, match=r"Access denied|secure"):
            connect_mysql(scene.mysql(tls=None), ssl_disabled=True)
        assert ask_mysql(scene.mysql())["seq"]


def take_all_connections(scene: ReaderScene) -> None:
    """Let the reader take as many connections as it can. New lines are counted all the same."""
    with ExitStack() as stack:
        with scene.spaces.inside(STRANGER):
            for _ in range(READERS_MAX):
                stack.enter_context(connect_mysql(scene.mysql()))
                client = stack.enter_context(redis_client(scene.redis(), 10.0))
                assert client.ping()
            with pytest.raises(pymysql.err.OperationalError, match="max_user_connections"):
                connect_mysql(scene.mysql())
        scene.drop()
        scene.wait_counted()


def keep_the_passwords(scene: ReaderScene) -> None:
    """Check that no password is in a log or in what the engine says about the containers."""
    mill = scene.mill
    secrets = [*scene.passwords.values()]
    secrets += [scene.secret("mysql", name) for name in ("reader", "mill", "root")]
    secrets += [scene.secret("redis", name) for name in ("password", "monitor")]
    names = mill.compose("ps", "--all", "--quiet").split()
    told = subprocess.run(["docker", "inspect", *names], capture_output=True, text=True, check=True)
    said = mill.compose("logs") + told.stdout
    assert len(said) > 10_000
    assert not any(one in said for one in secrets)
