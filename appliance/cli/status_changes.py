"""Prints the brokers and the changes of the cluster for `status`, as the monitor knows them."""

from collections.abc import Mapping, Sequence
from typing import Any

from appliance.output import CommandError, print_table, say, size_text

TIMEOUT_S = 2.0
"""The time in seconds for the monitor's answer. `status` must not wait for a monitor that hangs."""

MOVES_SHOWN_MAX = 10

SAID_BY_OPERATION = "level_not_finalised"
"""The code of advice that is not printed if an operation in progress already says the same."""

Changes = Mapping[str, Any]


def ask_changes(rows: Sequence[Mapping[str, Any]]) -> Changes | None:
    """Return the monitor's `/api/v1/changes`; None if the monitor does not answer. `rows` are the
    parts."""
    monitor = next((row for row in rows if row["part"] == "monitor"), None)
    if monitor is None or monitor["state"] not in ("healthy", "degraded"):
        return None
    from appliance.cli.lag_command import ask_monitor_at

    try:
        data = ask_monitor_at(monitor["address"], "/api/v1/changes", TIMEOUT_S)["data"]
    except (CommandError, KeyError):
        # An older monitor does not have this address.
        return None
    return data[0] if data else None


def print_changes(changes: Changes | None) -> None:
    """Print the brokers of a cluster, the operations in progress, and what the user must do.

    For a single broker without operations, no table of brokers is printed.
    """
    if changes is None:
        return
    if len(changes["brokers"]) > 1 or changes["operations"]:
        print_table(
            BROKER_HEADS, [_broker(row) for row in changes["brokers"]], right=frozenset({4, 5})
        )
    moves = changes["moves"]["list"][:MOVES_SHOWN_MAX]
    if moves:
        print_table(MOVE_HEADS, [_move(row) for row in moves], right=frozenset({2, 3}))
        if (more := changes["moves"]["count"] - len(moves)) > 0:
            say(f"millrace: {more} more moves are under way; `./millrace reassign list` shows all")
    for one in changes["operations"]:
        commands = "; ".join(f"`{row['command']}` {row['does']}" for row in one["commands"])
        say(f"millrace: under way: {one['text']}. {commands}")
    for one in changes["advice"]:
        if one["code"] != SAID_BY_OPERATION:
            say(f"millrace: {one['text']}: {one['remedy']}")


BROKER_HEADS = (
    "BROKER",
    "STATE",
    "RACK",
    "QUORUM",
    "LEADS",
    "REPLICAS",
    "LEVEL",
    "VERSION",
    "NOTE",
)
MOVE_HEADS = ("PARTITION", "REPLICAS", "TO_COPY", "RATE", "TIME_LEFT_OR_REASON")


def _broker(row: Mapping[str, Any]) -> list[str]:
    lag = row["quorum_lag"]
    quorum = row["role"] or "-"
    if row["role"] in ("voter", "observer"):
        quorum += ", lag unknown" if lag is None else f", {lag} behind"
    level = "-"
    if row["finalised_level"] is not None:
        level = f"{row['finalised_level']} of {row['oldest_level']} to {row['newest_level']}"
    notes = [row["leaving"], f"copies {row['copies']} replicas" if row["copies"] else None]
    if row["copies_queued"]:
        notes.append(f"{row['copies_queued']} of them in the queue")
    if row["out_of_room"]:
        notes.append("copies pause, because the disk is nearly full")
    return [
        str(row["node_id"]), row["state"], row["rack"] or "-", quorum, str(row["leads"]),
        str(row["replicas"]), level, row["version"] or "-", "; ".join(filter(None, notes)),
    ]  # fmt: skip


def _move(row: Mapping[str, Any]) -> list[str]:
    from appliance.cli.reassign_throttle import rate_text

    change = [*(f"+{one}" for one in row["adding"]), *(f"-{one}" for one in row["removing"])]
    is_stopped = row["waits"] is not None or row["rate_bytes_s"] is None
    return [
        f"{row['topic']}-{row['partition']}",
        " ".join(change),
        ("~" if row["to_go_is_estimate"] else "") + size_text(row["to_go_bytes"]),
        "-" if is_stopped else rate_text(row["rate_bytes_s"]),
        row["says"],
    ]
