"""Refuse to stop a broker if partitions would then have too few in-sync replicas for writes."""

import time

from appliance.cli import context
from appliance.mill.home import Home
from appliance.mill.parts import BROKER_PREFIX
from appliance.operate import lifecycle
from appliance.output import CommandError, Exit, say
from appliance.supervisor.copies import ReplicaReport, copies
from appliance.supervisor.effects import PartPhase
from appliance.supervisor.turns import not_in_sync_text

IN_SYNC_WAIT_S = 30.0
"""The time in seconds to wait until replicas are in sync while all brokers are up."""

LOOK_EVERY_S = 0.5


def refuse_needed_broker(home: Home, part: str, verb: str, *, has_force: bool = True) -> None:
    """Raise CommandError if partitions would have too few in-sync replicas without this part.
    `has_force` is True if the command has the option `--force`.

    If all brokers are up, replicas are catching up, so this function waits for them first. A broker
    that is not healthy can be stopped at any time. Raises NoSupervisor.
    """
    deadline = time.monotonic() + IN_SYNC_WAIT_S
    has_said = False
    while True:
        states = {
            entry["part"]: entry
            for entry in lifecycle.snapshot(home)["parts"]
            if entry["part"].startswith(BROKER_PREFIX)
        }
        if part not in states or states[part]["state"] != PartPhase.HEALTHY:
            return
        if len(states) == 1 and context.mill_as_it_runs().config.cluster.hosts is None:
            return
        healthy = [name for name, one in states.items() if one["state"] == PartPhase.HEALTHY]
        found = copies({name: _address(states[name]["address"]) for name in healthy})
        if found is None or part not in found.needed:
            return
        away = [name for name in states if name not in healthy]
        if away or time.monotonic() >= deadline:
            text = _refusal(part, verb, found, away)
            raise CommandError(f"{text}, or add --force" if has_force else text, Exit.CONDITION)
        if not has_said:
            say(f"waiting for {not_in_sync_text(found.not_in_sync)}")
            has_said = True
        time.sleep(LOOK_EVERY_S)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def _refusal(part: str, verb: str, found: ReplicaReport, away: list[str]) -> str:
    needed = found.needed[part]
    what = "1 partition has" if needed.count == 1 else f"{needed.count} partitions have"
    if away:
        why = f"{' and '.join(away)} {'does' if len(away) == 1 else 'do'} not run"
        remedy = f"run `./millrace start {away[0]}` first"
    else:
        why = "other replicas are not in sync yet (`./millrace broker describe` shows them)"
        remedy = "try again later"
    return (
        f"{part} was not {verb}: without it {what} too few in-sync replicas for writes "
        f"({needed}), because {why}; {remedy}"
    )
