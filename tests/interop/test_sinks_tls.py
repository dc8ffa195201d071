"""Servers of the user's own with TLS: Redis and MySQL are reached only if their certificate is
right."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sinks.config import MySqlSettings, RedisSettings, SinksSettings, SinkTls
from sinks.connections import connect_mysql, redis_client
from sinks.errors import SinkUnavailable
from sinks.read import ask_mysql, ask_redis
from sinks.store import Sinks
from tests.harness import worked
from tests.harness.certificates import TestAuthority, new_test_authority
from tests.harness.mysql import MySqlServer
from tests.harness.ports import free_port
from tests.harness.redis import RedisServer

pytestmark = pytest.mark.live

OTHER_NAME = "192.0.2.1"
"""A name that no server here has. The test dials 127.0.0.1, so a certificate for it is wrong."""


@dataclass
class Stage:
    """Both servers with TLS and a CA. The plain port of Redis is for the test alone."""

    authority: TestAuthority
    redis: RedisServer
    mysql: MySqlServer
    tls_port: int

    def redis_settings(self, ca: Path | None = None) -> RedisSettings:
        return self.redis.settings.model_copy(
            update={"port": self.tls_port, "tls": SinkTls(ca=str(ca or self.authority.file))}
        )

    def mysql_settings(self, ca: Path | None = None) -> MySqlSettings:
        tls = SinkTls(ca=str(ca or self.authority.file))
        return self.mysql.new_database().model_copy(update={"tls": tls})

    def reload(self) -> None:
        """Let both servers read their certificates again."""
        folder = self.authority.folder
        client: Any = self.redis.client()
        client.config_set("tls-cert-file", str(folder / "server.pem"))
        self.mysql.as_root("FLUSH SSL")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("sinks-tls")
    authority = new_test_authority(folder / "certificates")
    files, tls_port = authority.write("server"), free_port()
    for_redis = [
        *("--tls-port", str(tls_port), "--tls-auth-clients", "no"),
        *("--tls-cert-file", files.certificate, "--tls-key-file", files.key),
        *("--tls-ca-cert-file", str(authority.file)),
    ]
    for_mysql = [f"--ssl-cert={files.certificate}", f"--ssl-key={files.key}"]
    with (
        RedisServer(folder / "redis", options=for_redis) as redis_server,
        MySqlServer(folder / "mysql", options=for_mysql) as mysql_server,
    ):
        yield Stage(authority, redis_server, mysql_server, tls_port)


@pytest.fixture
def stranger(tmp_path: Path) -> TestAuthority:
    """Return a CA that has not signed the servers' certificates."""
    return new_test_authority(tmp_path / "stranger")


def fault_of_redis(settings: RedisSettings) -> str:
    with pytest.raises(SinkUnavailable) as raised:
        ask_redis(settings)
    return raised.value.reason


def fault_of_mysql(settings: MySqlSettings) -> str:
    with pytest.raises(SinkUnavailable) as raised:
        ask_mysql(settings)
    return raised.value.reason


def test_counts_are_stored_over_tls(stage: Stage) -> None:
    settings = SinksSettings(mysql=stage.mysql_settings(), redis=stage.redis_settings())
    sinks = Sinks(settings, worked.DEFINITIONS)
    sinks.open(worked.QUERY)
    sinks.apply(worked.BATCH_7)
    assert sinks.ledger() == {("logs.access", 0): 4, ("logs.api", 0): 4}
    sinks.close()
    assert settings.redis is not None and settings.mysql is not None
    assert int(str(ask_redis(settings.redis)["keys"])) > 0
    assert ask_mysql(settings.mysql)["seq"] == 1
    with connect_mysql(settings.mysql) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW STATUS LIKE 'Ssl_version'")
        assert cursor.fetchone() in {("Ssl_version", "TLSv1.2"), ("Ssl_version", "TLSv1.3")}
    with redis_client(settings.redis, 5.0) as client:
        link: Any = client.connection_pool.get_connection()
        assert isinstance(link._sock, ssl.SSLSocket)


def test_a_ca_that_did_not_sign_is_refused(stage: Stage, stranger: TestAuthority) -> None:
    redis = fault_of_redis(stage.redis_settings(stranger.file))
    mysql = fault_of_mysql(stage.mysql_settings(stranger.file))
    assert "put the server's CA into sinks.redis.tls.ca" in redis
    assert "put the server's CA into sinks.mysql.tls.ca" in mysql


