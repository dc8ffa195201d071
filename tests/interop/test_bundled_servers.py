"""The bundled Redis and MySQL with the mill's own configuration, without the rest of the mill."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pymysql
import pytest
import redis

from appliance.config.load import load_text
from appliance.launch.opening import (
    MYSQL_CONNECTIONS_MAX,
    READERS_CONNECTIONS_MAX,
    REDIS_CONNECTIONS_MAX,
    REDIS_IDLE_S,
    STATEMENT_MAX_S,
)
from appliance.launch.servers import find_program, mysql_command, redis_command
from appliance.mill.certificates import make_needed
from appliance.mill.home import find_home
from appliance.mill.init import initialise, read_secret, renew_readers
from appliance.mill.parts import Placement
from appliance.mill.settings import Mill, sinks_settings
from appliance.mill.sinks import READER, SINK_USER
from appliance.supervisor.effects import ProbeResult
from appliance.supervisor.probes import probe
from sinks.config import MySqlSettings, RedisSettings, SinksSettings, SinkTls
from sinks.connections import connect_mysql, redis_client, short_path
from sinks.errors import SinkUnavailable
from sinks.read import ask_mysql, ask_redis
from sinks.store import Sinks
from tests.harness import worked
from tests.harness.ports import free_port
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

REDIS_ALONE = "network: {open: [redis], listen: '::', names: [mill.example.org]}\n"


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server, and stop it when the block ends."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield process
        process.terminate()
        assert process.wait(60) == 0, log.read_text()[-2000:]
    finally:
        process.kill()
        process.wait()


def mill_in(folder: Path, text: str) -> Mill:
    home = find_home({"MILLRACE_HOME": str(folder)})
    config = load_text(text, "mill.yaml", folder, {}).config
    initialise(home, config.cluster.broker_ids)
    return Mill(home, config, Placement())


def mysql_user(port: int, user: str, password: str, **options: Any) -> str:
    """Log in and return the account that the server has chosen. Raises pymysql.err.Error."""
    connection = pymysql.connect(
        host="127.0.0.1", port=port, user=user, password=password, connect_timeout=5, **options
    )
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT CURRENT_USER()")
        row = cursor.fetchone()
        assert row is not None
        return str(row[0])


@pytest.mark.skipif(find_program("mariadbd", "mysqld") is None, reason="no database server")
def test_root_needs_its_password_at_every_address(tmp_path: Path) -> None:
    port = free_port()
    mill = mill_in(tmp_path, f"ports: {{mysql: {port}}}")
    reader = read_secret(mill.home, "mysql/reader")
    with running(mysql_command(mill), tmp_path / "mysql.log"):
        wait_until(lambda: mysql_user(port, "reader", reader), 60, "MySQL answers")
        with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
            mysql_user(port, "root", "")


@dataclass
class Opened:
    """A mill whose servers are open on the loopback, under a name of its own."""

    mill: Mill
    redis_port: int
    mysql_port: int
    readers: dict[str, str]

    @property
    def tls(self) -> SinkTls:
        return SinkTls(ca=str(self.mill.home.data / "ca.pem"))

    def redis(self, **changes: Any) -> RedisSettings:
        given = {"username": "reader", "password": self.readers["redis"], "tls": self.tls}
        return RedisSettings(host="127.0.0.1", port=self.redis_port, **{**given, **changes})

    def mysql(self, **changes: Any) -> MySqlSettings:
        given = {"user": "reader", "password": self.readers["mysql"], "tls": self.tls}
        return MySqlSettings(host="127.0.0.1", port=self.mysql_port, **{**given, **changes})

    def own(self, user: str, part: str) -> SinksSettings:
        """Return the settings of one of the mill's own parts."""
        return SinksSettings.model_validate(sinks_settings(self.mill, user, part))


def opened_text(redis_port: int, mysql_port: int, more: str = "") -> str:
    return (
        "network: {open: [redis, mysql], listen: 127.0.0.1, names: [localhost]}\n"
        f"ports: {{redis: {redis_port}, mysql: {mysql_port}}}\n{more}"
    )


