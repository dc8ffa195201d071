"""The checks of `doctor` about disks that fill up, from the running monitor's history."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from appliance.checks.startup import Check, CheckLevel
from monitor.state.filling import DAYS_WARNING
from monitor.state.levels import DAY_MS

GIB = 1 << 30
REMEDY = (
    "make room, or keep less: retention.ms of the topics, `keep: {mysql: …}` of the metrics;"
    " docs/sizing.md says what takes how much"
)


def disks(rows: Iterable[Mapping[str, Any]]) -> Iterator[Check]:
    """Yield a check for each row of the monitor's `/api/v1/disks` that has an estimate.

    A disk whose history is too short for an estimate gets no check.
    """
    for row in rows:
        pace = row["bytes_a_day"]
        if pace is None:
            continue
        what = f"room on the disk of {row['disk']}"
        seen = f"in the {row['seen_ms'] / DAY_MS:.1f} days of its history"
        days = row["days_left"]
        if days is None:
            yield Check(CheckLevel.OK, what, f"has not become less {seen}")
            continue
        taken = f"{pace / GIB:,.2f} GiB a day went {seen}"
        if days >= DAYS_WARNING:
            yield Check(CheckLevel.OK, what, f"{taken}; it lasts {days:,.0f} days like these")
        else:
            found = f"{taken}; the disk is full after {days:,.1f} more days like these"
            yield Check(CheckLevel.WARNING, what, found, REMEDY)
