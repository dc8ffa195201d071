"""`millrace collector dead-letters`: what could not be sent as a line, where it stands, and why."""

import base64
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli.cluster import BootstrapOption, servers
from appliance.cli.output import print_json, print_table, say, utc_text
from appliance.cli.rooms import JsonOption, cell_or_dash
from collector.config import DEAD_LETTERS_TOPIC

if TYPE_CHECKING:
    from appliance.kafka.consume import ReadRecord

CONNECT_TIMEOUT_MS = 10_000
SHOWN_BYTES = 60


def dead_letters(
    file: Annotated[
        str | None,
        typer.Option("--file", help="Only of this file: its path, the end of it, or a glob."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Only from then on: 1h (ago), or 2026-08-01T10:00Z."),
    ] = None,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = None,
) -> None:
    """What could not be sent as a line: the reason, the file, the place in it, the first bytes."""
    from appliance.kafka.consume import Begin, Beginning, Wanted, read
    from appliance.kafka.moments import moment_ms
    from appliance.kafka.session import open_cluster, run

    start = Beginning(Begin.START)
    wanted = Wanted(
        topics=(DEAD_LETTERS_TOPIC,),
        beginning=start if since is None else Beginning(Begin.TIME, moment_ms(since)),
        isolation_level=1,
        ends=True,
    )
    found: list[dict[str, Any]] = []

    def take(one: "ReadRecord") -> None:
        row = row_of(one)
        if file is None or is_of(row["file"], file):
            found.append(row)

    async def work() -> None:
        async with open_cluster(servers(bootstrap), timeout_ms=CONNECT_TIMEOUT_MS) as cluster:
            await read(cluster, wanted, take)

    run(work())
    found.sort(key=lambda row: (row["timestamp_ms"], row["partition"], row["record_offset"]))
    if as_json:
        print_json("collector-dead-letters/1", found)
        return
    heads = ["timestamp", "reason", "file", "offset", "length", "topic", "first_bytes"]
    if found:
        print_table(
            [head.upper() for head in heads],
            [[cell_or_dash(row[head]) for head in heads] for row in found],
            right=frozenset({3, 4}),
        )
    say(f"{len(found)} dead letters")


def row_of(one: "ReadRecord") -> dict[str, Any]:
    """A dead letter as a row; its value in base64, since it may be no text."""
    record = one.record
    headers = {name: value or b"" for name, value in record.headers}
    value = record.value or b""
    return {
        "timestamp": utc_text(record.timestamp_ms),
        "timestamp_ms": record.timestamp_ms,
        "reason": _text(headers.get("reason")),
        "topic": _text(headers.get("topic")),
        "file": _text(headers.get("file")),
        "offset": _number(headers.get("offset")),
        "length": _number(headers.get("length")),
        "partition": record.partition,
        "record_offset": record.offset,
        "first_bytes": value[:SHOWN_BYTES].decode(errors="backslashreplace"),
        "value_base64": base64.b64encode(value).decode(),
    }


def is_of(path: str | None, wanted: str) -> bool:
    """Whether a file is meant by a path, the end of one, or a glob."""
    if path is None:
        return False
    return path == wanted or path.endswith(f"/{wanted}") or fnmatch(path, wanted)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")


def _number(value: bytes | None) -> int | None:
    return int(value) if value is not None and value.isdigit() else None