@contextmanager
def opened_servers(folder: Path, *, more: str = "") -> Iterator[Opened]:
    ports = free_port(), free_port()
    mill = mill_in(folder, opened_text(*ports, more))
    make_needed(mill.home, mill.config, datetime.now(UTC))
    renew_readers(mill.home, mill.config.network.open)
    readers = {name: read_secret(mill.home, f"readers/{name}") for name in ("redis", "mysql")}
    opened = Opened(mill, *ports, readers)
    own = opened.own(READER, "monitor")
    own_redis, own_mysql = own.redis, own.mysql
    assert own_redis is not None and own_mysql is not None
    with (
        running(redis_command(mill), folder / "redis.log"),
        running(mysql_command(mill), folder / "mysql.log"),
    ):
        wait_until(lambda: ask_redis(own_redis), 20, "Redis answers")
        wait_until(lambda: ask_mysql(own_mysql), 60, "MySQL answers")
        yield opened


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    with opened_servers(tmp_path_factory.mktemp("opened") / ("d" * 90)) as found:
        sinks = Sinks(found.own(SINK_USER, "stream"), worked.DEFINITIONS)
        sinks.open(worked.QUERY)
        sinks.apply(worked.BATCH_7)
        sinks.close()
        yield found


def test_readers_read_counts_over_tls_with_their_password(opened: Opened) -> None:
    with redis_client(opened.redis(), 5.0) as client:
        assert client.hgetall("mill:requests_by_status:1m")["200"] == "2"
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.set("mill:x", "1")
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.blpop(["mill:x"], 1)
    with connect_mysql(opened.mysql()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT SUM(`count`) FROM requests_by_status WHERE size = '1m'")
        row = cursor.fetchone()
        assert row is not None and row[0] > 0
        with pytest.raises(pymysql.err.OperationalError, match="denied"):
            cursor.execute("CREATE TABLE x (a INT)")


def test_the_settings_of_the_handbook_work(opened: Opened) -> None:
    """docs/howto/open-to-the-network.md shows these options of both libraries."""
    ca = opened.tls.ca
    with redis.Redis(
        host="localhost", port=opened.redis_port, username="reader",
        password=opened.readers["redis"], ssl=True, ssl_ca_certs=ca,
    ) as client:  # fmt: skip
        assert client.ping()
    with pymysql.connect(
        host="localhost", port=opened.mysql_port, user="reader", password=opened.readers["mysql"],
        database="millrace", ssl_ca=ca, ssl_verify_identity=True,
    ) as connection:  # fmt: skip
        connection.ping()


def test_a_wrong_password_or_none_reads_nothing(opened: Opened) -> None:
    mill_password = read_secret(opened.mill.home, "redis/password")
    home_password = read_secret(opened.mill.home, "mysql/reader")
    for changes in (
        {"password": "wrong"},
        {"username": None, "password": None},
        {"username": "default", "password": ""},
        {"password": "reader"},
    ):
        with pytest.raises(SinkUnavailable):
            ask_redis(opened.redis(**changes))
    for changes in (
        {"password": "wrong"},
        {"password": ""},
        {"password": home_password},
        {"user": "mill", "password": read_secret(opened.mill.home, "mysql/mill")},
        {"user": "root", "password": ""},
        {"user": "root", "password": read_secret(opened.mill.home, "mysql/root")},
    ):
        with pytest.raises(SinkUnavailable, match="1045"):
            ask_mysql(opened.mysql(**changes))
    assert ask_redis(opened.redis(username="mill", password=mill_password)), "the stream's own user"


def test_without_tls_the_ports_give_nothing(opened: Opened) -> None:
    with pytest.raises(SinkUnavailable):
        ask_redis(opened.redis(tls=None))
    with pytest.raises(pymysql.err.OperationalError, match=r"Access denied|secure"):
        mysql_user(opened.mysql_port, "reader", opened.readers["mysql"], ssl_disabled=True)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_old_versions_of_tls_are_refused(opened: Opened) -> None:
    context = ssl.create_default_context(cafile=opened.tls.ca)
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with (
        socket.create_connection(("127.0.0.1", opened.redis_port), 10) as link,
        pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"),
    ):
        context.wrap_socket(link, server_hostname="127.0.0.1")
    with pytest.raises(pymysql.err.OperationalError, match="ALERT_PROTOCOL_VERSION"):
        mysql_user(opened.mysql_port, "reader", opened.readers["mysql"], ssl=context)


def test_a_reader_that_takes_every_connection_stops_no_part_of_the_mill(opened: Opened) -> None:
    """MySQL refuses the readers' account beyond its limit. Redis accepts them all, because its
    limit is much higher."""
    own = opened.own(SINK_USER, "stream")
    assert own.redis is not None and own.mysql is not None
    with ExitStack() as stack:
        taken = 0
        with pytest.raises(pymysql.err.OperationalError, match="max_user_connections"):
            for _ in range(MYSQL_CONNECTIONS_MAX):
                stack.enter_context(connect_mysql(opened.mysql()))
                taken += 1
        assert taken == READERS_CONNECTIONS_MAX
        for _ in range(500):
            client = stack.enter_context(redis_client(opened.redis(), 5.0))
            assert client.ping()
        assert ask_mysql(own.mysql)["seq"] == 1
        assert ask_redis(own.redis)["keys"]
        for name in ("redis", "mysql"):
            part = opened.mill.part(name)
            assert part is not None
            assert asyncio.run(probe(part, opened.mill.home)) == (ProbeResult.OK, "")


def test_a_full_redis_says_so_and_is_not_taken_for_dead(opened: Opened) -> None:
    """The supervisor kills a part that gives no answer, but a full server answers with an error."""
    part = opened.mill.part("redis")
    assert part is not None
    with ExitStack() as stack:
        links = [
            stack.enter_context(socket.create_connection(("127.0.0.1", opened.redis_port), 10))
            for _ in range(REDIS_CONNECTIONS_MAX)
        ]
        found = wait_until(
            lambda: [one for one in [asyncio.run(probe(part, opened.mill.home))] if one[1]],
            20,
            "Redis is full",
        )
        assert len(links) == REDIS_CONNECTIONS_MAX
        assert found[0] == (ProbeResult.NOT_READY, "ERR max number of clients reached")
    wait_until(
        lambda: asyncio.run(probe(part, opened.mill.home))[0] is ProbeResult.OK, 20, "room again"
    )


def test_a_reader_that_does_not_read_its_answers_is_disconnected(opened: Opened) -> None:
    writer = opened.own(SINK_USER, "stream").redis
    assert writer is not None
    with redis_client(writer, 20.0) as client:
        client.hset("mill:large:all", mapping={str(one): "x" * 1_000 for one in range(4_000)})

        def connected() -> int:
            return int(client.info("clients")["connected_clients"])

        before = connected()
        context = ssl.create_default_context(cafile=opened.tls.ca)
        with (
            socket.create_connection(("127.0.0.1", opened.redis_port), 30) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as link,
        ):
            link.sendall(f"AUTH reader {opened.readers['redis']}\r\n".encode())
            assert link.recv(64) == b"+OK\r\n"
            assert connected() == before + 1
            link.sendall(b"HGETALL mill:large:all\r\n" * 100)
            wait_until(lambda: connected() == before, 60, "Redis disconnects the reader")
            assert int(client.info("memory")["mem_clients_normal"]) < 64 << 20
        client.delete("mill:large:all")


def accounts(mill: Mill) -> set[str]:
    """Return MySQL's accounts of the mill, by way of the user root and the server's socket."""
    with short_path(str(mill.home.part_data("mysql") / "db" / "mysqld.sock")) as path:
        connection = pymysql.connect(
            unix_socket=path, user="root", password=read_secret(mill.home, "mysql/root")
        )
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT CONCAT(user, '@', host) FROM mysql.user WHERE user IN (%s, %s)",
                       (SINK_USER, READER))  # fmt: skip
        return {row[0] for row in cursor.fetchall()}


