"""`lag`: how far readers are behind, from the monitor's snapshot."""

import http.client
import json
import sys
import time
from http import HTTPStatus
from typing import Annotated, Any

import typer

from appliance.cli import context
from appliance.cli.options import EnvelopeOption, EveryOption, every_s
from appliance.cli.other_hosts import refuse_elsewhere
from appliance.cli.rooms import cell
from appliance.config.faults import did_you_mean
from appliance.errors import reason_of
from appliance.mill.monitor_entry import monitor_connection
from appliance.mill.settings import Mill
from appliance.output import (
    CommandError,
    Exit,
    duration_text,
    is_terminal,
    print_json,
    print_table,
    say,
)

ANSWER_BYTES_MAX = 16 << 20
TIMEOUT_S = 10.0

STALE_MS = 30_000
LOOKS_MISSED = 2
"""The number of missed cycles after which the monitor's lags are not used.

One cycle of a large cluster takes some seconds.
"""

Row = dict[str, Any]


def lag(
    groups: Annotated[list[str] | None, typer.Argument(help="Groups; all if left out.")] = None,
    per: Annotated[str, typer.Option("--per", help="partition, topic or group.")] = "group",
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.")] = None,
    as_json: EnvelopeOption = False,
    fail_on: Annotated[
        int | None,
        typer.Option(
            "--fail-on",
            "--fail-above",
            help="Exit with code 3 when a lag is above this number of messages, or unknown.",
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until Ctrl-C.")] = False,
    every: EveryOption = "2s",
) -> None:
    """Show how far every reader lags, from the monitor's latest snapshot."""
    if per not in ("partition", "topic", "group"):
        raise CommandError(f"--per {per}: expected partition, topic or group", Exit.USAGE)
    wait_s = every_s(every)
    mill = context.mill_as_it_runs()
    # The total lag of a group does not show its lag in one topic, so list topics.
    per = "topic" if topic is not None and per == "group" else per
    while True:
        rows, faults, unknown = _rows(mill, per, groups or [], topic)
        if watch and is_terminal() and not as_json:
            sys.stdout.write("\x1b[H\x1b[2J")
        _print(rows, faults, as_json, is_known=unknown is None)
        if fail_on is not None:
            _fail_above(rows, fail_on)
        if unknown is not None:
            if not watch or fail_on is not None:
                raise CommandError(unknown, Exit.CONDITION)
            say(f"millrace: {unknown}")
        if not watch:
            return
        sys.stdout.flush()
        time.sleep(wait_s)


def _rows(
    mill: Mill, per: str, groups: list[str], topic: str | None
) -> tuple[list[Row], list[str], str | None]:
    """Return the rows, the sources that could not be read, and the reason why no lag is known (None
    if lags are known)."""
    answer = ask_monitor(mill, f"/api/v1/lag?per={per}")
    faults = [f"{fault['source']}: {fault['text']}" for fault in answer.get("errors", ())]
    age_ms = round(time.time() * 1000) - answer["ts_ms"]
    if age_ms > STALE_MS + LOOKS_MISSED * mill.config.monitor.refresh_ms:
        # The monitor answers, but its present cycle waits for a disk or a part.
        text = f"no lag is known: the monitor last asked the brokers {duration_text(age_ms)} ago"
        return [], faults, text
    unknown = ": ".join(["no lag is known", *(["; ".join(faults)] if faults else [])])
    if not answer["data"] and answer["kafka_at_ms"] != answer["ts_ms"]:
        # If brokers did not answer in the monitor's last cycle, a missing group can still exist.
        return [], faults, unknown
    known = {str(row["group"]) for row in answer["data"]}
    unlisted = {} if per == "group" else _unlisted(mill, known)
    known |= unlisted.keys()
    if missing := [name for name in groups if name not in known]:
        there = ", ".join(sorted(known)) or "none yet"
        close = did_you_mean(missing[0], sorted(known))
        text = (
            f"group {missing[0]!r} has committed no offset; groups with committed offsets: "
            f"{there}{close}"
        )
        raise CommandError(text, Exit.NOT_FOUND)
    for name, is_unknown in unlisted.items():
        if is_unknown and name in (groups or unlisted):
            return [], faults, f"{name}: lag unknown"
    rows = [row for row in answer["data"] if not groups or row["group"] in groups]
    if topic is not None:
        rows = [row for row in rows if row.get("topic") == topic]
        if not rows:
            readers = ", ".join(groups) or "any group"
            text = f"there is no committed offset of {readers} for topic {topic!r}"
            raise CommandError(text, Exit.NOT_FOUND)
    has_lag = not rows or any(row.get("lag") is not None for row in rows)
    return rows, faults, None if has_lag else unknown


def _unlisted(mill: Mill, listed: set[str]) -> dict[str, bool]:
    """Return the groups that have no row for a partition. The value says whether some partitions of
    the group are unknown."""
    totals = ask_monitor(mill, "/api/v1/lag?per=group")["data"]
    return {
        str(one["group"]): one["known"] != one["partitions"]
        for one in totals
        if one["group"] not in listed
    }


def _print(rows: list[Row], faults: list[str], as_json: bool, *, is_known: bool) -> None:
    if as_json:
        print_json("lag/1", rows, faults)
        return
    if not rows:
        if is_known:
            say("no group has committed anything yet")
        return
    heads = [head for head in rows[0] if head not in _FOR_PROGRAMS]
    right = frozenset(
        place
        for place, head in enumerate(heads)
        if any(isinstance(row[head], int | float) for row in rows)
    )
    table = [[_shown(head, row[head]) for head in heads] for row in rows]
    print_table([_HEADS.get(head, head.upper()) for head in heads], table, right=right)
    # If no lag is known, the error message already names the faults.
    for fault in faults if is_known else ():
        say(f"millrace: {fault}")


_FOR_PROGRAMS = frozenset({"looked_at_ms"})
"""Columns for programs that compare times. The table leaves them out."""

_HEADS = {"time_lag_ms": "TIME_LAG", "eta_s": "ETA"}


def _shown(head: str, value: object) -> str:
    """Format a duration for people. Return every other value unchanged."""
    if isinstance(value, int | float) and head in _HEADS:
        return duration_text(value if head == "time_lag_ms" else value * 1000)
    return cell(value)


def _fail_above(rows: list[Row], limit: int) -> None:
    for row in rows:
        value = row.get("lag")
        is_whole = row.get("known") == row.get("partitions")
        if not isinstance(value, int) or not is_whole or value > limit:
            found = "unknown" if not isinstance(value, int) or not is_whole else str(value)
            raise CommandError(f"{_subject(row)}: lag {found}, expected ≤ {limit}", Exit.CONDITION)


def _subject(row: Row) -> str:
    """Return what a row is about: a group, and its topic or partition if it has one."""
    if "topic" not in row:
        return str(row["group"])
    partition = f"-{row['partition']}" if "partition" in row else ""
    return f"{row['group']}, {row['topic']}{partition}"


def ask_monitor(mill: Mill, path: str) -> dict[str, Any]:
    """Return one answer of the monitor's API."""
    refuse_elsewhere("the monitor", mill)
    part = mill.part("monitor")
    assert part is not None, "every main host has a monitor"
    return ask_monitor_at(part.address, path, TIMEOUT_S)


def ask_monitor_at(address: str, path: str, timeout_s: float) -> dict[str, Any]:
    """Return one answer of the API of the monitor at this address. Raises CommandError."""
    connection = monitor_connection(context.home(), address, timeout_s)
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        answer = connection.getresponse()
        if answer.status != HTTPStatus.OK:
            text = f"the monitor answered {answer.status} {answer.reason}"
            raise CommandError(text, Exit.FAILED)
        value = json.loads(answer.read(ANSWER_BYTES_MAX))
    except (OSError, ValueError, http.client.HTTPException) as error:
        text = f"the monitor at {address} gives no answer: {reason_of(error)}"
        raise CommandError(context.not_answered(text), Exit.UNREACHABLE) from error
    finally:
        connection.close()
    if not isinstance(value, dict):
        raise CommandError(
            "the monitor's answer is not a JSON object; `./millrace logs monitor` can show why"
        )
    return value
