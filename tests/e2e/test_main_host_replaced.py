"""A mill on three hosts loses its main host, and a new machine takes its place from a backup.

The tests run in the order of this file, on one mill.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from appliance.mill.home import CODE
from tests.e2e.hosted_mill import SPARE, HostedMill
from tests.e2e.hosted_scene import HostedScene, hosted_scene
from tests.e2e.mill import temp_mill, until_it_says
from tests.e2e.reading import Reading

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(1_800)]

REPLACED_S = 300.0
MORE_FILES = 6
"""The number of files after the backup, so that each partition gets lines."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedScene]:
    folder = tmp_path_factory.mktemp("hosts")
    with hosted_scene(folder) as scene:
        yield scene


@pytest.fixture(scope="module")
def machines() -> Iterator[ExitStack]:
    """Yield the stack of the machine that takes the place of the main host."""
    with ExitStack() as stack:
        yield stack


def backed_up(mill: HostedMill, folder: Path) -> None:
    made = mill.run(1, "backup", str(folder), "--json")
    assert made.code == 0, made.err
    assert json.loads(made.out)["data"]["main_broker"] == 1


def delete_counted(mill: HostedMill) -> None:
    """Delete the records of all lines that are counted, as retention does."""
    with mill.inside(1):
        counted: dict[str, dict[int, int]] = {}
        for (topic, part), end in Reading(mill.main).ledger().items():
            counted.setdefault(topic, {})[part] = end
        done = subprocess.run(
            [*mill.prefix, sys.executable, "-m", "tests.e2e.delete_counted", json.dumps(counted)],
            cwd=CODE,
            env={**os.environ, "MILLRACE_HOME": str(mill.main.home.folder)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert sum(counted["logs.access"].values()) > 0


def test_a_backup_is_made_on_the_main_host(scene: HostedScene) -> None:
    mill = scene.mill
    scene.write()
    scene.is_exact()
    refused = mill.run(2, "backup", str(scene.folder / "elsewhere"))
    assert (refused.code != 0, (scene.folder / "elsewhere").exists()) == (True, False)
    assert f"made on the main host, {mill.name_of(1)}" in refused.err
    backed_up(mill, scene.folder / "backup")
    data = scene.folder / "backup" / "data"
    assert (data / "secrets" / "ca" / "ca.key").exists()
    assert not (data / "broker-1").exists()
    # From now on only the backup can say how many lines were counted so far.
    delete_counted(mill)
    scene.write()
    scene.is_exact()


def test_a_new_machine_takes_the_place_of_the_main_host(
    scene: HostedScene, machines: ExitStack
) -> None:
    mill, backup = scene.mill, str(scene.folder / "backup")
    # A partition that the ledger in the backup does not have.
    grown = mill.run(1, "topic", "alter", "logs.access", "--partitions", "4")
    assert grown.code == 0, grown.err
    for _ in range(MORE_FILES):
        scene.write()
    scene.is_exact()
    scene.in_sync()

    machine = machines.enter_context(temp_mill(scene.folder / "host-1-again"))
    machine.home.config_file.unlink()
    machine.prefix, machine.ports = mill.prefix, mill.main.ports
    with mill.spaces.inside(SPARE):
        early = machine.run("restore", backup)
    assert early.code != 0
    assert "broker 1 is in service, so the main host still runs" in early.err

    mill.lose(1)
    mill.wait_for(2, {1: "out of service", 3: "in service"})
    mill.moves_to(1, machine, SPARE)
    votes = mill.run(1, "restore", backup)
    assert votes.code != 0
    assert "type `./millrace broker replace-disk 1` on another host first" in votes.err
    assert not machine.home.data.exists()

    with mill.inside(2):
        waiting = mill.hosts[2].begin("broker", "replace-disk", "1", "--yes")
    said = until_it_says(waiting, "this command waits for broker 1")
    assert "`./millrace restore FOLDER` with its last backup, and `./millrace up`" in said
    restored = mill.run(1, "restore", backup)
    assert restored.code == 0, restored.err
    assert "broker 1 starts with an empty disk" in restored.err
    up = mill.run(1, "up")
    assert up.code == 0, f"{up.err}\n{mill.ends(1)}"
    _, err = waiting.communicate(timeout=REPLACED_S)
    assert waiting.returncode == 0, f"{err}\n{mill.ends(1)}"
    assert "broker 1 has all its replicas in sync again" in err
    mill.wait_for(2, {1: "in service", 3: "in service"})
    scene.is_exact()


def test_the_new_main_host_is_like_the_lost_one(scene: HostedScene) -> None:
    """It counts while another broker is killed, makes certificates, and can be backed up."""
    mill = scene.mill
    shown = mill.run(1, "broker", "describe", "--json")
    rows = json.loads(shown.out)["data"]["brokers"]
    assert [row["broker"] for row in rows if row["voter"]] == [1, 2, 3]
    scene.in_sync()
    mill.kill_broker(2)
    for _ in range(MORE_FILES):
        scene.write()
    scene.is_exact()
    made = mill.run(1, "enrol", "broker", "3", "--out", str(scene.folder))
    assert made.code == 0, made.err
    backed_up(mill, scene.folder / "next")
    again = mill.run(1, "restart")
    assert again.code == 0, f"{again.err}\n{mill.ends(1)}"
    scene.write()
    scene.is_exact()


def test_each_host_is_stopped_at_the_end(scene: HostedScene) -> None:
    for host in sorted(scene.mill.hosts, reverse=True):
        assert scene.mill.run(host, "down").code == 0