def test_a_closed_mysql_has_no_trace_of_the_opening(tmp_path: Path) -> None:
    """MySQL is opened, closed and opened again, each time with the same data. The counts stay, and
    so do the views, whose definer is an account that the opening drops."""
    home = find_home({"MILLRACE_HOME": str(tmp_path)})
    with opened_servers(tmp_path) as opened:
        first = opened.readers
        sinks = Sinks(opened.own(SINK_USER, "stream"), worked.DEFINITIONS)
        sinks.open(worked.QUERY)
        sinks.apply(worked.BATCH_7)
        sinks.close()
        assert accounts(opened.mill) == {"mill@localhost", "reader@localhost", "reader@%"}
    ports = free_port(), free_port()
    closed = mill_in(tmp_path, f"ports: {{redis: {ports[0]}, mysql: {ports[1]}}}")
    renew_readers(home, closed.config.network.open)
    assert list((home.secrets / "readers").iterdir()) == []
    with running(mysql_command(closed), tmp_path / "mysql.log"):
        own = SinksSettings.model_validate(sinks_settings(closed, READER, "monitor")).mysql
        assert own is not None
        wait_until(lambda: ask_mysql(own), 60, "MySQL answers")
        assert accounts(closed) == {"mill@%", "reader@%"}
        assert ask_mysql(own)["seq"] == 1
        with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
            mysql_user(ports[1], "reader", first["mysql"])
        with ExitStack() as stack:
            for _ in range(READERS_CONNECTIONS_MAX + 5):
                stack.enter_context(connect_mysql(own))
        with connect_mysql(own) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT SUM(`count`) FROM requests_by_status WHERE size = '1m'")
            counted = cursor.fetchone()
    with opened_servers(tmp_path) as opened:
        assert set(first.values()).isdisjoint(opened.readers.values())
        with connect_mysql(opened.mysql()) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT SUM(`count`) FROM requests_by_status WHERE size = '1m'")
            assert cursor.fetchone() == counted
            cursor.execute("SELECT @@max_statement_time")
            row = cursor.fetchone()
            assert row is not None and float(row[0]) == STATEMENT_MAX_S


