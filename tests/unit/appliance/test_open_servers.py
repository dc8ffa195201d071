"""`network.open: [redis, mysql]`: its conditions, what restarts, and what the commands say."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from appliance.checks import redis_version, startup
from appliance.checks.opened import opened_text
from appliance.checks.startup import CheckLevel
from appliance.cli.app import main
from appliance.cli.summary import summary
from appliance.config.faults import ConfigFaults
from appliance.config.load import load_text
from appliance.launch import servers
from appliance.launch.opening import Version, first_fixed, version_of
from appliance.mill.certificates import make_needed, shown
from appliance.mill.home import find_home
from appliance.mill.init import initialise, read_secret, renew_readers
from appliance.mill.parts import Placement
from appliance.mill.settings import Mill, settings_for, sinks_settings
from appliance.mill.sinks import READER, SINK_USER
from appliance.supervisor.changes import differences

NAMES = "names: [mill.example.org]"
BOTH = f"network: {{open: [redis, mysql], {NAMES}, listen: 0.0.0.0}}\n"
REDIS = f"network: {{open: [redis], {NAMES}, listen: 0.0.0.0}}\n"
METRIC = (
    "collector: {inputs: [{paths: [a/*], topic: logs.a}]}\n"
    "stream: {from: {a: {topic: logs.a, format: common}},"
    " metrics: [{name: n, from: a, measure: count}]}\n"
)
PROGRAM = "/usr/bin/redis-server"


def mill(tmp_path: Path, text: str) -> Mill:
    home = find_home({"MILLRACE_HOME": str(tmp_path)})
    config = load_text(text, "mill.yaml", tmp_path, {}).config
    initialise(home, config.cluster.broker_ids)
    return Mill(home, config, Placement())


def opened_mill(tmp_path: Path, text: str = BOTH) -> Mill:
    of = mill(tmp_path, text)
    make_needed(of.home, of.config, datetime.now(UTC))
    renew_readers(of.home, of.config.network.open)
    return of


def faults_of(text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigFaults) as raised:
        load_text(text, "mill.yaml", Path("/nowhere"), environ or {})
    return [str(fault) for fault in raised.value.faults]


@pytest.mark.parametrize(
    ("text", "found", "expected"),
    [
        (
            "network: {open: [redis], listen: 0.0.0.0}",
            "network.open: found [redis] without network.names",
            "the names or addresses that clients dial",
        ),
        (
            f"network: {{open: [mysql], {NAMES}}}\nsinks: {{mysql: null}}",
            "network.open[0]: found 'mysql' beside sinks.mysql: null",
            "only the bundled server can be opened",
        ),
        (
            f"network: {{open: [redis], {NAMES}}}\nsinks: {{redis: {{host: h}}}}",
            "network.open[0]: found 'redis' beside sinks.redis.host",
            "only the bundled server can be opened",
        ),
        (
            "network: {open: [mysql], names: [localhost], listen: 0.0.0.0}",
            "network.names[0]: found 'localhost'",
            "a first name that clients on other machines can dial",
        ),
    ],
)
def test_a_condition_that_is_missing_is_a_fault(text: str, found: str, expected: str) -> None:
    [fault] = faults_of(text)
    assert found in fault
    assert expected in fault


def test_it_needs_no_users_of_the_brokers() -> None:
    """Such a mill does not even need brokers of its own."""
    text = f"{BOTH}security: {{super_users: []}}\ncluster: {{bootstrap_servers: 'k:9092'}}\n"
    load_text(text, "mill.yaml", Path("/nowhere"), {})
    [fault] = faults_of(BOTH.replace("[redis", "[kafka, redis"))
    assert "network.login: found null beside network.listen: 0.0.0.0" in fault


def test_the_mills_parts_use_the_sockets_and_passwords_of_their_own(tmp_path: Path) -> None:
    of = opened_mill(tmp_path)
    writes, reads = (
        sinks_settings(of, user, part)
        for user, part in ((SINK_USER, "stream"), (READER, "monitor"))
    )
    assert writes["redis"]["socket"] == str(tmp_path / "data" / "redis" / "redis.sock")
    assert writes["mysql"]["socket"] == str(tmp_path / "data" / "mysql" / "db" / "mysqld.sock")
    assert reads["redis"]["username"] == "monitor"
    assert reads["redis"]["password"] == read_secret(of.home, "redis/monitor")
    assert reads["mysql"]["password"] == read_secret(of.home, "mysql/reader")
    readers = {read_secret(of.home, f"readers/{name}") for name in ("redis", "mysql")}
    for part in ("monitor", "broker-1", "collector"):
        if of.part(part):
            assert not any(secret in str(settings_for(of, part)) for secret in readers)


def test_each_opening_has_a_new_password_that_only_its_owner_reads(tmp_path: Path) -> None:
    of = opened_mill(tmp_path)
    before = read_secret(of.home, "readers/redis")
    assert renew_readers(of.home, ("redis", "mysql")) == [], "a start changes nothing"
    assert read_secret(of.home, "readers/redis") == before
    path = of.home.secrets / "readers" / "redis"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert renew_readers(of.home, ("mysql",)) == []
    assert not path.exists()
    assert renew_readers(of.home, ("mysql", "redis")) == ["readers/redis"]
    assert read_secret(of.home, "readers/redis") != before


def test_opening_restarts_the_server_and_its_clients_alone(tmp_path: Path) -> None:
    closed = mill(tmp_path, METRIC)
    opened = opened_mill(
        tmp_path, f"network: {{open: [redis], {NAMES}, listen: 0.0.0.0}}\n{METRIC}"
    )
    assert differences(closed, opened).changed == ("redis", "stream", "monitor")
    assert differences(opened, closed).changed == ("redis", "stream", "monitor")
    named = mill(
        tmp_path,
        f"network: {{open: [redis], names: [other.example.org], listen: 0.0.0.0}}\n{METRIC}",
    )
    assert differences(opened, named).changed == ("redis",), "it has another certificate"


def test_redis_has_one_listener_with_tls_and_no_user_without_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = opened_mill(tmp_path)
    monkeypatch.setattr(servers, "find_program", lambda *names: f"/usr/bin/{names[0]}")
    for told, is_limited in (("v=6.2.24 ", False), ("v=7.0.15 ", True), ("", False)):
        monkeypatch.setattr(servers, "version_text", lambda program, told=told: told)
        servers.redis_command(of)
        lines = (tmp_path / "data" / "redis" / "redis.conf").read_text().splitlines()
        assert ("maxmemory-clients 256mb" in lines) is is_limited, "Redis 6 refuses the setting"
    for wanted in (
        "bind 0.0.0.0",
        "port 0",
        "tls-port 6380",
        "tls-auth-clients no",
        "maxclients 1000",
        "timeout 300",
        "client-output-buffer-limit normal 64mb 32mb 10",
        "user default off -@all",
    ):
        assert wanted in lines
    assert not any("nopass" in line for line in lines)
    secrets = ("readers/redis", "redis/monitor", "redis/password")
    assert not any(read_secret(of.home, name) in line for name in secrets for line in lines)


def test_redis_binds_all_addresses_of_both_kinds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = opened_mill(tmp_path, BOTH.replace("0.0.0.0", "'::'"))
    monkeypatch.setattr(servers, "find_program", lambda *names: f"/usr/bin/{names[0]}")
    monkeypatch.setattr(servers, "version_text", lambda program: "")
    servers.redis_command(of)
    assert "bind * ::*\n" in (tmp_path / "data" / "redis" / "redis.conf").read_text()


def test_mysql_demands_tls_and_keeps_the_mills_accounts_off_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = opened_mill(tmp_path)
    monkeypatch.setattr(servers, "find_program", lambda *names: f"/usr/bin/{names[0]}")
    (tmp_path / "data" / "mysql" / "db").mkdir(parents=True)
    command = servers.mysql_command(of)
    at = {option: command.index(option) for option in command}
    assert at["--bind-address=0.0.0.0"] > at["--bind-address=127.0.0.1"], "the last one counts"
    assert "--require-secure-transport=ON" in command
    statements = (tmp_path / "data" / "mysql" / "users.sql").read_text().splitlines()
    assert "DROP USER IF EXISTS 'mill'@'%';" in statements
    [limited] = [one for one in statements if one.startswith("ALTER USER 'reader'@'%'")]
    assert " REQUIRE SSL WITH MAX_USER_CONNECTIONS 20 " in limited
    alone = servers.mysql_command(of, is_alone=True)
    assert "--skip-networking" in alone
    assert not any("ssl" in option for option in alone), "a backup needs no certificate"


def test_up_status_and_doctor_say_what_is_open(tmp_path: Path) -> None:
    of = opened_mill(tmp_path)
    assert opened_text(of) == (
        "MySQL with TLS and a password at 0.0.0.0, port 3307;"
        " Redis with TLS and a password at 0.0.0.0, port 6380; names mill.example.org"
    )
    told = "\n".join(summary(of))
    assert "redis-cli -s data/redis/redis.sock --user reader --askpass" in told
    assert "mysql --socket=data/mysql/db/mysqld.sock --user=reader -p millrace" in told
    for name in ("redis", "mysql"):
        assert f"password in data/secrets/readers/{name}" in told
        assert read_secret(of.home, f"readers/{name}") not in told


def test_certificates_are_made_shown_and_renewed_with_a_restart(tmp_path: Path) -> None:
    of = opened_mill(tmp_path)
    found = {one.owner: one for one in shown(of.home, of.config)}
    assert set(found) == {"CA", "redis", "mysql"}
    assert {"mill.example.org", "127.0.0.1", "localhost", "redis"} == set(found["redis"].names)
    assert "`./millrace restart redis` lets the server use it" in found["redis"].remedy
    assert make_needed(of.home, of.config, datetime.now(UTC)) == []


def test_cert_renew_says_which_server_must_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    of = opened_mill(tmp_path)
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    of.home.config_file.parent.mkdir()
    of.home.config_file.write_text(BOTH)
    path = of.home.part_secrets("redis") / "tls.pem"
    before = path.read_bytes()
    assert main(["cert", "renew", "--for", "redis"]) == 0
    told = capsys.readouterr()
    assert path.read_bytes() != before
    assert "data/secrets/redis/tls.pem" in told.out
    assert "`./millrace restart redis` lets redis use its certificate" in told.err
    assert "restart mysql" not in told.err


@pytest.mark.parametrize(
    ("version", "fixed"),
    [
        ((6, 0, 16), (6, 2, 24)),
        ((6, 2, 23), (6, 2, 24)),
        ((6, 2, 24), None),
        ((7, 0, 15), (7, 2, 16)),
        ((7, 4, 11), None),
        ((8, 0, 2), (8, 2, 9)),
        ((8, 10, 0), (8, 10, 1)),
        ((8, 10, 1), None),
        ((8, 12, 0), None),
        ((9, 0, 0), None),
    ],
)
def test_versions_of_redis_without_the_fix_are_known(
    version: Version, fixed: Version | None
) -> None:
    assert first_fixed(version) == fixed


def test_a_version_is_read_from_what_redis_says() -> None:
    text = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=ae4d7c9"
    assert version_of(text) == (7, 0, 15)
    assert version_of("nothing") is None


def test_an_open_redis_without_the_fix_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_version, "find_program", lambda *names: PROGRAM)
    monkeypatch.setattr(
        redis_version, "version_text", lambda program: "Redis server v=7.0.15 sha=0"
    )
    [found] = redis_version.redis_version(mill(tmp_path, BOTH))
    assert found.level is CheckLevel.WARNING
    assert "7.0.15" in found.found
    assert "before 7.2.16" in found.found
    assert list(redis_version.redis_version(mill(tmp_path, ""))) == []
    monkeypatch.setattr(
        redis_version, "version_text", lambda program: "Redis server v=8.10.1 sha=0"
    )
    assert list(redis_version.redis_version(mill(tmp_path, BOTH))) == []


def test_a_redis_without_tls_is_refused_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "redis-server"
    program.write_bytes(b"requirepass\0tls-auth-clients\0")
    monkeypatch.setattr(startup, "find_program", lambda *names: str(program))
    assert list(startup.network(mill(tmp_path, BOTH))) == []
    program.write_bytes(b"requirepass\0")
    [found] = startup.network(mill(tmp_path, BOTH))
    assert found.level is CheckLevel.FAILED
    assert "built without TLS" in found.found
    assert list(startup.network(mill(tmp_path, ""))) == []
