"""`demo`: write made-up web traffic, so that there is something to count."""

import os
import random
import signal
import time
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Annotated, Any

import typer

from appliance.cli import context
from appliance.cli.progress import progress_line
from appliance.output import CommandError, say
from appliance.traffic.demo import access_line

SIGNALLED = 128
"""The exit code of a command that a signal ended is this number plus the number of the signal."""


def demo(
    seconds: Annotated[float, typer.Option("--seconds", help="How long.", min=0.1)] = 60.0,
    rate: Annotated[float, typer.Option("--rate", help="Lines a second.", min=1, max=20_000)] = 50,
    seed: Annotated[int | None, typer.Option("--seed", help="The same lines again.")] = None,
) -> None:
    """Write a minute of made-up web traffic into watched/access; Ctrl-C ends it cleanly."""
    home = context.home()
    folder = home.folder / "watched" / "access"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = os.access(folder, os.W_OK)
    except OSError:
        probe = False
    if not probe:
        raise CommandError(
            f"user {os.getuid()} cannot write to {folder}; in containers run MILLRACE_UID=$(id "
            "-u) docker compose run --rm cli demo"
        )
    path = folder / f"demo-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.log"
    chance = random.Random(seed)
    written = 0
    say(f"writing {rate:.0f} lines a second for {seconds:.0f} s into {path}")
    say(f"watch them: {context.typed('show requests_by_status --size 1m --watch')}")
    # A line is written whole or not at all, even if the command is interrupted.
    with path.open("ab", buffering=0) as file, _stop_flag() as stopped, progress_line() as line:
        began = time.monotonic()
        while not stopped and (now := time.monotonic()) < began + seconds:
            due = int((now - began) * rate) + 1
            if due > written:
                lines = [access_line(chance, datetime.now(UTC)) for _ in range(due - written)]
                _write(file, path, "".join(lines).encode())
                written = due
                line.show(f"{written} lines, of {seconds:.0f} s")
            time.sleep(min(0.05, 1 / rate))
    say(f"{written} lines written")
    if stopped:
        raise typer.Exit(SIGNALLED + stopped.number)


def _write(file: FileIO, path: Path, data: bytes) -> None:
    try:
        file.write(data)
    except OSError as error:
        # An error of `write` does not name the file.
        raise CommandError(f"{path} cannot be written: {error.strerror}") from error


class _stop_flag:
    """A flag that becomes true at SIGINT or SIGTERM. The former signal handlers are restored at the
    end.

    `number` is the number of the signal.
    """

    def __init__(self) -> None:
        self.number = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "_stop_flag":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._set)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _set(self, number: int, _: object) -> None:
        self.number = number

    def __bool__(self) -> bool:
        return self.number != 0
