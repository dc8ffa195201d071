"""Finds the file system of a watched folder, and recognises network file systems."""

from pathlib import Path

import pytest

from appliance.checks.file_systems import (
    is_network,
    kind_of,
    mounts_of_this_process,
    watched_folders,
)
from appliance.checks.startup import CheckLevel
from appliance.config.load import load_text
from appliance.mill.home import find_home
from appliance.mill.parts import Placement
from appliance.mill.settings import Mill

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:35 / /srv rw - tmpfs tmpfs rw
41 22 0:40 / /srv/logs rw,relatime shared:7 - nfs4 host:/logs rw,vers=4.2
42 22 0:41 / /srv/with\\040space rw - cifs //host/share rw
43 22 0:42 / /srv/logs rw - ext4 /dev/sdb1 rw
44 22 0:43 / /mnt/x rw - fuse.sshfs x@host: rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/log", "ext4"),
        ("/srv/other", "tmpfs"),
        ("/srv/logs2", "tmpfs"),
        ("/srv/logs/app", "ext4"),
        ("/srv/with space/a", "cifs"),
        ("/mnt/x/logs", "fuse.sshfs"),
    ],
)
def test_the_longest_mount_point_that_holds_a_path_and_the_latest_of_those(
    path: str, kind: str
) -> None:
    assert kind_of(path, MOUNTS) == kind


def test_the_kernel_tells_what_holds_its_own_table() -> None:
    assert kind_of("/proc/self", mounts_of_this_process()) == "proc"


def test_which_are_another_machines() -> None:
    assert [is_network(kind) for kind in ("nfs", "nfs4", "cifs", "fuse.sshfs")] == [True] * 4
    assert [is_network(kind) for kind in ("ext4", "xfs", "overlay", "tmpfs", "fuse")] == [False] * 5


def test_a_network_folder_is_said_and_a_local_one_is_not(tmp_path: Path) -> None:
    text = f"collector: {{inputs: [{{paths: ['{tmp_path}/logs/**'], topic: t}}]}}\n"
    home = find_home({"MILLRACE_HOME": str(tmp_path)})
    mill = Mill(home, load_text(text, "m", tmp_path, {}).config, Placement())
    assert list(watched_folders(mill, MOUNTS)) == []
    table = f"1 0 0:1 / / rw - ext4 x rw\n2 1 0:2 / {tmp_path}/logs rw - nfs4 h:/ rw\n"
    (check,) = watched_folders(mill, table)
    assert check.level is CheckLevel.WARNING
    assert f"{tmp_path}/logs is on nfs4" in check.found
