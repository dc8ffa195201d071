"""A mill in containers is opened if the compose files publish what the configuration opens.

The conditions of decision 0200 are the same as on a machine without containers.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from appliance.checks.opened import opened_text
from appliance.checks.startup import CheckLevel
from appliance.cli import doctor
from appliance.config.faults import ConfigFaults
from appliance.config.load import load_text
from appliance.config.published import published_of
from appliance.mill.certificates import make_needed
from appliance.mill.home import Home, find_home
from appliance.mill.host_secrets import initialise_mill
from appliance.mill.settings import Mill, broker_settings

LOOPBACK = {"MILLRACE_PUBLISHED": "loopback"}
OPENED = {**LOOPBACK, "MILLRACE_PUBLISHED_KAFKA": "0.0.0.0:9192"}
PAGE_OPENED = {**LOOPBACK, "MILLRACE_PUBLISHED_PAGE": "0.0.0.0:8090"}
PAGE = (
    "network: {open: [page], names: [mill.example.org]}\n"
    "monitor: {listen: '0.0.0.0:8090', login: users}\n"
)
SERVERS = "network: {open: [redis, mysql], listen: 0.0.0.0, names: [mill.example.org]}\n"
NETWORK = "open: [kafka], listen: 0.0.0.0, names: [mill.example.org], login: users"
TEXT = f"cluster: {{brokers: 3}}\nnetwork: {{{NETWORK}}}\nsecurity: {{super_users: [admin]}}\n"


def faults_of(text: str, environ: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigFaults) as caught:
        load_text(text, "mill.yaml", Path("/nowhere"), environ)
    return [str(fault) for fault in caught.value.faults]


def mill(folder: Path, text: str = TEXT, at: str = "0.0.0.0:9192") -> Mill:
    environ = {**LOOPBACK, "MILLRACE_PUBLISHED_KAFKA": at}
    config = load_text(text, "mill.yaml", folder, environ).config
    return Mill.of(Home(folder, folder / "mill.yaml"), config, in_containers=True)


def test_without_the_override_nothing_is_opened() -> None:
    [fault] = faults_of(TEXT, LOOPBACK)
    assert "network.open[0]: found 'kafka'" in fault
    assert "compose publishes it on 127.0.0.1 only" in fault
    assert "COMPOSE_FILE=docker-compose.yml:docker-compose.open.yml" in fault


def test_the_override_alone_opens_nothing() -> None:
    """Then no listener is behind the published ports."""
    config = load_text("", "mill.yaml", Path("/nowhere"), OPENED).config
    assert not config.network.opens_kafka


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("login: users", "login: null", "login: users, because other machines"),
        ("[mill.example.org]", "[localhost]", "a first name that clients on other machines"),
        ("[mill.example.org]", "[0.0.0.0]", "a host name or an IP address that clients can dial"),
        ("[admin]", "[]", "at least one user"),
        ("[kafka]", "[kafka, smtp]", "kafka, page, redis or mysql: nothing else can be opened"),
    ],
)
def test_every_condition_of_an_open_mill_holds_in_containers(
    old: str, new: str, expected: str
) -> None:
    assert any(expected in fault for fault in faults_of(TEXT.replace(old, new), OPENED))


@pytest.mark.parametrize(
    ("listen", "published", "is_equal"),
    [
        ("0.0.0.0", "0.0.0.0:9192", True),
        ("192.0.2.7", "192.0.2.7:9192", True),
        ("'::'", "[::]:9192", True),
        ("2001:DB8::1", "[2001:db8::1]:9192", True),
        ("192.0.2.7", "0.0.0.0:9192", False),
        ("0.0.0.0", "192.0.2.7:9192", False),
        ("127.0.0.1", "0.0.0.0:9192", False),
    ],
)
def test_the_file_names_the_address_at_which_compose_publishes(
    listen: str, published: str, is_equal: bool
) -> None:
    text = TEXT.replace("0.0.0.0", listen)
    environ = {**LOOPBACK, "MILLRACE_PUBLISHED_KAFKA": published}
    if is_equal:
        load_text(text, "mill.yaml", Path("/nowhere"), environ)
        return
    [fault] = faults_of(text, environ)
    assert f"network.listen: found '{listen}'" in fault
    assert f"MILLRACE_LISTEN={listen}" in fault


def test_the_port_is_the_same_inside_and_outside() -> None:
    [fault] = faults_of(f"{TEXT}ports: {{net: 9300}}\n", OPENED)
    assert "ports.net: found 9300, expected 9192" in fault
    assert "docker-compose.open.yml" in fault


@pytest.mark.parametrize(
    "variable", [f"MILLRACE_PUBLISHED_{name}" for name in ("KAFKA", "PAGE", "REDIS", "MYSQL")]
)
def test_an_address_without_a_port_is_a_fault(variable: str) -> None:
    [fault] = faults_of(TEXT, {**LOOPBACK, variable: "0.0.0.0"})
    assert fault.startswith(f"the environment: {variable}: found '0.0.0.0', expected host:port")


def test_the_page_is_opened_by_a_file_of_its_own() -> None:
    load_text(PAGE, "mill.yaml", Path("/nowhere"), PAGE_OPENED)
    [fault] = faults_of(PAGE, LOOPBACK)
    assert "network.open[0]: found 'page'" in fault
    assert "COMPOSE_FILE=docker-compose.yml:docker-compose.open-page.yml" in fault
    both = f"{TEXT.replace('[kafka]', '[kafka, page]')}{PAGE.splitlines()[1]}\n"
    load_text(both, "mill.yaml", Path("/nowhere"), {**OPENED, **PAGE_OPENED})
    [fault] = faults_of(both, OPENED)
    files = "docker-compose.yml:docker-compose.open.yml:docker-compose.open-page.yml"
    assert f"COMPOSE_FILE={files} in the file .env" in fault


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("login: users", "login: null", "users, and then run"),
        ("[mill.example.org]", "[]", "the names or addresses that browsers dial"),
        ("[mill.example.org]", "[localhost]", "a name that browsers on other machines can dial"),
        ("0.0.0.0:8090", "127.0.0.1:8090", "0.0.0.0, where compose publishes the ports"),
        ("0.0.0.0:8090", "0.0.0.0:8099", "port 8090, which compose publishes"),
        ("[page]", "[]", "page in this list; or start the mill without"),
    ],
)
def test_a_published_page_has_https_and_a_login(old: str, new: str, expected: str) -> None:
    assert any(expected in fault for fault in faults_of(PAGE.replace(old, new), PAGE_OPENED))


def test_a_page_that_is_not_opened_is_never_published() -> None:
    """Without `network.open: [page]` it would have neither HTTPS nor a login."""
    [fault] = faults_of("", PAGE_OPENED)
    assert "docker-compose.open-page.yml publishes the page at 0.0.0.0:8090" in fault


BOTH_OPENED = {
    **LOOPBACK,
    "MILLRACE_PUBLISHED_REDIS": "0.0.0.0:6380",
    "MILLRACE_PUBLISHED_MYSQL": "0.0.0.0:3307",
}


def test_redis_and_mysql_are_opened_by_files_of_their_own() -> None:
    load_text(SERVERS, "mill.yaml", Path("/nowhere"), BOTH_OPENED)
    first, second = faults_of(SERVERS, LOOPBACK)
    files = "docker-compose.yml:docker-compose.open-redis.yml:docker-compose.open-mysql.yml"
    for index, (name, fault) in enumerate((("redis", first), ("mysql", second))):
        assert f"network.open[{index}]: found '{name}'" in fault
        assert f"COMPOSE_FILE={files} in the file .env" in fault


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "[redis, mysql]",
            "[redis]",
            "docker-compose.open-mysql.yml publishes mysql at 0.0.0.0:3307",
        ),
        ("[redis, mysql]", "[mysql]", "redis in this list; or start the mill without"),
        ("[mill.example.org]", "[]", "the names or addresses that clients dial"),
        ("[mill.example.org]", "[localhost]", "a first name that clients on other machines"),
        ("listen: 0.0.0.0", "listen: 192.0.2.7", "0.0.0.0, where compose publishes the ports"),
        ("listen: 0.0.0.0", "listen: 127.0.0.1", "0.0.0.0, where compose publishes the ports"),
        ("network:", "ports: {redis: 6390}\nnetwork:", "6380, which compose publishes"),
        ("network:", "sinks: {mysql: null}\nnetwork:", "only the bundled server can be opened"),
    ],
)
def test_a_published_server_has_tls_and_a_password(old: str, new: str, expected: str) -> None:
    [fault] = faults_of(SERVERS.replace(old, new), BOTH_OPENED)
    assert expected in fault


@pytest.mark.parametrize("name", ["redis", "mysql"])
def test_a_server_that_is_not_opened_is_never_published(name: str) -> None:
    """Its readers would have no TLS, and those of Redis no password."""
    variable = f"MILLRACE_PUBLISHED_{name.upper()}"
    [fault] = faults_of("", {**LOOPBACK, variable: BOTH_OPENED[variable]})
    assert f"docker-compose.open-{name}.yml publishes {name} at 0.0.0.0:" in fault


def test_an_address_that_differs_is_one_fault_for_all_ports() -> None:
    text = TEXT.replace("[kafka]", "[kafka, redis, mysql]").replace("0.0.0.0", "192.0.2.7")
    [fault] = faults_of(text, {**OPENED, **BOTH_OPENED})
    assert "network.listen: found '192.0.2.7'" in fault


def test_the_commands_reach_the_page_by_a_socket_in_the_monitors_volume(tmp_path: Path) -> None:
    environ = {"MILLRACE_HOME": str(tmp_path)}
    socket = find_home({**environ, **LOOPBACK}).monitor_socket
    assert socket == tmp_path / "data" / "monitor" / "monitor.sock"
    assert find_home(environ).monitor_socket == tmp_path / "data" / "monitor.sock"


def test_outside_of_containers_the_variable_has_no_effect() -> None:
    assert published_of({"MILLRACE_PUBLISHED_KAFKA": "nonsense"}) is None


def test_a_container_listens_on_its_own_addresses_and_advertises_the_first_name(
    tmp_path: Path,
) -> None:
    """A container does not have the addresses of its machine."""
    found = mill(tmp_path, TEXT.replace("0.0.0.0", "192.0.2.7"), at="192.0.2.7:9192")
    initialise_mill(found.home, found.config, found.placement)
    listeners: dict[str, Any] = broker_settings(found, "broker-2")["listeners"]
    assert listeners["NET"] == {
        "host": "0.0.0.0",
        "port": 9193,
        "advertised_host": "mill.example.org",
        "advertised_port": 9193,
        "security_protocol": "SASL_SSL",
    }
    assert listeners["MILL"]["advertised_host"] == "broker-2"


def test_init_makes_the_certificates(tmp_path: Path) -> None:
    found = mill(tmp_path)
    initialise_mill(found.home, found.config, found.placement)
    made = make_needed(found.home, found.config, datetime(2026, 12, 1, tzinfo=UTC))
    assert found.home.data / "ca.pem" in made
    assert {found.home.part_secrets(f"broker-{n}") / "tls.pem" for n in (1, 2, 3)} <= set(made)


def test_status_and_doctor_say_what_is_open(tmp_path: Path) -> None:
    text = opened_text(mill(tmp_path))
    assert text.startswith("Kafka with TLS and logins at 0.0.0.0, ports 9192, 9193, 9194;")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (LOOPBACK, "inside a container, published on loopback"),
        (OPENED, "NET at 0.0.0.0 from port 9192 on. Rules of ufw do not close ports"),
        (
            {**LOOPBACK, "MILLRACE_PUBLISHED_MYSQL": "0.0.0.0:3307"},
            "MySQL at 0.0.0.0, port 3307. Rules of ufw do not close ports",
        ),
        (PAGE_OPENED, "the page at 0.0.0.0, port 8090. Rules of ufw do not close ports"),
    ],
)
def test_doctor_says_where_compose_publishes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, environ: dict[str, str], expected: str
) -> None:
    monkeypatch.setattr(Path, "exists", lambda _: True)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    [check] = doctor._published(mill(tmp_path))
    assert check.level is CheckLevel.OK
    assert expected in check.found
