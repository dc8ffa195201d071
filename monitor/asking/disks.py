"""The free space of the disks with the mill's data, read from the operating system."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from monitor.state.snapshot import DiskView


def ask_disks(folders: Mapping[str, Path]) -> tuple[DiskView, ...]:
    """Return the disk of each folder under the name given for that folder; leave out disks that
    cannot be read.
    """
    found = []
    for name, folder in folders.items():
        try:
            usage = shutil.disk_usage(folder)
        except OSError:
            continue
        found.append(DiskView(name, usage.free, usage.total))
    return tuple(found)
