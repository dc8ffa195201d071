"""`millrace broker turns`: wait until a broker may restart, and say in which order brokers restart.

In containers no supervisor restarts the brokers. `bin/compose-roll` does it with compose, and asks
this command before each restart. The conditions are those of `restart --rolling`.
"""

import asyncio
import time
from typing import Annotated

import typer

from appliance.cli import context
from appliance.cli.options import EnvelopeOption
from appliance.cli.progress import progress_line
from appliance.mill.parts import BROKER_PREFIX, Part, local_broker_ids
from appliance.mill.settings import Mill
from appliance.output import CommandError, Exit, out, print_json
from appliance.supervisor.copies import readiness
from appliance.supervisor.effects import ProbeResult, Readiness
from appliance.supervisor.probes import probe
from appliance.supervisor.turns import LOOK_EVERY_MS, RestartTurns


def turns(
    brokers: Annotated[
        list[str] | None,
        typer.Argument(metavar="[BROKER]...", help="Only these, such as broker-2; default: all."),
    ] = None,
    as_json: EnvelopeOption = False,
) -> None:
    """Wait until a broker may restart, and print the brokers in the order of their restarts.

    All brokers must be healthy, and every replica in sync. The active controller restarts last. If
    the brokers are on several hosts, only the broker of this host is printed.
    """
    mill = context.mill_as_it_runs()
    own = local_broker_ids(mill.config, mill.placement)
    known = tuple(f"{BROKER_PREFIX}{number}" for number in own)
    for name in brokers or ():
        if name not in known:
            expected = f"one of {', '.join(known)}" if known else "none: the cluster is elsewhere"
            raise CommandError(f"no broker {name!r}, expected {expected}", Exit.NOT_FOUND)
    controller = _wait(mill, [part for part in mill.parts if part.name in known])
    order = sorted(brokers or known, key=lambda name: name == controller)
    if as_json:
        print_json("broker-turns/1", {"order": order, "controller": controller})
        return
    for name in order:
        out(name)


def _wait(mill: Mill, parts: list[Part]) -> str | None:
    """Wait until a broker may restart. Return the active controller. Raises CommandError if nothing
    has become better for five minutes."""
    round_of_turns = RestartTurns()
    names = tuple(part.name for part in parts)
    with progress_line() as line:
        while True:
            now_ms = time.monotonic_ns() // 1_000_000
            for asked in round_of_turns.look(names, now_ms):
                ready = _readiness(mill, parts)
                if round_of_turns.found(asked.number, ready, now_ms):
                    return ready.controller
            if round_of_turns.is_over:
                raise CommandError(
                    f"no broker may restart: still waiting for {round_of_turns.waits_for};"
                    f" `{context.typed('broker describe')}` shows the partitions",
                    Exit.CONDITION,
                )
            line.show(f"waits for {round_of_turns.waits_for}")
            time.sleep(LOOK_EVERY_MS / 1000)


def _readiness(mill: Mill, parts: list[Part]) -> Readiness:
    """Return whether all brokers are healthy, and how many partitions are out of sync."""

    async def ask_all() -> list[tuple[ProbeResult, str]]:
        return await asyncio.gather(*(probe(part, mill.home) for part in parts))

    for part, (answer, reason) in zip(parts, asyncio.run(ask_all()), strict=True):
        if answer is not ProbeResult.OK:
            return Readiness(None, f"{part.name} ({reason})")
    return readiness({part.name: (part.host, part.port) for part in parts})
