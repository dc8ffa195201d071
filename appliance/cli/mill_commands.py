"""The commands for the whole mill: up, down, restart, status, logs, version."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from appliance import lifecycle
from appliance.cli import context
from appliance.cli.output import (
    CommandError,
    Exit,
    duration_text,
    is_terminal,
    out,
    print_json,
    print_table,
    say,
    size_text,
)
from appliance.home import Home
from appliance.lifecycle import Progress
from appliance.settings import Mill
from appliance.supervisor.control import NoSupervisor
from appliance.supervisor.logs import tail
from protocol.status import VERSION, PartState, StatusUnavailable, fetch_status
from protocol.units import parse_duration_ms

UP_TIMEOUT_S = 300.0
DOWN_TIMEOUT_S = 150.0

TimeoutOption = Annotated[float, typer.Option("--timeout", help="Seconds to wait.", min=0.1)]


@contextmanager
def progress_line(verb: str) -> Iterator[Any]:
    """A line that is rewritten in place on a terminal, and nothing in a pipe."""
    shown = False
    began = time.monotonic()

    def show(progress: Progress) -> None:
        nonlocal shown
        if not sys.stderr.isatty() or time.monotonic() - began < 1.0:
            return
        shown = True
        text = f"{verb} {progress.done}/{progress.of}"
        if progress.waiting_for:
            text += f", waiting for {progress.waiting_for}"
        sys.stderr.write(f"\r\x1b[K{text[:150]}")
        sys.stderr.flush()

    try:
        yield show
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")


def up(
    foreground: Annotated[
        bool,
        typer.Option("--foreground/--detach", help="Stay in front and print the logs."),
    ] = False,
    timeout: TimeoutOption = UP_TIMEOUT_S,
) -> None:
    """Start the mill and wait until it is healthy; does nothing when it runs already."""
    mill, loaded = context.load_mill()
    home, digest = mill.home, context.config_digest(mill.home)
    began = time.monotonic()
    runs_already = lifecycle.is_running(home)
    if not runs_already:
        from appliance.stream_check import check_expressions

        check_expressions(mill, loaded.document)
        try:
            lifecycle.start(mill, digest)
        except lifecycle.StartRefused as error:
            for check in error.checks:
                say(f"millrace: {check}")
            raise CommandError("nothing was started") from error
    try:
        with progress_line("starting") as show:
            found = lifecycle.wait_healthy(home, timeout, show)
    except TimeoutError as error:
        raise CommandError(f"{error}; `./millrace logs PART` tells more", Exit.TIMEOUT) from error
    except lifecycle.StartFailed as error:
        hint = "`./millrace status` shows the others; `./millrace down` stops them"
        raise CommandError(f"{error}\n{hint}") from error
    if problem := found.get("config_problem"):
        say(f"millrace: {problem}")
    elif found["config_digest"] != digest:
        say(f"{home.config_file} has changed since the start: `./millrace restart` applies it")
    seconds = time.monotonic() - began
    say("the mill runs already" if runs_already else f"the mill is up ({seconds:.1f} s)")
    for line in summary(mill):
        say(line)
    if foreground:
        _stay_in_front(home)


def summary(mill: Mill) -> list[str]:
    """Where everything is, and how to stop it."""
    config, folder = mill.config, mill.home.folder
    ports = config.ports
    lines = []
    for paths in config.collector.inputs:
        lines.append(f"  drop logs into   {', '.join(paths.paths)}  (topic {paths.topic})")
    lines.append(f"  page             http://{config.monitor.listen}")
    if mill.part("redis"):
        lines.append(f"  Redis            redis-cli -p {ports.redis} (reads mill:* unasked)")
    if mill.part("mysql"):
        where = mill.home.secrets / "mysql" / "reader"
        lines.append(
            f"  MySQL            127.0.0.1:{ports.mysql}, database millrace, user reader,"
            f" password in {_below(where, folder)}"
        )
    brokers = [part for part in mill.parts if part.name.startswith("broker-")]
    if brokers:
        addresses = ",".join(f"127.0.0.1:{ports.host + index}" for index in range(len(brokers)))
        lines.append(f"  Kafka clients    bootstrap.servers={addresses}")
    lines.append(f"  data, logs       {mill.home.data}, {mill.home.logs}")
    lines.append("  stop             make down")
    return lines


def _below(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _stay_in_front(home: Home) -> None:
    say("Ctrl-C stops the mill")
    try:
        _follow(_log_files(home, None), lines=0)
    except KeyboardInterrupt:
        down()


def down(timeout: TimeoutOption = DOWN_TIMEOUT_S) -> None:
    """Stop the mill cleanly: nothing lost, nothing left running."""
    try:
        with progress_line("stopped") as show:
            did_run = lifecycle.stop(context.home(), timeout, show)
    except lifecycle.StillStopping as error:
        raise CommandError(f"{error}; it goes on stopping by itself", Exit.TIMEOUT) from error
    say("the mill is stopped" if did_run else "the mill was not running")


def restart(
    part: Annotated[str | None, typer.Argument(help="Only this part.")] = None,
    timeout: TimeoutOption = UP_TIMEOUT_S,
) -> None:
    """Stop and start the mill with the configuration as it is now, or one part as it was."""
    home = context.home()
    if part is None:
        # A configuration with faults must not take down what runs.
        context.load_mill()
        down()
        up(foreground=False, timeout=timeout)
        return
    from appliance.supervisor.control import ask

    answer = ask(home.socket, {"command": "restart", "part": part})
    if not answer["ok"]:
        known = ", ".join(entry["part"] for entry in lifecycle.snapshot(home)["parts"])
        raise CommandError(f"no part {part!r}; there are {known}", Exit.NOT_FOUND)
    try:
        lifecycle.wait_healthy(home, timeout)
    except TimeoutError as error:
        raise CommandError(str(error), Exit.TIMEOUT) from error
    except lifecycle.StartFailed as error:
        raise CommandError(str(error)) from error
    say(f"{part} was restarted")


def status(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON envelope.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again every two seconds.")] = False,
) -> None:
    """How every part is; exit code 3 when the mill is not wholly healthy."""
    while True:
        rows, errors = part_rows()
        if watch and is_terminal() and not as_json:
            sys.stdout.write("\x1b[H\x1b[2J")
        if as_json:
            print_json("parts/1", rows, errors)
        else:
            _print_status(rows, errors)
        if not watch:
            break
        time.sleep(2.0)
    if errors or any(row["state"] != "healthy" for row in rows):
        raise typer.Exit(Exit.CONDITION)


def part_rows() -> tuple[list[dict[str, Any]], list[str]]:
    """One row per part, and what is wrong with the mill as a whole."""
    home = context.home()
    if context.placement().in_containers:
        return _container_rows(), []
    try:
        found = lifecycle.snapshot(home)
    except NoSupervisor:
        from appliance.supervisor.children import leftovers

        if lifecycle.is_running(home):
            return [], ["the supervisor is starting or stopping"]
        left = [f"{name} (process {record.pid})" for name, record in leftovers(home).items()]
        if left:
            return [], [f"no supervisor runs, but {', '.join(left)} of an earlier run does"]
        return [], ["the mill is not running"]
    rows = [
        _as_it_says_itself({**entry, "memory_bytes": _memory(entry["pid"])})
        for entry in found["parts"]
    ]
    errors = ["the mill is being stopped"] if found["stopping"] else []
    errors += [text for key in ("config_problem", "config_notice") if (text := found.get(key))]
    return rows, errors


def _container_rows() -> list[dict[str, Any]]:
    """In containers there is no supervisor: every part is asked itself."""
    import asyncio

    from appliance.supervisor.core import Answer
    from appliance.supervisor.probes import probe

    mill, _ = context.load_mill()

    async def ask_all() -> list[tuple[Answer, str]]:
        return await asyncio.gather(*(probe(part, mill.home) for part in mill.parts))

    return [
        _as_it_says_itself(
            {
                "part": part.name,
                "state": "healthy" if answer is Answer.OK else "unhealthy",
                "pid": None,
                "address": part.address,
                "restarts": None,
                "uptime_ms": None,
                "last_exit_code": None,
                "reason": reason,
                "memory_bytes": None,
            }
        )
        for part, (answer, reason) in zip(mill.parts, asyncio.run(ask_all()), strict=True)
    ]


def _memory(pid: int | None) -> int | None:
    """Resident memory of a part and everything it started."""
    import psutil

    if pid is None:
        return None
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
        return sum(member.memory_info().rss for member in family)
    except psutil.Error:
        return None


def _print_status(rows: list[dict[str, Any]], errors: list[str]) -> None:
    if rows:
        table = [
            [
                row["part"],
                row["state"],
                str(row["pid"] or "-"),
                duration_text(row["uptime_ms"]),
                "-" if row["restarts"] is None else str(row["restarts"]),
                size_text(row["memory_bytes"]),
                row["address"],
                "; it said: ".join(filter(None, (row["reason"], row.get("words")))),
            ]
            for row in rows
        ]
        heads = ["PART", "STATE", "PID", "UPTIME", "RESTARTS", "MEMORY", "ADDRESS", "NOTE"]
        print_table(heads, table, right=frozenset({2, 3, 4, 5}))
    for error in errors:
        say(f"millrace: {error}")


def _as_it_says_itself(row: dict[str, Any]) -> dict[str, Any]:
    """A part that answers is healthy to the supervisor; whether all is well it says itself.

    Of what the monitor reports only that counts which no part says of itself: one that is stuck.
    """
    if row["state"] != "healthy" or row["part"] in ("redis", "mysql"):
        return row
    host, _, port = row["address"].rpartition(":")
    try:
        found = fetch_status(host, int(port), 2.0)
    except StatusUnavailable:
        return row
    of_others = row["part"] == "monitor"
    problems = [one for one in found.problems if not of_others or one.code == "part-stuck"]
    is_degraded = found.state is PartState.DEGRADED and (problems or not of_others)
    state = "degraded" if is_degraded else "healthy"
    reason = "; ".join(problem.text for problem in problems)
    return {**row, "state": state, "reason": row["reason"] or reason}


def logs(
    part: Annotated[str | None, typer.Argument(help="One part; all of them if left out.")] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as lines come.")] = False,
    lines: Annotated[int, typer.Option("-n", "--lines", help="How many of each.", min=0)] = 50,
    since: Annotated[str | None, typer.Option("--since", help="Not older than, like 10m.")] = None,
) -> None:
    """The parts' logs, oldest first."""
    files = _log_files(context.home(), part)
    newest_ms = None
    if since is not None:
        try:
            newest_ms = round(time.time() * 1000) - parse_duration_ms(since)
        except ValueError as error:
            raise CommandError(str(error), Exit.USAGE) from error
    _follow(files, lines=lines, follow=follow, since_ms=newest_ms)


