"""A command line beside a scripted cluster, for the tests of commands that change it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol.security.cluster_security import ClusterEntry
from tests.unit.appliance.fake_cluster import FakeCluster
from tests.unit.appliance.hosted import TEXT, has_authority, home_of
from tests.unit.appliance.test_commands import run

Ran = tuple[int, list[str], list[str]]


class Desk:
    """A user who runs commands in a new folder, against a scripted cluster."""

    def __init__(self, cluster: FakeCluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self.plan = folder / "plan.json"
        self.back = folder / "plan.rollback.json"
        self._folder = folder
        self._monkeypatch = monkeypatch

    def run(self, *arguments: str) -> Ran:
        return self.run_here(*arguments, "--bootstrap-server", self.cluster.address)

    def run_here(self, *arguments: str) -> Ran:
        """Run a command about the mill in this folder."""
        return run(self._monkeypatch, self._folder, *arguments)

    def reassign(self, *arguments: str) -> Ran:
        return self.run("reassign", *arguments)

    def generate(self, *arguments: str) -> Ran:
        return self.reassign("generate", "--write", str(self.plan), *arguments)

    def execute(self, *arguments: str) -> Ran:
        return self.reassign("execute", "--plan", str(self.plan), "--yes", *arguments)

    def write(self, **replicas: list[list[int]]) -> None:
        rows = [
            {"topic": name, "partition": number, "replicas": members}
            for name, partitions in replicas.items()
            for number, members in enumerate(partitions)
        ]
        self.plan.write_text(json.dumps({"version": 1, "partitions": rows}))


@contextmanager
def desk_beside_four(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """Yield a desk beside a cluster of four brokers with two topics."""
    cluster = FakeCluster(dict.fromkeys((1, 2, 3, 4)))
    cluster.topic("logs", [1, 2], [2, 3], [3, 1], [1, 3])
    cluster.topic("other", [1])
    with cluster.serving():
        yield Desk(cluster, folder, monkeypatch)


def data(lines: list[str]) -> Any:
    (line,) = lines
    return json.loads(line)["data"]


def main_host_desk(
    cluster: FakeCluster, folder: Path, monkeypatch: pytest.MonkeyPatch, text: str = TEXT
) -> Desk:
    """Return a command line on the main host. The scripted cluster has no TLS."""
    entry = ClusterEntry(cluster.address)
    monkeypatch.setattr("appliance.cli.cluster.asked_cluster", lambda _: entry)
    has_authority(folder)
    path = home_of(folder).config_file
    path.parent.mkdir()
    path.write_text(text)
    return Desk(cluster, folder, monkeypatch)
