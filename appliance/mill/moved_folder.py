"""Moves the data folder of a stopped broker to another place, also to another disk.

The mill always finds a broker's data at `data/broker-N`, so this path becomes a symbolic link to
the new place. A record beside it, `data/broker-N.moving`, has both places until the move is done.
So a move that was interrupted at any moment continues, and no broker starts with half a folder.
"""

import errno
import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from appliance.errors import Failure
from appliance.machine.files import sync_folder, write_atomically
from appliance.mill.parts import BROKER_PREFIX

RECORD = ".moving"
PARTIAL = ".copying"
ASIDE = ".moved"

LEFTOVERS = (RECORD, PARTIAL, ASIDE)
"""The endings of the names of what lies beside a folder until its move is finished."""


class MoveFault(Failure):
    """Raised when a folder cannot be moved, or is not where it should be. The text says why and
    what to do."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(f"{found}: {remedy}")
        self.found = found
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class FolderMove:
    """The move of the data of `link`, the path by which the mill finds them, from `source` to
    `target`. All three paths are absolute."""

    link: Path
    source: Path
    target: Path

    @property
    def is_placed(self) -> bool:
        """True if the mill finds the data at the new place."""
        return self.link.exists() and self.link.resolve() == self.target

    @property
    def is_on_another_disk(self) -> bool:
        """True if the data must be copied."""
        return self.source.stat().st_dev != _existing(self.target).stat().st_dev

    @property
    def has_data(self) -> bool:
        """True if there are data at one of the two places."""
        return _has_content(self.source) or _has_content(self.target)

    def carry_out(self, *, is_empty: bool = False) -> None:
        """Move the data, or continue an interrupted move. No process may use the data.

        Pass `is_empty` if the disk with the data is lost. Then, if neither place has data, the new
        folder is created empty. Without `is_empty`, MoveFault is raised in this case. Raises
        OSError too.
        """
        if not is_empty and not self.has_data:
            raise MoveFault(f"{self.source} has no data", "mount its disk, or put the folder back")
        record = {"from": str(self.source), "to": str(self.target)}
        write_atomically(_record(self.link), json.dumps(record).encode() + b"\n")
        if self.target == self.link and self.link.is_symlink():
            self.link.unlink()
        if is_empty and not self.has_data:
            self.target.mkdir(exist_ok=True)
        elif not _has_content(self.target):
            self._transfer()
        is_there = self.source.exists() and not self.source.is_symlink()
        if is_there and self.source != self.target:
            # The data were copied. The former ones must not be started again.
            self.source.rename(_aside(self.source))
            sync_folder(self.source.parent)
        if self.target != self.link:
            made = self.link.with_name(self.link.name + PARTIAL)
            made.unlink(missing_ok=True)
            made.symlink_to(self.target)
            made.replace(self.link)
        sync_folder(self.link.parent)

    def finish(self) -> None:
        """Delete the former data and the record, because the broker works at the new place."""
        aside = _aside(self.source)
        if aside.is_dir():
            shutil.rmtree(aside)
        _record(self.link).unlink(missing_ok=True)

    def _transfer(self) -> None:
        try:
            # An empty folder at the target is replaced.
            self.source.rename(self.target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            partial = self.target.with_name(self.target.name + PARTIAL)
            if partial.exists():
                shutil.rmtree(partial)
            shutil.copytree(self.source, partial, symlinks=True, copy_function=_copy_durably)
            for folder, _, _ in os.walk(partial):
                sync_folder(Path(folder))
            partial.rename(self.target)
        sync_folder(self.target.parent)


def unfinished(link: Path) -> FolderMove | None:
    """Return the move that was begun and not finished; None if there is none. Raises MoveFault."""
    path = _record(link)
    try:
        found = json.loads(path.read_text())
        return FolderMove(link, Path(found["from"]), Path(found["to"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MoveFault(
            f"{path} cannot be read: {error}",
            f"if {link} is the folder with the data, or leads to it, delete this file",
        ) from error


def refuse_absent(link: Path) -> None:
    """Raise MoveFault if the data of a part are not where it looks for them, so that it does not
    start with an empty folder."""
    begun = unfinished(link)
    if begun is not None and not begun.is_placed:
        raise MoveFault(
            f"the move of {link} to {begun.target} was interrupted",
            f"run `./millrace broker move {link.name.removeprefix(BROKER_PREFIX)}`",
        )
    if link.is_symlink() and not link.exists():
        raise MoveFault(
            f"{link} leads to {link.readlink()}, which is not there",
            "mount its disk; if the disk is lost, see docs/howto/move-a-broker.md",
        )


def wanted_move(link: Path, target: Path, reserve_bytes: int) -> FolderMove | None:
    """Return the move of a folder to another place; None if it is there already.

    `reserve_bytes` is what must stay free on another disk beyond the data and a tenth of them.
    Raises MoveFault if the place cannot take the folder.
    """
    source = link.resolve()
    # The last part of the path must not be resolved, because it can be the link itself.
    target = target.parent.resolve() / target.name
    if target == source:
        return None
    move = FolderMove(link, source, target)
    if not target.parent.is_dir():
        raise MoveFault(f"{target.parent} is not a folder", "make it, or mount the disk")
    is_own_link = target == link
    if not is_own_link and (target.is_symlink() or (target.exists() and _has_content(target))):
        raise MoveFault(f"{target} is not an empty folder", "name an empty or a new folder")
    if source in target.parents or target in source.parents:
        raise MoveFault(f"{target} and {source} are inside each other", "name another folder")
    if source.exists() and move.is_on_another_disk:
        size = _size_bytes(source)
        needed = size + size // 10 + reserve_bytes
        free = shutil.disk_usage(target.parent).free
        if free < needed:
            raise MoveFault(
                f"the disk of {target.parent} has {free >> 20} MiB free, and the folder needs "
                f"{needed >> 20} MiB",
                "free disk space, or name a folder on another disk",
            )
    return move


def _size_bytes(folder: Path) -> int:
    """Return the size of the files in a folder, from which a running broker can delete some."""
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += Path(parent, name).lstat().st_size
    return size


def _existing(path: Path) -> Path:
    return path if path.exists() else path.parent


def _has_content(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _record(link: Path) -> Path:
    return link.with_name(link.name + RECORD)


def _aside(source: Path) -> Path:
    return source.with_name(source.name + ASIDE)


def _copy_durably(source: str, target: str) -> None:
    shutil.copy2(source, target)
    with Path(target).open("rb") as copied:
        os.fsync(copied.fileno())
