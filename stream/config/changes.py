"""Follows changes of the configuration file while the stream runs, and remembers refused ones.

`ConfigWatch` watches a file. After a change it runs a command that prints the settings in the file.
The program that started the stream passes in this command, because only that program can parse the
file. `RefusedConfig` stores a refusal in the small file `refused.json`. If the stream starts with a
configuration that it refused before, it runs the older configuration, as it did before the restart.
"""

import hashlib
import json
import logging
import os
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from protocol.log import fields
from protocol.settling import LOOK_EVERY_S, Settling, known_signature, signature_of
from stream.config.settings import StreamReloadSettings, StreamSection, StreamUpdate
from stream.threads import ThreadKeeper

COMMAND_S = 60.0
LINES_TOLD = 5

# The keys of the section that can change while the stream runs. The other keys are settings of
# Spark, which need a restart.
LIVE_KEYS = ("from_", "defaults", "metrics")

_VERSION = 1

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UnreadableConfigFile:
    """The file is not a valid configuration; `why` lists its faults."""

    why: str


class ConfigWatch:
    """Watches the file from its own thread; `take` returns each change once."""

    def __init__(self, settings: StreamReloadSettings) -> None:
        self._settings = settings
        self._settling = Settling(known_signature(settings.file, settings.sha256))
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._found: StreamUpdate | UnreadableConfigFile | None = None

    def start(self, keeper: ThreadKeeper) -> None:
        """Start to watch for content that differs from that from which the settings were made."""
        keeper.keep("changes", self._look_again)

    def close(self) -> None:
        """Stop watching the file."""
        self._closed.set()

    def take(self) -> StreamUpdate | UnreadableConfigFile | None:
        """Return the changed settings; None if there is no change."""
        with self._lock:
            found, self._found = self._found, None
        return found

    def _look_again(self) -> None:
        while not self._closed.wait(LOOK_EVERY_S):
            if self._settling.look(signature_of(self._settings.file), time.monotonic()):
                found = ask(self._settings.command)
                with self._lock:
                    self._found = found


def ask(command: tuple[str, ...]) -> StreamUpdate | UnreadableConfigFile:
    """Run the command, and return the StreamUpdate that it prints as JSON.

    If the command fails, the result has the faults that it printed on standard error.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        if done.returncode == 0:
            return StreamUpdate.model_validate_json(done.stdout)
        return UnreadableConfigFile(
            "; ".join(done.stderr.splitlines()[:LINES_TOLD]) or "no reason given"
        )
    except (OSError, ValidationError, subprocess.TimeoutExpired) as error:
        return UnreadableConfigFile(f"{type(error).__name__}: {error}")


def changed_section(section: StreamSection, wanted: StreamSection) -> StreamSection:
    """Return the running section with the changes that can be applied while it runs."""
    return section.model_copy(update={key: getattr(wanted, key) for key in LIVE_KEYS})


def later_keys(section: StreamSection, wanted: StreamSection) -> list[str]:
    """Return the changed keys that take effect only at the next start."""
    return [
        f"stream.{key}"
        for key in StreamSection.model_fields
        if key not in LIVE_KEYS and getattr(section, key) != getattr(wanted, key)
    ]


@dataclass(frozen=True, slots=True)
class RunningInstead:
    """The configuration that runs instead of a refused one, and the reason for the refusal."""

    update: StreamUpdate
    why: str


class RefusedConfig:
    """The refused configuration, stored in a file that survives restarts."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def running_instead(self, asked: StreamSection) -> RunningInstead | None:
        """Return the configuration to run instead of `asked`.

        None if `asked` was not refused before, so the stream runs `asked` itself.
        """
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return None
        try:
            value = json.loads(text)
            if value["version"] != _VERSION or value["asked"] != _digest(asked):
                return None
            return RunningInstead(StreamUpdate.model_validate(value["running"]), str(value["why"]))
        except (ValueError, KeyError, TypeError) as error:
            logger.warning(
                "the file about a refused configuration cannot be read",
                extra=fields(file=self._path.name, why=error),
            )
            return None

    def note(self, asked: StreamSection, running: StreamUpdate, why: str) -> None:
        """Store that `asked` was refused and that `running` continues to run. Raises OSError."""
        value = {
            "version": _VERSION,
            "asked": _digest(asked),
            "running": running.model_dump(mode="json", by_alias=True),
            "why": why,
        }
        draft = self._path.with_suffix(".tmp")
        with draft.open("w") as file:
            file.write(json.dumps(value))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)

    def clear(self) -> None:
        """Remove the file, because the stream now runs the configuration that the user wants."""
        self._path.unlink(missing_ok=True)


def _digest(section: StreamSection) -> str:
    live = section.model_dump_json(include=set(LIVE_KEYS))
    return hashlib.sha256(live.encode()).hexdigest()