def test_the_cas_of_the_system_do_not_count_beside_a_file(
    stage: Stage, stranger: TestAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `ca: null` they are trusted. In this test the servers' CA is one of the system's."""
    monkeypatch.setenv("SSL_CERT_FILE", str(stage.authority.file))
    system = SinkTls(ca=None)
    assert ask_redis(stage.redis_settings().model_copy(update={"tls": system}))["keys"] is not None
    assert ask_mysql(stage.mysql_settings().model_copy(update={"tls": system}))
    assert "is refused" in fault_of_redis(stage.redis_settings(stranger.file))
    assert "is refused" in fault_of_mysql(stage.mysql_settings(stranger.file))


def test_pitfall_42_a_certificate_for_another_name_is_refused(stage: Stage, tmp_path: Path) -> None:
    kept = stage.authority.leaf("server")
    stage.authority.write("server", stage.authority.leaf("server", names=(OTHER_NAME,)))
    stage.reload()
    try:
        redis = fault_of_redis(stage.redis_settings())
        mysql = fault_of_mysql(stage.mysql_settings())
    finally:
        stage.authority.write("server", kept)
        stage.reload()
    assert "write a name of the certificate into sinks.redis.host" in redis
    assert "write a name of the certificate into sinks.mysql.host" in mysql
    assert ask_redis(stage.redis_settings()) and ask_mysql(stage.mysql_settings())


def test_an_expired_certificate_is_refused_until_it_is_renewed(stage: Stage) -> None:
    kept = stage.authority.leaf("server")
    client = redis_client(stage.redis_settings(), 5.0)
    assert client.ping()
    stage.authority.write("server", stage.authority.over())
    stage.reload()
    try:
        assert "renew the certificate of the server" in fault_of_redis(stage.redis_settings())
        assert "renew the certificate of the server" in fault_of_mysql(stage.mysql_settings())
        client.connection_pool.disconnect()
        with pytest.raises(Exception, match=r"sinks\.redis is refused"):
            client.ping()
    finally:
        stage.authority.write("server", kept)
        stage.reload()
    assert client.ping(), "the same client connects again"
    client.close()
    assert ask_mysql(stage.mysql_settings())


def test_a_replaced_ca_is_used_without_a_restart(
    stage: Stage, stranger: TestAuthority, tmp_path: Path
) -> None:
    """The client keeps the path of the file, and reads the file at each connection."""
    kept, trusted = stage.authority.leaf("server"), tmp_path / "trusted.pem"
    shutil.copy(stage.authority.file, trusted)
    client = redis_client(stage.redis_settings(trusted), 5.0)
    mysql = stage.mysql_settings(trusted)
    assert client.ping() and ask_mysql(mysql)
    stage.authority.write("server", stranger.leaf("server"))
    stage.reload()
    try:
        client.connection_pool.disconnect()
        with pytest.raises(Exception, match=r"put the server's CA into sinks\.redis\.tls\.ca"):
            client.ping()
        shutil.copy(stranger.file, trusted)
        assert client.ping() and ask_mysql(mysql)
    finally:
        client.close()
        stage.authority.write("server", kept)
        stage.reload()


@contextmanager
def plain_answers(answer: bytes) -> Iterator[int]:
    """Yield the port of a server that gives each client this answer and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    link, _ = listening.accept()
                except OSError:
                    return
                with link:
                    link.recv(4096)
                    link.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def test_pitfall_42_a_server_without_tls_gets_no_password(
    stage: Stage, mysql_server: MySqlServer
) -> None:
    """PyMySQL alone would log in without TLS. A plain Redis does not answer the handshake."""
    tls = SinkTls(ca=str(stage.authority.file))
    plain = mysql_server.new_database()
    assert ask_mysql(plain)
    assert "the server of sinks.mysql does not speak TLS on this port" in fault_of_mysql(
        plain.model_copy(update={"tls": tls})
    )
    expected = "the server of sinks.redis does not speak TLS on this port"
    with plain_answers(b"-ERR unknown command\r\n") as port:
        assert expected in fault_of_redis(stage.redis_settings().model_copy(update={"port": port}))
    assert expected in fault_of_redis(
        stage.redis_settings().model_copy(update={"port": stage.redis.port})
    )


def test_a_file_of_cas_that_is_gone_is_named(stage: Stage, tmp_path: Path) -> None:
    gone = tmp_path / "gone.pem"
    assert "sinks.redis.tls.ca" in fault_of_redis(stage.redis_settings(gone))
    assert "No such file" in fault_of_redis(stage.redis_settings(gone))
    assert "sinks.mysql.tls.ca" in fault_of_mysql(stage.mysql_settings(gone))
    gone.write_text("no certificate\n")
    assert "no certificate in PEM format" in fault_of_redis(stage.redis_settings(gone))
    assert "no certificate in PEM format" in fault_of_mysql(stage.mysql_settings(gone))


def test_a_client_without_tls_sees_nothing_of_a_port_with_tls(stage: Stage) -> None:
    plain = stage.redis_settings().model_copy(update={"tls": None})
    with pytest.raises(SinkUnavailable):
        ask_redis(plain)
