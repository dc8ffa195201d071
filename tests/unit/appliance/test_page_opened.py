"""`network.open: [page]` and `monitor.login`: the conditions, the settings, and what is said."""

from http.client import HTTPConnection
from pathlib import Path

import pytest

from appliance.checks import startup
from appliance.checks.opened import opened_text
from appliance.checks.startup import CheckLevel
from appliance.cli.summary import summary
from appliance.config.faults import ConfigFaults
from appliance.config.load import load_text
from appliance.mill import page_logins
from appliance.mill.certificate_holders import holders_of
from appliance.mill.home import find_home
from appliance.mill.init import initialise
from appliance.mill.monitor_entry import SocketFileConnection, monitor_connection
from appliance.mill.parts import Placement, page_url
from appliance.mill.settings import Mill, monitor_settings
from monitor.config.settings import MonitorSettings
from monitor.login.people import PageRole

OPEN = """
network: {open: [page], names: [mill.example.org]}
monitor: {listen: "0.0.0.0:8090", login: users}
"""
PROXIED = """
monitor:
  login: proxy
  proxies: [127.0.0.1]
  proxy_secret: a-secret-of-the-proxy
  proxy_roles: {ops: operator}
"""
NOT_HERE = "192.0.2.77"
"""An address for documentation (RFC 5737), which no machine has."""


def mill(tmp_path: Path, text: str) -> Mill:
    home = find_home({"MILLRACE_HOME": str(tmp_path)})
    config = load_text(text, "mill.yaml", tmp_path, {}).config
    initialise(home, config.cluster.broker_ids)
    return Mill(home, config, Placement())


def faults_of(text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigFaults) as raised:
        load_text(text, "mill.yaml", Path("/nowhere"), environ or {})
    return [str(fault) for fault in raised.value.faults]


@pytest.mark.parametrize(
    ("old", "new", "found", "remedy"),
    [
        (
            "open: [page]",
            "open: []",
            "monitor.listen: found '0.0.0.0:8090'",
            "network.open: [page], network.names and monitor.login: users, and run"
            " `./millrace user add NAME --page --role operator`",
        ),
        (
            "login: users",
            "login: null",
            "monitor.login: found null beside network.open: [page]",
            "users, and then run `./millrace user add NAME --page --role operator`",
        ),
        (
            ", names: [mill.example.org]",
            "",
            "network.open: found [page] without network.names",
            "such as names: [mill.example.org]",
        ),
        (
            "[mill.example.org]",
            "[localhost]",
            "network.names[0]: found 'localhost' beside monitor.listen: 0.0.0.0:8090",
            "a name that browsers on other machines can dial",
        ),
    ],
)
def test_a_page_without_one_of_the_conditions_is_a_fault(
    old: str, new: str, found: str, remedy: str
) -> None:
    [fault] = faults_of(OPEN.replace(old, new))
    assert found in fault
    assert remedy in fault


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("proxies: [127.0.0.1]", "proxies: []", "monitor.proxies: found [] beside"),
        ("proxy_secret: a-secret-of-the-proxy", "", "a secret of 0 characters beside"),
        ("a-secret-of-the-proxy", "short", "a secret of 5 characters beside"),
        ("{ops: operator}", "{}", "monitor.proxy_roles: found no group beside"),
        ("login: proxy", "login: users", "monitor.proxy_secret: found a value"),
        ("login: proxy", "login: null", "monitor.proxies: found [127.0.0.1]"),
        ("[127.0.0.1]", "[proxy.example.org]", "expected an address or a network"),
        ("ops: operator", "ops: admin", "monitor.proxy_roles"),
    ],
)
def test_pitfall_41_a_proxy_without_address_secret_or_groups_is_a_fault(
    old: str, new: str, found: str
) -> None:
    faults = faults_of(PROXIED.replace(old, new))
    assert any(found in fault for fault in faults), faults
    assert not any("a-secret-of-the-proxy" in fault for fault in faults)


