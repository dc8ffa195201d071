"""Hundreds of real collectors of other hosts, of which one process holds many.

with Fleet(folder, brokers, authority.file, count=200) as fleet, fleet.reader() as reader:
    fleet.write()
    ...
    reader.wait_for_all(fleet.pause())

Each collector has the user, the ACLs and the settings that `enrol` and `join` make. It enters the
cluster over TLS, at the listener NET.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from appliance.enrol.mill_side import MECHANISM, Enrolment, MillEntry, enrol
from appliance.enrol.rights import (
    CollectorRights,
    TopicRight,
    acls_of,
    commit_interval_ms,
    user_of,
)
from broker.node_keys import FACTORS, TRANSACTIONS_MIN_ISR
from protocol.client.acl_admin import create_acls
from protocol.client.admin_types import TopicSpec
from protocol.client.cluster import Cluster
from protocol.client.user_admin import set_password
from tests.harness import ROOT
from tests.harness.broker import BrokerProcess
from tests.harness.fleet_reader import FleetReader
from tests.harness.processes import Server
from tests.harness.wait import wait_until

TOPIC = "logs.web"
PARTITIONS = 6
GROUP = "web"
PASSWORD = "the password of a host"
PER_PROCESS = 50
LINES_PER_S = 20
BURST_S = 1.0
"""The time between two appends to a file."""
PER_REQUEST = 50
"""The number of collectors whose ACLs are written by one request."""
ENROLMENT_MS = 3_600_000
START_S = 300.0
COMMAND_S = 120.0
INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
BROKER_SETTINGS: Mapping[str, object] = {"max.connections.per.ip": 10_000}
"""All collectors of the rig have one address, which those of real hosts do not have."""
CLUSTER_SETTINGS: Mapping[str, object] = {
    **BROKER_SETTINGS,
    **dict.fromkeys(FACTORS, 3),
    TRANSACTIONS_MIN_ISR: 2,
    "min.insync.replicas": 2,
}
"""The settings of three brokers, with which every topic survives the loss of one."""


class FleetProcess:
    """One process with some of the collectors."""

    def __init__(self, number: int, order: Mapping[str, Any], log: Path, niceness: int) -> None:
        self.state: dict[str, Any] = {}
        """The last state that the process has told."""
        self._acknowledged: dict[str, dict[str, Any]] = {}
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                ["nice", "-n", str(niceness), sys.executable, "-m", "tests.harness.fleet_member"],
                cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, text=True,
            )  # fmt: skip
        self._thread = threading.Thread(target=self._listen, name=f"fleet {number}", daemon=True)
        self._thread.start()
        self.send(json.dumps(order))

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.state = json.loads(line)
            if command := self.state["command"]:
                self._acknowledged[command] = self.state

    def send(self, line: str) -> None:
        self._acknowledged.pop(line, None)
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def state_after(self, command: str) -> dict[str, Any] | None:
        """Return the state after the last command of this kind; None before it is done."""
        return self._acknowledged.get(command)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join()


class Fleet(Server):
    """The collectors. `start` waits until all of them run."""

    def __init__(
        self,
        folder: Path,
        brokers: Sequence[BrokerProcess],
        ca: Path,
        count: int,
        *,
        lines_per_s: float = LINES_PER_S,
        interval_ms: int | None = None,
        niceness: int = 0,
    ) -> None:
        """Describe the collectors. `ca` is the CA that they trust. `interval_ms` is their
        `commit_interval`; None for the interval that `enrol` gives to so many collectors. With
        `niceness` their processes have a lower priority than the brokers."""
        self.count = count
        self.interval_ms = commit_interval_ms(count) if interval_ms is None else interval_ms
        self.log = folder / "fleet.log"
        self._folder = folder
        self._brokers = brokers
        self._ca = ca
        self._lines_per_s = lines_per_s
        self._niceness = niceness
        self._names = [f"web-{number:04}" for number in range(count)]
        self._members: list[FleetProcess] = []
        self._is_enrolled = False
        self._instances_before: str | None = None
        """The kernel's limit of inotify instances before this fleet raised it."""
        self.started_s = 0.0
        """The seconds from the start of the processes until all collectors were ready."""

    def reader(self) -> FleetReader:
        """Return a reader of the topic of all collectors."""
        bootstrap = ",".join(one.bootstrap for one in self._brokers)
        return FleetReader(bootstrap, TOPIC, PARTITIONS)

    def enrol(self) -> None:
        """Make the topics, the users and the ACLs."""
        asyncio.run(self._enrol())
        self._is_enrolled = True

    async def _enrol(self) -> None:
        cluster = Cluster(self._brokers[0].bootstrap, client_id="admin")
        await cluster.start(10_000)
        try:
            await set_password(cluster, "root", PASSWORD, MECHANISM)
            topics = {TOPIC: TopicSpec(TOPIC, PARTITIONS)}
            rights = CollectorRights(GROUP, (TopicRight("logs.", is_prefix=True),))
            asked = Enrolment(GROUP, rights.topics, ENROLMENT_MS)
            # This makes the topics, too. For the others its steps are taken in larger requests.
            entry = MillEntry((), None)
            await enrol(cluster, self._names[0], asked, entry, topics, self.interval_ms)
            for first in range(0, self.count, PER_REQUEST):
                names = self._names[first : first + PER_REQUEST]
                await create_acls(cluster, [acl for one in names for acl in acls_of(one, rights)])
                for name in names:
                    await set_password(cluster, user_of(name), PASSWORD, MECHANISM)
        finally:
            await cluster.close()

    def _settings(self, name: str) -> dict[str, Any]:
        home = self._folder / "hosts" / name
        (home / "watched").mkdir(parents=True, exist_ok=True)
        return {
            "section": {
                "instance": name,
                "group": GROUP,
                "commit_interval": f"{self.interval_ms}ms",
                "inputs": [{"paths": ["watched/**"], "topic": TOPIC}],
            },
            "bootstrap_servers": ",".join(one.net_bootstrap for one in self._brokers),
            "security": {
                "ca": str(self._ca),
                "user": user_of(name),
                "password": PASSWORD,
                "mechanism": MECHANISM.sasl_name,
            },
            "home": str(home),
            "data_dir": str(home / "data"),
        }

    def start(self) -> Self:
        """Enrol the collectors, start them, and wait until they run.

        The next process begins when the collectors of the last one run. A start takes forty
        milliseconds of a core, so on one machine a thousand at once would only wait for each other
        until their attempts time out.
        """
        self._allow_watches()
        if not self._is_enrolled:
            self.enrol()
        began_s = time.monotonic()
        for first in range(0, self.count, PER_PROCESS):
            order = {
                "settings": [self._settings(one) for one in self._names[first:][:PER_PROCESS]],
                "ports": [one.net_port for one in self._brokers],
                "lines_per_s": self._lines_per_s,
                "burst_s": BURST_S,
            }
            self._members.append(FleetProcess(len(self._members), order, self.log, self._niceness))
            self._wait_until_ready(min(self.count, first + PER_PROCESS))
        self.started_s = time.monotonic() - began_s
        return self

    def _wait_until_ready(self, count: int) -> None:
        try:
            wait_until(lambda: self._sum("ready") == count, START_S, f"{count} collectors ready")
        except AssertionError as error:
            names = [name for one in self._members for name in one.state.get("unready", ())]
            error.add_note(f"not ready: {names}; the log: {self.log.read_text()[-4_000:]}")
            raise

    def write(self) -> None:
        """Begin to append lines to all files."""
        self._order("write")

    def pause(self) -> dict[str, int]:
        """Stop writing. Return the number of lines that each collector's file has."""
        return {
            name: count
            for state in self._order("pause")
            for name, count in state["written"].items()
        }

    def cut(self) -> None:
        """Shut down all connections of all collectors at once."""
        self._order("cut")

    def end(self) -> None:
        """Stop all collectors cleanly."""
        self._order("end")
        self.check()

    def pids(self) -> list[int]:
        return [one.process.pid for one in self._members]

    @property
    def oldest_commit_ms(self) -> int:
        """The time of the last commit of that collector whose last commit is oldest."""
        return min(int(one.state["oldest_commit_ms"]) for one in self._members)

    def totals(self) -> dict[str, int]:
        """Return how often the collectors have committed, aborted and started over."""
        return {name: self._sum(name) for name in ("committed", "aborted", "started_over")}

    def check(self) -> None:
        """Raise AssertionError if a collector has ended or has failed."""
        failures = [text for one in self._members for text in one.state.get("failures", ())]
        failures += [f"process {one.process.pid} has ended" for one in self._members
                     if one.process.poll()]  # fmt: skip
        assert not failures, failures[:10]

    def _sum(self, name: str) -> int:
        return sum(int(one.state.get(name, 0)) for one in self._members)

    def _order(self, command: str) -> list[dict[str, Any]]:
        for one in self._members:
            one.send(command)
        found = [
            wait_until(lambda one=one: one.state_after(command), COMMAND_S, command)  # type: ignore[misc]
            for one in self._members
        ]
        return [state for state in found if state is not None]

    def close(self) -> None:
        for one in self._members:
            one.kill()
        self._members.clear()
        if self._instances_before is not None:
            INOTIFY.write_text(self._instances_before)
            self._instances_before = None

    def _allow_watches(self) -> None:
        """Raise the kernel's limit of inotify instances until `close`, because each collector has
        one."""
        before, needed = INOTIFY.read_text(), self.count + 256
        if int(before) < needed:
            INOTIFY.write_text(str(needed))
            self._instances_before = before
