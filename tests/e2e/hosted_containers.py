"""A mill in containers on three hosts, for tests: three compose projects on one container engine.

Each host has a copy of this tree, and an address of its own on a bridge, at which compose
publishes the ports of its broker. All containers know the hosts by name.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.containers import Containers, counts, skip_without_engine
from tests.e2e.mill import SHIPPED
from tests.e2e.test_up_counts import STATUSES
from tests.harness.logs import shared_log
from tests.harness.namespaces import Namespaces, can_be_made, ip
from tests.harness.port_scan import open_ports
from tests.harness.wait import wait_until

HOSTS = (1, 2, 3)
MAIN = 1
STRANGER = 4
"""The network namespace of a machine that is not a host of the mill."""
INTERFACE = "mill-hosts"
COUNTED_S = 600.0
IN_SERVICE_S = 300.0
PARTS = {
    **{f"broker-{number}": "mill" for number in HOSTS},
    **dict.fromkeys(("collector", "monitor", "entry", "cli"), "mill"),
    "stream": "stream",
}


def address_of(host: int) -> str:
    return f"10.99.0.{host}"


def name_of(host: int) -> str:
    return f"mill-{host}.example.test"


def configuration(host: int) -> str:
    """Return the shipped configuration, opened to the other hosts."""
    shipped = yaml.safe_load(SHIPPED.read_text())
    return yaml.safe_dump(
        {
            **shipped,
            "cluster": {"brokers": 3, "hosts": {one: name_of(one) for one in HOSTS}},
            "network": {"open": ["kafka"], "listen": address_of(host), "login": "users"},
            "security": {"super_users": ["admin"]},
        }
    )


def names() -> str:
    """Return the compose file of the test. It has the names of the hosts, and names of images that
    no other test builds."""
    hosts = [f"{name_of(one)}:{address_of(one)}" for one in HOSTS]
    services: dict[str, dict[str, Any]] = {
        part: {"image": f"millrace-hosts/{kind}", "extra_hosts": hosts}
        for part, kind in PARTS.items()
    }
    return yaml.safe_dump({"services": {**services, "init": {"image": "millrace-hosts/mill"}}})


class HostedContainers:
    """Three hosts with containers that are not started yet, and another machine."""

    def __init__(self, folder: Path, spaces: Namespaces) -> None:
        self.spaces = spaces
        self.wanted: Counter[str] = Counter()
        self.hosts = {one: Containers(folder / f"{one}", f"millrace-host-{one}") for one in HOSTS}
        self._dropped = 0
        for one, host in self.hosts.items():
            (host.folder / "configs" / "millrace.yaml").write_text(configuration(one))
            (host.folder / "names.yml").write_text(names())
            self.profile(one, one)

    @property
    def main(self) -> Containers:
        return self.hosts[MAIN]

    def profile(self, host: int, broker: int) -> None:
        """Let compose start this broker on a host."""
        (self.hosts[host].folder / ".env").write_text(
            "COMPOSE_FILE=docker-compose.yml:docker-compose.hosts.yml:names.yml\n"
            f"COMPOSE_PROFILES=host-{broker}\n"
            f"MILLRACE_LISTEN={address_of(host)}\n"
        )

    def reached(self, host: int) -> list[int]:
        """Return the ports of a host that another machine reaches."""
        with self.spaces.inside(STRANGER):
            return open_ports(address_of(host))

    def drop(self) -> None:
        """Drop the shared log once more on the main host."""
        self._dropped += 1
        access = self.main.folder / "watched" / "access"
        shutil.copyfile(shared_log("apache_access.log"), access / f"{self._dropped}.log")
        self.wanted += STATUSES

    def wait_counted(self) -> None:
        """Wait until exactly everything is counted."""
        expected = {status: str(count) for status, count in self.wanted.items()}
        wait_until(lambda: counts() == expected, COUNTED_S, f"Redis shows {expected}")

    def states(self, host: int) -> dict[int, str]:
        """Return the state of the broker of each other host, as `status` on a host says it."""
        shown = self.hosts[host].attempt("run", "--rm", "-T", "cli", "status", "--json")
        try:
            found = json.loads(shown.stdout)
        except ValueError as error:
            raise AssertionError(shown.stderr) from error
        return {row["broker"]: row["state"] for row in found.get("hosts", ())}

    def wait_for_others(self, host: int) -> None:
        """Wait until a host says that the brokers of all other hosts are in service."""
        wanted = {one: "in service" for one in HOSTS if one != host}
        wait_until(lambda: self.states(host) == wanted, IN_SERVICE_S, f"host {host} sees all")

    def wait_for(self, host: int, state: str) -> None:
        """Wait until the main host says that another host has this state."""
        wait_until(
            lambda: self.states(MAIN).get(host) == state, IN_SERVICE_S, f"broker {host} {state}"
        )


@contextmanager
def hosted_containers(folder: Path) -> Iterator[HostedContainers]:
    """Yield three hosts with the images, and remove everything at the end. Skip the test if it
    cannot run here."""
    skip_without_engine()
    if not can_be_made():
        pytest.skip("only root can make a network namespace")
    ip("link", "add", INTERFACE, "type", "bridge")
    try:
        for one in HOSTS:
            ip("address", "add", f"{address_of(one)}/32", "dev", INTERFACE)
        ip("link", "set", INTERFACE, "up")
        with Namespaces((STRANGER,)) as spaces:
            found = HostedContainers(folder, spaces)
            found.main.compose("build", "init", "stream")
            try:
                yield found
            finally:
                for host in reversed(found.hosts.values()):
                    host.remove()
    finally:
        ip("link", "delete", INTERFACE)