def test_without_a_person_the_mill_does_not_start(tmp_path: Path) -> None:
    found = mill(tmp_path, OPEN)
    [check] = startup.page_people(found)
    assert (check.level, check.what) == (CheckLevel.FAILED, "monitor.login")
    assert check.remedy == "run `./millrace user add NAME --page --role operator`"
    assert check in startup.before_start(found)
    with page_logins.changed_people(found.home) as people:
        people["ada"] = page_logins.new_person("ada", PageRole.VIEWER, "correct-horse-battery")
    assert list(startup.page_people(found)) == []
    assert list(startup.page_people(mill(tmp_path, PROXIED))) == []


def test_an_address_of_another_machine_is_refused(tmp_path: Path) -> None:
    [check] = startup.page_address(mill(tmp_path, OPEN.replace("0.0.0.0", NOT_HERE)))
    assert check.found == f"this machine does not have the address {NOT_HERE}"
    assert list(startup.page_address(mill(tmp_path, OPEN))) == []


def test_what_is_open_is_said_with_its_address(tmp_path: Path) -> None:
    found = mill(tmp_path, OPEN)
    url = "https://mill.example.org:8090"
    assert page_url(found.config) == url
    assert opened_text(found) == f"the page with HTTPS and logins at 0.0.0.0, port 8090: {url}"
    assert f"  page             {url}" in summary(found)
    on_loopback = mill(tmp_path, OPEN.replace("0.0.0.0", "127.0.0.1"))
    assert opened_text(on_loopback) == ""
    assert page_url(on_loopback.config) == url


def test_the_monitor_gets_certificate_login_and_names(tmp_path: Path) -> None:
    found = mill(tmp_path, OPEN)
    assert [one.part for one in holders_of(found.config)] == ["broker-1", "monitor"]
    settings = MonitorSettings.model_validate(monitor_settings(found))
    folder = found.home.part_secrets("monitor")
    assert settings.tls is not None and settings.login is not None
    assert (settings.tls.certificate, settings.tls.key) == (folder / "tls.pem", folder / "tls.key")
    assert (settings.login.mode, settings.login.folder) == ("users", folder)
    assert settings.names == ("mill.example.org",)
    assert settings.page == "https://mill.example.org:8090"


def test_a_mill_without_these_keys_serves_the_page_as_before(tmp_path: Path) -> None:
    found = mill(tmp_path, "{}")
    settings = MonitorSettings.model_validate(monitor_settings(found))
    assert settings.tls is None and settings.login is None and settings.names == ()
    assert settings.page == "http://127.0.0.1:8090"
    assert [one.part for one in holders_of(found.config)] == ["broker-1"]


def test_the_secret_of_the_proxy_is_in_one_place_of_the_settings(tmp_path: Path) -> None:
    settings = monitor_settings(mill(tmp_path, PROXIED))
    assert settings["login"]["proxy_secret"] == "a-secret-of-the-proxy"
    assert "proxy_secret" not in settings["section"]
    assert "a-secret-of-the-proxy" not in repr(MonitorSettings.model_validate(settings))


def test_own_files_serve_the_page_too(tmp_path: Path) -> None:
    text = OPEN.replace("]}", "], tls: {certificate: own.pem, key: own.key}}")
    found = mill(tmp_path, text)
    assert holders_of(found.config) == ()
    assert monitor_settings(found)["tls"] == {
        "certificate": str(tmp_path / "own.pem"),
        "key": str(tmp_path / "own.key"),
    }
    [check] = startup.own_certificate(found)
    assert "own.pem: No such file or directory" in check.found


def test_commands_use_the_socket_if_it_is_there(tmp_path: Path) -> None:
    home = mill(tmp_path, "{}").home
    before = monitor_connection(home, "127.0.0.1:8090", 1.0)
    assert (type(before), before.host, before.port) == (HTTPConnection, "127.0.0.1", 8090)
    home.monitor_socket.touch()
    found = monitor_connection(home, "127.0.0.1:8090", 1.0)
    assert isinstance(found, SocketFileConnection)
    assert (found.path, found.host) == (str(home.monitor_socket), "localhost")
