"""The free room of the disks with the mill's data, read from the system."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from monitor.state.snapshot import DiskView


def ask_disks(folders: Mapping[str, Path]) -> tuple[DiskView, ...]:
    """Return each folder's disk under its given name; leave out those that cannot be read."""
    found = []
    for name, folder in folders.items():
        try:
            usage = shutil.disk_usage(folder)
        except OSError:
            continue
        found.append(DiskView(name, usage.free, usage.total))
    return tuple(found)
