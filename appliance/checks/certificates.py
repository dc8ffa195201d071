"""The ends of a mill's certificates, for `doctor`."""

from collections.abc import Iterator
from datetime import datetime

from appliance.checks.startup import Check, CheckLevel
from appliance.mill.certificates import shown
from appliance.mill.settings import Mill


def ends(mill: Mill, now: datetime) -> Iterator[Check]:
    """Report each certificate with its end, and what to do if that is near."""
    if not mill.config.network.open:
        return
    for one in shown(mill.home, mill.config):
        level = CheckLevel.WARNING if one.is_due(now) else CheckLevel.OK
        found = one.fault or f"ends on {one.ends_at:%Y-%m-%d}, in {one.days_left(now)} days"
        remedy = one.remedy if one.is_due(now) else ""
        yield Check(level, f"certificate of {one.owner}", found, remedy)
