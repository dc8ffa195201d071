"""`demo` makes something to count, `show` prints the counts."""

import random
import signal
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from appliance.cli import context
from appliance.cli.output import (
    CommandError,
    Exit,
    is_terminal,
    print_json,
    print_table,
    say,
)
from appliance.config.faults import did_you_mean
from appliance.demo import access_line
from appliance.readings import Reading, ReadingError, read_metric
from appliance.settings import Mill


def demo(
    seconds: Annotated[float, typer.Option("--seconds", help="How long.", min=0.1)] = 60.0,
    rate: Annotated[float, typer.Option("--rate", help="Lines a second.", min=1, max=20_000)] = 50,
    seed: Annotated[int | None, typer.Option("--seed", help="The same lines again.")] = None,
) -> None:
    """Write a minute of made-up web traffic into watched/access; Ctrl-C ends it cleanly."""
    home = context.home()
    folder = home.folder / "watched" / "access"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"demo-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.log"
    chance = random.Random(seed)
    written = 0
    say(f"writing {rate:.0f} lines a second for {seconds:.0f} s into {path}")
    say("watch them: ./millrace show requests_by_status --size 1m --watch")
    # A line is written whole or not at all, also when the command is broken off.
    with path.open("ab", buffering=0) as file, _stop_flag() as stopped:
        began = time.monotonic()
        while not stopped and (now := time.monotonic()) < began + seconds:
            due = int((now - began) * rate) + 1
            if due > written:
                lines = [access_line(chance, datetime.now(UTC)) for _ in range(due - written)]
                file.write("".join(lines).encode())
                written = due
                _tell(written, now - began, seconds)
            time.sleep(min(0.05, 1 / rate))
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    say(f"{written} lines written")


class _stop_flag:
    """True once SIGINT or SIGTERM came; the handlers are put back at the end."""

    def __init__(self) -> None:
        self.is_set = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "_stop_flag":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._set)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _set(self, *_: object) -> None:
        self.is_set = True

    def __bool__(self) -> bool:
        return self.is_set


def _tell(written: int, elapsed_s: float, of_s: float) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{written} lines, {elapsed_s:.0f} of {of_s:.0f} s")
        sys.stderr.flush()


def show(
    metric: Annotated[str, typer.Argument(help="A metric of configs/millrace.yaml.")],
    size: Annotated[
        str | None, typer.Option("--size", help="A window such as 1m: its latest; or all.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="At most so many keys.", min=1)] = 50,
    watch: Annotated[bool, typer.Option("--watch", help="Again every second.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON envelope.")] = False,
) -> None:
    """Print a metric's counts: from Redis, or from MySQL when Redis is away."""
    mill, _ = context.load_mill()
    chosen = _window(mill, metric, size)
    for is_first in _rounds(watch):
        try:
            reading = read_metric(mill, metric, chosen)
        except ReadingError as error:
            if is_first or not watch:
                raise CommandError(str(error), Exit.UNREACHABLE) from error
            say(f"millrace: {error}")
            continue
        _print_reading(reading, limit, as_json=as_json, clear=watch and is_terminal())


def _rounds(watch: bool) -> Iterator[bool]:
    yield True
    while watch:
        sys.stdout.flush()
        time.sleep(1.0)
        yield False


def _window(mill: Mill, name: str, size: str | None) -> str:
    """The window to show: the one asked for, else `all`, else the metric's largest."""
    stream = mill.config.stream
    metrics = {metric.name: metric for metric in stream.metrics}
    if name not in metrics:
        close = did_you_mean(name, sorted(metrics))
        known = f"there are {', '.join(sorted(metrics)) or 'none'}{close}"
        raise CommandError(f"no metric {name!r}; {known}", Exit.NOT_FOUND)
    windows = metrics[name].windows or stream.defaults.windows
    if size is None:
        return "all" if "all" in windows else windows[-1]
    if size not in windows:
        known = f"{name} has {', '.join(windows)}"
        raise CommandError(f"no window {size!r}; {known}", Exit.NOT_FOUND)
    return size


def _print_reading(reading: Reading, limit: int, *, as_json: bool, clear: bool) -> None:
    rows = sorted(reading.values.items(), key=lambda pair: (-pair[1].rank, pair[0]))
    if as_json:
        data = {
            "metric": reading.metric,
            "size": reading.size,
            "start": reading.start,
            "source": reading.source,
            "values": {key: value.text for key, value in rows[:limit]},
            "keys": len(rows),
        }
        print_json("metric/1", data)
        return
    if clear:
        sys.stdout.write("\x1b[H\x1b[2J")
    if rows:
        table = [[key, value.text] for key, value in rows[:limit]]
        print_table(["KEY", reading.metric.upper()], table, right=frozenset({1}))
    since = f", window from {reading.start}" if reading.start else ""
    left_out = f"; {len(rows) - limit} more keys" if len(rows) > limit else ""
    nothing = "nothing counted yet; " if not rows else ""
    say(f"{nothing}{reading.size}{since}, from {reading.source}{left_out}")
