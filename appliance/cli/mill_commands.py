"""The commands for the whole mill: up, down, restart, start, stop."""

import math
import time
from collections.abc import Collection
from typing import Annotated, Any

import typer

from appliance.checks import hosts, startup
from appliance.checks.redis_version import redis_version
from appliance.checks.startup import CheckLevel
from appliance.cli import context
from appliance.cli.foreground import stay_in_front
from appliance.cli.hosts_left import controller_of, hosts_round
from appliance.cli.judging import judge, judge_expressions
from appliance.cli.leaving import refuse_leaving_brokers, refuse_moving_brokers
from appliance.cli.needed import refuse_needed_broker
from appliance.cli.options import EnvelopeOption
from appliance.cli.other_hosts import silent_hosts
from appliance.cli.progress import progress_line, waiting
from appliance.cli.summary import summary
from appliance.config.load import LoadedConfig, load
from appliance.mill.home import Home
from appliance.mill.host_secrets import initialise_mill
from appliance.mill.parts import BROKER_PREFIX, broker_names
from appliance.mill.settings import Mill
from appliance.operate import lifecycle, starting
from appliance.operate.lifecycle import MillProgress
from appliance.output import CommandError, Exit, say, tell
from appliance.supervisor import control
from appliance.supervisor.changes import Differences, differences
from protocol.status import StatusUnavailable, fetch_status

UP_TIMEOUT_S = 300.0
DOWN_TIMEOUT_S = 300.0
STATUS_TIMEOUT_S = 2.0

LISTENER_SHUT = "listener_shut"
"""The code of a broker's problem: it has not opened a listener."""

TimeoutOption = Annotated[float, typer.Option("--timeout", help="Seconds to wait.", min=0.1)]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Also if writes to topics stop without this broker.")
]
PartArgument = Annotated[str, typer.Argument(help="broker-1, collector, stream, …")]


def _text_of(verb: str, progress: MillProgress) -> str:
    text = f"{verb} {progress.done}/{progress.of}"
    return f"{text}, waiting for {progress.waiting_for}" if progress.waiting_for else text


def up(
    foreground: Annotated[
        bool,
        typer.Option("--foreground/--detach", help="Stay in the foreground and print the logs."),
    ] = False,
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Apply the changed file, and restart the parts concerned."),
    ] = False,
    timeout: TimeoutOption = UP_TIMEOUT_S,
    as_json: EnvelopeOption = False,
) -> None:
    """Start the mill and wait until it is healthy; if it runs, start the parts that do not."""
    if foreground:
        stay_in_front(context.home(), lambda: _up(apply, timeout, as_json), down)
    else:
        _up(apply, timeout, as_json)


def _up(apply: bool, timeout: float, as_json: bool) -> None:
    mill, loaded = context.load_mill()
    _up_with(mill, loaded, apply, timeout, as_json)


def _up_with(mill: Mill, loaded: LoadedConfig, apply: bool, timeout: float, as_json: bool) -> None:
    """Start the mill with the configuration that was already read. The file is not read again."""
    from appliance.checks.keeps import deletions

    home = mill.home
    for note in (*loaded.notes, *deletions(mill)):
        say(f"millrace: {note}")
    began = time.monotonic()
    runs_already = lifecycle.is_running(home)
    other = Differences()
    if runs_already:
        mill, other = _bring_up_to_date(mill, loaded, apply)
    else:
        _start(mill, loaded)
    for text in silent_hosts(mill):
        say(f"millrace: {text}")
    found = _wait_healthy(home, timeout, "starting")
    if other and not apply:
        say(f"{home.config_file} has changed: {other} with `./millrace up --apply`")
    elif problem := found.get("config_problem"):
        say(f"millrace: {problem}")
    for text in (*_shut_listeners(mill), *map(str, redis_version(mill))):
        say(f"millrace: {text}")
    is_as_it_was = runs_already and not (other and apply)
    seconds = time.monotonic() - began
    words = "the mill runs already" if is_as_it_was else f"the mill is up ({seconds:.1f} s)"
    data = {
        "ran_before": runs_already,
        "differs": str(other) if other and not apply else None,
        "elapsed_s": round(seconds, 1),
        "parts": found["parts"],
    }
    tell("\n".join([words, *summary(mill)]), "up/1", data, as_json)


