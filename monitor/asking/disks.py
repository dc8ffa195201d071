"""Reads the free space of the disks with the mill's data from the operating system."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from monitor.state.snapshot import DiskView


def ask_disks(folders: Mapping[str, Path]) -> tuple[DiskView, ...]:
    """Return the disk of each folder, with the name that the folder has in `folders`.

    Disks that cannot be read are left out.
    """
    found = []
    for name, folder in folders.items():
        try:
            usage = shutil.disk_usage(folder)
        except OSError:
            continue
        found.append(DiskView(name, usage.free, usage.total))
    return tuple(found)
