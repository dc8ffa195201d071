"""A host that was lost: its broker starts on a new machine as a newcomer, and the command waits."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from appliance.checks import startup
from appliance.checks.startup import CheckLevel
from appliance.cli import broker_disk, context
from appliance.cli.cluster import with_cluster
from appliance.kafka.disk_replacement import look
from appliance.mill.home import CODE
from appliance.mill.settings import Mill, settings_for
from appliance.mill.voter_folders import is_empty_folder, joins_cluster, mark_newcomer
from appliance.output import CommandError
from protocol.types import Uuid
from protocol.wire.schema import Message
from tests.unit.appliance.fake_quorum import FakeQuorum
from tests.unit.appliance.hosted import (
    HOSTS,
    joined,
    mill,
    write_secrets,
    write_voters,
)
from tests.unit.appliance.reassign_desk import Desk, main_host_desk


def host_of(folder: Path, broker: int) -> Mill:
    """Return a host that has joined, with its secrets."""
    joined(folder, broker)
    write_secrets(folder, broker)
    return mill(folder)


def test_an_empty_disk_joins_only_if_it_was_marked(tmp_path: Path) -> None:
    """Without the mark an empty disk of the first three counts for the birth of a cluster."""
    found = host_of(tmp_path, 3)
    assert settings_for(found, "broker-3")["joins"] is False
    mark_newcomer(found.home, 3)
    wanted = settings_for(found, "broker-3")
    assert wanted["joins"] is True
    assert sorted(wanted["voters"]) == ["1", "2", "3"]
    assert is_empty_folder(found.home, 3)


def test_the_mark_is_lost_with_the_disk(tmp_path: Path) -> None:
    found = host_of(tmp_path, 3)
    mark_newcomer(found.home, 3)
    shutil.rmtree(found.home.part_data("broker-3"))
    assert settings_for(found, "broker-3")["joins"] is False


def test_the_mark_does_nothing_to_a_disk_that_votes(tmp_path: Path) -> None:
    found = host_of(tmp_path, 3)
    mark_newcomer(found.home, 3)
    write_voters(found.home, 3, HOSTS)
    assert settings_for(found, "broker-3")["joins"] is False
    assert not is_empty_folder(found.home, 3)


def test_a_newcomer_on_a_host_starts_again_before_it_votes(tmp_path: Path) -> None:
    """The folders of the voters are on other hosts, so they are not missing here."""
    found = host_of(tmp_path, 3)
    write_voters(found.home, 3, {one: HOSTS[one] for one in (1, 2)})
    failed = [one for one in startup.data_ownership(found) if one.level is CheckLevel.FAILED]
    assert failed == []
    assert settings_for(found, "broker-3")["joins"] is True


@dataclass
class ReturningBroker(FakeQuorum):
    """Broker 3 returns with an empty disk when it was asked for often enough without its vote."""

    returns_after: int = 3

    def _quorum(self, request: Any) -> Message:
        if 3 not in self.voters and 3 in self.fenced:
            self.returns_after -= 1
            if self.returns_after <= 0:
                self.fenced = set()
                self.brokers[3] = None
                for one in self.partitions.values():
                    one.in_sync = list(one.replicas)
        return super()._quorum(request)


@pytest.fixture
def cluster() -> Iterator[ReturningBroker]:
    """Three voters. Broker 3 is away, and its host was lost."""
    voters = {one: Uuid(int=one) for one in (1, 2, 3)}
    found = ReturningBroker(dict.fromkeys((1, 2)), voters=voters, fenced={3})
    found.topic("logs", [1, 2, 3], [2, 3, 1])
    for one in found.partitions.values():
        one.in_sync = [broker for broker in one.replicas if broker != 3]
    with found.serving():
        yield found


@pytest.fixture
def host(
    cluster: ReturningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    yield main_host_desk(cluster, tmp_path, monkeypatch)


def test_the_command_says_what_to_type_and_waits(cluster: ReturningBroker, host: Desk) -> None:
    code, _, err = host.run_here("broker", "replace-disk", "3", "--yes")
    assert code == 0, err
    said = "\n".join(err)
    assert "start mill-3.example.org again, and type `./millrace up` there" in said
    assert "on mill-1.example.org: `./millrace enrol broker 3`" in said
    assert "`./millrace join broker-3.join` and `./millrace up`" in said
    assert said.index("remove broker 3 from the voters") < said.index("enrol broker 3")
    assert said.index("enrol broker 3") < said.index("make broker 3 a voter")
    assert err[-1] == "broker 3 has all its replicas in sync again"
    assert sorted(cluster.voters) == [1, 2, 3]


def test_the_plan_names_the_host(cluster: ReturningBroker, host: Desk) -> None:
    code, _, err = host.run_here("broker", "replace-disk", "3", "--dry-run")
    assert code == 0, err
    assert "its broker cannot come back with the old disk" in "\n".join(err)
    assert err[-1] == "nothing was changed"
    assert sorted(cluster.voters) == [1, 2, 3]


def test_the_main_host_replaces_its_disk_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No join file is made for it, because it has the key of the CA."""
    monkeypatch.setattr(context, "mill_as_it_runs", lambda: mill(tmp_path))
    first, second = broker_disk._what_to_type(1, HOSTS[1]).splitlines()
    assert first.startswith(
        "on mill-1.example.org: `./millrace broker replace-disk 1` if only the disk was lost."
    )
    assert first.endswith("`./millrace restore FOLDER` with its last backup, and `./millrace up`")
    assert second.startswith("this command waits for broker 1. Ctrl-C ends only the waiting")


