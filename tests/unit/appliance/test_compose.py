"""The compose file and the Dockerfile have the properties that the documentation promises."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from appliance.config.load import load
from appliance.mill.parts import Placement, parts_of, status_ports
from appliance.mill.sinks import SOCKETS_IN_CONTAINERS
from protocol.status import VERSION
from tests.harness import ROOT
from tests.house import tree

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
RUNNING = {name: service for name, service in SERVICES.items() if name not in ("init", "cli")}

AT = "${MILLRACE_LISTEN:-0.0.0.0}"
"""The address at which the overriding files publish."""


class Overriding(yaml.SafeLoader):
    """Reads the tag with which compose replaces a list of another file."""


def _listed(loader: yaml.SafeLoader, node: yaml.SequenceNode) -> list[Any]:
    return list(loader.construct_sequence(node))


Overriding.add_constructor("!override", _listed)


def override(name: str) -> dict[str, dict[str, Any]]:
    """Return the services of a file that is used beside docker-compose.yml."""
    found = yaml.load((ROOT / name).read_text(), Overriding)
    return dict(found["services"])


def test_the_services_are_the_parts_of_the_shipped_file() -> None:
    config = load(ROOT / "configs" / "millrace.yaml", ROOT, {}).config
    parts = {part.name: part for part in parts_of(config, Placement(in_containers=True))}
    assert set(parts) == set(RUNNING)
    for name, part in parts.items():
        published = {entry.rsplit(":", 1)[1] for entry in RUNNING[name]["ports"]}
        assert str(part.port) in published, f"{name} is probed where it does not listen"


def test_a_container_that_is_not_asked_for_is_probed_where_it_says_so() -> None:
    little = {
        "MILLRACE_CLUSTER__BOOTSTRAP_SERVERS": "kafka:9092",
        "MILLRACE_COLLECTOR__INPUTS": "[]",
        "MILLRACE_STREAM__METRICS": "[]",
    }
    config = load(ROOT / "configs" / "millrace.yaml", ROOT, little).config
    asked_for = {part.name for part in parts_of(config, Placement(in_containers=True))}
    assert asked_for == {"monitor", "redis", "mysql"}
    waiting = {name: str(port) for name, port in status_ports(config).items()}
    assert waiting == {name: RUNNING[name]["healthcheck"]["test"][-1] for name in waiting}
    assert waiting.keys() | asked_for == RUNNING.keys()


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_ports_are_published_on_loopback_only(name: str) -> None:
    for entry in SERVICES[name].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", entry), entry


def test_the_open_mill_publishes_the_listener_with_logins_and_nothing_else() -> None:
    config = load(ROOT / "configs" / "millrace.yaml", ROOT, {}).config
    services = override("docker-compose.open.yml")
    assert set(services) == set(SERVICES) - {"redis", "mysql"}
    for name, service in services.items():
        assert service["environment"] == {"MILLRACE_PUBLISHED_KAFKA": f"{AT}:{config.ports.net}"}
        wanted = []
        if name.startswith("broker-"):
            port = config.ports.net + int(name.removeprefix("broker-")) - 1
            wanted = [f"{AT}:{port}:{port}"]
        assert service.get("ports", []) == wanted
        assert service.keys() <= {"environment", "ports"}


def test_an_open_page_is_published_instead_of_that_on_loopback() -> None:
    services = override("docker-compose.open-page.yml")
    assert set(services) == set(SERVICES) - {"redis", "mysql"}
    for service in services.values():
        assert service["environment"] == {"MILLRACE_PUBLISHED_PAGE": f"{AT}:8090"}
    assert services["monitor"]["ports"] == [f"{AT}:8090:8090"]
    file = (ROOT / "docker-compose.open-page.yml").read_text()
    assert "ports: !override" in file, "the port on loopback could not be published beside it"
    # Its port speaks HTTPS, so the health check asks the socket.
    assert services["monitor"]["healthcheck"]["test"][-1] == "/mill/data/monitor/monitor.sock"
    assert not any("ports" in one for name, one in services.items() if name != "monitor")


@pytest.mark.parametrize(("name", "inside"), [("redis", 6379), ("mysql", 3306)])
def test_an_open_server_is_published_instead_of_that_on_loopback(name: str, inside: int) -> None:
    config = load(ROOT / "configs" / "millrace.yaml", ROOT, {}).config
    outside = getattr(config.ports, name)
    file = f"docker-compose.open-{name}.yml"
    services = override(file)
    other = {"redis": "mysql", "mysql": "redis"}[name]
    assert set(services) == set(SERVICES) - {other}
    said = {f"MILLRACE_PUBLISHED_{name.upper()}": f"{AT}:{outside}"}
    server = services.pop(name)
    assert all(one["environment"] == said for one in services.values())
    assert server["ports"] == [f"{AT}:{outside}:{inside}"]
    assert "ports: !override" in (ROOT / file).read_text()
    assert not any("ports" in one for one in services.values())


@pytest.mark.parametrize("name", ["redis", "mysql"])
def test_the_socket_of_an_open_server_is_seen_by_those_that_use_it_alone(name: str) -> None:
    services = override(f"docker-compose.open-{name}.yml")
    folder = str(Path(SOCKETS_IN_CONTAINERS[name]).parent)
    mounts = {one: service.get("volumes", []) for one, service in services.items()}
    assert mounts.pop(name) == [f"sockets-{name}:{folder}"]
    users = {one for one, volumes in mounts.items() if volumes}
    assert users == {"stream", "monitor", "cli"}
    assert all(mounts[one] == [f"sockets-{name}:{folder}:ro"] for one in users)
    # The health check needs neither the network nor a certificate.
    assert SOCKETS_IN_CONTAINERS[name] in services[name]["healthcheck"]["test"][-1]


def test_a_published_server_cannot_start_without_the_file_of_an_open_one() -> None:
    """`init` writes these files only if the configuration opens the server."""
    assert override("docker-compose.open-redis.yml")["redis"]["command"] == [
        "redis-server",
        "/run/millrace/open.conf",
    ]
    assert override("docker-compose.open-mysql.yml")["mysql"]["environment"] == {
        "MILLRACE_OPTIONS": "/run/millrace/open.options"
    }


@pytest.mark.parametrize("has_database", [True, False])
@pytest.mark.parametrize("is_open", [True, False])
def test_mysql_gets_its_users_and_further_options(
    tmp_path: Path, has_database: bool, is_open: bool
) -> None:
    """The script of the entry point, with stand-ins for the image's own script and folder."""
    shell, option, script, name = SERVICES["mysql"]["entrypoint"]
    (tmp_path / "options").write_text("--more=1\n--most=2\n")
    if has_database:
        (tmp_path / "db" / "mysql").mkdir(parents=True)
    program = tmp_path / "docker-entrypoint.sh"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    script = script.replace("$$", "$").replace("/var/lib/mysql", str(tmp_path / "db"))
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    if is_open:
        environ["MILLRACE_OPTIONS"] = str(tmp_path / "options")
    command = [shell, option, script, name, "--first=a b"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "--first=a b",
        *(["--init-file=/run/millrace/users.sql"] if has_database else []),
        *(["--more=1", "--most=2"] if is_open else []),
    ]
    (tmp_path / "options").unlink()
    missing = subprocess.run(command, env=environ, capture_output=True, check=False)
    assert (missing.returncode == 0) is not is_open


