"""The lines that were not counted, as the stream and MySQL report them."""

from typing import Any

from monitor.state.snapshot import Snapshot


def not_counted(snapshot: Snapshot) -> dict[str, Any]:
    """Return which lines were not counted. The counts are MySQL's since the first run or, if MySQL
    does not answer, the stream's since its start.
    """
    mysql, stream = snapshot.part("mysql"), snapshot.part("stream")
    keys = ("lines_unparsed", "lines_set_aside", "metric_faults")
    if mysql is not None and mysql.answered_at_ms is not None and keys[0] in mysql.details:
        rows = mysql.details.get("unparsed")
        told = {key: mysql.details.get(key) for key in keys}
        return {**told, "known": True, "rows": rows if isinstance(rows, list) else []}
    rows = stream.details.get("unparsed") if stream is not None else None
    return {
        **dict.fromkeys(keys),
        "known": False,
        "rows": rows if isinstance(rows, list) else [],
    }
