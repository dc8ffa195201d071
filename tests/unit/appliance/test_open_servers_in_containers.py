"""The files and settings of an open Redis and MySQL whose mill is in containers (decision 0247)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import redis

from appliance.checks import redis_version
from appliance.checks.opened import opened_text
from appliance.cli.app import main
from appliance.config.load import load_text
from appliance.launch.servers import write_container_files
from appliance.mill.certificates import make_needed, shown
from appliance.mill.home import find_home
from appliance.mill.host_secrets import initialise_mill
from appliance.mill.init import read_secret, renew_readers
from appliance.mill.settings import Mill, settings_for

LOOPBACK = {"MILLRACE_PUBLISHED": "loopback"}
PUBLISHED = {
    "MILLRACE_PUBLISHED_REDIS": "0.0.0.0:6380",
    "MILLRACE_PUBLISHED_MYSQL": "0.0.0.0:3307",
}
BOTH = "network: {open: [redis, mysql], listen: 0.0.0.0, names: [mill.example.org]}\n"
METRIC = (
    "collector: {inputs: [{paths: [a/*], topic: logs.a}]}\n"
    "stream: {from: {a: {topic: logs.a, format: common}},"
    " metrics: [{name: n, from: a, measure: count}]}\n"
)


def mill(folder: Path, text: str) -> Mill:
    """Return a mill in containers for which `init` has run."""
    environ = {**LOOPBACK, **(PUBLISHED if "open" in text else {})}
    home = find_home({"MILLRACE_HOME": str(folder), **environ})
    config = load_text(f"{text}{METRIC}", "mill.yaml", folder, environ).config
    found = Mill.of(home, config, in_containers=True)
    initialise_mill(home, config, found.placement)
    make_needed(home, config, datetime.now(UTC))
    renew_readers(home, config.network.open)
    write_container_files(found)
    return found


def written(folder: Path, name: str) -> list[str]:
    return (folder / "data" / "secrets" / name).read_text().splitlines()


def test_redis_has_one_listener_with_tls_and_no_user_without_a_password(tmp_path: Path) -> None:
    found = mill(tmp_path, BOTH)
    lines = written(tmp_path, "redis/open.conf")
    for wanted in (
        'dir "/data"',
        "bind 0.0.0.0",
        "port 0",
        "tls-port 6379",
        'tls-cert-file "/run/millrace/tls.pem"',
        'tls-key-file "/run/millrace/tls.key"',
        'tls-ca-cert-file "/run/millrace/ca.pem"',
        "unixsocket /run/sockets/redis/redis.sock",
        # Only the containers of the mill's parts see the folder, and all users have passwords.
        "unixsocketperm 777",
        "maxclients 1000",
        "timeout 300",
        "maxmemory-clients 256mb",
        "user default off -@all",
    ):
        assert wanted in lines
    assert not any("nopass" in line for line in lines)
    secrets = ("readers/redis", "redis/monitor", "redis/password")
    assert not any(read_secret(found.home, name) in line for name in secrets for line in lines)


def test_mysql_demands_tls_and_keeps_the_mills_accounts_off_the_network(tmp_path: Path) -> None:
    mill(tmp_path, BOTH)
    options = written(tmp_path, "mysql/open.options")
    for wanted in (
        "--bind-address=0.0.0.0",
        "--ssl-cert=/run/millrace/tls.pem",
        "--ssl-key=/run/millrace/tls.key",
        "--require-secure-transport=ON",
        "--max-connections=200",
        "--socket=/run/sockets/mysql/mysqld.sock",
    ):
        assert wanted in options
    assert not any(" " in one for one in options), "a shell splits the file into words"
    statements = written(tmp_path, "mysql/users.sql")
    for host in ("'mill'@'%'", "'root'@'%'"):
        assert f"DROP USER IF EXISTS {host};" in statements
    assert any(
        one.startswith("GRANT ALL PRIVILEGES") and "@'localhost'" in one for one in statements
    )
    [limited] = [one for one in statements if one.startswith("ALTER USER 'reader'@'%'")]
    assert " REQUIRE SSL WITH MAX_USER_CONNECTIONS 20 " in limited


def test_closing_removes_the_files_with_which_a_published_server_starts(tmp_path: Path) -> None:
    mill(tmp_path, BOTH)
    before = read_secret(mill(tmp_path, BOTH).home, "readers/mysql")
    closed = mill(tmp_path, "")
    secrets = closed.home.secrets
    assert not (secrets / "redis" / "open.conf").exists()
    assert not (secrets / "mysql" / "open.options").exists()
    assert not (secrets / "readers" / "redis").exists()
    statements = written(tmp_path, "mysql/users.sql")
    assert "DROP USER IF EXISTS 'reader'@'localhost';" in statements
    assert any("'reader'@'%'" in one and "REQUIRE NONE" in one for one in statements)
    assert read_secret(mill(tmp_path, BOTH).home, "readers/mysql") != before


def test_the_parts_use_the_sockets_that_they_share_with_the_servers(tmp_path: Path) -> None:
    found = mill(tmp_path, BOTH)
    for part, user in (("stream", "mill"), ("monitor", "monitor")):
        sinks = settings_for(found, part)["sinks"]
        assert sinks["redis"]["socket"] == "/run/sockets/redis/redis.sock"
        assert sinks["mysql"]["socket"] == "/run/sockets/mysql/mysqld.sock"
        assert sinks["redis"]["username"] == user
    for part in ("stream", "monitor"):
        sinks = settings_for(mill(tmp_path, ""), part)["sinks"]
        assert (sinks["redis"]["socket"], sinks["mysql"]["socket"]) == (None, None)


def test_status_says_the_ports_that_other_machines_reach(tmp_path: Path) -> None:
    assert opened_text(mill(tmp_path, BOTH)) == (
        "MySQL with TLS and a password at 0.0.0.0, port 3307;"
        " Redis with TLS and a password at 0.0.0.0, port 6380; names mill.example.org"
    )


def test_the_commands_for_certificates_are_those_of_compose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = mill(tmp_path, BOTH)
    remedies = {one.owner: one.remedy for one in shown(found.home, found.config)}
    assert "`docker compose restart redis` lets the server use it" in remedies["redis"]
    assert "run `docker compose run --rm init cert renew`" in remedies["CA"]
    for name, value in {"MILLRACE_HOME": str(tmp_path), **LOOPBACK, **PUBLISHED}.items():
        monkeypatch.setenv(name, value)
    found.home.config_file.parent.mkdir()
    found.home.config_file.write_text(f"{BOTH}{METRIC}")
    assert main(["cert", "renew", "--for", "mysql"]) == 0
    assert "`docker compose restart mysql` lets mysql use" in capsys.readouterr().err

    authority, ca = found.home.authority_key.parent, found.home.data / "ca.pem"
    assert f"--entrypoint find init {authority} -type f -delete`" in remedies["CA"]
    before = ca.read_bytes()
    for path in authority.iterdir():
        path.unlink()
    assert main(["cert", "renew"]) == 0, "the folder is a volume, so it stays"
    assert ca.read_bytes() != before


def test_doctor_warns_of_the_version_that_the_running_redis_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = mill(tmp_path, BOTH)
    monkeypatch.setattr(redis_version, "_asked", lambda mill: (7, 4, 2))
    [check] = redis_version.redis_version(found)
    assert "before 7.4.11" in check.found
    assert "docker compose pull redis" in check.remedy
    monkeypatch.undo()
    assert list(redis_version.redis_version(found)) == [], "it does not answer"


@pytest.mark.parametrize(
    "said",
    [
        {"server": "redis", "version": "7.4.2", "proto": 3},
        ["server", "redis", "version", "7.4.2", "proto", 2],
    ],
)
def test_the_version_is_read_in_both_versions_of_the_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: object
) -> None:
    monkeypatch.setattr(redis.Redis, "execute_command", lambda client, name: said)
    [check] = redis_version.redis_version(mill(tmp_path, BOTH))
    assert "version 7.4.2 has" in check.found
