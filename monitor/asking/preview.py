"""Detects the format of a file below `watched/` when a user asks for it on the Counts page.

The monitor runs `millrace detect --json` for that. The command reads at most 10,000 lines, sends
nothing to a broker, and changes nothing.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, Protocol

from monitor.config.settings import PreviewSettings
from protocol.own_command import CommandFailed, run_command

AT_ONCE_MAX = 1
TIMEOUT_S = 20.0
"""The time limit for a whole answer, including the wait for other users."""

NAME_CHARACTERS_MAX = 4_096
FILES_OFFERED_MAX = 20
_FOUND, _NO_FORMAT_FITS = 0, 3
"""The exit codes after which the command's output is a detection."""


class PreviewFailed(Exception):
    """The file cannot be previewed; the text says why."""


class Previews(Protocol):
    """The interface of the source of previews: `Detector`, or a test's script."""

    async def preview(self, name: str) -> Mapping[str, Any]:
        """Return the detection of the file `name` below `watched/`.

        Raises ValueError if `watched/` has no file of this name, and PreviewFailed.
        """
        ...


class Detector:
    """Runs the command that detects formats, for one user at a time."""

    def __init__(self, settings: PreviewSettings) -> None:
        self._settings = settings
        self._gate = asyncio.Semaphore(AT_ONCE_MAX)

    async def preview(self, name: str) -> Mapping[str, Any]:
        """Return the detection of the file `name` below `watched/`.

        Raises ValueError if `watched/` has no file of this name, and PreviewFailed.
        """
        path = self._settings.folder / relative_name(name)
        if not path.is_file():
            raise ValueError(f"there is no file {name} in watched/")
        try:
            async with asyncio.timeout(TIMEOUT_S), self._gate:
                printed = await run_command(
                    (*self._settings.command, str(path)), TIMEOUT_S, (_FOUND, _NO_FORMAT_FITS)
                )
        except TimeoutError as error:
            raise PreviewFailed(
                f"{name} was not previewed within {TIMEOUT_S:.0f} s; try again later"
            ) from error
        except CommandFailed as error:
            raise PreviewFailed(str(error)) from error
        data: Mapping[str, Any] = json.loads(printed)["data"]
        return data


def relative_name(name: str) -> str:
    """Return a file's name relative to `watched/`, with or without that folder in front of it.

    Raises ValueError for a name that leads out of the folder.
    """
    path = PurePosixPath(name)
    if path.parts[:1] == ("watched",):
        path = path.relative_to("watched")
    is_inside = path.parts and not path.is_absolute() and ".." not in path.parts
    if not is_inside or "\0" in name or len(name) > NAME_CHARACTERS_MAX:
        raise ValueError(f"found {name!r}, expected a file in watched/ such as access/access.log")
    return str(path)


def files_to_preview(
    details: Mapping[str, Any], not_counted: Iterable[Mapping[str, Any]]
) -> list[str]:
    """Return the files that a user will want to preview: those without an input, and those with
    lines that were not counted.

    `details` is the collector's status, and `not_counted` the stream's rows of lines that were not
    counted.
    """
    names = [str(one) for one in details.get("unmatched") or ()]
    names += [str(row["file"]) for row in not_counted if row.get("file")]
    inside = [f"watched/{relative_name(one)}" for one in names if not one.startswith("/")]
    return list(dict.fromkeys(inside))[:FILES_OFFERED_MAX]