def _shut_listeners(mill: Mill) -> list[str]:
    """Return the reasons for which brokers have not opened a listener, each once."""
    if not mill.config.network.login or mill.config.cluster.hosts is not None:
        # On several hosts the listener opens as soon as the main host has written its user.
        return []
    found: dict[str, None] = {}
    for part in mill.parts:
        if part.name.startswith(BROKER_PREFIX):
            try:
                status = fetch_status(part.host, part.port, STATUS_TIMEOUT_S)
            except StatusUnavailable:
                continue
            found |= {one.text: None for one in status.problems if one.code == LISTENER_SHUT}
    return list(found)


def _start(mill: Mill, loaded: LoadedConfig) -> None:
    """Start the supervisor, unless the configuration or the machine has a fault."""
    judge_expressions(mill, loaded)
    try:
        with waiting("starting the supervisor"):
            starting.start(mill, loaded.data)
    except starting.StartRefused as error:
        for check in error.checks:
            say(f"millrace: {check}")
        raise CommandError("nothing was started") from error
    except lifecycle.StartFailed as error:
        raise CommandError(str(error)) from error


def _bring_up_to_date(mill: Mill, loaded: LoadedConfig, apply: bool) -> tuple[Mill, Differences]:
    """Let a running mill check its configuration file and, with `apply`, apply it.

    Returns the mill as it runs afterwards, and the differences between the former configuration and
    the file.
    """
    home = mill.home
    control.ask(home.socket, {"command": "look"})
    started = Mill.of(home, load(home.started_config, home.folder).config)
    # The data folder can be that of an earlier version, which made fewer secrets.
    initialise_mill(home, started.config, started.placement)
    other = differences(started, mill)
    # A key that no part uses at its start changes no part, and the file must still be applied.
    has_changed = home.started_config.read_bytes() != loaded.data
    has_ended = lifecycle.snapshot(home).get("round_ended")
    if apply and (other or has_changed or has_ended):
        refuse_what_cannot_run(mill, loaded, started)
        refuse_leaving_brokers({*broker_names(started.config)} - {*broker_names(mill.config)})
        refuse_moving_brokers(started.config, mill.config)
        answer = control.ask(home.socket, {"command": "apply", "sha256": mill.sha256})
        if not answer["ok"]:
            raise CommandError(f"nothing was changed: {answer['error']}")
        if other:
            say(str(other))
        elif has_ended:
            say("now the brokers restart that still have the previous configuration")
        else:
            say("the changed file is applied; no part had to restart")
    for entry in lifecycle.snapshot(home)["parts"]:
        if entry["state"] in ("failed", "stopped"):
            control.ask(home.socket, {"command": "restart", "part": entry["part"]})
    return (started if other and not apply else mill), other


def refuse_what_cannot_run(mill: Mill, loaded: LoadedConfig, started: Mill | None) -> None:
    """Refuse a file that the parts would reject, while they still run with the former
    configuration."""
    judge(mill, loaded)
    found = [*hosts.rows(mill), *startup.data_ownership(mill), *startup.network(mill)]
    if started is not None:
        found.extend(hosts.change(started, mill))
        ours = {port for part in started.parts for _, port in part.ports}
        found.extend(startup.ports(mill, leaving_out=ours))
    failed = [check for check in found if check.level is CheckLevel.FAILED]
    for check in failed:
        say(f"millrace: {check}")
    if failed:
        raise CommandError("nothing was changed")