def test_the_stream_goes_on_after_redis_has_closed_its_idle_connection(tmp_path: Path) -> None:
    """A mill without lines sends no commands for longer than the limit, here one second."""
    port = free_port()
    mill = mill_in(tmp_path, f"{REDIS_ALONE}ports: {{redis: {port}}}\n")
    make_needed(mill.home, mill.config, datetime.now(UTC))
    renew_readers(mill.home, mill.config.network.open)
    own = SinksSettings.model_validate(sinks_settings(mill, SINK_USER, "stream")).redis
    assert own is not None
    command = redis_command(mill)
    file = Path(command[-1])
    text = file.read_text()
    assert f"timeout {REDIS_IDLE_S}\n" in text
    file.write_text(text.replace(f"timeout {REDIS_IDLE_S}\n", "timeout 1\n"))
    with running(command, tmp_path / "redis.log"):
        wait_until(lambda: ask_redis(own), 20, "Redis answers")
        with redis_client(own, 5.0) as idle, redis_client(own, 5.0) as watcher:
            assert idle.ping()
            wait_until(
                lambda: watcher.info("clients")["connected_clients"] == 1,
                20,
                "Redis closes the idle connection",
            )
            assert idle.ping()


def test_redis_as_the_only_sink_can_be_opened(tmp_path: Path) -> None:
    """Redis loads its file with the rights of the default user, which cannot log in."""
    text = "sinks: {mysql: null}\n"
    for _ in range(2):
        with opened_redis(tmp_path, text) as (settings, tls, password):
            sinks = Sinks(SinksSettings(redis=settings), worked.DEFINITIONS)
            sinks.open(worked.QUERY)
            sinks.apply(worked.BATCH_7)
            assert sinks.ledger() == {("logs.access", 0): 4, ("logs.api", 0): 4}
            sinks.close()
            for user, secret in (("default", ""), (None, None)):
                with pytest.raises(SinkUnavailable):
                    ask_redis(tls.model_copy(update={"username": user, "password": secret}))
            with redis_client(tls.model_copy(update={"password": password}), 5.0) as client:
                assert client.hgetall("mill:requests_by_status:1m")["200"] == "2"


@contextmanager
def opened_redis(folder: Path, more: str) -> Iterator[tuple[RedisSettings, RedisSettings, str]]:
    """Run an open Redis. Yield the settings of the stream and of a reader, and the password."""
    port = free_port()
    mill = mill_in(folder, f"{REDIS_ALONE}{more}ports: {{redis: {port}}}\n")
    make_needed(mill.home, mill.config, datetime.now(UTC))
    renew_readers(mill.home, mill.config.network.open)
    own = SinksSettings.model_validate(sinks_settings(mill, SINK_USER, "stream")).redis
    password = read_secret(mill.home, "readers/redis")
    assert own is not None
    tls = SinkTls(ca=str(mill.home.data / "ca.pem"))
    reader = RedisSettings(
        host="127.0.0.1", port=port, username="reader", password=password, tls=tls
    )
    with running(redis_command(mill), folder / "redis.log"):
        wait_until(lambda: ask_redis(own), 20, "Redis answers")
        yield own, reader, password
