"""A mill on three hosts, each in its own network namespace, for tests.

All machines know the hosts by name: each command sees a file of names in place of `/etc/hosts`.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from appliance.machine.processes import read_record
from tests.e2e.mill import Result, TempMill, temp_mill
from tests.harness.namespaces import Namespaces, ip, own_network
from tests.harness.ports import free_ports
from tests.harness.wait import wait_until

HOSTS = (1, 2, 3)
STRANGER = 4
"""The network namespace of a machine that is not a host of the mill."""
IN_SERVICE_S = 120.0


class HostedMill:
    """One mill on three hosts. Host 1 is the main host."""

    def __init__(self, spaces: Namespaces, hosts: dict[int, TempMill], names: Path) -> None:
        self.spaces = spaces
        self.hosts = hosts
        self.net = free_ports(len(HOSTS))
        lines = [f"{spaces.host_of(one)} {self.name_of(one)}\n" for one in HOSTS]
        names.write_text("".join(["127.0.0.1 localhost\n", *lines]))
        bind = 'mount --bind "$0" /etc/hosts && exec "$@"'
        self.prefix = ("unshare", "--mount", "sh", "-c", bind, str(names))
        """The prefix of a command that lets it see the names of the hosts."""
        for mill in hosts.values():
            mill.prefix = self.prefix

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

    def run(self, host: int, *words: str) -> Result:
        """Run one command on a host."""
        with self.spaces.inside(host):
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
            with self.spaces.inside(host):
                begun[host] = self.hosts[host].begin("up")
        found = {}
        # The main host waits for the others, so their failures are reported first.
        for host in reversed(HOSTS):
            out, err = begun[host].communicate(timeout=600)
            found[host] = Result(begun[host].returncode, out, err)
            assert begun[host].returncode == 0, f"host {host}: {err}\n{self.ends(host)}"
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

    def kill_broker(self, host: int) -> None:
        """Send SIGKILL to the broker of a host."""
        record = read_record(self.hosts[host].home.part_record(f"broker-{host}"))
        assert record is not None and record.signal(signal.SIGKILL)

    @contextmanager
    def cut_off(self, host: int) -> Iterator[None]:
        """Pull the cable of a host, without an error at either end."""
        ip("link", "set", f"out{host}", "down")
        try:
            yield
        finally:
            ip("link", "set", f"out{host}", "up")


@contextmanager
def hosted_mill(folder: Path) -> Iterator[HostedMill]:
    """Yield a mill whose three hosts are stopped at the end of the test."""
    with ExitStack() as stack:
        stack.enter_context(own_network())
        spaces = stack.enter_context(Namespaces((*HOSTS, STRANGER)))
        hosts: dict[int, TempMill] = {}
        for host in HOSTS:
            hosts[host] = stack.enter_context(temp_mill(folder / f"host-{host}"))
            hosts[host].ports = hosts[1].ports
            hosts[host].home.config_file.unlink()
        yield HostedMill(spaces, hosts, folder / "names")