def _wait_healthy(
    home: Home, timeout: float, verb: str, parts: Collection[str] | None = None
) -> dict[str, Any]:
    try:
        with progress_line() as line:
            return lifecycle.wait_healthy(
                home, timeout, lambda progress: line.show(_text_of(verb, progress)), parts
            )
    except TimeoutError as error:
        raise CommandError(f"{error}; `./millrace logs PART` shows more", Exit.TIMEOUT) from error
    except lifecycle.StartFailed as error:
        hint = "`./millrace status` shows the others; `./millrace down` stops them"
        raise CommandError(f"{error}\n{hint}") from error


def down(timeout: TimeoutOption = DOWN_TIMEOUT_S, as_json: EnvelopeOption = False) -> None:
    """Stop the mill cleanly: nothing lost, nothing left running."""
    did_run = _down(timeout)
    words = "the mill is stopped" if did_run else "the mill was not running"
    tell(words, "down/1", {"ran_before": did_run}, as_json)


def _down(timeout: float) -> bool:
    """Stop the mill. Return whether anything was running."""
    try:
        with progress_line() as line:
            return lifecycle.stop(
                context.home(), timeout, lambda progress: line.show(_text_of("stopped", progress))
            )
    except lifecycle.StillStopping as error:
        raise CommandError(f"{error}; the supervisor continues to stop it", Exit.TIMEOUT) from error


def restart(
    parts: Annotated[
        list[str] | None, typer.Argument(metavar="[PART]", help="Only this part.")
    ] = None,
    rolling: Annotated[
        bool,
        typer.Option(
            "--rolling",
            help="Restart the named brokers, or all, one after the other and without an outage.",
        ),
    ] = False,
    force: ForceOption = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", help="Seconds to wait. Default: 300, with --rolling no limit.", min=0.1
        ),
    ] = None,
    as_json: EnvelopeOption = False,
) -> None:
    """Stop and start the mill with the configuration as it is now, or one part as it was."""
    if rolling:
        if force:
            raise CommandError("--rolling and --force exclude each other", Exit.USAGE)
        _restart_in_turns(parts or [], math.inf if timeout is None else timeout, as_json)
        return
    if len(parts or ()) > 1:
        raise CommandError("name one part, or restart brokers with --rolling", Exit.USAGE)
    _restart(parts[0] if parts else None, force, timeout or UP_TIMEOUT_S, as_json)


def _restart(part: str | None, force: bool, timeout: float, as_json: bool) -> None:
    if part is None:
        # Load the configuration first, so that a faulty configuration does not stop a running mill.
        mill, loaded = context.load_mill()
        refuse_what_cannot_run(mill, loaded, None)
        say("the mill is stopped" if _down(DOWN_TIMEOUT_S) else "the mill was not running")
        _up_with(mill, loaded, False, timeout, as_json)
        return
    if not force:
        refuse_needed_broker(context.home(), part, "restarted")
    tell(f"{part} was restarted", "part/1", start_part(part, timeout), as_json)


def _restart_in_turns(names: list[str], timeout: float, as_json: bool) -> None:
    began_s = time.monotonic()
    mill = context.mill_as_it_runs()
    others = hosts_round(mill)
    for text in others.notes if others is not None else ():
        say(f"millrace: {text}")
    rows = restart_in_turns(names, timeout)
    seconds = round(time.monotonic() - began_s, 1)
    lines = [
        f"{', '.join(one['part'] for one in rows)}: restarted one after the other ({seconds} s)"
    ]
    data = {"elapsed_s": seconds, "parts": rows}
    if others is not None:
        lines.append(others.line("./millrace restart --rolling", controller_of(mill)))
        data["other_hosts"] = others.rows
    tell("\n".join(lines), "rolling-restart/1", data, as_json)