def test_only_init_has_the_key_of_the_ca() -> None:
    for name, service in SERVICES.items():
        mounts = [one.split(":") for one in service.get("volumes", [])]
        assert any(one[0] == "secrets-ca" for one in mounts) == (name == "init")
        # The folder of the mill has the CA's certificate for clients.
        assert [one[2:] for one in mounts if one[0] == "data"] == (
            [[]] if name == "init" else [["ro"]] if name == "cli" else []
        )


def test_the_addresses_are_the_same_with_and_without_containers() -> None:
    config = load(ROOT / "configs" / "millrace.yaml", ROOT, {}).config
    among_themselves = ("ports.mill", "ports.broker")
    for part in parts_of(config, Placement()):
        published = {entry.split(":")[1] for entry in RUNNING[part.name]["ports"]}
        wanted = {str(port) for setting, port in part.ports if setting not in among_themselves}
        assert published == wanted


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_containers_are_poor_in_rights(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    if name == "init":
        assert set(service["cap_add"]) == {"CHOWN", "DAC_OVERRIDE", "FOWNER"}
        assert service["network_mode"] == "none"
    else:
        assert "cap_add" not in service
        assert not str(service["user"]).startswith("0")


@pytest.mark.parametrize("name", sorted(RUNNING))
def test_every_part_is_watched_started_again_and_keeps_its_data(name: str) -> None:
    service = RUNNING[name]
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"]
    # `start_interval` needs a Docker engine that is newer than those on many machines.
    assert "start_interval" not in service["healthcheck"]
    named = {entry.split(":")[0] for entry in service["volumes"]} & set(COMPOSE["volumes"])
    assert name in named


def test_everybody_waits_for_init_and_for_what_it_needs() -> None:
    def waits_for(name: str) -> set[str]:
        found = set(SERVICES[name].get("depends_on", {}))
        return found | {further for other in found for further in waits_for(other)}

    for name in RUNNING:
        assert "init" in waits_for(name)
    assert {"mysql", "redis", "broker-1"} <= waits_for("stream")
    assert "broker-1" in waits_for("collector")


def test_brokers_are_stopped_one_after_the_other_and_after_those_that_use_them() -> None:
    """Compose stops dependent services before the service that they depend on, but stops
    independent services at the same time. So the brokers must depend on each other."""
    for name in ("collector", "stream"):
        assert SERVICES[name]["depends_on"]["broker-3"] == {"condition": "service_started"}
    for later, earlier in (("broker-3", "broker-2"), ("broker-2", "broker-1")):
        # The condition is not "healthy", because a broker is healthy only after two have found each
        # other.
        assert SERVICES[later]["depends_on"] == {earlier: {"condition": "service_started"}}


def test_each_part_sees_its_own_secrets_only() -> None:
    for name, service in RUNNING.items():
        mounted = {entry.split(":")[0] for entry in service["volumes"] if "secrets-" in entry}
        assert mounted <= {f"secrets-{name}"}
        assert all(
            entry.endswith(":ro") for entry in service["volumes"] if entry.startswith("secrets-")
        )
    mounted = {entry.split(":")[0] for entry in SERVICES["init"]["volumes"] if "secrets-" in entry}
    assert mounted == {volume for volume in COMPOSE["volumes"] if volume.startswith("secrets-")}


def test_init_gives_the_secrets_to_the_users_that_run() -> None:
    owners = dict(
        option.removeprefix("--owner=").split("=")
        for option in SERVICES["init"]["command"]
        if option.startswith("--owner=")
    )
    assert owners == {name: service["user"] for name, service in RUNNING.items()}


def test_published_is_set_for_the_mills_own_parts_and_nowhere_else() -> None:
    for name, service in SERVICES.items():
        said = service.get("environment", {}).get("MILLRACE_PUBLISHED")
        assert said == (None if name in ("redis", "mysql") else "loopback")
    for path in ("Dockerfile", "Makefile", "millrace", "setup/setup.sh"):
        assert "MILLRACE_PUBLISHED" not in (ROOT / path).read_text()


def test_images_are_named_after_the_version_and_the_promised_bases() -> None:
    images = {service["image"] for service in SERVICES.values()}
    assert images == {
        f"millrace/mill:{VERSION}",
        f"millrace/stream:{VERSION}",
        "redis:7.4",
        "mysql:8.4",
    }
    bases = re.findall(r"^FROM (\S+) AS", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert "python:3.11-slim-bookworm" in bases
    assert {base for base in bases if ":" in base} == {"python:3.11-slim-bookworm"}


def test_the_build_gets_code_and_pins_only() -> None:
    lines = (ROOT / ".dockerignore").read_text().split()
    assert lines[0] == "*"
    allowed = {line[1:] for line in lines if line.startswith("!")}
    copied = set()
    for line in (ROOT / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from=" not in line:
            copied |= set(line.split()[1:-1])
    for source in copied - {"."}:
        assert any(
            source == a or source.startswith(a.rstrip("*")) or Path(source).match(a)
            for a in allowed
        ), source
    assert "data" not in allowed
    assert "watched" not in allowed


def test_the_images_copy_only_what_a_fresh_clone_has() -> None:
    """COPY fails if its source is missing. A fresh clone has no `.cache`, because `make setup`
    creates it."""
    commands = re.findall(r"^COPY (.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    from_the_context = [one.split()[:-1] for one in commands if not one.startswith("--from=")]
    sources = {source for one in from_the_context for source in one}
    assert {"stream", "requirements/runtime.txt"} <= sources
    tracked = {"."} | {str(folder) for name in tree.files() for folder in Path(name).parents}
    assert [one for one in sorted(sources) if one not in tracked | set(tree.files())] == []
