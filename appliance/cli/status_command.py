"""`status`: the state of every part, from the supervisor and from the parts themselves."""

import sys
import time
from typing import Annotated, Any

import typer

from appliance.cli import context
from appliance.cli.detect_hints import detect_hints
from appliance.cli.options import EnvelopeOption
from appliance.cli.status_changes import ask_changes, print_changes
from appliance.config.faults import ConfigFaults
from appliance.machine.usage import usage_of
from appliance.mill.monitor_entry import monitor_connection
from appliance.operate import lifecycle
from appliance.output import (
    Exit,
    duration_text,
    is_terminal,
    print_json,
    print_table,
    say,
    size_text,
)
from appliance.supervisor.control import NoSupervisor
from protocol.status import PartState, StatusUnavailable, fetch_status


def status(
    as_json: EnvelopeOption = False,
    watch: Annotated[bool, typer.Option("--watch", help="Print again every two seconds.")] = False,
) -> None:
    """Show the state of every part; exit code 3 when the mill is not wholly healthy."""
    while True:
        rows, errors = part_rows()
        changes = ask_changes(rows)
        others = _other_hosts(rows)
        told = errors + notices() + detect_hints(rows)
        if watch and is_terminal() and not as_json:
            sys.stdout.write("\x1b[H\x1b[2J")
        if as_json:
            print_json(
                "parts/1", rows, told, changes=changes, **({"hosts": others} if others else {})
            )
        else:
            _print_status(rows, told)
            _print_hosts(others)
            print_changes(changes)
            for text in _opened(rows):
                say(f"millrace: {text}")
        if not watch:
            break
        time.sleep(2.0)
    is_away = not all(row["in_service"] for row in others)
    if errors or is_away or any(row["state"] != "healthy" for row in rows):
        raise typer.Exit(Exit.CONDITION)


def part_rows() -> tuple[list[dict[str, Any]], list[str]]:
    """Return one row per part, and the problems of the mill as a whole."""
    home = context.home()
    if context.in_containers():
        return _container_rows(), []
    try:
        found = lifecycle.snapshot(home)
    except NoSupervisor:
        from appliance.supervisor.children import leftovers

        if lifecycle.is_running(home):
            return [], ["the supervisor is starting or stopping"]
        left = [f"{name} (process {record.pid})" for name, record in leftovers(home).items()]
        if left:
            return [], [
                f"no supervisor runs, but these parts of an earlier run do: {', '.join(left)};"
                " `make up` or `make down` stops them"
            ]
        return [], [context.not_running()]
    rows = _as_they_say([{**entry, **_used(entry["pid"])} for entry in found["parts"]])
    errors = ["the mill is being stopped"] if found["stopping"] else []
    if ended := found.get("round_ended"):
        errors.append(ended)
    if problem := found.get("config_problem"):
        errors.append(problem)
    return rows, errors


def notices() -> list[str]:
    """Return notices for the user that are shown even if all parts are healthy, such as metrics
    that a saved file removed."""
    if context.in_containers():
        return []
    try:
        notice = lifecycle.snapshot(context.home()).get("config_notice")
    except NoSupervisor:
        return []
    return [notice] if notice else []


