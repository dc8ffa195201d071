"""The manifest of a backup: the mill, the time, and every file with its size and checksum.

This module is pure: text in, values out. The manifest is written after everything else is on the
disk, so a folder without a manifest is not a backup. The manifest also contains its own checksum.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from appliance.errors import Failure

FILE_NAME = "manifest.json"
FORMAT = 2
"""The version of the backup folder's layout. A reader must refuse a later version."""
FORMAT_OF_WHOLE_MILL = 1
"""The format of a backup that has everything, which earlier versions can restore too."""


class BadBackup(Failure):
    """Raised for a folder that is not a backup, and for a damaged backup. The text names the
    file."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of a backup: its path in the backup, size, SHA-256 in hexadecimal, and mode bits."""

    path: str
    size_bytes: int
    sha256: str
    mode: int


@dataclass(frozen=True, slots=True)
class StoredFolder:
    """One folder of a backup: its path below the data folder, and its mode bits."""

    path: str
    mode: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of one backup. The mill was paused at `made_at_ms` for `paused_ms`."""

    version: str
    made_at_ms: int
    paused_ms: int
    cluster_id: str
    brokers: int
    rows: int
    folders: tuple[StoredFolder, ...]
    files: tuple[StoredFile, ...]
    main_broker: int | None = None
    """The broker of the main host, if the brokers are on several hosts. The backup then has what
    only the main host has. The brokers on the other hosts have the logs."""

    @property
    def size_bytes(self) -> int:
        """The size of all files together."""
        return sum(file.size_bytes for file in self.files)


def encode(manifest: Manifest) -> bytes:
    """Return the text of the manifest file."""
    is_whole = manifest.main_broker is None
    content = {"format": FORMAT_OF_WHOLE_MILL if is_whole else FORMAT, **asdict(manifest)}
    if is_whole:
        # Earlier versions do not know this field.
        del content["main_broker"]
    content["sha256"] = _checksum(content)
    return json.dumps(content, indent=1).encode() + b"\n"


def decode(data: bytes) -> Manifest:
    """Parse a manifest file. Raises BadBackup if it is damaged or has a later format."""
    try:
        content = json.loads(data)
        found = content.pop("format")
        if isinstance(found, int) and found > FORMAT:
            version = content.get("version")
            raise BadBackup(
                f"{FILE_NAME}: found a backup of format {found}, made by millrace {version};"
                f" expected format {FORMAT} or earlier, which this version can read: restore the"
                f" backup with millrace {version} or a later version"
            )
        if content.pop("sha256") != _checksum({"format": found, **content}):
            raise BadBackup(f"{FILE_NAME} is damaged: its checksum does not match")
        content["folders"] = tuple(StoredFolder(**one) for one in content["folders"])
        content["files"] = tuple(StoredFile(**one) for one in content["files"])
        manifest = Manifest(**content)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadBackup(f"{FILE_NAME} is damaged: {error}") from error
    for path in (*(one.path for one in manifest.folders), *(one.path for one in manifest.files)):
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts:
            raise BadBackup(f"{FILE_NAME}: {path} is not inside the backup")
    return manifest


def _checksum(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
