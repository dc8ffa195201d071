"""How full the disks are on which the mill's data lies, asked of the system."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from monitor.state.snapshot import DiskView


def ask_disks(folders: Mapping[str, Path]) -> tuple[DiskView, ...]:
    """Each folder's disk, by the name given; one that cannot be asked is left out."""
    found = []
    for name, folder in folders.items():
        try:
            usage = shutil.disk_usage(folder)
        except OSError:
            continue
        found.append(DiskView(name, usage.free, usage.total))
    return tuple(found)
