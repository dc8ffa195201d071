"""The checks of `doctor` about changes of the cluster, from the running monitor's advice."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from appliance.checks.startup import Check, CheckLevel

NAMES = {
    "move_stands": "moves of replicas",
    "no_room_to_copy": "room for copies",
    "throttle_left": "throttle of copies",
    "racks_doubled": "racks",
    "two_voters": "voters",
    "one_voter": "voters",
    "level_not_finalised": "upgrade",
    "broker_gone": "brokers",
    "uneven": "placement",
}
"""The name of the check for each code of the monitor's advice."""

NOTES = frozenset({"level_not_finalised", "uneven"})
"""The codes of advice that is not urgent. They are reported too, with the command to run."""


def advice(rows: Iterable[Mapping[str, Any]]) -> Iterator[Check]:
    """Yield a check for each piece of advice in the monitor's `/api/v1/changes`."""
    for row in rows:
        for one in row["advice"]:
            level = CheckLevel.OK if one["code"] in NOTES else CheckLevel.WARNING
            yield Check(level, NAMES.get(one["code"], "cluster"), one["text"], one["remedy"])
