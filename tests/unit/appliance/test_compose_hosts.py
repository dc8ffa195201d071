"""The compose file for brokers on several hosts: what it starts on each host, what it publishes,
and who sees which secrets."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from appliance.config.load import load
from appliance.config.published import BROKERS, HOSTS_FILE
from appliance.mill.parts import ENTRY_KEEPER
from tests.harness import ROOT
from tests.unit.appliance.test_compose import AT, SERVICES, override

HOSTED = override(HOSTS_FILE)
MAIN_HOST = ("collector", "stream", "monitor", "redis", "mysql", ENTRY_KEEPER)
PUBLISHED = {
    "MILLRACE_PUBLISHED_KAFKA": f"{AT}:9192",
    "MILLRACE_PUBLISHED_BROKER": f"{AT}:29092",
    "MILLRACE_PUBLISHED_HOST": "${COMPOSE_PROFILES:?write COMPOSE_PROFILES=host-N into .env}",
}


def test_each_host_starts_its_broker_and_the_first_the_rest() -> None:
    profiles = {name: service.get("profiles") for name, service in HOSTED.items()}
    assert profiles == {
        "init": None,
        "cli": None,
        **{f"broker-{number}": [f"host-{number}"] for number in BROKERS},
        **{name: ["host-1"] for name in MAIN_HOST},
    }
    assert set(HOSTED) == {*SERVICES, ENTRY_KEEPER}


@pytest.mark.parametrize("name", [f"broker-{number}" for number in BROKERS])
def test_a_broker_publishes_two_listeners_and_nothing_else(name: str) -> None:
    ports = load(ROOT / "configs" / "millrace.yaml", ROOT, {}).config.ports
    number = int(name.removeprefix("broker-"))
    wanted = [ports.of_broker(kind, number) for kind in ("net", "broker")]
    assert HOSTED[name]["ports"] == [f"{AT}:{port}:{port}" for port in wanted]


def test_no_other_part_is_published() -> None:
    assert {name for name, one in HOSTED.items() if "ports" in one} == {
        f"broker-{number}" for number in BROKERS
    }


def test_all_parts_know_what_is_published() -> None:
    for name, service in HOSTED.items():
        if name in ("redis", "mysql"):
            assert "environment" not in service
        elif name != ENTRY_KEEPER:
            assert service["environment"] == PUBLISHED
    # It asks only the broker of its host.
    assert HOSTED[ENTRY_KEEPER]["environment"] == {"MILLRACE_PUBLISHED": "loopback"}


def test_no_part_waits_for_a_container_of_another_host() -> None:
    for name, service in HOSTED.items():
        if name == ENTRY_KEEPER:
            continue
        needed = {**SERVICES[name].get("depends_on", {}), **service.get("depends_on", {})}
        own = service.get("profiles")
        for other, condition in needed.items():
            theirs = HOSTED[other].get("profiles")
            assert theirs in (None, own) or condition.get("required") is False, (name, other)
        if name.startswith("broker-"):
            # The first broker has this from docker-compose.yml.
            assert needed["init"] == {"condition": "service_completed_successfully"}


def volumes_of(name: str) -> set[str]:
    return {
        one for service in (SERVICES, HOSTED) for one in service.get(name, {}).get("volumes", ())
    }


def test_the_key_of_the_ca_and_the_secrets_of_brokers_stay_with_init() -> None:
    for name in HOSTED:
        assert any(one.startswith("secrets-ca:") for one in volumes_of(name)) == (name == "init")
        brokers = {one for one in volumes_of(name) if one.startswith("secrets-broker-")}
        if name != "init":
            assert brokers <= {f"secrets-{name}:/mill/data/secrets/{name}:ro"}


def test_only_the_parts_that_log_in_read_their_password() -> None:
    mount = "secrets-mill:/mill/data/secrets/mill"
    readers = {name for name in HOSTED if f"{mount}:ro" in volumes_of(name)}
    assert readers == {"collector", "stream", "monitor", "cli", ENTRY_KEEPER}
    assert {name for name in HOSTED if mount in volumes_of(name)} == {"init"}


def test_init_gives_the_password_to_the_group_of_the_parts() -> None:
    assert HOSTED["init"]["command"] == [*SERVICES["init"]["command"], "--owner=mill=0:10000"]
    users = {SERVICES[name]["user"] for name in ("collector", "stream", "monitor", "cli")}
    assert {user.rpartition(":")[2] for user in users} == {"10000"}


def test_a_broker_waits_ten_minutes_for_the_other_hosts_at_the_first_start() -> None:
    for number in BROKERS:
        assert HOSTED[f"broker-{number}"]["healthcheck"] == {"start_period": "600s"}


def test_the_container_that_keeps_the_user_is_as_poor_in_rights_as_the_others() -> None:
    entry, model = HOSTED[ENTRY_KEEPER], SERVICES["monitor"]
    same = ("image", "user", "restart", "read_only", "cap_drop", "security_opt", "init", "logging")
    assert {key: entry[key] for key in same} == {key: model[key] for key in same}
    assert "cap_add" not in entry
    assert set(entry["volumes"]) == {
        "./configs:/mill/configs:ro",
        "secrets-mill:/mill/data/secrets/mill:ro",
    }


def test_its_volumes_are_those_of_the_file_and_one_more() -> None:
    found: dict[str, Any] = yaml.safe_load((ROOT / HOSTS_FILE).read_text())
    assert set(found["volumes"]) == {"secrets-mill"}