def _other_hosts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the brokers of other hosts; empty if the mill does not run, or is on one machine."""
    if not rows:
        return []
    from appliance.cli.other_hosts import other_hosts

    try:
        return other_hosts(context.mill_as_it_runs())
    except ConfigFaults:
        # Other messages name the faults of the file.
        return []


def _print_hosts(rows: list[dict[str, Any]]) -> None:
    """Print the brokers of the other hosts, and what to do about those that are away."""
    if not rows:
        return
    table = [[f"broker-{row['broker']}", row["host"], row["state"]] for row in rows]
    print_table(["BROKER", "HOST", "STATE"], table)
    up = context.home().up
    for row in rows:
        if row["is_away"]:
            say(
                f"millrace: broker {row['broker']} on {row['host']} is {row['state']}:"
                f" `{context.typed('status')}` and `{up}` there show why"
            )


def _opened(rows: list[dict[str, Any]]) -> list[str]:
    """Return what the running mill has open to other machines."""
    if not rows:
        return []
    from appliance.checks.opened import WHAT, opened_text

    try:
        text = opened_text(context.mill_as_it_runs())
    except ConfigFaults:
        # Other messages name the faults of the file.
        return []
    return [f"{WHAT}: {text}"] if text else []


def _container_rows() -> list[dict[str, Any]]:
    """Ask every part for its state, because there is no supervisor in containers."""
    import asyncio

    from appliance.supervisor.effects import ProbeResult
    from appliance.supervisor.probes import probe

    mill, _ = context.load_mill()

    async def ask_all() -> list[tuple[ProbeResult, str]]:
        return await asyncio.gather(*(probe(part, mill.home) for part in mill.parts))

    return _as_they_say(
        [
            {
                "part": part.name,
                "state": "healthy" if answer is ProbeResult.OK else "unhealthy",
                "pid": None,
                "address": part.address,
                "restarts": None,
                "uptime_ms": None,
                "last_exit_code": None,
                "reason": reason,
                **_used(None),
            }
            for part, (answer, reason) in zip(mill.parts, asyncio.run(ask_all()), strict=True)
        ]
    )


def _used(pid: int | None) -> dict[str, Any]:
    """Return the memory and CPU time of a part. They are unknown if the part has no process of its
    own on this machine."""
    usage = usage_of(pid)
    if usage is None:
        return {"memory_bytes": None, "cpu_s": None}
    return {"memory_bytes": usage.memory_bytes, "cpu_s": round(usage.cpu_s, 2)}


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
                _note(row),
            ]
            for row in rows
        ]
        heads = ["PART", "STATE", "PID", "UPTIME", "RESTARTS", "MEMORY", "ADDRESS", "NOTE"]
        print_table(heads, table, right=frozenset({2, 3, 4, 5}))
    for error in errors:
        say(f"millrace: {error}")


def _note(row: dict[str, Any]) -> str:
    note = "; it said: ".join(filter(None, (row["reason"], row.get("words"))))
    return f"{note}; {logs_hint(row['part'])}" if row.get("is_stuck") else note


def logs_hint(part: str) -> str:
    """Return a sentence with the command that shows the part's log."""
    logs = "docker compose logs" if context.in_containers() else "./millrace logs"
    return f"`{logs} {part}` shows more"


def _as_they_say(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add to the rows what the parts report about themselves, and which parts the monitor reports
    as stuck."""
    told = [_as_it_says_itself(row) for row in rows]
    stuck: dict[str, str] = {}
    for row in told:
        stuck |= row.pop("stuck_parts", {})
    return [_as_stuck(row, stuck[row["part"]]) if row["part"] in stuck else row for row in told]


def _as_stuck(row: dict[str, Any], text: str) -> dict[str, Any]:
    reason = f"{row['reason']}; {text}" if row["reason"] else text
    state = "degraded" if row["state"] == "healthy" else row["state"]
    return {**row, "state": state, "reason": reason, "is_stuck": True}


def _as_it_says_itself(row: dict[str, Any]) -> dict[str, Any]:
    """Ask a part that the supervisor finds healthy whether it has problems.

    Of the monitor's own problems only `part-stuck` is used here, because a stuck part does not
    report that itself. If the monitor names the part (`stuck_parts`), its row gets the text.
    """
    row = {**row, "is_stuck": False}
    if row["state"] != "healthy" or row["part"] in ("redis", "mysql"):
        return row
    host, _, port = row["address"].rpartition(":")
    own = None
    if row["part"] == "monitor":
        own = monitor_connection(context.home(), row["address"], 2.0)
    try:
        found = fetch_status(host, int(port), 2.0, own)
    except StatusUnavailable:
        return row
    of_others = row["part"] == "monitor"
    named = found.details.get("stuck_parts") if of_others else None
    if isinstance(named, dict) and named:
        return {**row, "stuck_parts": named}
    problems = [one for one in found.problems if not of_others or one.code == "part-stuck"]
    is_degraded = found.state is PartState.DEGRADED and (problems or not of_others)
    state = "degraded" if is_degraded else "healthy"
    reason = "; ".join(problem.text for problem in problems)
    return {**row, "state": state, "reason": row["reason"] or reason}
