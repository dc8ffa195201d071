"""A test's file system can be unmounted although another process has its folder open."""

import os
import threading
from pathlib import Path

import pytest

from tests.harness.mounts import MIB, Tmpfs

pytestmark = pytest.mark.live


def test_a_file_system_in_use_is_unmounted_a_moment_later(tmp_path: Path) -> None:
    with Tmpfs(tmp_path, 1) as disk:
        (disk.folder / "file").write_bytes(bytes(MIB // 2))
        held = os.open(disk.folder, os.O_RDONLY)
        timer = threading.Timer(0.2, os.close, [held])
        timer.start()
        disk.unmount()
        timer.join()
        assert not os.path.ismount(disk.folder)
