"""A mill on three hosts, each in its own network namespace, for tests.

All machines know the hosts by name: each command sees a file of names in place of `/etc/hosts`.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from appliance.config.model import BROKER_ID_MAX
from appliance.machine.processes import read_record
from appliance.operate import lifecycle
from tests.e2e.mill import SHIPPED, Result, TempMill, temp_mill
from tests.harness.namespaces import Namespaces, can_be_made, own_network
from tests.harness.ports import free_ports
from tests.harness.wait import wait_until

HOSTS = (1, 2, 3)
STRANGER = 4
"""The network namespace of a machine that is not a host of the mill."""
SPARE = 5
"""The network namespace of a machine that can take the place of a host."""
FOURTH = 6
"""The network namespace of a machine that can become a fourth host."""
IN_SERVICE_S = 120.0


class HostedMill:
    """One mill on three hosts. Host 1 is the main host."""

    def __init__(self, spaces: Namespaces, hosts: dict[int, TempMill], names: Path) -> None:
        self.spaces = spaces
        self.hosts = hosts
        self.net = free_ports(BROKER_ID_MAX)
        self._spaces = {one: one for one in HOSTS}
        """The network namespace of each host."""
        self._names = names
        self._write_names()
        bind = 'mount --bind "$0" /etc/hosts && exec "$@"'
        self.prefix = ("unshare", "--mount", "sh", "-c", bind, str(names))
        """The prefix of a command that lets it see the names of the hosts."""
        for mill in hosts.values():
            mill.prefix = self.prefix

    def _write_names(self) -> None:
        """Write the names of the hosts. The file stays the same, because processes have it bound
        to their /etc/hosts."""
        lines = [
            f"{self.spaces.host_of(space)} {self.name_of(host)}\n"
            for host, space in self._spaces.items()
        ]
        self._names.write_text("".join(["127.0.0.1 localhost\n", *lines]))

    def inside(self, host: int) -> AbstractContextManager[None]:
        """Let this thread make its sockets and processes on a host."""
        return self.spaces.inside(self._spaces[host])

    def moves_to(self, host: int, machine: TempMill, space: int) -> None:
        """Let the name of a host lead to another machine."""
        machine.prefix, machine.ports = self.prefix, self.main.ports
        self.hosts[host], self._spaces[host] = machine, space
        self._write_names()

    @staticmethod
    def name_of(host: int) -> str:
        """Return the name of a host."""
        return f"mill-{host}.example.test"

    @property
    def main(self) -> TempMill:
        """The folder of the main host."""
        return self.hosts[1]

    def write_config(self, text: str) -> None:
        """Write the file of the main host. `text` has `brokers: 3`."""
        hosts = ", ".join(f"{one}: {self.name_of(one)}" for one in HOSTS)
        text = text.replace("brokers: 3", f"hosts: {{{hosts}}}\n  brokers: 3", 1)
        network = "network: {open: [kafka], listen: 0.0.0.0, login: users}"
        self.main.write_config(f"{network}\n{text}")
        file = self.main.home.config_file
        file.write_text(file.read_text().replace("ports: {", f"ports: {{net: {self.net}, "))

    def list_hosts(self, *hosts: int) -> None:
        """Write these hosts into the files of all hosts that have one, as an operator does."""
        named = json.dumps({str(one): self.name_of(one) for one in hosts})
        for mill in self.hosts.values():
            file = mill.home.config_file
            text = re.sub(r'("?hosts"?): \{[^}]*\}', rf"\1: {named}", file.read_text())
            text = re.sub(r'("?brokers"?): (\d|\[[^]]*\])', rf"\1: {[*hosts]}", text, count=1)
            file.write_text(text)

    def run(self, host: int, *words: str) -> Result:
        """Run one command on a host."""
        with self.inside(host):
            return self.hosts[host].run(*words)

    def joins(self, host: int, folder: Path) -> None:
        """Enrol the broker of a host, and join there."""
        made = self.run(1, "enrol", "broker", str(host), "--out", str(folder))
        assert made.code == 0, made.err
        joined = self.run(host, "join", str(folder / f"broker-{host}.join"))
        assert joined.code == 0, joined.err

    def up(self) -> dict[int, Result]:
        """Start all hosts at once, and wait for each."""
        begun = {}
        for host in HOSTS:
            with self.inside(host):
                begun[host] = self.hosts[host].begin("up")
        found = {}
        for host in HOSTS:
            out, err = begun[host].communicate(timeout=600)
            found[host] = Result(begun[host].returncode, out, err)
        failed = [f"host {one}: {told.err}" for one, told in found.items() if told.code]
        assert not failed, "\n".join([*failed, *map(self.ends, HOSTS)])
        return found

    def ends(self, host: int) -> str:
        """Return the last lines of the logs of a host."""
        return self.hosts[host].log_ends()

    def others(self, host: int) -> dict[int, str]:
        """Return what `status` on a host says of the brokers on the others."""
        found: list[dict[str, Any]] = json.loads(self.run(host, "status", "--json").out)["hosts"]
        return {one["broker"]: one["state"] for one in found}

    def wait_for(self, host: int, states: dict[int, str]) -> None:
        """Wait until `status` on a host says this of the others."""
        wait_until(lambda: self.others(host) == states, IN_SERVICE_S, f"{states} on host {host}")

    def under_replicated(self) -> int:
        """Return how many partitions have replicas that are not in sync."""
        shown = self.run(1, "broker", "describe", "--json")
        return int(json.loads(shown.out)["data"]["counts"]["under_replicated"])

    def kill_broker(self, host: int) -> None:
        """Send SIGKILL to the broker of a host."""
        record = read_record(self.hosts[host].home.part_record(f"broker-{host}"))
        assert record is not None and record.signal(signal.SIGKILL)

    def kill_host(self, host: int) -> None:
        """Send SIGKILL to everything on a host."""
        home = self.hosts[host].home
        if supervisor := read_record(home.pid_file):
            supervisor.signal(signal.SIGKILL, group=True)
        # The kernel releases the supervisor's lock when the process is dead. From then on no part
        # is started again.
        wait_until(lambda: not lifecycle.is_running(home), 30, f"host {host} is dead")
        for path in home.run.glob("*.json"):
            if record := read_record(path):
                record.signal(signal.SIGKILL, group=True)

    def lose(self, host: int) -> None:
        """Send SIGKILL to everything on a host, and delete its folder."""
        self.kill_host(host)
        shutil.rmtree(self.hosts[host].home.folder)

    def cut_off(self, host: int) -> AbstractContextManager[None]:
        """Pull the cable of a host, without an error at either end."""
        return self.spaces.unplugged(self._spaces[host])


@contextmanager
def hosted_mill(
    folder: Path,
    text: str | None = None,
    *,
    machines: Sequence[int] = (STRANGER, SPARE, FOURTH),
    environ: Mapping[str, str] | None = None,
) -> Iterator[HostedMill]:
    """Yield a mill whose three hosts are stopped at the end of the test.

    The main host has the configuration `text`, or the shipped one. `machines` are the network
    namespaces of further machines. Skip the test if it cannot run here.
    """
    if not can_be_made():
        pytest.skip("network namespaces need root")
    with ExitStack() as stack:
        stack.enter_context(own_network())
        spaces = stack.enter_context(Namespaces((*HOSTS, *machines)))
        hosts: dict[int, TempMill] = {}
        for host in HOSTS:
            hosts[host] = stack.enter_context(temp_mill(folder / f"host-{host}", environ))
            hosts[host].ports = hosts[1].ports
            hosts[host].home.config_file.unlink()
        made = HostedMill(spaces, hosts, folder / "names")
        made.write_config(SHIPPED.read_text() if text is None else text)
        yield made
