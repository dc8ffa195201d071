"""Checks the collector of a host that has joined a mill. No supervisor runs there."""

from collections.abc import Iterator

from appliance.checks.startup import Check, CheckLevel, ports
from appliance.mill.settings import Mill
from protocol.status import StatusUnavailable, fetch_status

WHAT = "collector"
STATUS_TIMEOUT_S = 2.0


def collector(mill: Mill, name: str) -> Iterator[Check]:
    """Report the problems of the running collector. If none of this name answers, check that its
    port is free."""
    part = mill.part(WHAT)
    if part is None:
        remedy = "write there which files the collector reads"
        yield Check(
            CheckLevel.WARNING, WHAT, "the configuration file has no collector.inputs", remedy
        )
        return
    try:
        found = fetch_status(part.host, part.port, STATUS_TIMEOUT_S)
    except StatusUnavailable:
        found = None
    if found is None or found.details.get("instance") != name:
        yield Check(CheckLevel.OK, WHAT, f"{name} does not run")
        others = [port for one in mill.parts if one != part for _, port in one.ports]
        yield from ports(mill, leaving_out=others)
        return
    if not found.problems:
        yield Check(CheckLevel.OK, WHAT, f"{name} runs")
    for problem in found.problems:
        yield Check(CheckLevel.WARNING, WHAT, problem.text)