def test_containers_are_named_by_commands_of_compose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = mill(tmp_path)
    monkeypatch.setattr(context, "mill_as_it_runs", lambda: found)
    monkeypatch.setattr(context, "home", lambda: found.home)
    monkeypatch.setattr(context, "in_containers", lambda: True)
    first, _ = broker_disk._what_to_type(1, HOSTS[1]).splitlines()
    assert first.endswith("`docker compose run --rm cli broker replace-disk 1`")
    with pytest.raises(CommandError) as caught:
        broker_disk._start(1, None)
    mark = found.home.part_data("broker-1") / "joins"
    assert f"--entrypoint touch broker-1 {mark}`" in str(caught.value)
    started = "`docker compose up -d --wait --no-deps --force-recreate broker-1`"
    assert started in str(caught.value), "an earlier look finds it not in service"
    mark.parent.mkdir(parents=True)
    mark.touch()
    assert joins_cluster(found.home, found.config, 1), "the command does what it promises"


def test_the_page_has_the_commands_that_are_named_in_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = mill(tmp_path)
    home = replace(found.home, folder=Path("/mill"), in_containers=True)
    monkeypatch.setattr(context, "mill_as_it_runs", lambda: found)
    monkeypatch.setattr(context, "home", lambda: home)
    monkeypatch.setattr(context, "in_containers", lambda: True)
    with pytest.raises(CommandError) as caught:
        broker_disk._start(2, None)
    page = (CODE / "docs" / "howto" / "replace-a-disk.md").read_text()
    typed = re.findall(r"`(docker compose [^`]+)`", str(caught.value))
    assert len(typed) == 2
    for line in typed:
        assert f"\n{line}\n" in page


def test_a_container_warns_of_a_disk_that_it_does_not_see(
    cluster: ReturningBroker, host: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = with_cluster(None, 10, lambda asked: look(asked, 3))
    warned = broker_disk._remarks_on_old_disk
    assert warned(state, None, None) == [], "without containers the folder is looked at"
    home = replace(context.home(), in_containers=True)
    monkeypatch.setattr(context, "home", lambda: home)
    monkeypatch.setattr(context, "in_containers", lambda: True)
    assert warned(state, None, None)[0].endswith("type `docker compose up -d broker-3`")
    there = warned(state, HOSTS[3], None)[0]
    assert there.endswith(f"start {HOSTS[3]} again, and type `docker compose up -d` there")
    assert warned(state, None, "other:9092") == [], "the broker is of another mill"
