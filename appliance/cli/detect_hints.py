"""Names the files that `millrace detect` should examine, as reported by the collector and the
stream."""

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Any

from appliance.cli import context
from appliance.output import counted
from protocol.status import StatusUnavailable, fetch_status

TIMEOUT_S = 2.0
HEALTHY = ("healthy", "degraded")
WRONG_FORMAT = "format:"
"""The prefix of the reasons of lines that do not have the format of their input."""


def detect_hints(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one sentence for each kind of such files, with the command to type.

    A part that does not answer is left out.
    """
    hints: list[str] = []
    for row in rows:
        if row["part"] in ("collector", "stream") and row["state"] in HEALTHY:
            host, _, port = str(row["address"]).rpartition(":")
            try:
                details = fetch_status(host, int(port), TIMEOUT_S).details
            except (StatusUnavailable, ValueError):
                continue
            hints += unmatched_hints(details)
            hints += not_parsed_hints(details)
    return hints


def unmatched_hints(details: Mapping[str, object]) -> Iterator[str]:
    """Yield a sentence about files in the watched folder that no input matches.

    `details` is the collector's status.
    """
    files, total = details.get("unmatched"), details.get("unmatched_total")
    if isinstance(files, list) and files and isinstance(total, int):
        verb = "matches" if total == 1 else "match"
        command = context.typed(f"detect {quote(str(files[0]))}")
        yield (
            f"{counted(total, 'file')} in watched/ {verb} no input, so nothing of it is read:"
            f" `{command}` proposes an input"
        )


def not_parsed_hints(details: Mapping[str, object]) -> Iterator[str]:
    """Yield a sentence about the file with the most lines that do not have their input's format.

    `details` is the stream's status.
    """
    found = details.get("unparsed")
    rows = [
        row
        for row in (found if isinstance(found, list) else [])
        if str(row.get("reason")).startswith(WRONG_FORMAT)
    ]
    if rows:
        most = max(rows, key=lambda row: row.get("count") or 0)
        path = watched_path(str(most.get("file")))
        said = str(most.get("reason")).removeprefix(WRONG_FORMAT)
        command = context.typed(f"detect {quote(path)}")
        yield (
            f"{counted(most.get('count') or 0, 'line')} of {path} are not {said}, since the"
            f" stream's start: `{command}` names their format"
        )


def watched_path(key: str) -> str:
    """Return the path of a file from the key of its records."""
    return key if key.startswith("/") else f"watched/{key}"
