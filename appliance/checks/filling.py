"""The checks of `doctor` about disks that fill up, from the running monitor's history."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from appliance.checks.startup import Check, CheckLevel
from monitor.state.filling import DAYS_WARNING
from monitor.state.levels import DAY_MS

GIB = 1 << 30
REMEDY = (
    "free disk space, or shorten retention.ms of the topics or `keep: {mysql: …}` of the metrics;"
    " docs/sizing.md says how much space each takes"
)


def disks(rows: Iterable[Mapping[str, Any]]) -> Iterator[Check]:
    """Yield a check for each row of the monitor's `/api/v1/disks` that has an estimate.

    A disk whose history is too short for an estimate gets no check.
    """
    for row in rows:
        pace = row["bytes_a_day"]
        if pace is None:
            continue
        what = f"free space on the disk of {row['disk']}"
        seen = f"over the last {row['seen_ms'] / DAY_MS:.1f} days"
        days = row["days_left"]
        if days is None:
            yield Check(CheckLevel.OK, what, f"did not shrink {seen}")
            continue
        taken = f"shrank by {pace / GIB:,.2f} GiB a day {seen}"
        if days >= DAYS_WARNING:
            found = f"{taken}; at this pace the disk is full in {days:,.0f} days"
            yield Check(CheckLevel.OK, what, found)
        else:
            found = f"{taken}; at this pace the disk is full in {days:,.1f} days"
            yield Check(CheckLevel.WARNING, what, found, REMEDY)