def _log_files(home: Home, part: str | None) -> dict[str, Path]:
    if part is not None:
        path = home.part_log(part)
        if not path.exists():
            known = ", ".join(sorted(p.stem for p in home.logs.glob("*.log"))) or "none yet"
            raise CommandError(f"no log of {part!r}; there are {known}", Exit.NOT_FOUND)
        return {part: path}
    return {path.stem: path for path in sorted(home.logs.glob("*.log"))}


def _follow(
    files: dict[str, Path], *, lines: int, follow: bool = True, since_ms: int | None = None
) -> None:
    """Print the ends of some logs in order of time, then what is added to them."""
    from appliance.cli.output import utc_text

    earliest = utc_text(since_ms) if since_ms is not None else ""
    width = max((len(name) for name in files), default=0)
    prefix = {name: f"{name:<{width}} | " if len(files) > 1 else "" for name in files}
    positions = {name: path.stat().st_size for name, path in files.items()}
    # A line without a time of its own (a traceback, a server's banner) stays behind its forerunner.
    found: list[tuple[str, int, str]] = []
    for name, path in files.items():
        moment = ""
        for line in tail(path, lines):
            if line[:4].isdigit() and line[4:5] == "-":
                moment = line[:24]
            if not earliest or moment >= earliest:
                found.append((moment, len(found), f"{prefix[name]}{line}"))
    for _, _, line in sorted(found):
        out(line)
    while follow:
        sys.stdout.flush()
        time.sleep(0.2)
        for name, path in files.items():
            positions[name] = _print_added(path, positions[name], prefix[name])


def _print_added(path: Path, position: int, prefix: str) -> int:
    """Print the whole lines behind `position`; returns the new one. A cut file starts again."""
    try:
        if path.stat().st_size < position:
            position = 0
        with path.open("rb") as file:
            file.seek(position)
            text = file.read(1 << 20)
    except OSError:
        return position
    whole = text[: text.rfind(b"\n") + 1]
    for line in whole.decode(errors="replace").splitlines():
        out(f"{prefix}{line}")
    return position + len(whole)


def version() -> None:
    """The mill's version."""
    out(VERSION)