def restart_in_turns(names: list[str], timeout: float) -> list[dict[str, Any]]:
    """Restart brokers one after the other, and wait until each of them has restarted.

    Returns the supervisor's rows about them. If `names` is empty, all brokers restart.
    """
    home = context.home()
    answer = control.ask(home.socket, {"command": "restart-in-turns", "parts": names})
    if not answer["ok"]:
        if "unknown" not in answer:
            return _restart_one_by_one(home, names, timeout)
        raise _no_rolling_restart(answer["unknown"], answer["brokers"])
    try:
        found = _wait_healthy(home, timeout, "restarted", names or answer["brokers"])
    except KeyboardInterrupt:
        say("\nthe supervisor continues to restart; run the same command again to follow it")
        raise
    return [one for one in found["parts"] if one["part"] in (names or answer["brokers"])]


def _restart_one_by_one(home: Home, names: list[str], timeout: float) -> list[dict[str, Any]]:
    """Restart brokers under a supervisor of 1.0.0-rc1, which cannot restart them in turns."""
    known = [one["part"] for one in lifecycle.snapshot(home)["parts"]]
    wanted = names or [name for name in known if name.startswith(BROKER_PREFIX)]
    rows: list[dict[str, Any]] = []
    try:
        for name in wanted:
            refuse_needed_broker(home, name, "restarted", has_force=False)
            rows.append(start_part(name, timeout))
    except KeyboardInterrupt:
        done = ", ".join(row["part"] for row in rows) or "no broker"
        say(
            f"\n{done} was restarted; run the same command again to restart the brokers from the"
            " first"
        )
        raise
    return rows


def _no_rolling_restart(unknown: list[str], brokers: list[str]) -> CommandError:
    if not brokers:
        return CommandError(
            "a rolling restart needs three brokers (cluster.brokers), so that others work while one"
            " restarts; `./millrace restart PART` restarts one part",
            Exit.CONDITION,
        )
    found = ", ".join(repr(name) for name in unknown)
    known = ", ".join(brokers)
    return CommandError(f"no broker {found}; --rolling restarts {known}", Exit.NOT_FOUND)


def start(
    part: PartArgument, timeout: TimeoutOption = UP_TIMEOUT_S, as_json: EnvelopeOption = False
) -> None:
    """Start one part of a running mill that was stopped, or has given up."""
    home = context.home()
    entries = {entry["part"]: entry for entry in lifecycle.snapshot(home)["parts"]}
    if part in entries and entries[part]["state"] == "healthy":
        tell(f"{part} runs already", "part/1", entries[part], as_json)
        return
    tell(f"{part} runs", "part/1", start_part(part, timeout), as_json)


def start_part(part: str, timeout: float) -> dict[str, Any]:
    """Start the part again and return the supervisor's row about it."""
    home = context.home()
    if not control.ask(home.socket, {"command": "restart", "part": part})["ok"]:
        raise _no_such_part(home, part)
    found = _wait_healthy(home, timeout, f"starting {part}", [part])
    return next(entry for entry in found["parts"] if entry["part"] == part)


def stop(
    part: PartArgument,
    force: ForceOption = False,
    timeout: TimeoutOption = DOWN_TIMEOUT_S,
    as_json: EnvelopeOption = False,
) -> None:
    """Stop one part of a running mill; it stays stopped until `start`, `restart` or `up`."""
    home = context.home()
    if not force:
        refuse_needed_broker(home, part, "stopped")
    try:
        with waiting(f"stopping {part}"):
            lifecycle.stop_part(home, part, timeout)
    except KeyError as error:
        raise _no_such_part(home, part) from error
    except lifecycle.StillStopping as error:
        raise CommandError(f"{error}; the supervisor continues to stop it", Exit.TIMEOUT) from error
    words = f"{part} is stopped; `./millrace start {part}` starts it"
    tell(words, "part/1", {"part": part, "state": "stopped"}, as_json)


def _no_such_part(home: Home, part: str) -> CommandError:
    known = ", ".join(entry["part"] for entry in lifecycle.snapshot(home)["parts"])
    return CommandError(f"no part {part!r}; there are {known}", Exit.NOT_FOUND)
